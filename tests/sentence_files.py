"""Directories as sentence-transformers writes them, from sentence_files.npz."""

from pathlib import Path

import numpy as np

FIXTURE = Path(__file__).parent / "parity" / "sentence_files.npz"
TEXTS = ["the cat", "a mat sat on the cat", "mat"]
PAIRS = [["the cat", "a mat"], ["a mat sat", "the cat, the mat"], ["the", "mat mat"]]


def stored_arrays(name: str, part: str) -> dict[str, np.ndarray]:
    """The files, or the outputs, of a model."""
    start = f"{name}/{part}/"
    with np.load(FIXTURE) as npz:
        return {n.removeprefix(start): npz[n] for n in npz if n.startswith(start)}


def write_files(name: str, folder: Path) -> Path:
    """Write every file of a model under the name that the library gave it."""
    for place, content in stored_arrays(name, "files").items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.tobytes())
    return folder

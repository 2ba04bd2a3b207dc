"""Files of results: what a measure gave, with one seed."""

import dataclasses
import io
import zipfile
import zlib
from pathlib import Path

import numpy as np

from bert_jax.apps.experiments.bootstrap import Items, ScoreKind
from bert_jax.storage.files import atomic_write

_DAMAGE = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)


@dataclasses.dataclass(frozen=True)
class Result:
    items: Items
    kind: ScoreKind
    seconds: float
    """Wall time since the cell's last start or result, pretraining included."""


def write_result(path: Path, result: Result) -> None:
    """Write a result atomically; make its directory if there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer, items=result.items, kind=result.kind, seconds=result.seconds
    )
    atomic_write(path, buffer.getvalue())


def read_result(path: Path) -> Result:
    """Read a result; raise ValueError if the file is damaged."""
    try:
        with np.load(io.BytesIO(path.read_bytes())) as file:
            kind: ScoreKind = "ratio" if str(file["kind"]) == "ratio" else "perplexity"
            return Result(file["items"], kind, float(file["seconds"]))
    except _DAMAGE as error:
        raise ValueError(
            f"{path} is damaged; remove it, and its measure is made again."
        ) from error

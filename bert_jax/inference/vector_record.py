"""Stored vectors: their file, a record of what they were made by, and its check."""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import numpy as np
from etils import epath

from bert_jax.config.embedding import Embedding
from bert_jax.config.model import Params
from bert_jax.pretrained import Model
from bert_jax.storage.files import (
    JsonObject,
    atomic_file,
    name_path_in_errors,
    read_json_object,
)

JOB = "job.json"
"""In a directory of outputs: what its files were computed by."""
_HEADER_BYTES = 128
"""Of an .npy file."""


def params_fingerprint(params: Params) -> str:
    """Return a hash of all parameters, by their paths."""
    digest = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        digest.update(jax.tree_util.keystr(path).encode())
        digest.update(np.ascontiguousarray(leaf).tobytes())
    return digest.hexdigest()


def vector_record(model: Model, embedding: Embedding, prompt: str | None) -> JsonObject:
    """Return what similarities of a model's vectors depend on, as JSON values."""
    # A cosine does not depend on the vectors' lengths.
    is_dot = embedding.similarity == "dot"
    lengths = {"normalize": embedding.normalize} if is_dot else {}
    return lengths | {
        "model": params_fingerprint(model.params),
        "tokenizer": model.tokenizer.fingerprint,
        "pooling": embedding.pooling,
        "prompt": embedding.prompt_text(prompt),
        "pool_prompt": embedding.pool_prompt,
        "max_tokens": embedding.max_tokens,
    }


def require_same_vectors(
    name: str, vectors: np.ndarray, own: Callable[[], JsonObject]
) -> None:
    """Raise ValueError unless stored vectors can be compared with a model's own.

    Only of a memory map whose file has a record beside it, this is known.
    """
    file = getattr(vectors, "filename", None)
    path = Path(file).parent / JOB if file is not None else None
    if path is None or not path.is_file():
        return
    record = read_json_object(epath.Path(path), "remove it, and make the vectors")
    differs = [field for field, value in own().items() if record.get(field) != value]
    if not differs:
        return
    what = ", ".join(
        field
        if field in ("model", "tokenizer")
        else f"{field} {record.get(field)!r:.60}"
        for field in differs
    )
    raise ValueError(
        f"{name}: {path} says that these vectors were made with another {what}; make "
        "them by this model again, or pass the prompt that they have."
    )


def write_matrix(parts: Iterator[np.ndarray], width: int, path: Path) -> None:
    """Write arrays [N, width] as the rows of one .npy file, float32, atomically.

    One part at a time is in memory. Raise OSError if the file cannot be written.
    """
    num_rows = 0
    with atomic_file(path) as temporary:
        with name_path_in_errors(path):
            file = temporary.open("wb")
        with file:
            file.write(bytes(_HEADER_BYTES))
            for part in parts:  # its errors are not those of the output
                with name_path_in_errors(path):
                    file.write(np.ascontiguousarray(part, "<f4").tobytes())
                num_rows += len(part)
            with name_path_in_errors(path):
                file.seek(0)
                shape = num_rows, width
                fields = {"descr": "<f4", "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(file, fields)
                assert file.tell() == _HEADER_BYTES
                file.flush()

"""A matrix as an .npy file, written a part at a time."""

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bert_jax.storage.files import atomic_file, name_path_in_errors

_HEADER_BYTES = 128


def write_matrix(parts: Iterator[np.ndarray], width: int, path: Path) -> None:
    """Write rows of float32 as an .npy file; one part at a time is in memory.

    The file is written completely or not at all.

    Args:
        parts: arrays [N, width].

    Raises:
        OSError: it cannot be written.
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
                file.write(_header(num_rows, width))
                file.flush()


def _header(num_rows: int, width: int) -> bytes:
    """Return the header of an .npy file of float32 [num_rows, width]."""
    header = io.BytesIO()
    fields = {"descr": "<f4", "fortran_order": False, "shape": (num_rows, width)}
    np.lib.format.write_array_header_1_0(header, fields)
    assert header.tell() == _HEADER_BYTES
    return header.getvalue()

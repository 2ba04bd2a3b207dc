"""A matrix as an .npy file, written a part at a time."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bert_jax.storage.files import atomic_file, name_path_in_errors

_HEADER_BYTES = 128


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

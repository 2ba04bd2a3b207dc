"""A lock of a file that ends with the process, so that one process writes an output."""

import os
from typing import IO


def lock_file(file: IO[str], output: str | os.PathLike[str]) -> None:
    """Lock an open file, until it is closed or the process ends.

    On a file system without locks, and on Windows, nothing is locked. Raise
    FileExistsError if another process, which writes the `output`, has locked the file
    or has removed it.
    """
    try:
        import fcntl
    except ImportError:  # Windows has none
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.fstat(file.fileno()).st_nlink:
            raise BlockingIOError  # the other process ended and removed the lock
    except BlockingIOError as error:
        raise FileExistsError(
            f"output={os.fspath(output)} is being written by another process; wait for "
            "it, or choose another."
        ) from error
    except OSError:
        pass

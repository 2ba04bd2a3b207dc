"""What is asked of files: regular ones to read, and errors that say where to write."""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def require_regular_file(path: str | os.PathLike[str], what: str = "") -> None:
    """Refuse what reading may never end with: a FIFO, a device, a socket.

    Args:
        path: an address in a bucket is taken as it is.
        what: the option or file that named it, for the message.

    Raises:
        FileNotFoundError: there is nothing of this name.
        ValueError: it is no regular file, nor a link to one.
    """
    name = os.fspath(path)
    if "://" in name:
        return
    told = f"{what} {name}".lstrip()
    try:
        mode = os.stat(name).st_mode
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{told} is missing.") from error
    if not stat.S_ISREG(mode):
        kind = "a directory" if stat.S_ISDIR(mode) else "a pipe, device or socket"
        raise ValueError(f"{told} is not a regular file but {kind}; name a file.")


@contextlib.contextmanager
def named_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Have an OSError of the block name `path`, which is being written, and a remedy.

    Raises:
        OSError: with the same number as the block's, a full disk's above all.
    """
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        remedy = "see to it, and give the same command again"
        # NumPy counts what it could not write, and gives no number.
        if error.errno in _FULL or error.errno is None:
            remedy = "free space there, and give the same command again"
        reason = error.strerror or f"{error}, as on a full disk"
        told = f"{os.fspath(path)} cannot be written: {reason}; {remedy}."
        raise OSError(error.errno or errno.ENOSPC, told) from error

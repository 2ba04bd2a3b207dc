"""Write a directory atomically: completely or not at all."""

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator

from etils import epath

from bert_jax.storage.files import (
    name_path_if_disk_full,
    require_no_tilde,
    require_writable,
)


def absolute(path: epath.Path) -> epath.Path:
    """Return the absolute path, as Orbax requires it.

    The path of a bucket stays as it is: epath's own method would make gs://bucket a
    directory `gs:` in the current one. Raise ValueError if it is not UTF-8, since Orbax
    neither writes nor reads there.
    """
    path = path if path.is_absolute() else path.absolute()
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{path} has a name that is not UTF-8, where checkpoints cannot be written "
            "or read; rename the directory, or choose another."
        ) from error
    return path


def is_address(path: str | os.PathLike[str]) -> bool:
    """Whether `path` is in a bucket, for example gs://…, and not on a local disk."""
    return "://" in os.fspath(path)


def local_output(output: str | os.PathLike[str], option: str = "output") -> epath.Path:
    """Return the path of an output that is renamed when it is complete.

    Raise ValueError if it is in a bucket, where nothing is renamed, or begins with ~.
    """
    require_no_tilde(output)
    name = os.fspath(output)
    if is_address(name):
        raise ValueError(
            f"{option}={name} is not a local directory; name one, and copy it to the "
            "bucket when it is complete."
        )
    return epath.Path(name)


def require_empty(output: epath.Path) -> None:
    """Raise FileExistsError if `output` exists, unless it is an empty directory."""
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise FileExistsError(
            f"output={output} exists and is not an empty directory; "
            "remove it or choose another."
        )


def require_new(output: epath.Path) -> None:
    """Raise OSError or ValueError unless `atomic_directory` can make `output`.

    An empty directory is replaced, which a volume's own and the current one cannot be.
    """
    is_mount = os.path.ismount(output)
    if is_mount or (output.is_dir() and os.path.samefile(output, os.curdir)):
        what = "where a volume is mounted" if is_mount else "the current directory"
        raise FileExistsError(
            f"output={output} is {what}, and cannot be replaced; name a directory in "
            "it."
        )
    require_empty(output)
    place = os.path.realpath(output)
    require_writable(os.path.dirname(place) if os.path.isdir(place) else place)


@contextlib.contextmanager
def atomic_directory(output: epath.Path) -> Iterator[epath.Path]:
    """Yield a directory to write into; it becomes `output` if the block succeeds.

    It is beside `output` under a random name. A killed process leaves its directory
    there; later calls neither use nor remove it. Raise ValueError if `output` is in a
    bucket, FileExistsError if it exists and is no empty directory, or OSError, with a
    path, for example if the disk is full.
    """
    require_new(local_output(output))
    # What a link leads to is replaced, and not the link.
    output = epath.Path(os.path.realpath(output))
    new_parents = [path for path in output.parents if not path.exists()]
    # tempfile.mkdtemp makes it private; here the umask decides who may read it.
    unfinished = output.with_name(f"{output.name}.{secrets.token_hex(6)}.unfinished")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        unfinished.mkdir()
        with name_path_if_disk_full(output):
            yield unfinished
            if output.exists():
                output.rmdir()
            unfinished.rename(output)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        for path in new_parents:
            with contextlib.suppress(OSError):  # it was not made, or is used by others
                os.rmdir(path)
        raise

"""A directory that is written whole or not at all."""

import contextlib
import os
import secrets
from collections.abc import Iterator

from etils import epath

from bert_jax.storage.files import name_path_if_disk_full


def absolute(path: epath.Path) -> epath.Path:
    """The path as Orbax takes it. An address stays what it is: epath's own way would
    make of gs://bucket a directory `gs:` in the current one."""
    return path if path.is_absolute() else path.absolute()


def is_address(path: str | os.PathLike[str]) -> bool:
    """Whether `path` lies in a bucket, and not on a disk."""
    return "://" in os.fspath(path)


def local_output(output: str | os.PathLike[str]) -> epath.Path:
    """The path of an output; in a bucket nothing is renamed as a whole.

    Raises:
        ValueError: `output` is an address.
    """
    name = os.fspath(output)
    if is_address(name):
        raise ValueError(
            f"output={name} is not a local directory; name one, and copy it to the "
            "bucket when it is whole."
        )
    return epath.Path(name)


def require_empty(output: epath.Path) -> None:
    """Refuse an output that holds something.

    Raises:
        FileExistsError: `output` is there and not an empty directory.
    """
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise FileExistsError(
            f"output={output} exists and is not an empty directory; "
            "remove it or choose another."
        )


@contextlib.contextmanager
def atomic_directory(output: epath.Path) -> Iterator[epath.Path]:
    """A directory to write into, which becomes `output` if the block succeeds.

    It lies beside `output` under a random name. What a killed process left there under
    another one does no harm, and is not touched.

    Raises:
        ValueError: `output` is an address.
        FileExistsError: `output` is there and not an empty directory.
        OSError: the disk is full, among others; the message names a path.
    """
    require_empty(local_output(output))
    output = absolute(output)
    made = [path for path in output.parents if not path.exists()]
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with name_path_if_disk_full(output), _temporary_directory(output) as unfinished:
            yield unfinished
            if output.exists():
                output.rmdir()
            unfinished.rename(output)
    except BaseException:
        for path in made:
            with contextlib.suppress(OSError):  # another's by now, or never made
                os.rmdir(path)
        raise


@contextlib.contextmanager
def _temporary_directory(output: epath.Path) -> Iterator[epath.Path]:
    """A directory of our own beside `output`; removed if the block fails."""
    # Not tempfile.mkdtemp's: others may read what is made, as the umask has it.
    name = f"{output.name}.{secrets.token_hex(6)}.unfinished"
    directory = output.with_name(name)
    directory.mkdir()  # fails if it is there
    try:
        yield directory
    except BaseException:
        directory.rmtree(missing_ok=True)
        raise

"""A folder that stands for gs://, with what TensorFlow's files refuse there.

A file is opened in a `with` block. While it is written it cannot be read, nor tell or
change its position, and none is appended to (tensorflow/python/lib/io/file_io.py).
Orbax, whose own way to a bucket is in C++, uses the folder directly.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orbax.checkpoint as ocp
from etils import epath

_ORBAX = ("CheckpointManager", "StandardCheckpointHandler", "PyTreeCheckpointHandler")


class PermissionDeniedError(Exception):
    """TensorFlow's error of this name is no OSError either."""


class WrittenFile:
    """What tf's GFile allows in a file that is written."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "wb")  # at once: a missing directory is an error

    def write(self, content: str | bytes) -> None:
        self._file.write(content.encode() if isinstance(content, str) else content)

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def _refuse(self, *_: object, **__: object) -> Any:
        raise PermissionDeniedError("File isn't open for reading")

    seek = tell = read = readline = readlines = __next__ = _refuse

    def seekable(self) -> bool:
        return True  # so it says


class ReadFile:
    """What tf's GFile allows in a file that is read: no `readinto`, no `fileno`."""

    def __init__(self, path: str, mode: str) -> None:
        self._file = open(path, mode, encoding=None if "b" in mode else "utf-8")
        self.read, self.readline = self._file.read, self._file.readline
        self.readlines, self.tell = self._file.readlines, self._file.tell
        self.close = self._file.close

    def seek(self, offset: int, whence: int = 0) -> None:
        self._file.seek(offset, whence)

    def seekable(self) -> bool:
        return True

    def write(self, content: object) -> None:
        raise PermissionDeniedError("File isn't open for writing")

    def __iter__(self) -> Iterator[Any]:
        return iter(self._file)


class Bucket:
    """Stands for epath's way to gs:// by TensorFlow.

    Args:
        folder: where gs://bucket is `bucket`.
        before_write: called with the addresses of each write, before it.
    """

    def __init__(
        self, folder: Path, before_write: Callable[..., None] = lambda *_: None
    ) -> None:
        self.folder, self._before_write = folder, before_write

    def local(self, path: Any) -> str:
        return str(path).replace("gs://", f"{self.folder}/")

    @contextlib.contextmanager
    def open(self, path: str, mode: str) -> Iterator[Any]:
        assert mode in ("r", "rb", "w", "wb"), "an object is written as a whole"
        if "w" in mode:
            self._before_write(path)
            file: Any = WrittenFile(self.local(path))
        else:
            file = ReadFile(self.local(path), mode)
        with contextlib.closing(file):
            yield file

    def mkdir(self, path: str, *, exist_ok: bool = False, mode: Any = None) -> None:
        self.makedirs(path, exist_ok=exist_ok, mode=mode)  # an object needs no parent

    def makedirs(self, path: str, *, exist_ok: bool = False, mode: Any = None) -> None:
        if mode is not None:
            raise NotImplementedError("makedirs with custom `mode=` not supported")
        epath.backend.os_backend.makedirs(self.local(path), exist_ok=exist_ok)

    def __getattr__(self, name: str) -> Any:
        return functools.partial(self._call, name)

    def _call(self, name: str, *arguments: Any, **options: Any) -> Any:
        if name in ("replace", "rename", "copy"):
            self._before_write(*arguments)
        paths = [self.local(a) if isinstance(a, str) else a for a in arguments]
        found = getattr(epath.backend.os_backend, name)(*paths, **options)
        return self._addresses(found) if name in ("walk", "glob") else found

    def _addresses(self, found: Any) -> Iterator[Any]:
        """Yield what is found in the folder, as it is called in the bucket."""
        for entry in found:
            path, *rest = (entry,) if isinstance(entry, str) else entry
            path = path.replace(f"{self.folder}/", "gs://", 1)
            yield (path, *rest) if rest else path


class _OnFolder:
    """An object of Orbax that is given addresses, and uses the folder."""

    def __init__(self, made: Any, bucket: Bucket) -> None:
        self._made, self._bucket = made, bucket

    def __getattr__(self, name: str) -> Any:
        return functools.partial(self._call, getattr(self._made, name))

    def _call(self, method: Any, *arguments: Any, **options: Any) -> Any:
        return method(*[_on_folder(self._bucket, a) for a in arguments], **options)


def _on_folder(bucket: Bucket, argument: Any) -> Any:
    is_path = isinstance(argument, epath.Path)
    return epath.Path(bucket.local(argument)) if is_path else argument


def install(bucket: Bucket, set_attribute: Callable[[Any, str, Any], None]) -> None:
    """Let gs:// lead to the bucket, as on a machine with TensorFlow."""
    set_attribute(epath.backend, "tf_backend", bucket)
    set_attribute(epath.gpath, "_GCS_BACKENDS", frozenset([bucket]))
    set_attribute(epath.gpath, "_is_tf_installed", lambda: True)
    set_attribute(epath.gpath, "_is_zonal_gcs_bucket", lambda _: False)

    def on_folder(make: Any, *arguments: Any, **options: Any) -> Any:
        paths = [_on_folder(bucket, argument) for argument in arguments]
        return _OnFolder(make(*paths, **options), bucket)

    for name in _ORBAX:
        set_attribute(ocp, name, functools.partial(on_folder, getattr(ocp, name)))

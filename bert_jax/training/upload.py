"""Upload a run's local files to a bucket in the background."""

import functools
from concurrent.futures import Future, ThreadPoolExecutor

from etils import epath

from bert_jax.storage.files import name_path_in_errors
from bert_jax.storage.manifest import files_below
from bert_jax.storage.retries import with_retries


class Uploader:
    """Uploads the files of a folder to a bucket; only those that have grown."""

    def __init__(self, folder: epath.Path, target: epath.Path) -> None:
        self._folder = folder
        self._target = target
        self._thread = ThreadPoolExecutor(1)
        self._uploaded_sizes: dict[str, int] = {}

    def start(self) -> Future[None]:
        """Start to upload the present content of the files, which are append-only."""
        names = files_below(self._folder)
        sizes = {name: (self._folder / name).stat().length for name in names}
        return self._thread.submit(self._upload, sizes)

    def _upload(self, sizes: dict[str, int]) -> None:
        for name, size in sizes.items():
            if self._uploaded_sizes.get(name) != size:
                with (self._folder / name).open("rb") as file:
                    content = file.read(size)
                with_retries(functools.partial(self._write, name, content))
                self._uploaded_sizes[name] = size

    def _write(self, name: str, content: bytes) -> None:
        copy = self._target / name
        with name_path_in_errors(copy):
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(content)

    def close(self) -> None:
        """Wait for the uploads that were started."""
        self._thread.shutdown()

"""The command line, with a folder as gs://, where writes fail.

    python bucket_run.py FOLDER FAILURES ARGUMENTS…

The first FAILURES writes after the first whole checkpoint fail, as a connection does.
Orbax, whose own way to a bucket is in C++, writes into the folder directly.
"""

import sys
from pathlib import Path
from typing import Any

import orbax.checkpoint as ocp
from etils import epath

from bert_jax.cli.main import main

ORBAX = ocp.CheckpointManager
RESET = ConnectionResetError(104, "Connection reset by peer")


class Bucket:
    """Stands for epath's way to gs://: a folder, and writes that fail."""

    def __init__(self, folder: Path, failures: int) -> None:
        self.folder = folder
        self.left = failures
        self.first = False

    def local(self, path: Any) -> str:
        return str(path).replace("gs://", f"{self.folder}/")

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            mode = str(options.get("mode", [*arguments, ""][1]))
            if (name == "open" and "w" in mode) or name in ("replace", "copy"):
                self.fail_or_count(arguments)
            found = [self.local(a) if isinstance(a, str) else a for a in arguments]
            given = getattr(epath.backend.os_backend, name)(*found, **options)
            return self.addresses(given) if name in ("walk", "glob") else given

        return call

    def addresses(self, found: Any) -> Any:
        """What is found below the folder, as it is called in the bucket."""
        for entry in found:
            path, *rest = (entry,) if isinstance(entry, str) else entry
            path = path.replace(f"{self.folder}/", "gs://", 1)
            yield (path, *rest) if rest else path

    def fail_or_count(self, arguments: Any) -> None:
        if self.first and self.left:
            self.left -= 1
            print("a write fails", flush=True)
            raise RESET
        self.first = self.first or any("manifest.json" in str(a) for a in arguments)


if __name__ == "__main__":
    bucket = Bucket(Path(sys.argv[1]), int(sys.argv[2]))
    epath.backend.tf_backend = bucket  # type: ignore[assignment]
    epath.gpath._is_tf_installed = lambda: True
    epath.gpath._is_zonal_gcs_bucket = lambda _: False
    ocp.CheckpointManager = lambda directory, options: ORBAX(  # type: ignore[misc]
        epath.Path(bucket.local(directory)), options=options
    )
    sys.exit(main(sys.argv[3:]))

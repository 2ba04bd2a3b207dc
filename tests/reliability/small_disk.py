"""A disk of a few MiB that a test fills: a tmpfs in a user namespace.

Where a machine allows none, processes get a limit of the size of a file instead.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SIZE = 16 << 20
_SCRIPT = 'mount -t tmpfs -o size="$1" tmpfs "$0" && echo ready && exec sleep 3600'


class Disk:
    """A directory that can be full for the processes with its `prefix`."""

    def __init__(self, folder: Path, holder: int | None) -> None:
        """Args:
        holder: process in whose namespace the tmpfs is; None: there is none.
        """
        self.folder = folder
        self._holder = holder
        self._limit: int | None = None

    @property
    def prefix(self) -> tuple[str, ...]:
        """A command before the command of a process that shall see the disk."""
        if self._holder is not None:
            place = ("-U", "-m", "--preserve-credentials", "-t", str(self._holder))
            return ("nsenter", *place, "--")
        if self._limit is not None:
            # Without Python's compiled modules, of which it would keep half.
            whole = ("env", "PYTHONDONTWRITEBYTECODE=1")
            return (*whole, "prlimit", f"--fsize={self._limit}", "--")
        return ()

    @property
    def seen(self) -> Path:
        """Where this process finds what is on the disk."""
        if self._holder is None:
            return self.folder
        return Path(f"/proc/{self._holder}/root{self.folder}")

    def fill(self, free: int) -> None:
        """Leave only so many bytes."""
        if self._holder is None:
            self._limit = free
            return
        filler = self.seen / "filler"
        self.release()
        used = sum(_blocks(path) for path in self.seen.rglob("*"))
        # A process that is writing may take the last bytes before this one.
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            for _ in range((SIZE - used - free) >> 12):
                file.write(bytes(1 << 12))

    def release(self) -> None:
        """Give the space back."""
        self._limit = None
        if self._holder is not None:
            (self.seen / "filler").unlink(missing_ok=True)


def _blocks(path: Path) -> int:
    return path.lstat().st_blocks * 512


@contextmanager
def small_disk(folder: Path) -> Iterator[Disk]:
    """A disk of `SIZE` bytes at `folder`, which is made."""
    folder.mkdir()
    command = ["unshare", "-rm", "sh", "-c", _SCRIPT, str(folder), str(SIZE)]
    try:
        holder = subprocess.Popen(command, stdout=subprocess.PIPE)
    except FileNotFoundError:
        yield Disk(folder, None)
        return
    with holder:
        try:
            assert holder.stdout is not None
            ready = holder.stdout.readline() == b"ready\n"
            yield Disk(folder, holder.pid if ready else None)
        finally:
            holder.kill()

"""A lock file that lets only one run use a workdir.

The file names its owner, who renews it while it runs. A lock is stale if its process
has ended or, if that process is on another host, if it is not renewed for a while. The
next run takes over a stale lock.
"""

import contextlib
import datetime
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from etils import epath

from bert_jax.distributed.collectives import is_primary, raise_on_all_processes
from bert_jax.storage.atomic import is_address
from bert_jax.storage.files import JsonObject, name_path_in_errors, require_writable
from bert_jax.terminal.messages import say

LOCK = "run.lock"
RENEW_SECONDS = 10.0
STALE_SECONDS = 45.0
"""Seconds without a renewal after which a lock of another host is stale."""
_MACHINE = ("host", "boot", "pid_namespace")


def _read_text(path: str) -> str:
    with contextlib.suppress(OSError):
        return Path(path).read_text().strip()
    return ""


def process_start(pid: int) -> str:
    """The start time of a process of this machine in clock ticks; "" if unknown."""
    stat = _read_text(f"/proc/{pid}/stat")
    return stat.rpartition(")")[2].split()[19] if stat else ""


def this_process() -> JsonObject:
    """Values that identify this process uniquely among all hosts."""
    namespace = ""
    with contextlib.suppress(OSError):
        namespace = os.readlink("/proc/self/ns/pid")
    return {
        "token": secrets.token_hex(8),
        "host": socket.gethostname(),
        "boot": _read_text("/proc/sys/kernel/random/boot_id"),
        "pid_namespace": namespace,
        "pid": os.getpid(),
        "process_start": process_start(os.getpid()),
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def has_ended(owner: JsonObject) -> bool | None:
    """Whether the owner of a lock has ended; None if it runs on another machine."""
    own = this_process()
    if any(owner.get(name) != own[name] for name in _MACHINE):
        return None
    pid = owner.get("pid")
    if type(pid) is not int or pid <= 0:
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        pass
    # If not equal, the process has ended and another one has its number.
    return process_start(pid) != owner.get("process_start")


class RunLock:
    """The lock of a workdir, held by this process between `acquire` and `release`."""

    def __init__(
        self, workdir: epath.Path, stale_seconds: float = STALE_SECONDS
    ) -> None:
        self._workdir = workdir
        self._path = workdir / LOCK
        self._stale_seconds = stale_seconds
        self._owner = this_process()
        self._renewals = 0
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._keep_renewing, daemon=True)

    def acquire(self) -> None:
        """Take the lock; if the owner is on another host, wait for a renewal first.

        Raise ValueError if another run holds it.
        """
        deadline, first_seen = 0.0, None
        while not self._create():
            owner = self._read()
            if owner is None:
                continue  # it was released in the meantime
            ended = has_ended(owner)
            waited = owner == first_seen and time.monotonic() >= deadline
            if ended or (ended is None and waited):
                self._remove_stale(owner)
                continue
            if ended is False or first_seen not in (None, owner):
                raise ValueError(
                    f"{self._describe(owner)} Wait until it ends or end it, or choose "
                    f"another --workdir; if no run uses it, remove {self._path}."
                )
            if first_seen is None:
                say(
                    f"{self._describe(owner)} Waiting {self._stale_seconds:.0f} s to "
                    "see whether it still runs."
                )
                first_seen = owner
                deadline = time.monotonic() + self._stale_seconds
            time.sleep(min(1.0, self._stale_seconds / 4))
        self._thread.start()

    def _describe(self, owner: JsonObject) -> str:
        return (
            f"workdir={self._workdir} is in use by process {owner.get('pid')} on "
            f"{owner.get('host')}, started {owner.get('started')}."
        )

    def _content(self) -> str:
        return json.dumps(self._owner | {"renewals": self._renewals}) + "\n"

    def _create(self) -> bool:
        """Create the lock file; return False if there is one.

        This is atomic on a file system, and only nearly so in an object store.
        """
        if is_address(self._path):
            if self._path.exists():
                return False
            self._path.write_text(self._content())
            time.sleep(1.0)  # if two processes write at once, the last one owns it
            return self._owns(self._read())
        try:
            with name_path_in_errors(self._path), open(self._path, "x") as file:
                file.write(self._content())
        except FileExistsError:
            return False
        except OSError:
            # Other processes would wait for the owner of an empty lock.
            self._path.unlink(missing_ok=True)
            raise
        return True

    def _read(self) -> JsonObject | None:
        """The owner in the lock file, {} if damaged; None if there is no lock."""
        try:
            owner = json.loads(self._path.read_text())
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError):
            owner = None  # half-written by a process that ended
        except Exception:
            # For a missing file, libraries for buckets raise errors of their own.
            if self._path.exists():
                raise
            return None
        return owner if isinstance(owner, dict) else {}

    def _owns(self, owner: JsonObject | None) -> bool:
        return owner is not None and owner.get("token") == self._owner["token"]

    def _remove_stale(self, owner: JsonObject) -> None:
        """Remove a stale lock, unless another process has just taken it over."""
        if is_address(self._path):
            self._path.unlink(missing_ok=True)
            return
        # A rename is atomic: it succeeds for one process only.
        renamed = self._path.with_name(f"{LOCK}.stale-{self._owner['token']}")
        with contextlib.suppress(FileNotFoundError):
            self._path.rename(renamed)
            taken = json.loads(renamed.read_text() or "{}") if owner else {}
            if owner and taken.get("token") != owner.get("token"):
                renamed.rename(self._path)
                return
            renamed.unlink(missing_ok=True)

    def _keep_renewing(self) -> None:
        while not self._released.wait(RENEW_SECONDS):
            # A failing file system does not end the run; `check` does.
            with contextlib.suppress(Exception):
                owner = self._read()
                if owner is not None and not self._owns(owner):
                    continue
                self._renewals += 1
                if is_address(self._path):
                    self._path.write_text(self._content())
                else:
                    temporary = self._path.with_name(f"{LOCK}.{self._owner['token']}")
                    temporary.write_text(self._content())
                    temporary.replace(self._path)

    def check(self) -> None:
        """Raise RuntimeError if another run has taken over the workdir."""
        owner = self._read()
        if owner is not None and not self._owns(owner):
            raise RuntimeError(
                f"{self._describe(owner)} It has taken over from this run, which ends "
                "without another checkpoint."
            )

    def release(self) -> None:
        """Remove the lock, if this run still holds it."""
        self._released.set()
        if self._thread.is_alive():
            self._thread.join()
        with contextlib.suppress(Exception):
            if self._owns(self._read()):
                self._path.unlink(missing_ok=True)


@contextlib.contextmanager
def run_lock(workdir: epath.Path) -> Iterator[Callable[[], None]]:
    """Hold the lock of a workdir, on the primary process; a barrier on the others.

    A missing workdir is made, and removed again if it is empty at the end. Yields
    `RunLock.check` on the primary process, a no-op on the others. Raise ValueError if
    another run holds the lock, or the workdir is a file; OSError if it cannot be
    written.
    """
    lock: RunLock | None = None
    made: list[epath.Path] = []
    try:
        with raise_on_all_processes():
            if is_primary():
                if workdir.exists() and not workdir.is_dir():
                    raise ValueError(f"workdir={workdir} is a file; name a directory.")
                if not is_address(workdir):
                    require_writable(workdir)
                    directories = (workdir, *workdir.parents)
                    made = [path for path in directories if not path.exists()]
                workdir.mkdir(parents=True, exist_ok=True)
                lock = RunLock(workdir)
                lock.acquire()
        yield (lambda: None) if lock is None else lock.check
    finally:
        if lock is not None:
            lock.release()
        with contextlib.suppress(Exception):
            for directory in made:
                directory.rmdir()  # fails if it is not empty

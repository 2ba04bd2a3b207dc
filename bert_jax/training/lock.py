"""One run a workdir: a lock file that names its owner.

The owner renews the file while it runs. A lock is stale when its process has ended, or,
where that cannot be seen from here, when it is not renewed; the next run takes it over.
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
from typing import Any

from etils import epath

from bert_jax.distributed.collectives import is_primary, raise_on_all_processes
from bert_jax.storage.atomic import is_address
from bert_jax.storage.files import name_path_in_errors
from bert_jax.terminal.messages import say

LOCK = "run.lock"
RENEW_SECONDS = 10.0
SILENT_SECONDS = 45.0
"""A lock of another host that is not renewed for so long is stale."""
_MACHINE = ("host", "boot", "pid_namespace")


def _read_text(path: str) -> str:
    with contextlib.suppress(OSError):
        return Path(path).read_text().strip()
    return ""


def process_start(pid: int) -> str:
    """When a process of this machine was started, in clock ticks; "" if not known."""
    stat = _read_text(f"/proc/{pid}/stat")
    return stat.rpartition(")")[2].split()[19] if stat else ""


def this_process() -> dict[str, Any]:
    """What tells this process from all others, on any host."""
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


def has_ended(owner: dict[str, Any]) -> bool | None:
    """Whether the owner of a lock has ended; None: that cannot be told from here."""
    if any(owner.get(name) != value for name, value in _here().items()):
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
    # Another process may have got the number of one that ended.
    return process_start(pid) != owner.get("process_start")


def _here() -> dict[str, Any]:
    own = this_process()
    return {name: own[name] for name in _MACHINE}


class RunLock:
    """The lock of one workdir, held by this process between `acquire` and `release`."""

    def __init__(
        self,
        workdir: epath.Path,
        renew_seconds: float = RENEW_SECONDS,
        silent_seconds: float = SILENT_SECONDS,
    ) -> None:
        self._workdir = workdir
        self._path = workdir / LOCK
        self._renew_seconds = renew_seconds
        self._silent_seconds = silent_seconds
        self._owner = this_process()
        self._renewals = 0
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._keep_renewing, daemon=True)

    def acquire(self) -> None:
        """Take the lock; wait where its owner may have ended on another host.

        Raises:
            ValueError: another run holds it.
        """
        deadline, seen = 0.0, None
        while not self._create():
            owner = self._read()
            if owner is None:
                continue  # it was released meanwhile
            ended = has_ended(owner)
            if ended is None and owner == seen and time.monotonic() >= deadline:
                ended = True
            if ended:
                self._remove_stale(owner)
                continue
            if ended is False or (seen is not None and owner != seen):
                raise ValueError(self._refusal(owner))
            if seen is None:
                say(
                    f"{self._describe(owner)} Waiting {self._silent_seconds:.0f} s to "
                    "see whether it still runs.",
                )
                seen, deadline = owner, time.monotonic() + self._silent_seconds
            time.sleep(min(1.0, self._silent_seconds / 4))
        self._thread.start()

    def _describe(self, owner: dict[str, Any]) -> str:
        return (
            f"workdir={self._workdir} is in use by process {owner.get('pid')} on "
            f"{owner.get('host')}, started {owner.get('started')}."
        )

    def _refusal(self, owner: dict[str, Any]) -> str:
        return (
            f"{self._describe(owner)} Wait until it ends or end it, or choose another "
            f"--workdir; if no run uses it, remove {self._path}."
        )

    def _content(self) -> str:
        return json.dumps(self._owner | {"renewals": self._renewals}) + "\n"

    def _create(self) -> bool:
        """Write the lock where there is none; an object store only nearly so."""
        if is_address(self._path):
            if self._path.exists():
                return False
            self._path.write_text(self._content())
            time.sleep(1.0)  # of two that write at once, the later one has it
            found = self._read()
            return found is not None and found.get("token") == self._owner["token"]
        try:
            with name_path_in_errors(self._path), open(self._path, "x") as file:
                file.write(self._content())
        except FileExistsError:
            return False
        except OSError:
            # An empty lock names no owner, and others would wait for it.
            self._path.unlink(missing_ok=True)
            raise
        return True

    def _read(self) -> dict[str, Any] | None:
        """The owner that the lock names; None where there is no lock."""
        try:
            owner = json.loads(self._path.read_text())
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError):
            owner = None  # half-written by a process that ended
        except Exception:
            if (
                self._path.exists()
            ):  # the libraries for buckets have errors of their own
                raise
            return None
        return owner if isinstance(owner, dict) else {}

    def _remove_stale(self, owner: dict[str, Any]) -> None:
        """Remove a lock, unless another process has just taken it over."""
        if is_address(self._path):
            self._path.unlink(missing_ok=True)
            return
        # A rename succeeds for one process alone.
        aside = self._path.with_name(f"{LOCK}.stale-{self._owner['token']}")
        with contextlib.suppress(FileNotFoundError):
            self._path.rename(aside)
            taken = json.loads(aside.read_text() or "{}") if owner else {}
            if owner and taken.get("token") != owner.get("token"):
                aside.rename(self._path)
                return
            aside.unlink(missing_ok=True)

    def _keep_renewing(self) -> None:
        while not self._released.wait(self._renew_seconds):
            # A file system that fails now and then is no reason to end; `check` is.
            with contextlib.suppress(Exception):
                owner = self._read()
                if owner is None or owner.get("token") == self._owner["token"]:
                    self._renewals += 1
                    self._replace()

    def _replace(self) -> None:
        if is_address(self._path):
            self._path.write_text(self._content())
            return
        temporary = self._path.with_name(f"{LOCK}.{self._owner['token']}")
        temporary.write_text(self._content())
        temporary.replace(self._path)

    def check(self) -> None:
        """Refuse to go on where another run has taken the workdir over.

        Raises:
            RuntimeError: it has.
        """
        owner = self._read()
        if owner is not None and owner.get("token") != self._owner["token"]:
            raise RuntimeError(
                f"{self._describe(owner)} It has taken over from this run, which ends "
                "without another checkpoint."
            )

    def release(self) -> None:
        """Give the lock back, if it is still ours."""
        self._released.set()
        if self._thread.is_alive():
            self._thread.join()
        with contextlib.suppress(Exception):
            owner = self._read()
            if owner is not None and owner.get("token") == self._owner["token"]:
                self._path.unlink(missing_ok=True)


@contextlib.contextmanager
def run_lock(workdir: epath.Path) -> Iterator[Callable[[], None]]:
    """Hold the lock of a workdir, which is made if need be, on the primary process.

    A workdir that was made and left empty is removed again.

    Yields:
        What raises RuntimeError where another run has taken the workdir over.

    Raises:
        ValueError: another run holds the lock, or the workdir is a file.
    """
    lock: RunLock | None = None
    made: list[epath.Path] = []
    try:
        with raise_on_all_processes():
            if is_primary():
                if workdir.exists() and not workdir.is_dir():
                    raise ValueError(f"workdir={workdir} is a file; name a directory.")
                made = _missing_directories(workdir)
                workdir.mkdir(parents=True, exist_ok=True)
                taken = RunLock(workdir)
                taken.acquire()
                lock = taken
        yield (lambda: None) if lock is None else lock.check
    finally:
        if lock is not None:
            lock.release()
        with contextlib.suppress(Exception):
            for directory in made:
                directory.rmdir()  # which fails where it is not empty


def _missing_directories(directory: epath.Path) -> list[epath.Path]:
    """A local directory and its parents, those that are not there, innermost first."""
    missing = []
    while not is_address(directory) and not directory.exists():
        missing.append(directory)
        directory = directory.parent
    return missing

"""A process that reads damaged files, one after the other, and says what came of it.

It reads a job a line from standard input, as JSON, and answers each in a line. Its
memory is limited and every read has an alarm; if it ends, or is silent for too long,
the read that it was at is to blame.
"""

import contextlib
import faulthandler
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

LIMIT = 5.0
"""Seconds that a read may take."""
RESUME_SECONDS = 120.0
"""Those of a run that goes on, and compiles its step."""
DEADLINE = 60.0
"""Seconds after the alarm until a read that it cannot interrupt ends the process."""
SPARE_BYTES = 4 << 30
"""How much more memory than at its start the process may map."""


class TooSlowError(BaseException):
    """A read took longer than `LIMIT`. No reader catches it."""


def _too_slow(number: int, frame: FrameType | None) -> None:
    raise TooSlowError


@contextlib.contextmanager
def alarm(seconds: float = LIMIT) -> Iterator[None]:
    """Interrupt what takes longer than it may."""
    faulthandler.dump_traceback_later(DEADLINE + seconds, exit=True)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()


def limit_memory() -> None:
    """Allow little more memory than is mapped by now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + SPARE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def attempt(read: Callable[[], Any]) -> tuple[str, str]:
    """Whether a read was "taken", "refused" or a "crash", and what it said."""
    try:
        with alarm(), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            value = read()
            said = [str(warning.message) for warning in caught]
            return "taken", json.dumps([value, said])
    except (ValueError, OSError) as error:
        return "refused", str(error)
    except TooSlowError:
        return "slow", "".join(traceback.format_exc()[-2000:])
    except BaseException:
        return "crash", "".join(traceback.format_exc()[-3000:])


class Mutants:
    """Damaged copies of one reader's file, in a directory of its own."""

    def __init__(self, name: str, root: Path) -> None:
        from fuzz_readers import READERS

        self.reader = READERS[name]
        self.folder = root / "mutants" / name / self.reader.folder
        original = root / "specimens" / self.reader.folder
        self.original = next(original.glob(self.reader.file))
        shutil.copytree(original, self.folder)
        self.content = self.original.read_bytes()
        self.file = self.folder / self.original.relative_to(original)
        self.manifests = {
            path: path.read_bytes() for path in self.folder.rglob("manifest.json")
        }

    def try_one(self, number: int) -> tuple[str, str]:
        """Read the mutant of that number; 0 is the file as it was."""
        generator = random.Random(f"{self.reader.file} {number}")
        content = self.content
        if number:
            content = self.reader.damage(content, generator)
        self.file.write_bytes(content)
        if self.reader.resign and number % 2:
            self.reader.resign(self.folder, self.file)
        kind, said = attempt(lambda: self.reader.read(self.folder, number))
        if kind == "refused" and str(self.folder.parent) not in said:
            kind = "unnamed"
        for path, manifest in self.manifests.items():
            path.write_bytes(manifest)
        return kind, said


class Jobs:
    """What the worker is asked to do, with the copies that it keeps for it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.mutants: dict[str, Mutants] = {}
        self.damaged: dict[str, Any] = {}

    def warm(self) -> None:
        """Load what is slow the first time, and only then limit the memory."""
        for name in ("tf1-config", "checkpoint-config"):
            self.answer({"reader": name, "number": 0})
        limit_memory()

    def answer(self, job: dict[str, Any]) -> dict[str, Any]:
        """The outcome of one job: `kind`, what was `said`, and the `seconds`."""
        one = self.damage if "subject" in job else self.fuzz
        start = time.monotonic()
        result = one(job)
        return {"seconds": time.monotonic() - start} | result

    def fuzz(self, job: dict[str, Any]) -> dict[str, Any]:
        """One mutant of one reader. What took too long is tried once more."""
        name, number = job["reader"], job["number"]
        if name not in self.mutants:
            shutil.rmtree(self.root / "mutants" / name, ignore_errors=True)
            self.mutants[name] = Mutants(name, self.root)
            # What is slow the first time, imports and programs, is no reader's fault.
            self.mutants[name].try_one(0)
        mutants = self.mutants[name]
        start = time.monotonic()
        kind, said = mutants.try_one(number)
        if kind == "slow":
            start = time.monotonic()
            kind, said = mutants.try_one(number)
        result = {"kind": kind, "said": said, "seconds": time.monotonic() - start}
        if kind not in ("taken", "refused"):
            kept = self.root / f"{name}-{number}-{mutants.file.name}"
            kept.write_bytes(mutants.file.read_bytes())
            result["kept"] = str(kept)
        return result

    def damage(self, job: dict[str, Any]) -> dict[str, Any]:
        """One damage to one subject, by one door."""
        from damages import Damaged

        name = job["subject"]
        if name not in self.damaged:
            self.damaged[name] = Damaged(name, self.root)
        held = self.damaged[name]
        seconds = RESUME_SECONDS if job.get("door") == "resumed" else LIMIT
        try:
            with alarm(seconds):
                kind, said = held.answer(job)
        except BaseException:
            kind, said = "crash", traceback.format_exc()[-3000:]
        return {"kind": kind, "said": said}


def main() -> None:
    """Answer jobs until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print is no answer
    # As for users: what no terminal can show is written as an escape.
    sys.stderr = io.TextIOWrapper(sys.stderr.buffer, "utf-8", "backslashreplace")
    signal.signal(signal.SIGALRM, _too_slow)
    from bert_jax.storage.quiet_tensorflow import quieten_tensorflow

    quieten_tensorflow(os.environ)
    jobs = Jobs(Path(sys.argv[1]))
    jobs.warm()
    for line in sys.stdin:
        answers.write(json.dumps(jobs.answer(json.loads(line))) + "\n")


if __name__ == "__main__":
    main()

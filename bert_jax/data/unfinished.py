"""Check that an output is new, or is an unfinished dataset with the same plan.

The plan is everything that the dataset's bytes depend on. While the dataset is
unfinished, it is stored beside the finished chunks.
"""

import contextlib
import dataclasses
import os
from collections.abc import Iterator

from etils import epath

from bert_jax.config.serialization import differences
from bert_jax.data.chunks import UNFINISHED, Layout
from bert_jax.storage.files import JsonObject, read_json_object, write_json
from bert_jax.storage.manifest import MANIFEST, DamagedError, read_manifest

_PLAN = "plan.json"
_LOCK = "lock"
_LAYOUT = "layout"
"""A key that is in the plan's file but not in a manifest."""


def is_finished(output: epath.Path, plan: JsonObject) -> bool:
    """Return whether the output is finished; raise if it has another plan."""
    if not (output / MANIFEST).exists():
        return False
    manifest = read_manifest(output)
    tokenizer = {"fingerprint": manifest.get("tokenizer", {}).get("fingerprint")}
    finished = {name: manifest.get(name) for name in plan} | {"tokenizer": tokenizer}
    _require_same(output, finished, plan)
    return True


def require_resumable(output: epath.Path) -> None:
    """Check that the output is absent, empty, or a finished or unfinished dataset.

    Raises:
        FileExistsError: it holds something else.
    """
    unfinished = output / UNFINISHED
    if (output / MANIFEST).exists() or (unfinished / _PLAN).exists():
        return
    taken = output.exists() and (
        not output.is_dir()
        or any(entry.name != UNFINISHED for entry in output.iterdir())
    )
    # A directory of that name is an interrupted run's if it holds a lock.
    if taken or (unfinished.exists() and not (unfinished / _LOCK).exists()):
        raise FileExistsError(
            f"output={output} exists and is not a dataset; choose another."
        )


@contextlib.contextmanager
def output_lock(output: epath.Path) -> Iterator[None]:
    """Hold a lock, so that no other process writes the same output.

    A finished dataset is only read, so it needs no lock. The system releases the lock
    when the process ends for any reason.

    Raises:
        FileExistsError: another process is writing it.
    """
    if (output / MANIFEST).exists():
        yield
        return
    import fcntl  # Windows has none

    folder = output / UNFINISHED
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / _LOCK, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.fstat(file.fileno()).st_nlink:
                raise BlockingIOError  # the other process ended and removed the lock
        except BlockingIOError as error:
            raise FileExistsError(
                f"output={output} is being written by another process; wait for it, "
                "or choose another."
            ) from error
        except OSError:
            pass  # a file system without locks
        try:
            yield
        finally:
            if not (folder / _PLAN).exists():
                with contextlib.suppress(OSError):
                    os.unlink(folder / _LOCK)
            for path in made:
                with contextlib.suppress(OSError):
                    os.rmdir(path)


def write_plan(output: epath.Path, plan: JsonObject, layout: Layout) -> None:
    """Write the plan, or check that it is the plan of the unfinished dataset.

    Raises:
        FileExistsError: the plan differs, or was written by version 0.1.0.
        DamagedError: the plan cannot be read.
    """
    path = output / UNFINISHED / _PLAN
    plan = plan | {_LAYOUT: dataclasses.asdict(layout)}
    if not path.exists():
        write_json(plan, path)
        return
    try:
        saved = read_json_object(path, "")
    except ValueError as error:
        raise DamagedError(
            f"{path} is damaged; remove {output} and start again."
        ) from error
    if _LAYOUT not in saved:
        raise FileExistsError(
            f"output={output} was started by version 0.1.0, which wrote smaller "
            "shards; finish it with that version, or remove it and start again."
        )
    _require_same(output, saved, plan)


def _require_same(output: epath.Path, old: JsonObject, new: JsonObject) -> None:
    changes = [
        "other sources"  # too long for a line
        if name == "sources"
        else f"{name.removeprefix('options.')}={before!r} before, {after!r} now"
        for name, before, after in differences(old, new)
        if name != "row"  # it follows from the others
    ]
    if changes:
        raise FileExistsError(
            f"output={output} was started with other options: {'; '.join(changes)}. "
            "Remove it, choose another output, or use the earlier options."
        )

"""Whether an output may be written: it is new, or what this very plan began.

The plan is what the dataset's bytes depend on; it lies beside the finished chunks.
"""

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator
from typing import Any

from etils import epath

from bert_jax.config.serialization import differences
from bert_jax.data.chunks import UNFINISHED, Layout
from bert_jax.storage.files import write_json
from bert_jax.storage.manifest import MANIFEST, DamagedError, read_manifest

_PLAN = "plan.json"
_LOCK = "lock"
_LAYOUT = "layout"
"""The key of the plan's file that no manifest has."""


def is_finished(output: epath.Path, plan: dict[str, Any]) -> bool:
    """Whether the output is the finished dataset of this very plan."""
    if not (output / MANIFEST).exists():
        return False
    manifest = read_manifest(output)
    tokenizer = {"fingerprint": manifest.get("tokenizer", {}).get("fingerprint")}
    finished = {name: manifest.get(name) for name in plan} | {"tokenizer": tokenizer}
    _require_same(output, finished, plan)
    return True


def require_resumable(output: epath.Path) -> None:
    """Refuse an output that holds what is no dataset, nor the beginning of one.

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
    # A directory of that name is ours if a killed run's lock lies in it.
    if taken or (unfinished.exists() and not (unfinished / _LOCK).exists()):
        raise FileExistsError(
            f"output={output} exists and is not a dataset; choose another."
        )


@contextlib.contextmanager
def output_lock(output: epath.Path) -> Iterator[None]:
    """Keep other processes from writing the same output meanwhile.

    A finished dataset is only read, by as many as like. The lock goes with the process
    that holds it, however that ends.

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
                raise BlockingIOError  # the other has just ended, and removed it
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


def write_plan(output: epath.Path, plan: dict[str, Any], layout: Layout) -> None:
    """Note the plan, or check that what was begun can be continued.

    Raises:
        FileExistsError: it was begun differently, or by version 0.1.0.
        DamagedError: what was noted cannot be read.
    """
    path = output / UNFINISHED / _PLAN
    plan = plan | {_LAYOUT: dataclasses.asdict(layout)}
    if not path.exists():
        write_json(plan, path)
        return
    try:
        noted = json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        noted = error
    if not isinstance(noted, dict):
        raise DamagedError(f"{path} is damaged; remove {output} and begin again.")
    if _LAYOUT not in noted:
        raise FileExistsError(
            f"output={output} was begun by version 0.1.0, which wrote smaller shards; "
            "finish it with that version, or remove it and begin again."
        )
    _require_same(output, noted, plan)


def _require_same(output: epath.Path, old: dict[str, Any], new: dict[str, Any]) -> None:
    found = [
        "other sources"  # too long for a line
        if name == "sources"
        else f"{name.removeprefix('options.')}={before!r} before, {after!r} now"
        for name, before, after in differences(old, new)
        if name != "row"  # it follows from the others
    ]
    if found:
        raise FileExistsError(
            f"output={output} was begun differently: {'; '.join(found)}. "
            "Remove it, choose another, or repeat what began it."
        )

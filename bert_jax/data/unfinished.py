"""Check that an output is new, or is an unfinished dataset with the same plan.

The plan is everything that the dataset's bytes depend on. While the dataset is
unfinished, it is stored beside the finished chunks.
"""

import contextlib
import dataclasses
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from etils import epath

from bert_jax.config.serialization import differences
from bert_jax.data.chunks import Layout
from bert_jax.data.sources import LOCK, UNFINISHED
from bert_jax.storage.file_lock import lock_file
from bert_jax.storage.files import (
    JsonObject,
    read_json_object,
    require_writable,
    write_json,
)
from bert_jax.storage.manifest import MANIFEST, DamagedError, read_manifest

_PLAN = "plan.json"
_LAYOUT = "layout"
"""A key that is in the plan's file but not in a manifest."""


def is_finished(output: epath.Path, plan: JsonObject) -> bool:
    """Return whether the output is finished; raise if it has another plan."""
    if not (output / MANIFEST).exists():
        return False
    manifest = read_manifest(output)
    tokenizer = {"fingerprint": manifest.get("tokenizer", {}).get("fingerprint")}
    finished = {name: manifest.get(name) for name in plan} | {"tokenizer": tokenizer}
    plan = _as_described(finished, plan)
    # Earlier versions did not tell files of one base name apart.
    plain = [s | {"name": s["name"].rpartition("/")[2]} for s in plan["sources"]]
    if finished["sources"] == plain:
        plan = plan | {"sources": plain}
    _require_same(output, finished, plan)
    return True


def require_resumable(output: epath.Path) -> None:
    """Raise FileExistsError if the output holds other things than a dataset's."""
    unfinished = output / UNFINISHED
    if (output / MANIFEST).exists() or (unfinished / _PLAN).exists():
        return
    taken = output.exists() and (
        not output.is_dir()
        or any(entry.name != UNFINISHED for entry in output.iterdir())
    )
    # A directory of that name is an interrupted run's if it holds a lock.
    if taken or (unfinished.exists() and not (unfinished / LOCK).exists()):
        raise FileExistsError(
            f"output={output} exists and is not a dataset; choose another."
        )


@contextlib.contextmanager
def workspace(output: epath.Path) -> Iterator[Path]:
    """Lock the output; yield the path of a folder in it, for `read_corpus` to create.

    At the end the folder is removed, with those of its parents that did not exist
    before and are empty. A finished dataset is only read, so it needs no lock, and each
    process has a folder of its own, elsewhere if the dataset is read-only. Raise
    FileExistsError if another process is writing the output.
    """
    if (output / MANIFEST).exists():
        place = output if os.access(output, os.W_OK) else None
        with tempfile.TemporaryDirectory(dir=place) as own:
            yield Path(own)
        return
    require_writable(output)
    unfinished = Path(output) / UNFINISHED
    folder = unfinished / "text"
    new_parents = [path for path in folder.parents if not path.exists()]
    unfinished.mkdir(parents=True, exist_ok=True)
    with open(unfinished / LOCK, "w") as lock:
        lock_file(lock, output)
        shutil.rmtree(folder, ignore_errors=True)  # left by an interrupted run
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(OSError):
                if not (unfinished / _PLAN).exists():
                    (unfinished / LOCK).unlink()
            for path in new_parents:
                with contextlib.suppress(OSError):
                    path.rmdir()


def write_plan(output: epath.Path, plan: JsonObject, layout: Layout) -> None:
    """Write the plan, or check that it is the plan of the unfinished dataset.

    Raise FileExistsError if the plan differs, or was written by version 0.1.0, or
    DamagedError if it cannot be read.
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
    _require_same(output, saved, _as_described(saved, plan))


def _as_described(old: JsonObject, new: JsonObject) -> JsonObject:
    """Return the new plan without weights of sources if the old plan has none."""
    if any("weight" in source for source in old["sources"] or []):
        return new
    sources = [{k: s[k] for k in s if k != "weight"} for s in new["sources"]]
    return new | {"sources": sources}


def _require_same(output: epath.Path, old: JsonObject, new: JsonObject) -> None:
    left_out = {"row"}  # it follows from the others
    if all("weight" in s for plan in (old, new) for s in plan["sources"] or []):
        left_out.add("options.weights")  # which depend on the order of --input
    changes = [
        "other sources"  # too long for a line
        if name == "sources"
        else f"{name.removeprefix('options.')}={before!r} before, {after!r} now"
        for name, before, after in differences(old, new)
        if name not in left_out
    ]
    if changes:
        raise FileExistsError(
            f"output={output} was started with other options: {'; '.join(changes)}. "
            "Remove it, choose another output, or use the earlier options."
        )

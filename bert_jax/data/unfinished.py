"""Whether an output may be written: it is new, or what this very plan began.

The plan is what the dataset's bytes depend on; it lies beside the finished chunks.
"""

import json
from typing import Any

from etils import epath

from bert_jax.config_json import differences, write_json
from bert_jax.data.chunks import UNFINISHED
from bert_jax.manifest import MANIFEST, read_manifest

_PLAN = "plan.json"


def is_finished(output: epath.Path, plan: dict[str, Any]) -> bool:
    """Whether the output is the finished dataset of this very plan."""
    if not (output / MANIFEST).exists():
        return False
    manifest = read_manifest(output)
    tokenizer = {"fingerprint": manifest.get("tokenizer", {}).get("fingerprint")}
    finished = {name: manifest.get(name) for name in plan} | {"tokenizer": tokenizer}
    _require_same(output, finished, plan)
    return True


def require_ours(output: epath.Path) -> None:
    """Refuse an output that holds what is no dataset, nor the beginning of one.

    Raises:
        FileExistsError: it holds something else.
    """
    if (output / MANIFEST).exists() or (output / UNFINISHED / _PLAN).exists():
        return
    if output.exists() and (
        not output.is_dir()
        or any(entry.name != UNFINISHED for entry in output.iterdir())
    ):
        raise FileExistsError(
            f"output={output} exists and is not a dataset; choose another."
        )


def begin(output: epath.Path, plan: dict[str, Any]) -> None:
    """Note the plan, or check that what was begun can be continued."""
    path = output / UNFINISHED / _PLAN
    if path.exists():
        _require_same(output, json.loads(path.read_text()), plan)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(plan, path)


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

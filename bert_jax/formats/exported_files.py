"""Whether the files of an export are still what it wrote."""

from collections.abc import Sequence
from typing import Any

from etils import epath

from bert_jax.formats.imported import RECEIPT
from bert_jax.formats.model_files import read_object
from bert_jax.storage.files import is_regular_file
from bert_jax.storage.manifest import DamagedError, is_confined


def check_exported(directory: epath.Path, sources: Sequence[dict[str, Any]]) -> None:
    """Compare files with the sha256 that `conversion.json` beside them has.

    An altered bit of a tensor shows nowhere else. Of files that were not exported here
    nothing is known.

    Args:
        sources: path, size and sha256 of each file that was read.

    Raises:
        DamagedError: one of them is not what the export wrote, or a file is missing.
        ValueError: `conversion.json` is not JSON.
    """
    path = directory / RECEIPT
    if not path.exists():
        return
    files = read_object(path).get("files")
    written: dict[str, Any] = {
        entry["path"]: entry.get("sha256")
        for entry in (files if isinstance(files, list) else [])
        if isinstance(entry, dict) and isinstance(entry.get("path"), str)
    }
    changed = [
        entry["path"]
        for entry in sources
        if written.get(entry["path"], entry["sha256"]) != entry["sha256"]
    ]
    missing = [
        name
        for name in written
        # A model card may go; a tokenizer without one of its files is another.
        if is_confined(name)
        and not name.endswith(".md")
        and not is_regular_file(directory / name)
    ]
    if missing:
        raise DamagedError(
            f"{directory} lacks {', '.join(missing)}, which {RECEIPT} says that the "
            f"export wrote; export or copy it again, or remove {RECEIPT} if the change "
            "is meant."
        )
    if changed:
        raise DamagedError(
            f"{directory}: {', '.join(changed)} has another sha256 than {RECEIPT} says "
            f"that the export wrote; export or copy it again, or remove {RECEIPT} if "
            "the change is meant."
        )

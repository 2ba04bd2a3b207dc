"""Check that the files of an export are still those that it wrote."""

from collections.abc import Sequence

from etils import epath

from bert_jax.formats.imported import RECEIPT
from bert_jax.formats.model_files import read_object_or_empty
from bert_jax.storage.files import JsonObject, is_regular_file
from bert_jax.storage.manifest import DamagedError, is_confined


def check_exported(directory: epath.Path, sources: Sequence[JsonObject]) -> None:
    """Compare the files with the sha256 that `conversion.json` beside them lists.

    No other check detects an altered bit of a tensor. Files without a
    `conversion.json` are not checked.

    Args:
        sources: path, size and sha256 of each file that was read.

    Raises:
        DamagedError: a file is missing, or is not what the export wrote.
        ValueError: `conversion.json` is not JSON.
    """
    files = read_object_or_empty(directory / RECEIPT).get("files")
    written = {
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
        # A model card may be removed, but a tokenizer needs all of its files.
        if is_confined(name)
        and not name.endswith(".md")
        and not is_regular_file(directory / name)
    ]
    remedy = f"export or copy it again, or remove {RECEIPT} if the change is meant."
    if missing:
        raise DamagedError(
            f"{directory} lacks {', '.join(missing)}, which the export wrote according "
            f"to {RECEIPT}; {remedy}"
        )
    if changed:
        raise DamagedError(
            f"{directory}: {', '.join(changed)} has another sha256 than the export "
            f"wrote according to {RECEIPT}; {remedy}"
        )

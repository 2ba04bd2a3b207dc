"""What a conversion did with each tensor, and the checkpoint that an import writes."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath

from bert_jax.config import BertConfig
from bert_jax.config.serialization import to_dict
from bert_jax.convert.comparison import NOT_COMPARED, Comparison
from bert_jax.formats.embedding import Embedding
from bert_jax.formats.imported import RECEIPT, Imported
from bert_jax.storage.atomic import atomic_directory
from bert_jax.storage.files import name_path_in_errors, write_json
from bert_jax.storage.manifest import describe_files, files_below, write_manifest
from bert_jax.tokenization import Tokenizer

_NAMED = 8


def receipt(imported: Imported, comparison: Comparison) -> dict[str, Any]:
    """What `conversion.json` holds of an import."""
    return {
        "comparison": dataclasses.asdict(comparison),
        "sources": list(imported.sources),
        "tensors": [dataclasses.asdict(leaf) for leaf in imported.leaves],
        "fresh": list(imported.fresh),
        "left_over": list(imported.left_over),
        "prefix_left_out": imported.prefix,
        "config_left_over": imported.config_left_over,
    }


def summary(imported: Imported) -> str:
    """An import in one line: tensors by number, some of those not taken by name."""
    size = sum(leaf.size for leaf in jax.tree.leaves(imported.params))
    left_over = _some(imported.left_over)
    # A key without a value says nothing.
    said = [name for name, value in imported.config_left_over.items() if value]
    prefix = f", read without {imported.prefix!r} before each name"
    return (
        f"{size:,} parameters, head {imported.config.head}; "
        f"{len(imported.leaves)} tensors taken{prefix * bool(imported.prefix)}, "
        f"{len(imported.fresh)} fresh, "
        f"{len(imported.left_over)} left over{left_over}; "
        f"{len(said)} settings left over{_some(said)}."
    )


def _some(names: Sequence[str]) -> str:
    """The first few names in brackets."""
    told = ", ".join(names[:_NAMED])
    more = f" and more, all in {RECEIPT}" if len(names) > _NAMED else ""
    return f" ({told}{more})" if told else ""


def write_imported(
    imported: Imported,
    output: epath.Path,
    comparison: Comparison = NOT_COMPARED,
) -> None:
    """Write an imported model as a checkpoint; errors as `write_checkpoint`."""
    said = receipt(imported, comparison)
    write_checkpoint(
        imported.config,
        imported.params,
        imported.tokenizer,
        imported.embedding,
        said,
        output,
    )


def write_checkpoint(
    config: BertConfig,
    params: dict[str, Any],
    tokenizer: Tokenizer,
    embedding: Embedding | None,
    said: dict[str, Any],
    output: epath.Path,
) -> None:
    """Write a checkpoint without an optimizer, whole or not at all.

    Args:
        embedding: how it makes one vector of a text, if that is known.
        said: what `conversion.json` shall hold beside the files that are written.

    Raises:
        FileExistsError: `output` is there and not an empty directory.
        OSError: the disk is full, or is before the end.
    """
    with atomic_directory(output) as directory:
        size = sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(params))
        _reserve(directory, size, output)
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(directory / "state", jax.tree.map(np.asarray, params))
        values = {"model": to_dict(config)}
        if embedding is not None:
            values["embedding"] = to_dict(embedding)
        write_json(values, directory / "config.json")
        tokenizer.save(directory / "tokenizer")
        written = describe_files(directory, files_below(directory))
        write_json(said | {"files": written}, directory / RECEIPT)
        files = written + describe_files(directory, [RECEIPT])
        write_manifest({"step": 0, "files": files}, directory)


def _reserve(directory: epath.Path, size: int, output: epath.Path) -> None:
    """See that a disk takes so many bytes, before threads of Orbax find that it does
    not: what they raise then is printed by each of them."""
    if not hasattr(os, "posix_fallocate"):  # not on macOS
        return
    path = directory / "reserved"
    with name_path_in_errors(output), path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(size, 1))
    path.unlink()

"""Write an imported model as a checkpoint, with a receipt of the conversion."""

import dataclasses
import os
from collections.abc import Sequence

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath

from bert_jax.config.serialization import to_dict
from bert_jax.convert.comparison import NOT_COMPARED, Comparison
from bert_jax.formats.folding import write_unused
from bert_jax.formats.imported import RECEIPT, Imported
from bert_jax.model.finite import require_finite
from bert_jax.pretrained import Model
from bert_jax.storage.atomic import absolute, atomic_directory
from bert_jax.storage.files import JsonObject, name_path_in_errors, write_json
from bert_jax.storage.manifest import describe_files, files_below, write_manifest

_MAX_LISTED = 8


def summary(imported: Imported) -> str:
    """Return one line: the numbers of tensors, and names of those left over."""
    size = sum(leaf.size for leaf in jax.tree.leaves(imported.params))
    # A key with an empty value has no effect.
    settings = [name for name, value in imported.config_left_over.items() if value]
    prefix = f", read without {imported.prefix!r} before each name"
    folded = f"; {len(imported.folded)} folded, see {RECEIPT}"
    return (
        f"{size:,} parameters, head {imported.config.head}; "
        f"{len(imported.leaves)} tensors taken{prefix * bool(imported.prefix)}, "
        f"{len(imported.fresh)} fresh, "
        f"{len(imported.left_over)} left over{_in_brackets(imported.left_over)}; "
        f"{len(settings)} settings left over{_in_brackets(settings)}"
        f"{folded * bool(imported.folded)}."
    )


def _in_brackets(names: Sequence[str]) -> str:
    listed = ", ".join(names[:_MAX_LISTED])
    more = f" and more, all in {RECEIPT}" if len(names) > _MAX_LISTED else ""
    return f" ({listed}{more})" if listed else ""


def write_imported(
    imported: Imported, output: epath.Path, comparison: Comparison = NOT_COMPARED
) -> None:
    """Write an imported model as a checkpoint; errors as `write_checkpoint`.

    Raise ValueError, too, if a parameter is not finite.
    """
    require_finite(imported.params, "The model")
    receipt = {
        "comparison": dataclasses.asdict(comparison),
        "sources": imported.sources,
        "tensors": [dataclasses.asdict(leaf) for leaf in imported.leaves],
        "fresh": imported.fresh,
        "left_over": imported.left_over,
        "prefix_left_out": imported.prefix,
        "config_left_over": imported.config_left_over,
        "folded": imported.folded,
    }
    write_checkpoint(imported, receipt, output)


def write_checkpoint(
    model: Imported | Model,
    receipt: JsonObject,
    output: epath.Path,
    run: JsonObject | None = None,
) -> None:
    """Write a checkpoint without optimizer state, atomically.

    Args:
        receipt: the content of `conversion.json`; the written files are added.
        run: of the run that made the model, the content of `config.json`.

    Raises:
        FileExistsError: `output` exists and is not an empty directory.
        OSError: it cannot be written, for example because the disk is full.
    """
    with atomic_directory(output) as directory:
        params = jax.tree.map(np.asarray, model.params)
        size = sum(leaf.nbytes for leaf in jax.tree.leaves(params))
        _reserve(directory, size, absolute(output))
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(directory / "state", params)
        values: JsonObject = (run or {}) | {"model": to_dict(model.config)}
        if not run:  # else its fields say the same
            values |= _made_as(model)
        write_json(values, directory / "config.json")
        write_unused(model.unused, directory)
        model.tokenizer.save(directory / "tokenizer")
        files = describe_files(directory, files_below(directory))
        write_json(receipt | {"files": files}, directory / RECEIPT)
        files += describe_files(directory, [RECEIPT])
        write_manifest({"step": 0, "files": files}, directory)


def _made_as(model: Imported | Model) -> JsonObject:
    """Return what `load` reads of a model without a run, beside its `model`."""
    values: JsonObject = {}
    if isinstance(model, Model):
        values["pairs"] = model.pairs
    if model.embedding is not None:
        values["embedding"] = to_dict(model.embedding)
    if model.own_length:
        values["max_length"] = model.own_length
    return values


def _reserve(directory: epath.Path, size: int, output: epath.Path) -> None:
    """Check that the disk has `size` free bytes, by allocating a file of that size.

    Otherwise each thread of Orbax would print an error of its own.
    """
    if not hasattr(os, "posix_fallocate"):  # not on macOS
        return
    path = directory / "reserved"
    with name_path_in_errors(output), path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(size, 1))
    path.unlink()

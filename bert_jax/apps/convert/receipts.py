"""Import a model as a checkpoint, with a receipt of the conversion."""

import dataclasses
from collections.abc import Sequence

import jax
from etils import epath

from bert_jax.apps.convert.comparison import NOT_COMPARED, Comparison, compare
from bert_jax.formats.embedding import MODULES, model_directory
from bert_jax.formats.huggingface import (
    CONFIG,
    TOKENIZER_FILES,
    is_huggingface,
    read_huggingface,
)
from bert_jax.formats.imported import RECEIPT, Imported
from bert_jax.formats.model_files import read_object_or_empty
from bert_jax.formats.tf1 import TOKENIZER, is_tf1, read_tf1
from bert_jax.formats.tokenizer_json import TOKENIZER_JSON
from bert_jax.formats.tokenizers import from_huggingface
from bert_jax.model.finite import require_finite
from bert_jax.pretrained import as_directory, write_checkpoint
from bert_jax.storage.atomic import atomic_directory, require_new
from bert_jax.storage.remote import open_directory

_MAX_LISTED = 8
_WEIGHTS = (".safetensors", ".bin", ".index.json", ".index", ".h5", ".msgpack", ".pt")
"""Endings of the files that hold a model, whole or in part, in any form."""


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


def import_checkpoint(
    kind: str, source: str, output: epath.Path, allow_extra: bool = False
) -> tuple[str, str]:
    """Write the model of other files as a checkpoint; return a summary, and a warning.

    Of a tokenizer that transformers or tokenizers has saved alone, write that. Raise
    ValueError if the files are missing, damaged or of another kind of model,
    FileExistsError if `output` is not empty.
    """
    require_new(output)
    directory = open_directory(source) if kind == "tf1" else as_directory(source)
    forms = {"huggingface": is_huggingface, "tf1": is_tf1}
    fitting = [name for name, is_of in forms.items() if is_of(directory)]
    if fitting and kind not in fitting:
        right = f"`bert-jax convert import --from {fitting[0]}`"
        raise ValueError(f"{source} holds files of {fitting[0]}; read it by {right}.")
    if kind == "tf1":
        model = read_tf1(directory, allow_extra=allow_extra)
        comparison = Comparison(reason="no library here runs the checkpoint itself")
    else:
        if holds_tokenizer_alone(directory):
            tokenizer = from_huggingface(directory)
            with atomic_directory(output) as folder:
                tokenizer.save(folder)
            return f"{tokenizer!r} alone, for `bert-jax prepare --tokenizer`.", ""
        model = read_huggingface(directory, allow_extra=allow_extra)
        comparison = Comparison(reason="transformers reads only directories")
        if directory.is_dir():
            files = model_directory(directory)
            comparison = compare(files, model.config, model.params)
    write_imported(model, output, comparison, source)
    return summary(model), comparison.warning


def holds_tokenizer_alone(directory: epath.Path) -> bool:
    """Whether a directory names a tokenizer of another library, and has no model."""
    names = {path.name for path in directory.iterdir()} if directory.is_dir() else set()
    has_model = names & {CONFIG, MODULES} or any(n.endswith(_WEIGHTS) for n in names)
    if has_model or names.isdisjoint(TOKENIZER_FILES):
        return False
    settings = read_object_or_empty(directory / TOKENIZER)
    is_named = TOKENIZER_JSON in names or "tokenizer_class" in settings
    return is_named and "kind" not in settings


def write_imported(
    imported: Imported,
    output: epath.Path,
    comparison: Comparison = NOT_COMPARED,
    source: str = "",
) -> None:
    """Write an imported model as a checkpoint, if all parameters are finite."""
    require_finite(imported.params, "The model")
    receipt = {
        "source": source,
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

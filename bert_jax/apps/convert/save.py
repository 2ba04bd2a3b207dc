"""Write a model in any of its forms, from a path or from memory."""

from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import numpy as np

from bert_jax.apps.convert.export import export_huggingface
from bert_jax.apps.convert.page import export_page
from bert_jax.config.checks import require
from bert_jax.model.finite import require_finite
from bert_jax.pretrained import Model, load_pretrained, run_config, write_checkpoint
from bert_jax.storage.atomic import local_output, require_new

FORMS = ("huggingface", "onnx", "checkpoint", "stablehlo", "page")


def save(
    source: str | Model,
    output: str,
    to: str,
    warn: Callable[[str], None],
    license: str = "",
    language: str | Sequence[str] = (),
) -> str:
    """Write a model to a directory, or as a page to a file; return a summary.

    Args:
        source: a model, whose parameters are saved in float32, or a path for
            `load_pretrained`.
        warn: takes lines on what a form cannot express.
        license: for the card of huggingface; "": that of the model it was made of.
        language: codes of the languages, in the same way.

    Raises:
        FileExistsError: the output exists and is not an empty directory.
        ValueError: there is no such form, or it cannot express the model.
    """
    require(to in FORMS, f"to={to!r:.40} must be one of {', '.join(FORMS)}.")
    stated = bool(license or language)
    require(to == "huggingface" or not stated, "license and language need huggingface.")
    if isinstance(source, Model):
        params = jax.tree.map(lambda v: np.asarray(v, np.float32), source.params)
        source = source.changed(params)
        require_finite(source.params, "The model")
    if to == "page":
        return export_page(source, Path(output))
    target = local_output(output)
    if to == "checkpoint":
        model = load_pretrained(source)
        require_new(target)
        receipt = {"source": str(model.directory), "sources": list(model.sources)}
        write_checkpoint(model, receipt, target, run_config(model))
        return "a checkpoint without optimizer; `bert_jax.load` reads it."
    if to == "stablehlo":
        from bert_jax.apps.convert.stablehlo import export_stablehlo

        return f"load.py gives {', '.join(export_stablehlo(source, target))}."
    if to == "onnx":
        from bert_jax.apps.convert.onnx_export import export_onnx

        names, comparison, ids = export_onnx(source, target)
        summary = f"model.onnx gives {', '.join(names)}; {comparison.summary}."
    else:
        leaves, comparison, ids = export_huggingface(source, target, license, language)
        summary = f"{len(leaves)} tensors; conversion.json lists them."
    for line in filter(None, (comparison.warning, ids.warning)):
        warn(f"{output}: {line}")
    return summary

"""Make a shallower model of some of a model's layers, as a student to distil into."""

import shlex
from collections.abc import Sequence

import jax
from etils import epath

from bert_jax.config.checks import require
from bert_jax.config.model import Params
from bert_jax.pretrained import (
    Model,
    finetuning_run_config,
    load_pretrained,
    write_checkpoint,
)
from bert_jax.storage.atomic import require_new


def check_layers(layers: Sequence[int], num_layers: int) -> None:
    """Raise ValueError unless `layers` are some of a model's, each once, in order."""
    listed = " ".join(map(str, layers))
    require(bool(layers), "--layers has no layer; name those to keep, from 0.")
    for layer in layers:
        require(
            0 <= layer < num_layers,
            f"--layers has {layer}, and the model has {num_layers} layers; they are "
            f"counted from 0 to {num_layers - 1}.",
        )
    require(
        len(set(layers)) == len(layers),
        f"--layers has a layer twice, in {listed}; give each once.",
    )
    require(
        list(layers) == sorted(layers),
        f"--layers has {listed}, which is not in order; each layer reads the output of "
        f"the one before it, so give {' '.join(map(str, sorted(layers)))}.",
    )
    require(
        len(layers) < num_layers,
        f"--layers has all {num_layers} layers of the model; leave some out.",
    )


def keep_layers(model: Model, layers: Sequence[int]) -> Model:
    """Return the model with `layers` alone, renumbered from 0 (Sanh et al. 2019, §3).

    Embeddings and heads stay as they are.
    """
    encoder: Params = model.params["encoder"]
    kept = {k: leaves for k, leaves in encoder.items() if not k.startswith("layer_")}
    kept |= {f"layer_{i}": encoder[f"layer_{j}"] for i, j in enumerate(layers)}
    return model.changed(
        model.params | {"encoder": kept}, num_hidden_layers=len(layers)
    )


def shrink(source: str, layers: Sequence[int], output: epath.Path) -> str:
    """Write some layers of `source` as a checkpoint; return a summary.

    `layers` are those to keep, counted from 0, in increasing order. `conversion.json`
    names the source of each layer and the files of the model. Raise ValueError if
    `layers` are not layers of the model in order, or are all of them; FileExistsError
    if `output` exists and is not an empty directory.
    """
    require_new(output)
    model = load_pretrained(source)
    check_layers(layers, model.config.num_hidden_layers)
    smaller = keep_layers(model, layers)
    receipt = {
        "source": str(model.directory),
        "sources": list(model.sources),
        "layers": {f"layer_{i}": f"layer_{j}" for i, j in enumerate(layers)},
    }
    write_checkpoint(smaller, receipt, output, finetuning_run_config(model))
    count = sum(leaf.size for leaf in jax.tree.leaves(smaller.params))
    return (
        f"{output}: layers {' '.join(map(str, layers))} of the "
        f"{model.config.num_hidden_layers} of {source}; {count:,} parameters. Train it "
        "by `bert-jax finetune` or `bert-jax pretrain` with --teacher "
        f"{shlex.quote(source)}."
    )

"""Average the parameters of several checkpoints of a run (Izmailov et al. 2018)."""

from collections.abc import Sequence

import numpy as np
from etils import epath
from flax.traverse_util import flatten_dict, unflatten_dict

from bert_jax.checkpoints.steps import checkpoint_of_step
from bert_jax.config.checks import require
from bert_jax.config.serialization import differences, to_dict
from bert_jax.pretrained import (
    Model,
    finetuning_run_config,
    load_pretrained,
    write_checkpoint,
)
from bert_jax.storage.atomic import require_new
from bert_jax.storage.files import JsonObject
from bert_jax.storage.remote import open_directory

MAY_DIFFER = (
    "attention_kernel attention_probs_dropout_prob dtype hidden_dropout_prob remat"
).split()
"""Fields of a model that say how it is trained, not what its parameters mean."""


def average(source: str, steps: Sequence[int], output: epath.Path) -> str:
    """Write the mean of checkpoints of one run as a checkpoint; return a summary.

    Each parameter is the arithmetic mean of its values, in float64, rounded once to
    float32. Besides these sums one model is in memory. Configuration and tokenizer are
    those of the last of the steps, whose order has no effect. `conversion.json` lists
    the files of each source.

    Raise FileNotFoundError if `source` is no workdir, or lacks one of the checkpoints,
    FileExistsError if `output` exists and is not an empty directory, ValueError if
    there are fewer than two steps, one is given twice, a checkpoint is damaged, or they
    are of different models.
    """
    require_new(output)
    steps = sorted(steps)
    listed = ", ".join(map(str, steps))
    require(
        len(steps) > 1,
        f"--steps has {listed or 'no step'}; give two or more, to average them.",
    )
    require(
        len(set(steps)) == len(steps),
        f"--steps has a step twice, in {listed}; give each once.",
    )
    workdir = open_directory(source)
    paths = [checkpoint_of_step(workdir, step) for step in steps]
    last, means, entries = _sum_up(paths)
    for name, total in means.items():
        means[name] = (total / len(paths)).astype(np.float32)
    receipt = {"source": str(workdir), "mean_of": entries}
    mean = last.changed(unflatten_dict(means, sep="/"))
    write_checkpoint(mean, receipt, output, finetuning_run_config(last))
    count = sum(leaf.size for leaf in means.values())
    return (
        f"{output}: the mean of {len(steps)} checkpoints of {source}, steps {listed}; "
        f"{count:,} parameters."
    )


def _sum_up(
    paths: Sequence[epath.Path],
) -> tuple[Model, dict[str, np.ndarray], list[JsonObject]]:
    """Return the last model without its parameters, the sums, and receipt entries."""
    model: Model | None = None
    sums: dict[str, np.ndarray] = {}
    entries = []
    for path in paths:
        before, model = model, load_pretrained(str(path))
        leaves = flatten_dict(model.params, sep="/")
        model = model.changed({})
        if before is None:
            sums = {name: leaf.astype(np.float64) for name, leaf in leaves.items()}
        else:
            require_same_model(before, model, sums, leaves)
            for name, leaf in leaves.items():
                sums[name] += leaf
        entries.append({"checkpoint": str(path), "files": list(model.sources)})
        del leaves  # before the next model is read
    assert model is not None
    return model, sums, entries


def require_same_model(
    before: Model,
    model: Model,
    sums: dict[str, np.ndarray],
    leaves: dict[str, np.ndarray],
) -> None:
    """Raise ValueError unless two checkpoints have parameters of the same meaning."""
    where = f"{before.directory} and {model.directory} are not of one model"
    old, new = to_dict(before.config), to_dict(model.config)
    changed = [c for c in differences(old, new) if c[0] not in MAY_DIFFER]
    for name, one, other in changed[:1]:
        raise ValueError(f"{where}: {name} is {one} and {other}.")
    shapes = {name: total.shape for name, total in sums.items()}
    if shapes != {name: leaf.shape for name, leaf in leaves.items()}:
        raise ValueError(f"{where}: their parameters have different shapes.")
    if before.tokenizer.fingerprint != model.tokenizer.fingerprint:
        raise ValueError(f"{where}: their tokenizers differ.")

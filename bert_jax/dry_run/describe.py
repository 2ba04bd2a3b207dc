"""What a run would be, told before it is started."""

from collections.abc import Iterator

import jax
import numpy as np

from bert_jax.config import PretrainConfig
from bert_jax.data.records import Dataset
from bert_jax.distributed.mesh import path_name
from bert_jax.masking.batch import MaskedBatch
from bert_jax.tasks.task import Task
from bert_jax.tokenization import Tokenizer
from bert_jax.training.state import num_parameters, split_seed, split_step_key

_ROWS_SHOWN = 2


def decode_masked(
    masked: MaskedBatch, row: int, tokenizer: Tokenizer
) -> tuple[str, list[str]]:
    """A row as the model sees it, and what each prediction was and is shown as."""
    length = int(masked.inputs.attention_mask[row].sum())
    shown = tokenizer.tokens(np.asarray(masked.inputs.input_ids[row, :length]).tolist())
    predictions = []
    used = np.flatnonzero(masked.weights[row])
    for slot in sorted(used, key=lambda slot: int(masked.predicted[row, slot])):
        position = int(masked.predicted[row, slot])
        label = tokenizer.token(int(masked.labels[row, slot]))
        predictions.append(f"{position}: {label} shown as {shown[position]}")
    return " ".join(shown), predictions


def describe(config: PretrainConfig, dataset: Dataset, task: Task) -> Iterator[str]:
    """Lines: parameter shapes and number, FLOPs, data, the first rows with masks."""
    params = jax.eval_shape(task.init_params, jax.random.key(config.seed))
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        yield f"{path_name(path)}  {list(leaf.shape)} {leaf.dtype}"
    yield f"parameters: {num_parameters(params):,}"
    first = config.data.first_step
    batch = task.batch(first)
    yield f"model FLOPs a step: {task.flops(batch):.4g}"
    rows = len(dataset.train)
    steps = config.num_steps
    yield (
        f"training rows: {rows:,}; {steps:,} steps of {config.batch_size} rows are "
        f"{steps * config.batch_size / rows:.2f} epochs"
    )
    yield f"validation rows: {len(dataset.validation):,}"
    for name, values in batch.items():
        yield f"batch {name}: {list(values.shape)} {values.dtype}"
    _, base_key = split_seed(config.seed)
    mask_key, _ = split_step_key(jax.random.fold_in(base_key, first))
    masked = jax.jit(task.corrupt)(batch, mask_key).masked
    for row in range(min(_ROWS_SHOWN, config.batch_size)):
        text, predictions = decode_masked(masked, row, dataset.tokenizer)
        held = batch["end"][row] > 0
        labels = batch["next_sentence_label"][row, held].tolist()
        meanings = {0: "follows", 1: "random", -1: "none"}
        told = ", ".join(meanings[label] for label in labels)
        yield f"first batch, row {row} (second segment: {told}):"
        yield f"  {text}"
        yield f"  to predict: {'; '.join(predictions)}"

"""The description of a run that `pretrain --dry-run` prints."""

from collections.abc import Iterator

import jax
import numpy as np
from jaxtyping import Array, UInt32

from bert_jax.config import PretrainConfig, RunConfig
from bert_jax.data.pairs import LABEL_MEANINGS
from bert_jax.data.pipeline import Batch
from bert_jax.data.records import Dataset
from bert_jax.distributed.sharding import path_name
from bert_jax.runs.estimate import format_size
from bert_jax.runs.pretraining import rows_line
from bert_jax.tasks.pretraining.task import PretrainingBatch
from bert_jax.tasks.task import Task
from bert_jax.training.muon import split_kernels
from bert_jax.training.step import num_parameters, split_seed, step_keys

MORE = "--verbose shows more: the tensors, the compiler's figures, the first rows"
_NUM_ROWS_SHOWN = 2


def decode_masked(
    batch: PretrainingBatch, row: int, dataset: Dataset
) -> tuple[str, list[str]]:
    """Return the masked tokens of a row, and each prediction's label and input."""
    masked, tokenizer = batch.masked, dataset.tokenizer
    length = int(masked.inputs.attention_mask[row].sum())
    ids = np.asarray(masked.inputs.input_ids[row, :length]).tolist()
    tokens = tokenizer.tokens(ids)
    if masked.predicted is None:
        return " ".join(tokens), ["each token but the first, from those before it"]
    slots = np.flatnonzero(masked.weights[row])  # the other slots are padding
    positions = np.asarray(masked.predicted[row])[slots].tolist()
    labels = tokenizer.tokens(np.asarray(masked.labels[row])[slots].tolist())
    return " ".join(tokens), [
        f"{position}: {label} shown as {tokens[position]}"
        for position, label in sorted(zip(positions, labels, strict=True))
    ]


def describe_schedules(config: PretrainConfig) -> Iterator[str]:
    """Yield a line on the learning rate, and one on the masking rate, by the steps."""
    optimizer, end = config.optimizer, config.schedule_steps
    warmup, decay = optimizer.phases(end)
    line = f"learning rate: {optimizer.peak_learning_rate:g} after {warmup:,} steps"
    if decay > warmup:
        line += f", constant up to {decay:,}"
    yield line + (f", 0 after {end:,}" if end > decay else "")
    masking = config.masking
    if config.objective == "causal_lm":
        return
    if masking.final_rate is None:
        cap = masking.cap(config.data.sequence_length)
        yield f"masking rate: {masking.rate:g}" + (f"; {cap}" if cap else "")
    else:
        ends = f"{masking.rate:g} at the first step, {masking.final_rate:g} at the last"
        yield f"masking rate: {ends}"


def describe_muon(config: RunConfig, task: Task) -> Iterator[str]:
    """Yield a line on what Muon trains, and what its state saves, if it is used."""
    if config.optimizer.algorithm != "muon":
        return
    params = jax.eval_shape(task.init_params, jax.random.key(0))
    kernels, _ = split_kernels(params)
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in kernels.values())
    yield (
        f"Muon: {len(kernels)} kernels of the layers, with one moment each; AdamW: the "
        f"rest, with two; saves {format_size(size)} of the optimizer's state"
    )


def describe_teacher(config: PretrainConfig, task: Task) -> Iterator[str]:
    """Yield a line on the teacher, if there is one, and on the parts of the loss."""
    if not config.teacher:
        return
    c, size = config.distillation, num_parameters(task.fixed_params)
    parts = [f"{c.label_weight:g} x the loss on the labels"]
    parts += [
        f"{getattr(c, name):g} x {name.removesuffix('_weight')}"
        for name in c.weights
        if getattr(c, name)
    ]
    yield (
        f"teacher: {config.teacher}, {size:,} parameters that are not trained; loss = "
        f"{' + '.join(parts)}, temperature {c.temperature:g}"
    )


def tensor_lines(task: Task) -> Iterator[str]:
    """Yield a line on each parameter."""
    params = jax.eval_shape(task.init_params, jax.random.key(0))
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        yield f"{path_name(path)}  {list(leaf.shape)} {leaf.dtype}"


def parameters_line(task: Task, batch: Batch) -> str:
    """Return the number of parameters, and the FLOPs of a step."""
    size = num_parameters(jax.eval_shape(task.init_params, jax.random.key(0)))
    return f"parameters: {size:,}; model FLOPs a step: {task.flops(batch):.4g}"


def describe(config: PretrainConfig, dataset: Dataset, task: Task) -> Iterator[str]:
    """Yield lines on parameters, FLOPs, schedules and data."""
    yield parameters_line(task, task.batch(config.data.first_step))
    yield from describe_teacher(config, task)
    yield from describe_muon(config, task)
    yield from describe_schedules(config)
    yield rows_line(config, dataset)
    yield f"validation rows: {len(dataset.validation):,}"


def details(
    config: PretrainConfig,
    dataset: Dataset,
    task: Task,
    base_key: UInt32[Array, "2"] | None = None,
) -> Iterator[str]:
    """Yield lines on each parameter, a batch's arrays, and the first masked rows."""
    yield from tensor_lines(task)
    first_step = config.data.first_step
    batch = task.batch(first_step)
    for name, values in batch.items():
        yield f"batch {name}: {list(values.shape)} {values.dtype}"
    if base_key is None:
        base_key = jax.random.key_data(split_seed(config.seed)[1])
    mask_key, _ = step_keys(base_key, first_step)
    masked = jax.jit(task.corrupt_at_step)(batch, mask_key, np.int32(first_step))
    for row in range(min(_NUM_ROWS_SHOWN, config.batch_size)):
        text, predictions = decode_masked(masked, row, dataset)
        is_pair = batch["end"][row] > 0
        labels = batch["next_sentence_label"][row, is_pair].tolist()
        names = LABEL_MEANINGS[dataset.manifest["pairs"]]
        second_segments = ", ".join(names[label] for label in labels)
        yield f"first batch, row {row} (second segment: {second_segments}):"
        yield f"  {text}"
        yield f"  to predict: {'; '.join(predictions)}"

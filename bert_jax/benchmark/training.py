"""The training step: masking, forward, backward and update, on one batch."""

import argparse
import dataclasses
import functools
from typing import Any

import jax
import numpy as np

from bert_jax.benchmark.comparison import measure
from bert_jax.benchmark.devices import OurModel, compiled
from bert_jax.benchmark.figures import Figures
from bert_jax.benchmark.pytorch import Arrays
from bert_jax.benchmark.synthetic import synthetic_task
from bert_jax.distributed.mesh import make_mesh, to_global_arrays, tree_shardings
from bert_jax.masking.batch import MaskedBatch, mask_tokens
from bert_jax.training.optimizer import Optimizer
from bert_jax.training.state import initial_state, num_parameters
from bert_jax.training.step import make_train_step

TORCH_VARIANTS = ("as_shipped", "masked_head")


@dataclasses.dataclass
class _Step:
    """The compiled step, and the state that it goes on from."""

    program: Any
    state: Any
    batch: dict[str, jax.Array]
    loss: Any = None

    def __call__(self) -> tuple[Any, Any]:
        self.state, scalars = self.program(self.state, self.batch)
        self.loss = scalars["loss"]
        return self.state, scalars


def torch_rows(masked: MaskedBatch, labels: np.ndarray) -> Arrays:
    """The masked rows as PyTorch's side takes them, by the names of its arguments."""
    predicted, weights = np.asarray(masked.predicted), np.asarray(masked.weights)
    wanted = np.where(weights > 0, np.asarray(masked.labels), -100)
    everywhere = np.full(masked.inputs.input_ids.shape, -100)
    rows, slots = np.nonzero(weights)
    everywhere[rows, predicted[rows, slots]] = wanted[rows, slots]
    arrays = {
        "input_ids": masked.inputs.input_ids,
        "token_type_ids": masked.inputs.segment_ids,
        "attention_mask": masked.inputs.attention_mask,
        "next_sentence_label": labels[:, 0],
        "labels": everywhere,
        "predicted": predicted,
        "predicted_labels": wanted,
    }
    return {name: np.asarray(values, np.int64) for name, values in arrays.items()}


def benchmark_train(options: argparse.Namespace) -> Figures:
    """The training step alone: masking, forward, backward, update, on one batch."""
    config, task = synthetic_task(options)
    mesh = make_mesh(config.mesh, config.batch_size, config.microbatches)
    optimizer = Optimizer.of(config)
    initial = functools.partial(initial_state, task.init_params, optimizer, config.seed)
    shardings = tree_shardings(mesh, jax.eval_shape(initial))
    state = jax.jit(initial, out_shardings=shardings)()
    rows = task.batch(0)
    batch = to_global_arrays(rows, mesh)
    train_step = make_train_step(task, optimizer, config.microbatches, mesh, shardings)
    program, figures = compiled(train_step, state, batch)
    figures = {"parameters": num_parameters(state.params), **figures}
    step = _Step(program, state, batch)
    ours = OurModel(
        dispatch=step,
        sequences=config.batch_size,
        tokens=task.num_tokens(rows),
        flops=task.flops(rows),
        num_devices=mesh.size,
        figures=figures,
    )
    del state  # the first step takes its memory

    def arrays() -> Arrays:
        masked = mask_tokens(jax.random.key(0), rows, config.masking)
        return torch_rows(masked, rows["next_sentence_label"])

    found = measure(options, config, ours, TORCH_VARIANTS, arrays)
    return found | {"loss": float(step.loss)}

"""Time the training step: masking, forward, backward and update, on one batch."""

import dataclasses
import functools
from typing import Any

import jax
import numpy as np

from bert_jax.benchmark.comparison import measure
from bert_jax.benchmark.devices import OurModel, compile_program
from bert_jax.benchmark.figures import Figures
from bert_jax.benchmark.options import TrainOptions
from bert_jax.benchmark.pytorch import TorchArrays
from bert_jax.benchmark.synthetic import synthetic_task
from bert_jax.distributed.mesh import make_mesh
from bert_jax.distributed.sharding import to_global_arrays, tree_shardings
from bert_jax.masking.batch import MaskedBatch, mask_tokens
from bert_jax.training.optimizer import Optimizer
from bert_jax.training.step import initial_state, make_train_step, num_parameters

TORCH_VARIANTS = ("as_shipped", "masked_head")


@dataclasses.dataclass
class _Step:
    """The compiled step, and the state that it updates."""

    program: Any
    state: Any
    batch: dict[str, jax.Array]
    loss: Any = None

    def __call__(self) -> tuple[Any, Any]:
        self.state, scalars = self.program(self.state, self.batch)
        self.loss = scalars["loss"]
        return self.state, scalars


def torch_rows(masked: MaskedBatch, labels: np.ndarray) -> TorchArrays:
    """Return the masked rows under the argument names of transformers."""
    predicted, weights = np.asarray(masked.predicted), np.asarray(masked.weights)
    # A label of -100 is ignored by PyTorch's cross-entropy.
    slot_labels = np.where(weights > 0, np.asarray(masked.labels), -100)
    # The same labels at every position, and not by prediction slot.
    token_labels = np.full(masked.inputs.input_ids.shape, -100)
    rows, slots = np.nonzero(weights)
    token_labels[rows, predicted[rows, slots]] = slot_labels[rows, slots]
    arrays = {
        "input_ids": masked.inputs.input_ids,
        "token_type_ids": masked.inputs.segment_ids,
        "attention_mask": masked.inputs.attention_mask,
        "next_sentence_label": labels[:, 0],
        "labels": token_labels,
        "predicted": predicted,
        "predicted_labels": slot_labels,
    }
    return {name: np.asarray(values, np.int64) for name, values in arrays.items()}


def benchmark_train(options: TrainOptions) -> Figures:
    """Time the training step alone, on one batch."""
    config, task = synthetic_task(options)
    mesh = make_mesh(config.mesh, config.batch_size, config.microbatches)
    optimizer = Optimizer.of(config)
    initial = functools.partial(initial_state, task.init_params, optimizer, config.seed)
    shardings = tree_shardings(mesh, jax.eval_shape(initial))
    state = jax.jit(initial, out_shardings=shardings)()
    rows = task.batch(0)
    batch = to_global_arrays(rows, mesh)
    train_step = make_train_step(task, optimizer, config.microbatches, mesh, shardings)
    program, figures = compile_program(train_step, state, batch)
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
    del state  # the first step donates its memory

    def arrays() -> TorchArrays:
        masked = mask_tokens(jax.random.key(0), rows, config.masking)
        return torch_rows(masked, rows["next_sentence_label"])

    figures = measure(options, config, ours, TORCH_VARIANTS, arrays)
    return figures | {"loss": float(step.loss)}

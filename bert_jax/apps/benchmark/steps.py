"""Time the training step, and the encoder alone, on one batch."""

import dataclasses
from typing import Any

import jax
import numpy as np
from etils import epath

from bert_jax.apps.benchmark.comparison import OurModel, compile_program, measure
from bert_jax.apps.benchmark.figures import Figures
from bert_jax.apps.benchmark.options import InferenceOptions, TrainOptions
from bert_jax.apps.benchmark.pytorch import TorchArrays
from bert_jax.apps.benchmark.reading import synthetic_rows
from bert_jax.config import (
    PRESETS,
    DataConfig,
    MaskingConfig,
    MeshConfig,
    OptimizerConfig,
    PretrainConfig,
)
from bert_jax.config.model import Params
from bert_jax.data.records import Dataset, Rows
from bert_jax.distributed.mesh import make_mesh
from bert_jax.distributed.sharding import to_global_arrays
from bert_jax.model.bert import compute
from bert_jax.model.flops import encoding_flops
from bert_jax.model.inputs import Inputs, inputs_of
from bert_jax.tasks.pretraining.task import PretrainingBatch, PretrainingTask
from bert_jax.training.run import Run
from bert_jax.training.step import TrainState, num_parameters


def synthetic_task(options: TrainOptions) -> tuple[PretrainConfig, PretrainingTask]:
    """Return pretraining on synthetic rows: its configuration and task.

    It is on one device if PyTorch is compared.
    """
    preset = PRESETS[options.model]
    rate = preset.hidden_dropout_prob if options.dropout else 0.0
    model = preset.changed(
        dtype=options.dtype,
        remat=options.remat,
        attention_kernel=options.attention_kernel,
        hidden_dropout_prob=rate,
        attention_probs_dropout_prob=rate if options.attention_dropout else 0.0,
    )
    config = PretrainConfig(
        model=model,
        data=DataConfig(sequence_length=options.sequence_length, pairs="nsp"),
        masking=MaskingConfig(
            # The paper's prediction slots: 20 at 128 tokens, 80 at 512.
            max_predictions=-(-options.sequence_length * 5 // 32),
            mask_token_id=4,
            vocab_size=model.vocab_size,
        ),
        optimizer=OptimizerConfig(algorithm=options.optimizer),
        mesh=MeshConfig(data=1 if options.compare else -1),
        batch_size=options.batch_size,
        microbatches=options.microbatches,
    )
    return config, PretrainingTask(config, synthetic_dataset(config, config.batch_size))


def synthetic_dataset(config: PretrainConfig, num_rows: int) -> Dataset:
    """Return training rows of random tokens, without a tokenizer."""
    table = synthetic_rows(
        num_rows, config.data.sequence_length, config.model.vocab_size
    )
    rows = Rows(table.dtype, [table])
    return Dataset(epath.Path("synthetic"), {}, rows, Rows(table.dtype, []))


def torch_rows(rows: PretrainingBatch) -> TorchArrays:
    """Return the masked rows under the argument names of transformers."""
    masked = rows.masked
    predicted, weights = np.asarray(masked.predicted), np.asarray(masked.weights)
    # A label of -100 is ignored by PyTorch's cross-entropy.
    slot_labels = np.where(weights > 0, np.asarray(masked.labels), -100)
    # The same labels at every position, and not by prediction slot.
    token_labels = np.full(masked.inputs.input_ids.shape, -100)
    row, slot = np.nonzero(weights)
    token_labels[row, predicted[row, slot]] = slot_labels[row, slot]
    arrays = {
        "input_ids": masked.inputs.input_ids,
        "token_type_ids": masked.inputs.segment_ids,
        "attention_mask": masked.inputs.attention_mask,
        "next_sentence_label": rows.pair_labels[:, 0],
        "labels": token_labels,
        "predicted": predicted,
        "predicted_labels": slot_labels,
    }
    return {name: np.asarray(values, np.int64) for name, values in arrays.items()}


def benchmark_train(options: TrainOptions) -> Figures:
    """Time the training step alone, on one batch."""
    config, task = synthetic_task(options)
    mesh = make_mesh(config.mesh, config.batch_size, config.microbatches)
    run = Run(task=task, config=config, mesh=mesh)
    state, rows = run.draw_state(), task.batch(0)
    batch = to_global_arrays(rows, mesh)
    program, figures = compile_program(run.train_step(), state, batch)
    scalars: dict[str, jax.Array] = {}

    def step() -> tuple[TrainState, dict[str, jax.Array]]:
        nonlocal state, scalars
        state, scalars, _ = program(state, batch)  # the old state's memory is donated
        return state, scalars

    ours = OurModel(
        dispatch=step,
        sequences=config.batch_size,
        tokens=task.num_tokens(rows),
        flops=task.flops(rows),
        num_devices=mesh.size,
        figures={"parameters": num_parameters(state.params), **figures},
    )

    def arrays() -> TorchArrays:
        return torch_rows(
            task.corrupt_at_step(batch, jax.random.key(0), jax.numpy.int32(0))
        )

    variants = ("as_shipped", "masked_head")
    figures = measure(options, config, ours, variants, arrays)
    return figures | {"loss": float(scalars["loss"])}


def benchmark_inference(options: InferenceOptions) -> Figures:
    """Time the encoder alone on one batch, on one device.

    Parameters have the dtype of the computation.
    """
    config, task = synthetic_task(TrainOptions(**dataclasses.asdict(options)))
    model, rows = config.model, task.batch(0)

    def initial_params() -> Params:
        params = task.init_params(jax.random.key(config.seed))
        params = {name: params[name] for name in ("encoder", "pooler")}
        return jax.tree.map(lambda leaf: leaf.astype(model.dtype), params)

    params = jax.jit(initial_params)()
    inputs = inputs_of(rows)
    arrays = inputs.input_ids, inputs.segment_ids, inputs.attention_mask

    @jax.jit
    def encoding(params: Params, ids: Any, segments: Any, mask: Any) -> Any:
        inputs = Inputs(ids, segments, mask)
        return compute(model, params, "hidden_and_pooled", inputs)

    program, figures = compile_program(encoding, params, *arrays)
    ours = OurModel(
        dispatch=lambda: program(params, arrays[0], arrays[1], arrays[2]),
        sequences=config.batch_size,
        tokens=task.num_tokens(rows),
        flops=encoding_flops(model, config.batch_size, options.sequence_length),
        num_devices=1,
        figures={"parameters": num_parameters(params), **figures},
    )

    def torch_arrays() -> TorchArrays:
        names = ("input_ids", "token_type_ids", "attention_mask")
        values = [np.asarray(array, np.int64) for array in arrays]
        return dict(zip(names, values, strict=True))

    return measure(options, config, ours, ("encoder",), torch_arrays)

"""The encoder: token ids to hidden states and pooled vectors, without dropout."""

import dataclasses
import functools
from typing import Any

import jax
import numpy as np

from bert_jax.benchmark.comparison import measure
from bert_jax.benchmark.devices import OurModel, compile_program
from bert_jax.benchmark.figures import Figures
from bert_jax.benchmark.options import InferenceOptions, TrainOptions
from bert_jax.benchmark.pytorch import TorchArrays
from bert_jax.benchmark.synthetic import synthetic_task
from bert_jax.model.apply import encode
from bert_jax.model.flops import encoding_flops
from bert_jax.model.inputs import inputs_of
from bert_jax.training.state import num_parameters

TORCH_VARIANTS = ("encoder",)


def benchmark_inference(options: InferenceOptions) -> Figures:
    """Time the encoder alone on one batch, on one device.

    Parameters have the dtype of the computation.
    """
    config, task = synthetic_task(TrainOptions(**dataclasses.asdict(options)))
    model, rows = config.model, task.batch(0)
    inputs = inputs_of(rows)
    batch = inputs.input_ids, inputs.segment_ids, inputs.attention_mask

    def initial_params() -> Any:
        params = task.initialise(jax.random.key(config.seed))
        params = {name: params[name] for name in ("encoder", "pooler")}
        return jax.tree.map(lambda leaf: leaf.astype(model.dtype), params)

    params = jax.jit(initial_params)()
    encoding = jax.jit(functools.partial(encode, model))
    program, figures = compile_program(encoding, params, *batch)
    ours = OurModel(
        dispatch=lambda: program(params, *batch),
        sequences=config.batch_size,
        tokens=task.tokens(rows),
        flops=encoding_flops(model, config.batch_size, options.sequence_length),
        num_devices=1,
        figures={"parameters": num_parameters(params), **figures},
    )

    def arrays() -> TorchArrays:
        names = ("input_ids", "token_type_ids", "attention_mask")
        return {
            name: np.asarray(values, np.int64)
            for name, values in zip(names, batch, strict=True)
        }

    return measure(options, config, ours, TORCH_VARIANTS, arrays)

"""Time the encoder: token ids to hidden states and pooled vectors, no dropout."""

import dataclasses

import jax
import numpy as np

from bert_jax.benchmark.comparison import measure
from bert_jax.benchmark.devices import OurModel, compile_program
from bert_jax.benchmark.figures import Figures
from bert_jax.benchmark.options import InferenceOptions, TrainOptions
from bert_jax.benchmark.pytorch import TorchArrays
from bert_jax.benchmark.synthetic import synthetic_task
from bert_jax.config.model import Params
from bert_jax.model.bert import compute
from bert_jax.model.flops import encoding_flops
from bert_jax.model.inputs import Inputs, inputs_of
from bert_jax.training.step import num_parameters

TORCH_VARIANTS = ("encoder",)


def benchmark_inference(options: InferenceOptions) -> Figures:
    """Time the encoder alone on one batch, on one device.

    Parameters have the dtype of the computation.
    """
    config, task = synthetic_task(TrainOptions(**dataclasses.asdict(options)))
    model, rows = config.model, task.batch(0)
    arrays = jax.tree.leaves(inputs_of(rows))  # ids, segments, mask

    def initial_params() -> Params:
        params = task.init_params(jax.random.key(config.seed))
        params = {name: params[name] for name in ("encoder", "pooler")}
        return jax.tree.map(lambda leaf: leaf.astype(model.dtype), params)

    params = jax.jit(initial_params)()
    encoding = jax.jit(
        lambda params, *arrays: compute(
            model, params, "hidden_and_pooled", Inputs(*arrays)
        )
    )
    program, figures = compile_program(encoding, params, *arrays)
    ours = OurModel(
        dispatch=lambda: program(params, *arrays),
        sequences=config.batch_size,
        tokens=task.num_tokens(rows),
        flops=encoding_flops(model, config.batch_size, options.sequence_length),
        num_devices=1,
        figures={"parameters": num_parameters(params), **figures},
    )

    def torch_arrays() -> TorchArrays:
        names = ("input_ids", "token_type_ids", "attention_mask")
        return {
            name: np.asarray(values, np.int64)
            for name, values in zip(names, arrays, strict=True)
        }

    return measure(options, config, ours, TORCH_VARIANTS, torch_arrays)

"""Export a model to StableHLO, which JAX runs without this package."""

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath
from flax.traverse_util import flatten_dict, unflatten_dict
from jax import export
from jaxtyping import Array, Float, Int

from bert_jax.apps.convert.export import (
    export_receipt,
    require_parameters,
    write_safetensors,
)
from bert_jax.config import BertConfig
from bert_jax.config.checks import require
from bert_jax.config.serialization import to_dict
from bert_jax.formats.imported import RECEIPT, Leaf
from bert_jax.model.bert import head_outputs
from bert_jax.model.inputs import Inputs
from bert_jax.pretrained import Model, load_pretrained
from bert_jax.storage.atomic import atomic_directory
from bert_jax.storage.files import write_json

PROGRAM, PARAMS, LOADER = "model.stablehlo", "params.safetensors", "load.py"
PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
"""The platforms that the program is lowered for, in one file."""

_LOADER = f'''\
"""{{title}} Needs only jax, flatbuffers and numpy.

`outputs(input_ids, segment_ids, attention_mask)` takes integers {{shape}}; the mask
is 1 for a real token, and 0 for padding. It returns, by name:

{{names}}
"""

import json
import pathlib

import jax.export
import numpy as np

_here = pathlib.Path(__file__).parent
_model = jax.export.deserialize((_here / "{PROGRAM}").read_bytes())
_bytes = np.memmap(_here / "{PARAMS}", np.uint8, "r")
_start = 8 + int.from_bytes(_bytes[:8].tobytes(), "little")
_header = json.loads(_bytes[8:_start].tobytes())
_header.pop("__metadata__", None)
params = {{{{
    name: _bytes[_start:][slice(*tensor["data_offsets"])].view("<f4")
    for name, tensor in _header.items()
}}}}
params = jax.device_put(
    {{{{name: x.reshape(_header[name]["shape"]) for name, x in params.items()}}}}
)


def outputs(input_ids, segment_ids, attention_mask):
    inputs = (input_ids, segment_ids, attention_mask)
    return _model.call(params, *(np.asarray(x, np.int32) for x in inputs))
'''


def export_stablehlo(
    source: str | Model,
    output: epath.Path,
    batch_size: int | None = None,
    sequence_length: int | None = None,
) -> tuple[str, ...]:
    """Write a program, its parameters and a loader; return the names of its outputs.

    Raise FileNotFoundError if there is no model, FileExistsError if `output` has files,
    ValueError if the model is damaged or takes no such size, or flatbuffers is missing.

    Args:
        source: a model, or a path for `load_pretrained`.
        output: a directory that is new or empty.
        batch_size: the batch size that the program accepts; None: any.
        sequence_length: tokens in a row, with padding; None: the model's own length,
            or 128 without one; at most its positions.
    """
    if importlib.util.find_spec("flatbuffers") is None:
        raise ValueError(
            "StableHLO is written by jax and flatbuffers, and the latter is missing; "
            "`pip install flatbuffers`."
        )
    model = load_pretrained(source).in_target_units()
    require_parameters(model, extra=True)
    if sequence_length is None:
        positions = model.config.max_position_embeddings
        sequence_length = min(model.own_length or 128, positions)
    params = flatten_dict(model.params, sep="/")
    program = lower(model.config, params, batch_size, sequence_length)
    outputs = jax.tree.unflatten(program.out_tree, program.out_avals)
    leaves = tuple(
        Leaf(name, name, values.shape, str(values.dtype), transposed=False)
        for name, values in params.items()
    )
    with atomic_directory(output) as directory:
        (directory / PROGRAM).write_bytes(program.serialize())
        write_safetensors(params, directory / PARAMS)
        model.tokenizer.save(directory / "tokenizer")
        write_json({"model": to_dict(model.config)}, directory / "config.json")
        loader = _LOADER.format(
            title=f"BERT, head {model.config.head}, as StableHLO.",
            shape=f"[{batch_size or 'any'}, {sequence_length}]",
            names="\n".join(
                f"    {n} [{', '.join(map(str, o.shape))}]" for n, o in outputs.items()
            ),
        )
        (directory / LOADER).write_text(loader)
        write_json(export_receipt(model, leaves, directory), directory / RECEIPT)
    return tuple(outputs)


def lower(
    config: BertConfig,
    params: dict[str, Float[np.ndarray, "..."]],
    batch_size: int | None,
    sequence_length: int,
) -> export.Exported:
    """Return the program from flat parameters and three inputs to the outputs."""
    positions = config.max_position_embeddings
    require(
        0 < sequence_length <= positions,
        f"sequence_length={sequence_length} must be from 1 to "
        f"max_position_embeddings={positions}.",
    )
    require(
        batch_size is None or batch_size > 0,
        f"batch_size={batch_size} must be at least 1; leave it out for any.",
    )
    # A fused kernel is of one platform.
    config = config.changed(attention_kernel="plain")

    def outputs(
        params: dict[str, Float[Array, "..."]],
        input_ids: Int[Array, "B T"],
        segment_ids: Int[Array, "B T"],
        attention_mask: Int[Array, "B T"],
    ) -> dict[str, Float[Array, "..."]]:
        result = head_outputs(
            config,
            unflatten_dict(params, sep="/"),
            Inputs(input_ids, segment_ids, attention_mask > 0),
        )
        # The hidden states of all layers would be by far the largest output.
        return {"hidden": result.pop("hidden_states")[-1], **result}

    rows = batch_size or export.symbolic_shape("batch")[0]
    inputs = jax.ShapeDtypeStruct((rows, sequence_length), jnp.int32)
    shapes = jax.eval_shape(lambda: params)
    lowered = export.export(jax.jit(outputs), platforms=PLATFORMS)
    return lowered(shapes, inputs, inputs, inputs)

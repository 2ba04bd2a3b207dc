"""Export a model to ONNX, which runtimes and servers run without this package."""

import dataclasses
import importlib.util
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath
from flax.traverse_util import flatten_dict
from jaxtyping import Float, Int

from bert_jax.apps.convert.comparison import Comparison, compare_outputs, fixed_batch
from bert_jax.apps.convert.export import (
    export_receipt,
    huggingface_config,
    input_names,
    require_parameters,
    require_tokenizer_json,
    write_tokenizer,
)
from bert_jax.apps.convert.onnx_bert import bert_graph
from bert_jax.apps.convert.onnx_graph import MODEL
from bert_jax.apps.convert.onnx_readme import readme
from bert_jax.config import BertConfig
from bert_jax.config.embedding import Embedding
from bert_jax.config.model import Params
from bert_jax.formats.embedding import write_embedding
from bert_jax.formats.huggingface import CONFIG
from bert_jax.formats.imported import RECEIPT, Leaf
from bert_jax.formats.model_files import CARD
from bert_jax.formats.sentencepiece_files import TokenizerDifferences
from bert_jax.model.bert import compute, head_outputs
from bert_jax.model.inputs import Inputs
from bert_jax.pretrained import Model, load_pretrained
from bert_jax.storage.atomic import atomic_directory
from bert_jax.storage.files import write_json

RUNTIME = "onnxruntime"


def export_onnx(
    source: str | Model, output: epath.Path
) -> tuple[tuple[str, ...], Comparison, TokenizerDifferences]:
    """Write a model as ONNX atomically, with its tokenizer and a README.

    `source` is a model, or a path for `load_pretrained`; `output` is new or empty.
    Raise FileNotFoundError if there is no model, FileExistsError if `output` has files,
    ValueError if the model is damaged, its vocabulary has no `tokenizer.json`, its
    vectors leave out a prompt, or onnx is missing.

    The result is the names of the outputs, and the differences of ONNX Runtime's
    outputs and of the tokenizer.
    """
    if importlib.util.find_spec("onnx") is None:
        raise ValueError(
            "ONNX files are written by onnx, which is missing; "
            "`pip install 'bert_jax[onnx]'`."
        )
    model = load_pretrained(source).in_target_units()
    require_parameters(model, extra=True)
    require_tokenizer_json(model, source)
    embedding = supported_embedding(model, source)
    params = flatten_dict(model.params, sep="/")
    graph = bert_graph(model.config, params, embedding)
    leaves = tuple(
        Leaf(name, name, values.shape, str(values.dtype), transposed=False)
        for name, values in graph.used.items()
    )
    with atomic_directory(output) as directory:
        graph.write(directory)
        config = huggingface_config(model.config, model.tokenizer.pad_id, {})
        ours = {"attention": model.config.attention, "pooling": model.config.pooling}
        write_json(config | ours, directory / CONFIG)
        differences = write_tokenizer(model, directory)
        if embedding is not None:
            write_embedding(embedding, directory, model.config)
        (directory / CARD).write_text(readme(model, graph.outputs))
        comparison = compare_onnx(directory, model.config, model.params, embedding)
        receipt = {"comparison": dataclasses.asdict(comparison)}
        if differences.strings:
            receipt["tokenizer_differences"] = dataclasses.asdict(differences)
        receipt |= export_receipt(model, leaves, directory)
        write_json(receipt, directory / RECEIPT)
    return tuple(graph.outputs), comparison, differences


def supported_embedding(model: Model, source: str | Model) -> Embedding | None:
    """Return how the model makes one vector of a text, if its files specify it.

    Raise ValueError if the vectors leave out a prompt, whose end no input tells.
    """
    embedding = model.embedding
    is_encoder = model.config.head == "encoder"
    if embedding is None or embedding.unsupported or not is_encoder:
        return None
    if embedding.prompt_names and not embedding.pool_prompt:
        raise ValueError(
            f"{source} makes vectors without the tokens of its prompts "
            "(include_prompt=False), and the inputs of an ONNX graph do not tell where "
            "a prompt ends; use `bert-jax convert export --to huggingface`."
        )
    return embedding


def compare_onnx(
    directory: epath.Path,
    config: BertConfig,
    params: Params,
    embedding: Embedding | None,
) -> Comparison:
    """Compare the model in `directory`, run by ONNX Runtime, with JAX in float32.

    If ONNX Runtime is missing or refuses the file, the result has the reason.
    """
    batch = fixed_batch(config)
    return compare_outputs(
        (RUNTIME,),
        lambda: expected_outputs(config, params, batch, embedding),
        lambda: onnx_outputs(directory, config, batch),
    )


def onnx_outputs(
    directory: epath.Path, config: BertConfig, batch: dict[str, Any]
) -> dict[str, Float[np.ndarray, "..."]]:
    """Return the outputs of the model in `directory`, computed on the CPU.

    Args:
        batch: as `fixed_batch`; for multiple choice, all rows are choices of one text.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors, which are raised too
    session = onnxruntime.InferenceSession(
        str(directory / MODEL), options, providers=["CPUExecutionProvider"]
    )
    arrays = {name: np.asarray(x, np.int64) for name, x in batch.items()}
    arrays["token_type_ids"] = arrays.pop("segment_ids")
    inputs = {name: arrays[name] for name in input_names(config)}
    if config.head == "multiple_choice":
        inputs = {name: values[None] for name, values in inputs.items()}
    names = [output.name for output in session.get_outputs()]
    values = session.run(names, inputs)
    return dict(zip(names, values, strict=True))


def expected_outputs(
    config: BertConfig,
    params: Params,
    batch: dict[str, Int[np.ndarray, "B T"]],
    embedding: Embedding | None,
) -> dict[str, Float[np.ndarray, "..."]]:
    """Return JAX's outputs in float32, under the names in the graph."""
    config = config.changed(dtype="float32", attention_kernel="plain")
    ids, segments, mask = (jnp.asarray(values) for values in batch.values())
    inputs = Inputs(ids, segments, mask > 0)
    compiled = jax.jit(head_outputs, static_argnums=0)
    outputs = jax.device_get(compiled(config, params, inputs))
    if config.head == "encoder":
        named = {"last_hidden_state": outputs["hidden_states"][-1]}
        if "pooled" in outputs:
            named["pooler_output"] = outputs["pooled"]
        if embedding is not None:
            pooling, normalize = embedding.pooling, embedding.normalize
            vectors = compute(config, params, "embed", inputs, pooling, normalize)
            named["sentence_embedding"] = np.asarray(vectors)
        return named
    if config.head == "pretraining":
        return {
            "prediction_logits": outputs["token_scores"],
            "seq_relationship_logits": outputs["pair_scores"],
        }
    scores = outputs["token_scores" if config.head == "masked_lm" else "scores"]
    if config.head == "question_answering":
        return {"start_logits": scores[..., 0], "end_logits": scores[..., 1]}
    return {"logits": scores.T if config.head == "multiple_choice" else scores}

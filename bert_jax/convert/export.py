"""Export a model to files of Hugging Face's transformers."""

import dataclasses

import numpy as np
from etils import epath
from flax.traverse_util import flatten_dict
from jaxtyping import Float32
from safetensors.numpy import save

from bert_jax.config import BertConfig
from bert_jax.config.model import POOLED_HEADS
from bert_jax.convert.comparison import Comparison, compare
from bert_jax.convert.model_card import model_card
from bert_jax.formats.embedding import write_embedding
from bert_jax.formats.huggingface import CONFIG
from bert_jax.formats.huggingface_config import ARCHITECTURES, RATES, SIZES
from bert_jax.formats.imported import RECEIPT, Leaf
from bert_jax.formats.names import names_of
from bert_jax.formats.sentencepiece_files import (
    TokenizerDifferences,
    write_sentencepiece,
)
from bert_jax.formats.tensor_files import SINGLE
from bert_jax.formats.tokenizers import to_huggingface
from bert_jax.pretrained import Model, load_pretrained
from bert_jax.storage.atomic import atomic_directory
from bert_jax.storage.files import JsonObject, atomic_write, write_json
from bert_jax.storage.manifest import describe_files, files_below

README = "README.md"


def export_huggingface(
    source: str, output: epath.Path
) -> tuple[tuple[Leaf, ...], Comparison, TokenizerDifferences]:
    """Write a model for transformers atomically.

    Args:
        source: a path for `load_pretrained`.
        output: a directory that is new or empty.

    Returns:
        The target of each parameter, the differences of transformers' outputs, and
        those of its tokenizer.

    Raises:
        FileNotFoundError: there is no model.
        FileExistsError: `output` exists and is not an empty directory.
        ValueError: the source is damaged, or transformers does not support the model.
    """
    model = load_pretrained(source)
    _require_expressible(model.config)
    require_tokenizer_json(model, source)
    with atomic_directory(output) as directory:
        tensors, leaves = huggingface_tensors(model)
        write_safetensors(tensors, directory / SINGLE)
        config = huggingface_config(model.config, model.tokenizer.pad_id)
        write_json(config, directory / CONFIG)
        differences = write_tokenizer(model, directory)
        if model.embedding is not None and not model.embedding.unsupported:
            write_embedding(model.embedding, directory, model.config)
        card = model_card(model, ARCHITECTURES[model.config.head])
        (directory / README).write_text(card)
        comparison = compare(directory, model.config, model.params)
        receipt = {"comparison": dataclasses.asdict(comparison)}
        if differences.strings:
            receipt["tokenizer_differences"] = dataclasses.asdict(differences)
        receipt |= export_receipt(model, leaves, directory)
        write_json(receipt, directory / RECEIPT)
    return leaves, comparison, differences


def require_tokenizer_json(model: Model, source: str) -> None:
    """Raise ValueError if Hugging Face's library has no such tokenizer."""
    if model.tokenizer.kind == "char":
        raise ValueError(
            f"{source} has a vocabulary of kind char, which has no counterpart in "
            "Hugging Face's tokenizers; use `bert-jax convert export --to stablehlo`."
        )


def write_tokenizer(model: Model, directory: epath.Path) -> TokenizerDifferences:
    """Write the tokenizer's files; only sentencepiece can have differences."""
    length = model.config.max_position_embeddings
    if model.tokenizer.kind != "wordpiece":
        return write_sentencepiece(model.tokenizer, directory, length)
    to_huggingface(model.tokenizer, directory, length)
    return TokenizerDifferences()


def _require_expressible(config: BertConfig) -> None:
    """Check that transformers' classes for BERT support the configuration."""
    remedy = "use `bert-jax convert export --to onnx`, or `--to stablehlo`."
    if config.attention == "causal":
        raise ValueError(
            "attention='causal' has no counterpart in transformers, whose BERT heads "
            f"attend to both sides; {remedy}"
        )
    if config.pooling != "cls" and config.head in POOLED_HEADS:
        raise ValueError(
            f"pooling={config.pooling!r} with head={config.head} has no counterpart in "
            f"transformers, whose class uses [CLS]; {remedy}"
        )


def huggingface_config(config: BertConfig, pad_id: int) -> JsonObject:
    """Return the content of config.json."""
    values: JsonObject = {
        "architectures": [ARCHITECTURES[config.head]],
        "model_type": "bert",
        **{name: getattr(config, name) for name in SIZES + RATES},
        "hidden_act": config.hidden_act,
        "pad_token_id": pad_id,
        "position_embedding_type": "absolute",
        "tie_word_embeddings": True,
        "dtype": "float32",
    }
    if config.labels:
        values["id2label"] = {str(i): name for i, name in enumerate(config.labels)}
        values["label2id"] = {name: i for i, name in enumerate(config.labels)}
    if config.head == "sequence_classification":
        values["problem_type"] = config.problem_type
    return values


def huggingface_tensors(
    model: Model,
) -> tuple[dict[str, Float32[np.ndarray, "..."]], tuple[Leaf, ...]]:
    """Return the tensors by their names in transformers, and the source of each.

    The output layer of the masked-LM head is left out: transformers ties it to the
    table of embeddings.
    """
    params = flatten_dict(model.params, sep="/")
    names = names_of(model.config, pooler="pooler" in model.params)
    assert {name.ours for name in names} == set(params)
    # The class without a head has no prefix.
    prefix = "bert." if model.config.head == "encoder" else ""
    tensors, leaves = {}, []
    for name in names:
        values, target = params[name.ours], name.huggingface.removeprefix(prefix)
        transposed = name.huggingface_transposed
        tensors[target] = values.T if transposed else values
        dtype = str(values.dtype)
        leaves.append(Leaf(name.ours, target, values.shape, dtype, transposed))
    return tensors, tuple(leaves)


def write_safetensors(
    tensors: dict[str, Float32[np.ndarray, "..."]], path: epath.Path
) -> None:
    """Write a safetensors file with the metadata that transformers writes."""
    # The library ignores strides.
    dense = {name: np.ascontiguousarray(values) for name, values in tensors.items()}
    atomic_write(path, save(dense, metadata={"format": "pt"}))


def export_receipt(
    model: Model, leaves: tuple[Leaf, ...], directory: epath.Path
) -> JsonObject:
    """Return the content of `conversion.json`, with the files written so far."""
    return {
        "source": str(model.directory),
        "sources": list(model.sources),
        "tensors": [dataclasses.asdict(leaf) for leaf in leaves],
        "files": describe_files(directory, files_below(directory)),
    }

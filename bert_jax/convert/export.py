"""A model as Hugging Face's transformers reads it: config.json and safetensors."""

import dataclasses
import os
import re
from typing import Any

import numpy as np
from etils import epath
from flax.traverse_util import flatten_dict
from jaxtyping import Float32

from bert_jax.config import BertConfig
from bert_jax.convert.comparison import Comparison, compare
from bert_jax.convert.model_card import model_card
from bert_jax.formats.embedding import embedding_files, model_directory, write_embedding
from bert_jax.formats.huggingface import CONFIG, TOKENIZER_FILES
from bert_jax.formats.huggingface_config import HEADS, RATES, SIZES
from bert_jax.formats.imported import RECEIPT, Leaf
from bert_jax.formats.names import Name, names_of
from bert_jax.formats.sentencepiece_files import (
    TokenizerDifferences,
    write_sentencepiece,
)
from bert_jax.formats.tensor_files import INDEX, SINGLE
from bert_jax.formats.tokenizer_export import to_huggingface
from bert_jax.model.heads import POOLED_HEADS
from bert_jax.pretrained import Model, load_pretrained
from bert_jax.storage.atomic import atomic_directory
from bert_jax.storage.files import atomic_write, write_json
from bert_jax.storage.manifest import (
    MANIFEST,
    describe_files,
    files_below,
    read_manifest,
)

README = "README.md"


def export_huggingface(
    source: str, output: epath.Path
) -> tuple[tuple[Leaf, ...], Comparison, TokenizerDifferences]:
    """Write a model for transformers, whole or not at all.

    Args:
        source: what `load_pretrained` takes.
        output: a directory that is new or empty.

    Returns:
        What became of each parameter, how far transformers' outputs are apart, and how
        often its tokenizer gives other ids.

    Raises:
        FileNotFoundError: there is no model.
        FileExistsError: `output` is there and not an empty directory.
        ValueError: the source is damaged, or transformers has no such model.
    """
    model = load_pretrained(source)
    require_expressible(model.config)
    with atomic_directory(output) as directory:
        tensors, leaves = huggingface_tensors(model)
        write_safetensors(tensors, directory / SINGLE)
        config = huggingface_config(model.config, model.tokenizer.pad_id)
        write_json(config, directory / CONFIG)
        differences = write_tokenizer(model, directory)
        if model.embedding is not None and not model.embedding.unsupported:
            write_embedding(model.embedding, directory, model.config)
        card = model_card(model, architecture(model.config))
        (directory / README).write_text(card)
        comparison = compare(directory, model.config, model.params)
        said = {"comparison": dataclasses.asdict(comparison)}
        if differences.strings:
            said["tokenizer_differences"] = dataclasses.asdict(differences)
        write_json(said | receipt(model, leaves, directory), directory / RECEIPT)
    return leaves, comparison, differences


def write_tokenizer(model: Model, directory: epath.Path) -> TokenizerDifferences:
    """Write the tokenizer's files; WordPiece is the same in both libraries."""
    length = model.config.max_position_embeddings
    if model.tokenizer.kind != "wordpiece":
        return write_sentencepiece(model.tokenizer, directory, length)
    to_huggingface(model.tokenizer, directory, length)
    return TokenizerDifferences()


def require_expressible(config: BertConfig) -> None:
    """Refuse what transformers' classes for BERT do not compute.

    Raises:
        ValueError: names the option.
    """
    remedy = "`bert-jax convert export --to stablehlo` takes it."
    if config.attention == "causal":
        raise ValueError(
            "attention='causal' has no counterpart in transformers, whose BERT heads "
            f"look both ways; {remedy}"
        )
    if config.pooling == "mean" and config.head in POOLED_HEADS:
        raise ValueError(
            f"pooling='mean' with head={config.head} has no counterpart in "
            f"transformers, whose class looks at [CLS]; {remedy}"
        )


def architecture(config: BertConfig) -> str:
    """The class of transformers with this head."""
    return next(name for name, head in HEADS.items() if head == config.head)


def huggingface_config(config: BertConfig, pad_id: int) -> dict[str, Any]:
    """What config.json holds."""
    values: dict[str, Any] = {
        "architectures": [architecture(config)],
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
    """Every tensor under its name in transformers, and what became of each parameter.

    The output layer of the masked-LM head is not among them: transformers ties it to
    the table of embeddings.
    """
    params = flatten_dict(model.params, sep="/")
    # Where pooling decides whether there is a pooler, it can only be "cls" here.
    config = dataclasses.replace(model.config, pooling="cls")
    names = names_of(config, pooler="pooler" in model.params)
    assert {name.ours for name in names} == set(params)
    # The class without a head has no prefix.
    prefix = "bert." if model.config.head == "encoder" else ""
    tensors, leaves = {}, []
    for name in names:
        values, target = params[name.ours], name.huggingface.removeprefix(prefix)
        tensors[target] = values.T if name.huggingface_transposed else values
        leaves.append(_leaf(name, target, values))
    return tensors, tuple(leaves)


def _leaf(name: Name, target: str, values: Float32[np.ndarray, "..."]) -> Leaf:
    return Leaf(
        source=name.ours,
        target=target,
        shape=values.shape,
        dtype=str(values.dtype),
        transposed=name.huggingface_transposed,
    )


def write_safetensors(
    tensors: dict[str, Float32[np.ndarray, "..."]], path: epath.Path
) -> None:
    """One safetensors file, marked as transformers marks its own."""
    from safetensors.numpy import save

    # The library writes the memory of an array, whatever its strides.
    rows = {name: np.ascontiguousarray(values) for name, values in tensors.items()}
    atomic_write(path, save(rows, metadata={"format": "pt"}))


def receipt(
    model: Model, leaves: tuple[Leaf, ...], directory: epath.Path
) -> dict[str, Any]:
    """What `conversion.json` holds of an export that is otherwise written."""
    return {
        "source": str(model.directory),
        "sources": _source_files(model.directory),
        "tensors": [dataclasses.asdict(leaf) for leaf in leaves],
        "files": describe_files(directory, files_below(directory)),
    }


def _source_files(directory: epath.Path) -> list[dict[str, Any]]:
    """Path, size and sha256 of each file that the model was read from."""
    if (directory / MANIFEST).exists():
        files: list[dict[str, Any]] = read_manifest(directory)["files"]
        return files
    folder = model_directory(directory)
    names = (path.name for path in folder.iterdir())
    read = {CONFIG, SINGLE, INDEX, *TOKENIZER_FILES}
    shard = re.compile(r"model-.*\.safetensors")
    found = [name for name in names if name in read or shard.fullmatch(name)]
    found = [os.path.relpath(folder / name, directory) for name in found]
    return describe_files(directory, [*found, *embedding_files(directory)])

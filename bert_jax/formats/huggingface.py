"""Models as Hugging Face's transformers saves them: config.json and safetensors."""

import dataclasses
import os
from typing import Any

import numpy as np
from etils import epath
from flax.traverse_util import unflatten_dict
from jaxtyping import Float

from bert_jax.config import BertConfig
from bert_jax.formats.embedding import embedding_files, model_directory, read_embedding
from bert_jax.formats.exported_files import check_exported
from bert_jax.formats.huggingface_config import keys_left_over, read_bert_config
from bert_jax.formats.imported import Imported, Leaf
from bert_jax.formats.model_files import read_object
from bert_jax.formats.names import Name, describe_shapes, names_of, shape_of, some
from bert_jax.formats.sentencepiece_files import (
    MODEL,
    is_sentencepiece,
    read_sentencepiece,
)
from bert_jax.formats.tensor_files import (
    INDEX,
    PARAMETER_DTYPES,
    PICKLES,
    SINGLE,
    Tensor,
    open_tensors,
)
from bert_jax.formats.tensor_names import (
    TIED,
    by_canonical_name,
    find_prefix,
    take_tied,
)
from bert_jax.formats.tokenizers import from_huggingface
from bert_jax.storage.manifest import describe_files

CONFIG = "config.json"
BUFFERS = ("bert.embeddings.position_ids", "bert.embeddings.token_type_ids")
"""No parameters: 0, 1, 2, … and zeros, which old versions saved beside them."""
MULTIPLES = (8, 16, 32, 64, 128, 256, 512, 1024)
"""To which of these a table's rows are padded, for the sake of matrix units."""
BY_TOKEN = ("encoder/embeddings/token/embedding", "masked_lm/bias")
"""Parameters with a row a token."""
WITH_TABLE = ("pretraining", "masked_lm")
"""Heads whose output layer is the table of embeddings."""
TOKENIZER_FILES = ("vocab.txt", MODEL, "tokenizer.json", "tokenizer_config.json")


def is_huggingface(path: epath.Path) -> bool:
    """Whether a directory holds a model as transformers saves it."""
    if (path / "state").exists():
        return False
    path = model_directory(path)
    tensors = any((path / name).exists() for name in (SINGLE, INDEX, *PICKLES))
    return tensors and (path / CONFIG).exists()


def read_huggingface(path: epath.Path, allow_extra: bool = False) -> Imported:
    """Read a model directory; every tensor is taken, or named.

    Args:
        path: holds config.json, model.safetensors (or its shards and their index) and
            the tokenizer's files; or one file of tensors or its index, beside which the
            others lie; or a directory of sentence-transformers, of which that is one.
        allow_extra: leave tensors aside that the architecture does not have.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, the files do not belong together, or the model
            is none that we compute; one line says which and what.
    """
    root = path.parent if path.is_file() else path
    folder = path if path.is_file() else model_directory(root)
    files, found = open_tensors(folder)
    path = folder.parent if folder.is_file() else folder
    prefix = find_prefix(path, found)
    tensors = by_canonical_name(path, found, prefix)
    config = _read_config(path, tensors)
    copies = take_tied(path, tensors) if config.head in WITH_TABLE else {}
    names = names_of(config, pooler="bert.pooler.dense.weight" in tensors)
    _check_missing(path, config, tensors, names)
    left_over = _left_over(path, config, tensors, names, allow_extra)
    _check_shapes(path, config, tensors, names)
    read = read_sentencepiece if is_sentencepiece(path) else from_huggingface
    tokenizer = read(path)
    spare = _spare_rows(path, config.vocab_size, tokenizer.vocab_size)
    config = dataclasses.replace(config, vocab_size=tokenizer.vocab_size)
    files += [name for name in (CONFIG, *TOKENIZER_FILES) if (path / name).exists()]
    sources = [os.path.relpath(path / name, root) for name in files]
    sources += embedding_files(root)
    taken = [(tensors[name.huggingface], name) for name in names]
    both = {name.huggingface: name for name in names}
    again = [(copy, both[original]) for original, copy in copies.items()]
    described = describe_files(root, sources)
    check_exported(root, described)
    return Imported(
        config=config,
        params=_read_params(path, taken, config),
        tokenizer=tokenizer,
        leaves=tuple(_leaf(tensor, name) for tensor, name in [*taken, *again]),
        fresh=(),
        left_over=(*sorted(left_over), *_rows_left_over(taken, spare)),
        sources=tuple(described),
        config_left_over=keys_left_over(read_object(path / CONFIG)),
        embedding=read_embedding(root, tokenizer.cased, config.max_position_embeddings),
        prefix=prefix,
    )


def _read_config(path: epath.Path, tensors: dict[str, Tensor]) -> BertConfig:
    """The configuration, of as many layers as there are tensors for."""
    if not (path / CONFIG).exists():
        raise FileNotFoundError(
            f"{path} lacks {CONFIG}, which says what the tensors are of; fetch it too."
        )
    values = read_object(path / CONFIG)
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    try:
        config = read_bert_config(values, shapes)
    except ValueError as error:
        raise ValueError(f"{path / CONFIG}: {error}") from error
    start = "bert.encoder.layer."
    layers = {name.split(".")[3] for name in tensors if name.startswith(start)}
    # Before the parameters of each layer are listed: the file may say a billion.
    if len(layers) != config.num_hidden_layers:
        raise ValueError(
            f"{path / CONFIG} says num_hidden_layers={config.num_hidden_layers} and "
            f"there are tensors of {len(layers)}; put the file there that belongs to "
            "them."
        )
    untied = values.get("tie_word_embeddings") is False
    if untied and config.head in WITH_TABLE and not TIED.keys() <= tensors.keys():
        raise ValueError(
            f"{path / CONFIG} says tie_word_embeddings=False, but {path} lacks "
            f"{' or '.join(TIED)}; put the file there that belongs to the tensors."
        )
    return config


def _spare_rows(path: epath.Path, rows: int, tokens: int) -> range:
    """The rows of the table of embeddings that belong to no token.

    Raises:
        ValueError: there are fewer than tokens, or more than padding would make.
    """
    padded = [-(-tokens // multiple) * multiple for multiple in MULTIPLES]
    if rows != tokens and rows not in padded:
        raise ValueError(
            f"{path}: the vocabulary has {tokens} tokens and the table of embeddings "
            f"{rows} rows, which is no padding of it to a multiple of "
            f"{', '.join(map(str, MULTIPLES))}; put the vocabulary there that the "
            "model was trained with, added_tokens.json with it."
        )
    return range(tokens, rows)


def _rows_left_over(taken: list[tuple[Tensor, Name]], spare: range) -> list[str]:
    """The rows that no token has, by the names of their tensors."""
    return [
        f"{tensor.name}[{spare.start}:{spare.stop}]"
        for tensor, name in taken
        if name.ours in BY_TOKEN and spare
    ]


def _check_missing(
    path: epath.Path, config: BertConfig, tensors: dict[str, Tensor], names: list[Name]
) -> None:
    missing = [name.huggingface for name in names if name.huggingface not in tensors]
    if missing:
        raise ValueError(
            f"{path} lacks {some(missing)}; a model with the head {config.head} "
            "has them."
        )


def _left_over(
    path: epath.Path,
    config: BertConfig,
    tensors: dict[str, Tensor],
    names: list[Name],
    allow_extra: bool,
) -> list[str]:
    """The tensors that are not taken, which must be buffers unless more are allowed."""
    wanted = {name.huggingface for name in names}
    left = [name for name in tensors if name not in wanted]
    extra = sorted(tensors[name].name for name in left if name not in BUFFERS)
    if extra and not allow_extra:
        raise ValueError(
            f"{path} holds {some(extra)}, which a model with the head {config.head} "
            "does not have; --allow-extra (of convert import and of training), or "
            "load(…, allow_extra=True), leaves them aside."
        )
    return [tensors[name].name for name in left]


def _check_shapes(
    path: epath.Path,
    config: BertConfig,
    tensors: dict[str, Tensor],
    names: list[Name],
) -> None:
    wrong = []
    for name in names:
        tensor, shape = tensors[name.huggingface], shape_of(config, name.ours)
        if name.huggingface_transposed:
            shape = shape[::-1]
        if tensor.shape != shape:
            wrong.append((tensor.name, tensor.shape, shape))
    if wrong:
        raise ValueError(
            f"{path}: {describe_shapes(wrong)}, as {CONFIG} has it; put the file there "
            "that belongs to the tensors."
        )


def _leaf(tensor: Tensor, name: Name) -> Leaf:
    return Leaf(
        source=tensor.name,
        target=name.ours,
        shape=tensor.shape,
        dtype=PARAMETER_DTYPES[tensor.dtype],
        transposed=name.huggingface_transposed,
    )


def _read_params(
    path: epath.Path, taken: list[tuple[Tensor, Name]], config: BertConfig
) -> dict[str, Any]:
    """The nested parameters; refuses those that are not finite."""
    params: dict[str, Float[np.ndarray, ...]] = {}
    for tensor, name in taken:
        values = tensor.read()
        if name.ours in BY_TOKEN:
            values = values[: config.vocab_size]
        params[name.ours] = np.ascontiguousarray(
            values.T if name.huggingface_transposed else values
        )
    broken = [
        tensor.name
        for tensor, name in taken
        if not np.isfinite(params[name.ours]).all()
    ]
    if broken:
        raise ValueError(
            f"{path}: {some(broken)} hold NaN or infinity; the model is damaged, "
            "so fetch it again or take an earlier one."
        )
    return unflatten_dict(params, sep="/")

"""Models as the TensorFlow code of 2018 (google-research/bert) writes them."""

import re
from typing import Any

import numpy as np
from etils import epath
from flax.traverse_util import unflatten_dict

from bert_jax.config import BertConfig
from bert_jax.formats.huggingface_config import (
    HEADS,
    SIZES,
    keys_left_over,
    read_bert_config,
)
from bert_jax.formats.imported import Imported, Leaf
from bert_jax.formats.model_files import read_object
from bert_jax.formats.names import Name, describe_shapes, names_of, shape_of, some
from bert_jax.formats.tf1_files import INDEX, Checkpoint, find_prefix, open_checkpoint
from bert_jax.storage.manifest import describe_files
from bert_jax.tokenization import Tokenizer

CONFIG, VOCABULARY, TOKENIZER = (
    "bert_config.json",
    "vocab.txt",
    "tokenizer_config.json",
)
PARAMETER_DTYPES = ("float32", "float16", "bfloat16")

_NOT_THE_MODEL = re.compile(
    r"global_step|beta[12]_power|.*/(adam_[mv]|Adam|Adam_1)"
    # Every model of the original has a pooler, which some heads do not look at.
    r"|bert/pooler/dense/(kernel|bias)"
)
"""Tensors that are left aside without being asked: the optimizer's, above all."""


def read_tf1(path: epath.Path, allow_extra: bool = False) -> Imported:
    """Read a checkpoint of the original code; every tensor is taken, or named.

    Args:
        path: a directory with a released model (bert_model.ckpt.*) or with step
            checkpoints (the newest is taken), or one checkpoint's path without
            `.index`; bert_config.json and vocab.txt lie beside it.
        allow_extra: leave tensors aside that the model does not have.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, the files do not belong together, or nobody
            can tell the vocabulary's casing; one line says which and what.
    """
    checkpoint = open_checkpoint(find_prefix(path))
    folder = checkpoint.prefix.parent
    config = _read_config(folder / CONFIG, checkpoint)
    pooler = any(name.startswith("bert/pooler/") for name in checkpoint.shapes)
    names = names_of(config, pooler)
    _check_complete(checkpoint, config, names)
    left_over = _left_over(checkpoint, config, names, allow_extra)
    tokenizer = _read_tokenizer(folder, config)
    beside = [TOKENIZER] if (folder / TOKENIZER).exists() else []
    index = checkpoint.prefix.name + INDEX
    files = [CONFIG, VOCABULARY, index, *checkpoint.data_files(), *beside]
    return Imported(
        config=config,
        params=_read_params(checkpoint, names),
        tokenizer=tokenizer,
        leaves=tuple(_leaf(checkpoint, name) for name in names),
        fresh=(),
        left_over=tuple(left_over),
        sources=tuple(describe_files(folder, files)),
        config_left_over=keys_left_over(read_object(folder / CONFIG)),
    )


def _read_config(path: epath.Path, checkpoint: Checkpoint) -> BertConfig:
    """The configuration, of as many layers as there are tensors for, and the head."""
    if not path.exists():
        raise FileNotFoundError(
            f"{path} is missing; copy it there from the model that training began with."
        )
    values = read_object(path)
    absent = [name for name in SIZES if name not in values]
    if absent:
        raise ValueError(f"{path} lacks {', '.join(absent)}; put the whole file there.")
    head, classes = _head(checkpoint.shapes)
    architecture = next(name for name, its in HEADS.items() if its == head)
    read = values | {"architectures": [architecture], "num_labels": classes}
    try:
        config = read_bert_config(read, {})
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    start = "bert/encoder/layer_"
    found = {name.split("/")[2] for name in checkpoint.shapes if name.startswith(start)}
    # Before the parameters of each layer are listed: the file may say a billion.
    if len(found) != config.num_hidden_layers:
        raise ValueError(
            f"{path} says num_hidden_layers={config.num_hidden_layers} and "
            f"{checkpoint.prefix} has tensors of {len(found)}; put the file there that "
            "belongs to them."
        )
    return config


def _head(shapes: dict[str, tuple[int, ...]]) -> tuple[str, int]:
    """What stands on the encoder, by the tensors, and how many classes it has."""

    def has(start: str) -> bool:
        return any(name.startswith(start) for name in shapes)

    if has("cls/squad/"):
        return "question_answering", 2
    for name in ("output_weights", "output_bias"):
        if name in shapes:
            return "sequence_classification", (*shapes[name], 0)[0]
    if has("cls/predictions/"):
        whole = has("cls/seq_relationship/")
        return ("pretraining" if whole else "masked_lm"), 2
    return "encoder", 2


def _check_complete(
    checkpoint: Checkpoint, config: BertConfig, names: list[Name]
) -> None:
    """Refuse missing tensors, wrong shapes and wrong dtypes, each by name."""
    missing = [name.tf1 for name in names if name.tf1 not in checkpoint.shapes]
    if missing:
        raise ValueError(
            f"{checkpoint.prefix} lacks {some(missing)}; a model with the head "
            f"{config.head} has them."
        )
    wrong, others = [], []
    for name in names:
        shape, wanted = checkpoint.shapes[name.tf1], shape_of(config, name.ours)
        wanted = wanted[::-1] if name.tf1_transposed else wanted
        if shape != wanted:
            wrong.append((name.tf1, shape, wanted))
        elif checkpoint.dtypes[name.tf1] not in PARAMETER_DTYPES:
            others.append(f"{name.tf1} is of {checkpoint.dtypes[name.tf1]}")
    if wrong:
        raise ValueError(
            f"{checkpoint.prefix}: {describe_shapes(wrong)}, as {CONFIG} has it; put "
            "the file there that belongs to the tensors."
        )
    if others:
        raise ValueError(
            f"{checkpoint.prefix}: {some(others)}; a parameter must be of one of "
            f"{', '.join(PARAMETER_DTYPES)}."
        )


def _left_over(
    checkpoint: Checkpoint, config: BertConfig, names: list[Name], allow_extra: bool
) -> list[str]:
    """The tensors not taken: the optimizer's alone, unless more are allowed."""
    wanted = {name.tf1 for name in names}
    left = [name for name in checkpoint.shapes if name not in wanted]
    extra = [name for name in left if not _NOT_THE_MODEL.fullmatch(name)]
    if extra and not allow_extra:
        raise ValueError(
            f"{checkpoint.prefix} holds {some(extra)}, which a model with the head "
            f"{config.head} does not have; `bert-jax convert import --allow-extra` "
            "leaves them aside."
        )
    return left


def _read_tokenizer(folder: epath.Path, config: BertConfig) -> Tokenizer:
    path = folder / VOCABULARY
    if not path.exists():
        raise FileNotFoundError(
            f"{path} is missing; copy it there from the model that training began with."
        )
    try:
        made = {"kind": "wordpiece", "cased": _cased(folder)}
        tokenizer = Tokenizer(made, path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if tokenizer.vocab_size != config.vocab_size:
        raise ValueError(
            f"{path} has {tokenizer.vocab_size} tokens and the table of embeddings "
            f"{config.vocab_size} rows; put the vocabulary there that the model was "
            "trained with."
        )
    return tokenizer


def _cased(folder: epath.Path) -> bool:
    """Whether the vocabulary is cased, which none of the original's files says."""
    path = folder / TOKENIZER
    values = read_object(path) if path.exists() else {}
    if isinstance(values.get("cased"), bool):
        return bool(values["cased"])
    if isinstance(values.get("do_lower_case"), bool):
        return not values["do_lower_case"]
    name = folder.resolve().name.lower()
    found = set(re.findall(r"(?<![a-z])(?:un)?cased(?![a-z])", name))
    if len(found) != 1:
        raise ValueError(
            "nothing says whether the vocabulary is cased, as the names of Google's "
            f'directories do; write {{"do_lower_case": true}} into {path}, or false '
            "for a cased one."
        )
    return found == {"cased"}


def _leaf(checkpoint: Checkpoint, name: Name) -> Leaf:
    return Leaf(
        source=name.tf1,
        target=name.ours,
        shape=checkpoint.shapes[name.tf1],
        dtype=checkpoint.dtypes[name.tf1],
        transposed=name.tf1_transposed,
    )


def _read_params(checkpoint: Checkpoint, names: list[Name]) -> dict[str, Any]:
    """The nested parameters; refuses those that are not finite."""
    params: dict[str, np.ndarray] = {}
    broken = []
    for name in names:
        values = checkpoint.read(name.tf1)
        if not np.isfinite(values).all():
            broken.append(name.tf1)
        ours = values.T if name.tf1_transposed else values
        params[name.ours] = np.ascontiguousarray(ours)
    if broken:
        raise ValueError(
            f"{checkpoint.prefix}: {some(broken)} hold NaN or infinity; the "
            "model is broken, so choose an earlier checkpoint."
        )
    return unflatten_dict(params, sep="/")

"""Read models that the TensorFlow code of 2018 (google-research/bert) wrote."""

import re

from etils import epath

from bert_jax.config import BertConfig
from bert_jax.formats.huggingface_config import (
    ARCHITECTURES,
    SIZES,
    keys_left_over,
    read_bert_config,
)
from bert_jax.formats.imported import Imported
from bert_jax.formats.model_files import read_object, read_object_or_empty
from bert_jax.formats.names import names_of
from bert_jax.formats.parameters import (
    Library,
    check_num_layers,
    match_tensors,
    read_parameters,
)
from bert_jax.formats.tf1_files import INDEX, Checkpoint, find_prefix, open_checkpoint
from bert_jax.storage.manifest import describe_files
from bert_jax.tokenization import Tokenizer

CONFIG, VOCABULARY, TOKENIZER = (
    "bert_config.json",
    "vocab.txt",
    "tokenizer_config.json",
)

_LIBRARY = Library(
    "tf1",
    CONFIG,
    ignored=re.compile(
        # The state of the optimizer.
        r"global_step|beta[12]_power|.*/(adam_[mv]|Adam|Adam_1)"
        # Every model of the original has a pooler, which some heads do not use.
        r"|bert/pooler/dense/(kernel|bias)"
    ),
    allow_extra="`bert-jax convert import --allow-extra`",
)


def read_tf1(path: epath.Path, allow_extra: bool = False) -> Imported:
    """Read a checkpoint of the original code; every tensor is used or left over.

    Args:
        path: a directory with a released model (bert_model.ckpt.*) or with step
            checkpoints (the newest is read), or one checkpoint's path without
            `.index`; bert_config.json and vocab.txt are beside it.
        allow_extra: ignore tensors that the model does not have.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, the files do not belong together, or it is
            unknown whether the vocabulary is cased; the message is one line.
    """
    checkpoint = open_checkpoint(find_prefix(path))
    prefix, tensors = checkpoint.prefix, checkpoint.tensors
    folder = prefix.parent
    for name in (CONFIG, VOCABULARY):
        if not (folder / name).exists():
            raise FileNotFoundError(
                f"{folder / name} is missing; copy it there from the model that "
                "training began with."
            )
    config = _read_config(folder / CONFIG, checkpoint)
    pooler = any(name.startswith("bert/pooler/") for name in tensors)
    names = names_of(config, pooler)
    matches, left_over = match_tensors(
        prefix, config, tensors, names, _LIBRARY, allow_extra
    )
    tokenizer = _read_tokenizer(folder, config)
    optional = [TOKENIZER] if (folder / TOKENIZER).exists() else []
    files = [CONFIG, VOCABULARY, prefix.name + INDEX, *checkpoint.data_files, *optional]
    return Imported(
        config=config,
        params=read_parameters(prefix, config, matches),
        tokenizer=tokenizer,
        leaves=tuple(match.leaf for match in matches),
        fresh=(),
        left_over=tuple(left_over),
        sources=tuple(describe_files(folder, files)),
        config_left_over=keys_left_over(read_object(folder / CONFIG)),
    )


def _read_config(path: epath.Path, checkpoint: Checkpoint) -> BertConfig:
    """Return the configuration, with the head that the tensors have."""
    values = read_object(path)
    absent = [name for name in SIZES if name not in values]
    if absent:
        raise ValueError(f"{path} lacks {', '.join(absent)}; use the complete file.")
    shapes = {name: tensor.shape for name, tensor in checkpoint.tensors.items()}
    head, num_labels = _head(shapes)
    values |= {"architectures": [ARCHITECTURES[head]], "num_labels": num_labels}
    try:
        config = read_bert_config(values, {})
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    check_num_layers(path, config, shapes)
    return config


def _head(shapes: dict[str, tuple[int, ...]]) -> tuple[str, int]:
    """Return the head that the tensors belong to, and its number of classes."""

    def has(start: str) -> bool:
        return any(name.startswith(start) for name in shapes)

    if has("cls/squad/"):
        return "question_answering", 2
    for name in ("output_weights", "output_bias"):
        if name in shapes:
            return "sequence_classification", (*shapes[name], 0)[0]
    if has("cls/seq_relationship/") and has("cls/predictions/"):
        return "pretraining", 2
    return ("masked_lm" if has("cls/predictions/") else "encoder"), 2


def _read_tokenizer(folder: epath.Path, config: BertConfig) -> Tokenizer:
    path = folder / VOCABULARY
    try:
        settings = {"kind": "wordpiece", "cased": _is_cased(folder)}
        tokenizer = Tokenizer(settings, path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if tokenizer.vocab_size != config.vocab_size:
        raise ValueError(
            f"{path} has {tokenizer.vocab_size} tokens and the table of embeddings "
            f"{config.vocab_size} rows; use the vocabulary that the model was trained "
            "with."
        )
    return tokenizer


def _is_cased(folder: epath.Path) -> bool:
    """Whether the vocabulary is cased, which the original's own files do not say."""
    path = folder / TOKENIZER
    values = read_object_or_empty(path)
    if isinstance(values.get("cased"), bool):
        return bool(values["cased"])
    if isinstance(values.get("do_lower_case"), bool):
        return not values["do_lower_case"]
    # Google's directories are named, for example, uncased_L-12_H-768_A-12.
    name = folder.resolve().name.lower()
    words = set(re.findall(r"(?<![a-z])(?:un)?cased(?![a-z])", name))
    if len(words) != 1:
        raise ValueError(
            "nothing says whether the vocabulary is cased (the names of Google's "
            f'directories do); write {{"do_lower_case": true}} into {path}, or false '
            "if it is cased."
        )
    return words == {"cased"}

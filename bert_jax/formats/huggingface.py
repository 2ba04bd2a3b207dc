"""Read models that Hugging Face's transformers saved: config.json and safetensors."""

import dataclasses
import os
import re
from collections.abc import Iterable

from etils import epath

from bert_jax.config import BertConfig
from bert_jax.formats.embedding import (
    embedding_files,
    model_directory,
    read_embedding,
    stated_length,
)
from bert_jax.formats.families import FamilyFormat, family_of
from bert_jax.formats.folding import beyond_model, fold_tables
from bert_jax.formats.huggingface_config import (
    TIED_HEADS,
    keys_left_over,
    read_bert_config,
)
from bert_jax.formats.imported import (
    RECEIPT,
    ROWS_OF_TOKENS,
    Imported,
    Leaf,
    SourceLibrary,
    Tensor,
    match_tensors,
    read_parameters,
)
from bert_jax.formats.model_files import read_object_or_empty
from bert_jax.formats.names import names_of
from bert_jax.formats.sentencepiece_files import MODEL, read_sentencepiece
from bert_jax.formats.tensor_files import (
    INDEX,
    PICKLES,
    SINGLE,
    TIED,
    open_tensors,
    pop_tied_copies,
)
from bert_jax.formats.tokenizers import SETTINGS_FILES, from_huggingface
from bert_jax.storage.files import JsonObject, is_regular_file, located
from bert_jax.storage.manifest import DamagedError, describe_files, is_confined
from bert_jax.tokenization import Tokenizer

CONFIG = "config.json"
TOKENIZER_FILES = ("vocab.txt", MODEL, *SETTINGS_FILES)

_BUFFERS = r"bert\.embeddings\.(position|token_type)_ids"
"""Names of 0, 1, 2, … and zeros, which old versions of transformers saved."""
_ALLOW_EXTRA = (
    "--allow-extra of `bert-jax convert import` and of training, or load(…, "
    "allow_extra=True),"
)
_PADDING_MULTIPLES = (8, 16, 32, 64, 128, 256, 512, 1024)
"""The rows of a table may be padded to a multiple of one of these."""
_SPARE_ROWS = 64
"""Rows that a table may have beyond the tokens of a tokenizer.json; those of the
multilingual MiniLM have 35."""


def is_huggingface(path: epath.Path) -> bool:
    """Whether a directory holds a model that transformers saved."""
    if (path / "state").exists():
        return False
    path = model_directory(path)
    tensors = any((path / name).exists() for name in (SINGLE, INDEX, *PICKLES))
    return tensors and (path / CONFIG).exists()


def read_huggingface(path: epath.Path, allow_extra: bool = False) -> Imported:
    """Read a model; every tensor is used, or listed as left over.

    Args:
        path: a directory with config.json, model.safetensors (or its shards and their
            index) and the tokenizer's files; or one file of tensors or its index,
            with the other files beside it; or a directory of sentence-transformers.
        allow_extra: ignore tensors that the architecture does not have.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, the files do not belong together, or the model
            is not supported; the message is one line.
    """
    root = path.parent if path.is_file() else path
    source = path if path.is_file() else model_directory(root)
    path = root if path.is_file() else source
    values = read_object_or_empty(path / CONFIG)
    family, architecture = _family(path, values)
    files, tensors, prefix = open_tensors(source, family, architecture)
    config = _read_config(path, values, tensors, family)
    copies = pop_tied_copies(path, tensors) if config.head in TIED_HEADS else []
    tokenizer = read_sentencepiece(path) or from_huggingface(path)
    first = _first_position(path, family, values, tokenizer)
    pairs, width = family.has_segments and tokenizer.has_segments, config.hidden_size
    unused, notes = fold_tables(tensors, family, first, pairs, width)
    config = config if pairs else config.changed(type_vocab_size=1)
    names = names_of(config, pooler="bert.pooler.dense.weight" in tensors)
    matches, left_over = match_tensors(
        path, config, tensors, names, _library(family, config.head), allow_extra
    )
    unused |= beyond_model(tensors, matches, tokenizer.vocab_size, family)
    left_over += _padding_rows(path, matches, config.vocab_size, tokenizer)
    config = config.changed(vocab_size=tokenizer.vocab_size)
    # A copy becomes the same parameter as its original.
    leaf_of = dict(zip((name.huggingface for name in names), matches, strict=True))
    tied = [dataclasses.replace(leaf_of[name], source=copy) for name, copy in copies]
    return Imported(
        config=config,
        params=read_parameters(path, config, matches),
        tokenizer=tokenizer,
        leaves=tuple(leaf for leaf in (*matches, *tied) if leaf.source),
        fresh=(),
        left_over=tuple(left_over),
        sources=tuple(_describe_sources(root, path, files)),
        config_left_over=keys_left_over(values),
        embedding=read_embedding(root, tokenizer.cased, config.max_position_embeddings),
        own_length=stated_length(root),
        prefix=prefix,
        folded=tuple(notes),
        unused={name: tensor.read() for name, tensor in unused.items()},
    )


def _library(family: FamilyFormat, head: str) -> SourceLibrary:
    return SourceLibrary(
        "huggingface",
        CONFIG,
        ignored=re.compile(f"{_BUFFERS}|{family.left_over}"),
        allow_extra=_ALLOW_EXTRA,
        name_in_file=lambda name: family.rename_from_bert(name, head),
    )


def _describe_sources(
    root: epath.Path, path: epath.Path, files: list[str]
) -> list[JsonObject]:
    """Return path, size and sha256 of each file that was read below `root`.

    Those that bert_jax exported are compared with their `conversion.json`: no other
    check detects an altered bit of a tensor.
    """
    names = [*files, *(n for n in (CONFIG, *TOKENIZER_FILES) if (path / n).exists())]
    sources = [os.path.relpath(path / name, root) for name in names]
    described = describe_files(root, sources + embedding_files(root))
    listed = read_object_or_empty(root / RECEIPT).get("files")
    written = {
        entry["path"]: entry.get("sha256")
        for entry in (listed if isinstance(listed, list) else [])
        if isinstance(entry, dict) and isinstance(entry.get("path"), str)
    }
    # A model card may be removed, but a tokenizer needs all of its files.
    needed = [n for n in written if is_confined(n) and not n.endswith(".md")]
    missing = [name for name in needed if not is_regular_file(root / name)]
    read = {entry["path"]: entry["sha256"] for entry in described}
    changed = [name for name, sha in read.items() if written.get(name, sha) != sha]
    if missing or changed:
        problem = f": {', '.join(changed)} has another sha256 than the export wrote"
        if missing:
            problem = f" lacks {', '.join(missing)}, which the export wrote"
        raise DamagedError(
            f"{root}{problem} according to {RECEIPT}; export or copy it again, or "
            f"remove {RECEIPT} if the change is meant."
        )
    return described


def _family(path: epath.Path, values: JsonObject) -> tuple[FamilyFormat, str]:
    names = values.get("architectures")
    named = [n for n in names if isinstance(n, str)] if isinstance(names, list) else []
    with located(path / CONFIG):
        return family_of(values), named[0] if len(named) == 1 else ""


def _first_position(
    path: epath.Path, family: FamilyFormat, values: JsonObject, tokenizer: Tokenizer
) -> int:
    first = family.first_position(values)
    if first and tokenizer.pad_id != first - 1:
        raise ValueError(
            f"{path / CONFIG}: pad_token_id={first - 1}, after which positions are "
            f"counted, but the tokenizer pads with id {tokenizer.pad_id}; use the "
            "tokenizer that belongs to the model."
        )
    return first


def _read_config(
    path: epath.Path,
    values: JsonObject,
    tensors: dict[str, Tensor],
    family: FamilyFormat,
) -> BertConfig:
    """Return the configuration, which must agree with the tensors."""
    if not (path / CONFIG).exists():
        raise FileNotFoundError(
            f"{path} lacks {CONFIG}, which describes the model; fetch it too."
        )
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    config = read_bert_config(path / CONFIG, values, shapes)
    untied = values.get("tie_word_embeddings") is False
    if untied and config.head in TIED_HEADS and not TIED.keys() <= tensors.keys():
        names = (family.rename_from_bert(name, config.head) for name in TIED)
        raise ValueError(
            f"{path / CONFIG} says tie_word_embeddings=False, but {path} lacks "
            f"{' or '.join(names)}; use the file that belongs to the tensors."
        )
    return config


def _padding_rows(
    path: epath.Path, leaves: Iterable[Leaf], num_rows: int, tokenizer: Tokenizer
) -> list[str]:
    """Return the rows that belong to no token, as slices of their tensors."""
    num_tokens = tokenizer.vocab_size
    padded = [-(-num_tokens // multiple) * multiple for multiple in _PADDING_MULTIPLES]
    spare = _SPARE_ROWS if tokenizer.kind == "huggingface" else 0
    if num_rows not in padded and not 0 <= num_rows - num_tokens <= spare:
        raise ValueError(
            f"{path}: the vocabulary has {num_tokens} tokens and the table of "
            f"embeddings {num_rows} rows, which is not padding to a multiple of "
            f"{', '.join(map(str, _PADDING_MULTIPLES))}; use the vocabulary that the "
            "model was trained with, and its added_tokens.json."
        )
    return [
        f"{leaf.source}[{num_tokens}:{num_rows}]"
        for leaf in leaves
        if leaf.target in ROWS_OF_TOKENS and num_rows > num_tokens
    ]

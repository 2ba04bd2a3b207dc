"""A model from wherever one may lie: a run, a checkpoint, Hugging Face's files."""

import dataclasses
import re
import warnings
from typing import Any

from etils import epath

from bert_jax.checkpoints.restore import read_params
from bert_jax.checkpoints.steps import find_checkpoint, read_config, read_config_as
from bert_jax.config import BertConfig
from bert_jax.formats.embedding import MODULES, OTHERS, POOLING_CONFIG, Embedding
from bert_jax.formats.huggingface import (
    CONFIG,
    TOKENIZER_FILES,
    is_huggingface,
    read_huggingface,
)
from bert_jax.formats.tensor_files import INDEX, SINGLE
from bert_jax.formats.tf1_files import is_tf1
from bert_jax.storage.remote import open_directory
from bert_jax.tokenization import Tokenizer

HUB = "hf:"


@dataclasses.dataclass(frozen=True)
class Model:
    """A model in memory, and what it was trained on."""

    config: BertConfig
    params: dict[str, Any]
    """A nested dict of float32 NumPy arrays."""
    tokenizer: Tokenizer
    pairs: str
    """What the model learned of pairs: nsp, sop, or none."""
    directory: epath.Path
    """The checkpoint, or directory of Hugging Face's files, that it was read from."""
    imported: bool
    """Whether it was never trained here, so that no optimizer belongs to it."""
    embedding: Embedding | None
    """How it makes one vector of a text, where its files say."""


def as_directory(path: str) -> epath.Path:
    """The path itself, or where `hf:OWNER/NAME@REVISION` was downloaded to."""
    return download(path) if path.startswith(HUB) else open_directory(path)


def resolve_path(path: str) -> tuple[epath.Path, bool]:
    """The directory that `path` means, and whether its model was never trained here.

    Arguments and errors are those of `load_pretrained`.
    """
    directory = as_directory(path)
    if is_huggingface(directory):
        return directory, True
    if is_tf1(directory):
        raise ValueError(
            f"{directory} is a checkpoint of TensorFlow; make one of ours by `bert-jax "
            f"convert import --from tf1 {directory} --output DIRECTORY`, and name that."
        )
    directory, problems = find_checkpoint(directory)
    for problem in problems:
        warnings.warn(f"Passed over a newer checkpoint: {problem}", stacklevel=4)
    # The configuration of an imported checkpoint is of the model alone.
    return directory, "data" not in read_config(directory)


def load_pretrained(path: str, allow_extra: bool = False) -> Model:
    """Read the model that `path` means, every file verified.

    Args:
        path: a workdir (its newest whole checkpoint), one of its checkpoints, an
            imported checkpoint, a Hugging Face directory, or hf:OWNER/NAME@REVISION.
        allow_extra: of Hugging Face's files: leave tensors aside that the model does
            not have.

    Raises:
        FileNotFoundError: there is no model.
        ValueError: files are missing or altered, or of no model that we compute.
    """
    directory, imported = resolve_path(path)
    if is_huggingface(directory):
        found = read_huggingface(directory, allow_extra)
        config, params, tokenizer = found.config, found.params, found.tokenizer
        embedding = found.embedding
    else:
        values = read_config(directory)
        config = read_config_as(directory, "model", BertConfig)
        stated = "embedding" in values
        embedding = (
            read_config_as(directory, "embedding", Embedding) if stated else None
        )
        params = read_params(directory)
        tokenizer = Tokenizer.load(directory / "tokenizer")
    pairs = "nsp" if "next_sentence" in params else "none"
    if not imported:
        # A fine-tuned model learned nothing of pairs.
        pairs = read_pairs(directory)
    return Model(config, params, tokenizer, pairs, directory, imported, embedding)


def read_pairs(directory: epath.Path) -> str:
    """What the model of a checkpoint learned of pairs: nsp, sop, or none."""
    data = read_config(directory)["data"]
    pairs = data.get("pairs", "none") if isinstance(data, dict) else None
    if pairs not in ("nsp", "sop", "none"):
        raise ValueError(
            f"{directory / CONFIG} has no data.pairs, one of nsp, sop and none; "
            "restore the file from a copy."
        )
    return str(pairs)


def download(name: str) -> epath.Path:
    """Fetch `hf:OWNER/NAME@REVISION` into Hugging Face's cache, or find it there.

    Only safetensors, configuration and vocabulary are fetched.

    Raises:
        ValueError: `name` is no such name, or it cannot be fetched.
    """
    match = re.fullmatch(r"hf:([\w.-]+(?:/[\w.-]+)?)@([\w./-]+)", name)
    if match is None:
        raise ValueError(
            f"{name!r} must be hf:OWNER/NAME@REVISION, as in "
            "hf:google-bert/bert-base-uncased@main."
        )
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise ValueError(
            f"{name} needs huggingface_hub; install it by `pip install "
            "huggingface_hub`, or name a directory."
        ) from error
    files = [CONFIG, SINGLE, INDEX, "model-*.safetensors", *TOKENIZER_FILES]
    files += [*OTHERS, *(f"0_*/{name}" for name in (*files, *OTHERS))]
    files += [MODULES, POOLING_CONFIG]
    try:
        found = snapshot_download(match[1], revision=match[2], allow_patterns=files)
    except Exception as error:
        # The library, and the one that it fetches by, raise errors of many kinds.
        reason = " ".join(str(error).split())[:200]
        raise ValueError(
            f"{name} cannot be fetched: {reason} Download it elsewhere and name the "
            "directory."
        ) from error
    return epath.Path(found)

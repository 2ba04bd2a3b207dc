"""A model as it was read from other files, and where each of its tensors came from."""

import dataclasses
from typing import Any

from bert_jax.config import BertConfig
from bert_jax.formats.embedding import Embedding
from bert_jax.tokenization import Tokenizer

RECEIPT = "conversion.json"
"""The file that says what a conversion did with each tensor."""


@dataclasses.dataclass(frozen=True)
class Leaf:
    """Where one tensor came from, or went to."""

    source: str
    target: str
    shape: tuple[int, ...]
    """At the source."""
    dtype: str
    """At the source."""
    transposed: bool


@dataclasses.dataclass(frozen=True)
class Imported:
    """A model as it was read, with everything that was done to read it."""

    config: BertConfig
    params: dict[str, Any]
    """A nested dict of float32 NumPy arrays, as `.params` of a Predictor is."""
    tokenizer: Tokenizer
    leaves: tuple[Leaf, ...]
    fresh: tuple[str, ...]
    """Leaves that the source lacks and that were drawn anew."""
    left_over: tuple[str, ...]
    """Tensors of the source that were not taken."""
    sources: tuple[dict[str, Any], ...]
    """Path, size and sha256 of each file read."""
    embedding: Embedding | None = None
    """How it makes one vector of a text, where its files say."""
    config_left_over: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Keys of the source's configuration that were not taken, and their values."""
    prefix: str = ""
    """What each tensor's name began with, and was read without."""

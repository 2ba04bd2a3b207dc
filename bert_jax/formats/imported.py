"""The result of every reader of another library's models."""

import dataclasses
from collections.abc import Callable

import numpy as np
from etils import epath
from jaxtyping import Float32

from bert_jax.config import BertConfig
from bert_jax.config.model import Params
from bert_jax.formats.embedding import Embedding
from bert_jax.formats.model_files import short_reason
from bert_jax.storage.files import JsonObject
from bert_jax.tokenization import Tokenizer

RECEIPT = "conversion.json"
"""The file that lists what a conversion did with each tensor."""
PARAMETER_DTYPES = ("float32", "float16", "bfloat16")
"""The dtypes that a parameter may be stored in."""


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A tensor in another library's file, not read yet."""

    path: epath.Path
    name: str
    shape: tuple[int, ...]
    dtype: str
    _load: Callable[[str], np.ndarray]
    """Returns the values of a tensor by name."""

    def read(self) -> Float32[np.ndarray, "..."]:
        """Return the values as float32, which holds every float16 and bfloat16.

        Raises:
            ValueError: the dtype is not a parameter's, or the file is damaged.
        """
        if self.dtype not in PARAMETER_DTYPES:
            raise ValueError(
                f"{self.path}: {self.name} has dtype {self.dtype}; a parameter must "
                f"have one of {', '.join(PARAMETER_DTYPES)}."
            )
        try:
            return np.asarray(self._load(self.name), np.float32)
        except MemoryError:
            raise
        except Exception as error:  # each library raises its own classes
            raise ValueError(
                f"{self.path} is damaged: {self.name} cannot be read "
                f"({short_reason(error)}); fetch it again."
            ) from error


@dataclasses.dataclass(frozen=True)
class Leaf:
    """The source and the target of one tensor of a conversion."""

    source: str
    target: str
    shape: tuple[int, ...]
    """At the source."""
    dtype: str
    """At the source."""
    transposed: bool


@dataclasses.dataclass(frozen=True)
class Imported:
    """A model read from another library's files, and how each part was read."""

    config: BertConfig
    params: Params
    """A nested dict of float32 NumPy arrays, like `.params` of a Predictor."""
    tokenizer: Tokenizer
    leaves: tuple[Leaf, ...]
    fresh: tuple[str, ...]
    """Parameters that the source lacks and that were initialized at random."""
    left_over: tuple[str, ...]
    """Tensors of the source that are not used."""
    sources: tuple[JsonObject, ...]
    """Path, size and sha256 of each file read."""
    embedding: Embedding | None = None
    """How the model makes one vector of a text, if its files specify it."""
    config_left_over: JsonObject = dataclasses.field(default_factory=dict)
    """Keys of the source's configuration that are not used, and their values."""
    prefix: str = ""
    """The prefix that was removed from each tensor's name."""

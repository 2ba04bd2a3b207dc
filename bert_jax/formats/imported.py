"""Match the tensors of another library's model with our parameters, and read them."""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np
from etils import epath
from flax.traverse_util import unflatten_dict
from jaxtyping import Float32

from bert_jax.config import BertConfig
from bert_jax.config.embedding import Embedding
from bert_jax.config.model import Params
from bert_jax.formats.model_files import short_reason
from bert_jax.formats.names import Name
from bert_jax.storage.files import JsonObject
from bert_jax.tokenization import Tokenizer

RECEIPT = "conversion.json"
"""The file that lists what a conversion did with each tensor."""
PARAMETER_DTYPES = ("float32", "float16", "bfloat16")
"""The dtypes that a parameter may be stored in."""
ROWS_OF_TOKENS = ("encoder/embeddings/token/embedding", "masked_lm/bias")
"""Parameters with one row for each token of the vocabulary."""

_MAX_LISTED = 8


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

        Raise ValueError if the dtype is not a parameter's, or the file is damaged.
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
    own_length: int = 0
    """The length to which its files say to cut texts; 0: they do not."""
    config_left_over: JsonObject = dataclasses.field(default_factory=dict)
    """Keys of the source's configuration that are not used, and their values."""
    prefix: str = ""
    """The prefix that was removed from each tensor's name."""
    folded: tuple[str, ...] = ()
    """What was changed to make the model of another family a BERT."""
    unused: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    """Rows that the model never uses, by the path of our parameter, and whole tensors,
    by their names in the file: an export writes them again."""


@dataclasses.dataclass(frozen=True)
class SourceLibrary:
    """A library whose models are read."""

    name: Literal["huggingface", "tf1"]
    """The name of a field of `Name`."""
    config_file: str
    ignored: re.Pattern[str]
    """The names of tensors that are not parameters and may be left over."""
    allow_extra: str
    """The option that ignores others, for messages."""
    name_in_file: Callable[[str], str] = str
    """The name that the files of a family give a tensor, for messages."""


def match_tensors(
    path: epath.Path,
    config: BertConfig,
    tensors: Mapping[str, Tensor],
    names: Sequence[Name],
    library: SourceLibrary,
    allow_extra: bool,
) -> tuple[dict[Leaf, Tensor], list[str]]:
    """Return the tensor of each leaf, and the names of the tensors left over.

    The `tensors` are by the names that the library uses today; with `allow_extra`, any
    may be left over. Raise ValueError, with the `path` and all problems, if tensors are
    missing, have another shape than `config` implies, or are not of the model.
    """
    theirs: list[str] = [getattr(name, library.name) for name in names]
    matches: dict[Leaf, Tensor] = {}
    missing, wrong = [], []
    for name, source in zip(names, theirs, strict=True):
        if (tensor := tensors.get(source)) is None:
            missing.append(library.name_in_file(source))
            continue
        transposed: bool = getattr(name, f"{library.name}_transposed")
        leaf = Leaf(tensor.name, name.ours, tensor.shape, tensor.dtype, transposed)
        matches[leaf] = tensor
        shape = name.shape[::-1] if transposed else name.shape
        if tensor.shape != shape:
            own, wanted = _format_shape(tensor.shape), _format_shape(shape)
            wrong.append(f"{tensor.name} is {own}, not {wanted}")
    left_over = tensors.keys() - set(theirs)
    extra = [tensors[n].name for n in left_over if not library.ignored.fullmatch(n)]
    head, file = config.head, library.config_file
    problems = {
        f"{path} lacks {abbreviate(missing)}; a model with the head {head} has "
        "them.": missing,
        f"{path} holds {abbreviate(sorted(extra))}, which a model with the head {head} "
        f"does not have; {library.allow_extra} ignores them.": extra
        and not allow_extra,
        f"{path}: {abbreviate(wrong, '; ', ' differ')}, as {file} says; use the {file} "
        "that belongs to the tensors.": wrong,
    }
    if any(problems.values()):
        raise ValueError(
            " ".join(text for text, is_wrong in problems.items() if is_wrong)
        )
    return matches, sorted(tensors[name].name for name in left_over)


def read_parameters(
    path: epath.Path, config: BertConfig, matches: Mapping[Leaf, Tensor]
) -> Params:
    """Return the nested parameters; rows past the vocabulary are dropped.

    Raise ValueError if a tensor is damaged, or some are not finite.
    """
    params: dict[str, np.ndarray] = {}
    broken = []
    for leaf, tensor in matches.items():
        values = tensor.read()
        if leaf.target in ROWS_OF_TOKENS:
            values = values[: config.vocab_size]
        if not np.isfinite(values).all():
            broken.append(tensor.name)
        values = values.T if leaf.transposed else values
        params[leaf.target] = np.ascontiguousarray(values)
    if broken:
        raise ValueError(
            f"{path}: {abbreviate(broken)} hold NaN or infinity; the model is "
            "damaged, so fetch it again or choose an earlier one."
        )
    return unflatten_dict(params, sep="/")


def abbreviate(items: Sequence[str], separator: str = ", ", verb: str = "") -> str:
    """Return the first items, and the number of all, then `verb`, if there are more."""
    total = [f"{len(items)} in all{verb}"] if len(items) > _MAX_LISTED else []
    return separator.join([*items[:_MAX_LISTED], *total])


def _format_shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "a scalar"

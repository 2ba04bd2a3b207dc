"""Match the tensors of another library's model with our parameters, and read them."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from etils import epath
from flax.traverse_util import unflatten_dict

from bert_jax.config import BertConfig
from bert_jax.config.model import Params
from bert_jax.formats.imported import Leaf, Tensor
from bert_jax.formats.names import Name

ROWS_OF_TOKENS = ("encoder/embeddings/token/embedding", "masked_lm/bias")
"""Parameters with one row for each token of the vocabulary."""

_MAX_LISTED = 8


@dataclasses.dataclass(frozen=True)
class Library:
    """A library whose models are read."""

    name: Literal["huggingface", "tf1"]
    """The name of a field of `Name`."""
    config_file: str
    ignored: re.Pattern[str]
    """The names of tensors that are not parameters and may be left over."""
    allow_extra: str
    """The option that ignores others, for messages."""


@dataclasses.dataclass(frozen=True)
class Match:
    """A tensor and the parameter that it becomes."""

    tensor: Tensor
    parameter: str
    transposed: bool

    @property
    def leaf(self) -> Leaf:
        """The source of the parameter, as `conversion.json` lists it."""
        t = self.tensor
        return Leaf(t.name, self.parameter, t.shape, t.dtype, self.transposed)


def match_tensors(
    path: epath.Path,
    config: BertConfig,
    tensors: Mapping[str, Tensor],
    names: Sequence[Name],
    library: Library,
    allow_extra: bool,
) -> tuple[list[Match], list[str]]:
    """Return the tensor of each parameter, and the names of the tensors left over.

    Args:
        path: the file or directory, for messages.
        tensors: by the names that the library uses today.
        allow_extra: whether any tensor may be left over.

    Raises:
        ValueError: a tensor is missing, has another shape than `config` implies, or is
            not one of the model.
    """
    theirs: list[str] = [getattr(name, library.name) for name in names]
    if missing := [name for name in theirs if name not in tensors]:
        raise ValueError(
            f"{path} lacks {abbreviate(missing)}; a model with the head "
            f"{config.head} has them."
        )
    left_over = tensors.keys() - set(theirs)
    extra = [n for n in left_over if not library.ignored.fullmatch(n)]
    if extra and not allow_extra:
        extra = sorted(tensors[name].name for name in extra)
        raise ValueError(
            f"{path} holds {abbreviate(extra)}, which a model with the head "
            f"{config.head} does not have; {library.allow_extra} ignores them."
        )
    matches, wrong = [], []
    for name, source in zip(names, theirs, strict=True):
        transposed: bool = getattr(name, f"{library.name}_transposed")
        match = Match(tensors[source], name.ours, transposed)
        matches.append(match)
        shape = name.shape[::-1] if transposed else name.shape
        if match.tensor.shape != shape:
            own, wanted = _format_shape(match.tensor.shape), _format_shape(shape)
            wrong.append(f"{match.tensor.name} is {own}, not {wanted}")
    if wrong:
        file = library.config_file
        raise ValueError(
            f"{path}: {abbreviate(wrong, '; ', ' differ')}, as {file} says; use the "
            f"{file} that belongs to the tensors."
        )
    return matches, sorted(tensors[name].name for name in left_over)


def read_parameters(
    path: epath.Path, config: BertConfig, matches: Sequence[Match]
) -> Params:
    """Return the nested parameters; rows past the vocabulary are dropped.

    Raises:
        ValueError: a tensor is damaged, or some are not finite.
    """
    params: dict[str, np.ndarray] = {}
    broken = []
    for match in matches:
        values = match.tensor.read()
        if match.parameter in ROWS_OF_TOKENS:
            values = values[: config.vocab_size]
        if not np.isfinite(values).all():
            broken.append(match.tensor.name)
        values = values.T if match.transposed else values
        params[match.parameter] = np.ascontiguousarray(values)
    if broken:
        raise ValueError(
            f"{path}: {abbreviate(broken)} hold NaN or infinity; the model is "
            "damaged, so fetch it again or choose an earlier one."
        )
    return unflatten_dict(params, sep="/")


def abbreviate(items: Sequence[str], separator: str = ", ", verb: str = "") -> str:
    """Return the first few items, and the number of all if there are more.

    Args:
        verb: follows the number.
    """
    total = [f"{len(items)} in all{verb}"] if len(items) > _MAX_LISTED else []
    return separator.join([*items[:_MAX_LISTED], *total])


def _format_shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "a scalar"

"""Match the tensors of another library's model with our parameters, and read them."""

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from etils import epath
from flax.traverse_util import unflatten_dict

from bert_jax.config import BertConfig
from bert_jax.formats.imported import Leaf, Tensor
from bert_jax.formats.names import Name, shape_of

ROWS_OF_TOKENS = ("encoder/embeddings/token/embedding", "masked_lm/bias")
"""Parameters with one row for each token of the vocabulary."""

_MAX_LISTED = 8
_LAYER = re.compile(r"bert[./]encoder[./]layer[._](\w+)[./]")


@dataclasses.dataclass(frozen=True)
class Match:
    """A tensor and the parameter that it becomes."""

    tensor: Tensor
    parameter: str
    transposed: bool

    @property
    def leaf(self) -> Leaf:
        """Where the parameter comes from, as `conversion.json` lists it."""
        t = self.tensor
        return Leaf(t.name, self.parameter, t.shape, t.dtype, self.transposed)


def check_num_layers(
    path: epath.Path, config: BertConfig, tensors: Iterable[str]
) -> None:
    """Check that as many layers have tensors as the configuration in `path` says.

    It precedes the listing of all names: a damaged file may say a billion.

    Raises:
        ValueError: the numbers differ.
    """
    layers = {match[1] for match in map(_LAYER.match, tensors) if match}
    if len(layers) != config.num_hidden_layers:
        raise ValueError(
            f"{path} says num_hidden_layers={config.num_hidden_layers} and there are "
            f"tensors of {len(layers)} layers; use the file that belongs to them."
        )


def match_tensors(
    path: epath.Path,
    config: BertConfig,
    tensors: Mapping[str, Tensor],
    names: Sequence[Name],
    library: Literal["huggingface", "tf1"],
) -> list[Match]:
    """Return the tensor of each parameter.

    Args:
        path: the file or directory, for the message.
        tensors: by the names that `library` uses today.

    Raises:
        ValueError: a tensor is missing.
    """
    theirs: list[str] = [getattr(name, library) for name in names]
    missing = [name for name in theirs if name not in tensors]
    if missing:
        raise ValueError(
            f"{path} lacks {abbreviate(missing)}; a model with the head "
            f"{config.head} has them."
        )
    return [
        Match(tensors[source], name.ours, getattr(name, f"{library}_transposed"))
        for name, source in zip(names, theirs, strict=True)
    ]


def check_shapes(
    path: epath.Path, config: BertConfig, matches: Sequence[Match], file: str
) -> None:
    """Check the shape of each tensor.

    Args:
        file: the name of the file with the configuration.

    Raises:
        ValueError: some shapes are not those that `config` implies.
    """
    wrong = []
    for match in matches:
        tensor, shape = match.tensor, shape_of(config, match.parameter)
        if match.transposed:
            shape = shape[::-1]
        if tensor.shape != shape:
            sizes = f"{_format_shape(tensor.shape)}, not {_format_shape(shape)}"
            wrong.append(f"{tensor.name} is {sizes}")
    if wrong:
        raise ValueError(
            f"{path}: {abbreviate(wrong, '; ', ' differ')}, as {file} says; use the "
            f"{file} that belongs to the tensors."
        )


def find_left_over(
    path: epath.Path,
    config: BertConfig,
    tensors: Mapping[str, Tensor],
    matches: Sequence[Match],
    expected: re.Pattern[str],
    remedy: str,
) -> list[str]:
    """Return the names of the tensors that no parameter uses.

    Args:
        expected: names that may be left over.
        remedy: how to leave out the others; empty: they may be left over too.

    Raises:
        ValueError: there are others.
    """
    used = {match.tensor.name for match in matches}
    rest = {k: tensor.name for k, tensor in tensors.items() if tensor.name not in used}
    extra = sorted(rest[name] for name in rest if not expected.fullmatch(name))
    if extra and remedy:
        raise ValueError(
            f"{path} holds {abbreviate(extra)}, which a model with the head "
            f"{config.head} does not have; {remedy}."
        )
    return sorted(rest.values())


def read_parameters(
    path: epath.Path, config: BertConfig, matches: Sequence[Match]
) -> dict[str, Any]:
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

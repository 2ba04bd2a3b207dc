"""Fold what another family of models has beside BERT's parameters, and unfold it.

Rows of a table that the model never uses are put aside: positions before the first,
segments that the tokenizer never gives, and rows after the vocabulary. An export puts
them back, so that an unchanged model has its own bytes again.
"""

import dataclasses
import re
from collections.abc import Mapping

import numpy as np
from etils import epath
from jaxtyping import Float32
from safetensors.numpy import load, save

from bert_jax.formats.families import FamilyFormat
from bert_jax.formats.imported import ROWS_OF_TOKENS, Leaf, Tensor
from bert_jax.tokenization import Tokenizer

UNUSED = "unused.safetensors"
"""The file of an imported checkpoint that holds the rows and tensors put aside."""
POSITIONS = "encoder/embeddings/position/embedding"
SEGMENTS = "encoder/embeddings/segment/embedding"
_POSITION_TABLE = "bert.embeddings.position_embeddings.weight"
_SEGMENT_TABLE = "bert.embeddings.token_type_embeddings.weight"

Unused = dict[str, np.ndarray]
"""Rows by the path of our parameter, and whole tensors by the name at the source."""


@dataclasses.dataclass
class Fold:
    """What was folded, in the order in which it was done."""

    unused: dict[str, Tensor] = dataclasses.field(default_factory=dict)
    """What was put aside: rows by the path of our parameter, tensors by their names."""
    notes: list[str] = dataclasses.field(default_factory=list)
    """A line for each, for the receipt."""

    def positions(self, tensors: dict[str, Tensor], first: int) -> None:
        """Drop the rows of positions before `first`."""
        table = tensors.get(_POSITION_TABLE)
        if first and table is not None and len(table.shape) == 2:
            self.unused[POSITIONS] = _part(table, 0, first)
            tensors[_POSITION_TABLE] = _part(table, first, table.shape[0])
            self.notes.append(
                f"{table.name}[:{first}]: never used, since positions begin at {first}"
            )

    def segments(
        self, tensors: dict[str, Tensor], family: FamilyFormat, width: int
    ) -> None:
        """Keep the only segment's row; a family without segments gets zeros."""
        table = tensors.get(_SEGMENT_TABLE)
        if not family.has_segments and table is None:
            zeros = np.zeros((1, width), np.float32)  # which no file holds
            tensors[_SEGMENT_TABLE] = Tensor(
                epath.Path(), "", zeros.shape, "float32", lambda _: zeros
            )
            self.notes.append(f"{SEGMENTS}: a row of zeros, since there is no segment")
        elif table is not None and len(table.shape) == 2 and table.shape[0] > 1:
            self.unused[SEGMENTS] = _part(table, 1, table.shape[0])
            tensors[_SEGMENT_TABLE] = _part(table, 0, 1)
            self.notes.append(
                f"{table.name}[1:]: never used, since the tokenizer gives segment 0"
            )

    def after_vocabulary(self, matches: Mapping[Leaf, Tensor], num_tokens: int) -> None:
        """Put aside the rows that belong to no token, of each table and bias."""
        for leaf, table in matches.items():
            if leaf.target in ROWS_OF_TOKENS and table.shape[0] > num_tokens:
                self.unused[leaf.target] = _part(table, num_tokens, table.shape[0])

    def whole_tensors(
        self,
        tensors: Mapping[str, Tensor],
        matches: Mapping[Leaf, Tensor],
        family: FamilyFormat,
    ) -> None:
        """Put aside the tensors that files of the family hold beside BERT's."""
        used = {leaf.source for leaf in matches}
        for name, tensor in tensors.items():
            if tensor.name not in used and re.fullmatch(family.left_over, name):
                self.unused[tensor.name] = tensor


def _part(tensor: Tensor, start: int, end: int) -> Tensor:
    """Return a tensor that reads some rows of another."""
    shape = (end - start, *tensor.shape[1:])
    return Tensor(
        tensor.path,
        tensor.name,
        shape,
        tensor.dtype,
        lambda _: tensor.read()[start:end],
    )


def unfold(
    params: Mapping[str, Float32[np.ndarray, "..."]],
    unused: Unused,
    family: FamilyFormat,
    tokenizer: Tokenizer,
) -> dict[str, Float32[np.ndarray, "..."]]:
    """Return the parameters of a family, by our paths, with all rows of its tables.

    A row that was never stored is zeros.

    Args:
        params: our parameters by their paths.
        unused: what an import put aside.
    """
    values = dict(params)
    for path in (*ROWS_OF_TOKENS, SEGMENTS):
        if path in unused and path in values:
            values[path] = np.concatenate([values[path], unused[path]])
    if not family.has_segments:
        # Every token has this segment, so its row can be added to each position.
        segment = values.pop(SEGMENTS)[:1]
        if segment.any():  # the sum with zeros would change -0.0
            values[POSITIONS] = values[POSITIONS] + segment
    if family.positions_after_padding:
        width = values[POSITIONS].shape[1]
        before = np.zeros((tokenizer.pad_id + 1, width), np.float32)
        values[POSITIONS] = np.concatenate(
            [unused.get(POSITIONS, before), values[POSITIONS]]
        )
    return values


def write_unused(unused: Mapping[str, np.ndarray], directory: epath.Path) -> None:
    """Write what an import put aside, if there is any, into a checkpoint."""
    if unused:
        dense = {name: np.ascontiguousarray(v) for name, v in unused.items()}
        (directory / UNUSED).write_bytes(save(dense))


def read_unused(directory: epath.Path) -> Unused:
    """Return what `write_unused` wrote."""
    path = directory / UNUSED
    return load(path.read_bytes()) if path.exists() else {}


def unused_tensors(unused: Unused) -> Unused:
    """Return the whole tensors that were put aside, by the names in their files."""
    return {name: values for name, values in unused.items() if "/" not in name}

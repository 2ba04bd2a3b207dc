"""Fold what another family of models has beside BERT's parameters, and unfold it.

Rows of a table that the model never uses are put aside: positions before the first,
segments that the tokenizer never gives, and rows after the vocabulary. An export puts
them back, so that an unchanged model has its own bytes again.
"""

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


def fold_tables(
    tensors: dict[str, Tensor],
    family: FamilyFormat,
    first: int,
    has_segments: bool,
    width: int,
) -> tuple[dict[str, Tensor], list[str]]:
    """Change the tables to BERT's; return the rows put aside, and a line for each.

    Rows before `first`, that of the first position, are dropped. Unless `has_segments`,
    the only segment's row is kept, or made of `width` zeros.
    """
    unused: dict[str, Tensor] = {}
    notes: list[str] = []
    table = tensors.get(_POSITION_TABLE)
    if first and table is not None and len(table.shape) == 2:
        unused[POSITIONS] = _part(table, 0, first)
        tensors[_POSITION_TABLE] = _part(table, first, table.shape[0])
        notes.append(
            f"{table.name}[:{first}]: never used, since positions begin at {first}"
        )
    table = tensors.get(_SEGMENT_TABLE)
    if not family.has_segments and table is None:
        zeros = np.zeros((1, width), np.float32)  # which no file holds
        tensors[_SEGMENT_TABLE] = Tensor(
            epath.Path(), "", zeros.shape, "float32", lambda _: zeros
        )
        notes.append(f"{SEGMENTS}: a row of zeros, since there is no segment")
    elif not has_segments and table and len(table.shape) == 2 and table.shape[0] > 1:
        unused[SEGMENTS] = _part(table, 1, table.shape[0])
        tensors[_SEGMENT_TABLE] = _part(table, 0, 1)
        notes.append(
            f"{table.name}[1:]: never used, since the tokenizer gives segment 0"
        )
    return unused, notes


def beyond_model(
    tensors: Mapping[str, Tensor],
    matches: Mapping[Leaf, Tensor],
    num_tokens: int,
    family: FamilyFormat,
) -> dict[str, Tensor]:
    """Return the rows that belong to no token, and tensors that BERT does not have."""
    rows = {
        leaf.target: _part(table, num_tokens, table.shape[0])
        for leaf, table in matches.items()
        if leaf.target in ROWS_OF_TOKENS and table.shape[0] > num_tokens
    }
    used = {leaf.source for leaf in matches}
    return rows | {
        tensor.name: tensor
        for name, tensor in tensors.items()
        if tensor.name not in used and re.fullmatch(family.left_over, name)
    }


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

    A row that was never stored is zeros. `unused` is what an import put aside.
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

"""Exact nearest neighbours of vectors by cosine or dot product, block after block."""

import functools
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Int

from bert_jax.config.embedding import ComputedSimilarity as Similarity
from bert_jax.inference.arguments import are_numbers
from bert_jax.model.heads import unit
from bert_jax.terminal.progress import Progress

_QUERIES, _BLOCK = 1024, 16384
"""Vectors that are compared at once; their similarities take 64 MiB."""

Best = tuple[Float[Array, "Q K"], Int[Array, "Q K"]]
"""The highest similarities so far, in falling order, and the rows that have them."""


class Hits(NamedTuple):
    """The k nearest texts of the corpus for each query, the nearest first."""

    indices: Int[np.ndarray, "*Q K"]
    """Numbers of texts of the corpus, from 0; of equally near ones the lower first."""
    scores: Float[np.ndarray, "*Q K"]
    """Their similarities, float32."""


def require_vectors(name: str, values: np.ndarray) -> Float[np.ndarray, "N D"]:
    """Return the vectors; raise ValueError unless they are numbers of shape [N, D]."""
    if values.ndim != 2 or not are_numbers(values) or not values.shape[1]:
        raise ValueError(
            f"{name} has shape {values.shape} and dtype {values.dtype}; it must be a "
            "list of texts, or vectors as `embed` returns them, numbers [N, D]."
        )
    return values


def require_same_width(widths: Mapping[str, int]) -> None:
    """Raise ValueError unless the vectors of all names are equally long."""
    if len(set(widths.values())) > 1:
        (first, width), (second, other) = widths.items()
        raise ValueError(
            f"{first} has vectors of {width} numbers and {second} of {other}; make "
            "both by the same model."
        )


def similarities(
    first: Float[np.ndarray, "A _"],
    second: Float[np.ndarray, "B _"],
    similarity: Similarity = "cosine",
) -> Float[np.ndarray, "A B"]:
    """Return the cosine or the dot product of each two vectors, in float32.

    Raise ValueError if they are not equally long, or one holds NaN or infinity.
    """
    require_same_width({"a": first.shape[1], "b": second.shape[1]})
    a, b = jax.device_put((_finite("a", first), _finite("b", second)))
    a = unit(a) if similarity == "cosine" else a
    return np.asarray(_compare(a, b, similarity))


def nearest(
    queries: Float[np.ndarray, "Q _"],
    corpus: Float[np.ndarray, "N _"],
    k: int,
    similarity: Similarity = "cosine",
    block: int = _BLOCK,
    progress: bool = False,
) -> Hits:
    """Return the k vectors of the corpus that are nearest to each query.

    The corpus may be a memory map: `block` of its vectors, or k, are on the device.
    With `progress`, print how far it is, if it takes longer than a second. Raise
    ValueError if the vectors are not equally long, or one holds NaN or infinity.
    """
    require_same_width({"queries": queries.shape[1], "corpus": corpus.shape[1]})
    queries = _finite("queries", queries)
    num_queries, k = len(queries), min(k, len(corpus))
    if num_queries > _QUERIES:  # the last part is as long as the others
        queries = np.pad(queries, ((0, -num_queries % _QUERIES), (0, 0)))
    # Small corpora share few shapes, so that few programs are compiled.
    block = max(k, min(block, 1 << max(len(corpus) - 1, k, 1).bit_length()))
    starts = range(0, num_queries, _QUERIES)
    parts = [jax.device_put(queries[i : i + _QUERIES]) for i in starts]
    parts = list(map(unit, parts)) if similarity == "cosine" else parts
    best: list[Best] = [
        (jnp.full((len(part), k), -jnp.inf), jnp.zeros((len(part), k), jnp.int32))
        for part in parts
    ]
    shown = Progress("vectors searched", len(corpus))
    for start in range(0, len(corpus), block):
        rows = _finite("corpus", corpus[start : start + block], start)
        chunk = np.pad(rows, ((0, block - len(rows)), (0, 0)))
        vectors = jax.device_put(chunk)
        best = [
            _merge(one, part, vectors, start, len(rows), similarity)
            for one, part in zip(best, parts, strict=True)
        ]
        jax.block_until_ready(best[-1:])
        if progress:
            shown.advance(len(rows))
    return _hits(best, num_queries, k)


def _hits(best: list[Best], num_queries: int, k: int) -> Hits:
    """Return the results of all parts, without the padding of the last one."""
    empty = np.zeros((0, k))
    scores = np.concatenate([empty, *(np.asarray(values) for values, _ in best)])
    indices = np.concatenate([empty, *(np.asarray(rows) for _, rows in best)])
    return Hits(
        indices[:num_queries].astype(np.int64), scores[:num_queries].astype(np.float32)
    )


def _finite(
    name: str, vectors: np.ndarray, first: int = 0
) -> Float32[np.ndarray, "N D"]:
    """Return the vectors in float32; raise ValueError if one is not finite there."""
    # float64 may hold more than the device. A sum is finite only if each number is; it
    # is the quicker check.
    with np.errstate(over="ignore", invalid="ignore"):
        vectors = np.asarray(vectors, np.float32)
        if np.isfinite(vectors.sum()):
            return vectors
    wrong = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(wrong):
        raise ValueError(
            f"{name}: vector {first + wrong[0]} holds NaN or infinity; it has no "
            "similarity. Make it again, or leave it out."
        )
    return vectors


@functools.partial(jax.jit, static_argnames="similarity")
def _compare(
    prepared: Float[Array, "A D"], vectors: Float[Array, "B D"], similarity: Similarity
) -> Float[Array, "A B"]:
    others = unit(vectors) if similarity == "cosine" else vectors
    # On accelerators the default precision of a product is lower than float32.
    return jnp.einsum("AD,BD->AB", prepared, others, precision="highest")


@functools.partial(jax.jit, donate_argnums=0, static_argnames="similarity")
def _merge(
    best: Best,
    queries: Float[Array, "Q D"],
    block: Float[Array, "N D"],
    start: Int[Array, ""] | int,
    num_rows: Int[Array, ""] | int,
    similarity: Similarity,
) -> Best:
    """Return the best of those so far and of a block of the corpus.

    The block begins with vector `start` of the corpus; after `num_rows` it is padding.
    """
    scores, rows = best
    k = scores.shape[1]
    values = _compare(queries, block, similarity)
    values = jnp.where(jnp.arange(len(block)) < num_rows, values, -jnp.inf)
    values, places = jax.lax.top_k(values, k)
    # Earlier rows stand first, so that of equal ones the lower is kept.
    both = jnp.concatenate([scores, values], axis=1)
    numbers = jnp.concatenate([rows, start + places], axis=1)
    values, chosen = jax.lax.top_k(both, k)
    return values, jnp.take_along_axis(numbers, chosen, axis=1)

"""How attention on a TPU is cut into blocks that fit in the chip's vector memory."""

import dataclasses
import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Bool, Float, Int, UInt32

LANES = 128
"""Values of a vector along its last axis; queries fill whole vectors."""
_SCORES = 512 * 512
"""Scores of a block, which take 1 MiB of vector memory in float32."""
Draw = Callable[[Array, Array, tuple[int, int]], UInt32[Array, "..."]]
"""Two seeds and a shape → random 32-bit words."""


def hardware_bits(
    first_seed: Int[Array, ""], second_seed: Int[Array, ""], shape: tuple[int, int]
) -> UInt32[Array, "..."]:
    """Return words of the TPU's generator; the same seeds give the same words."""
    pltpu.prng_seed(first_seed, second_seed)
    return pltpu.bitcast(pltpu.prng_random_bits(shape), jnp.uint32)


@dataclasses.dataclass(frozen=True)
class BlockPlan:
    """What the kernels do, and in which blocks; static."""

    shape: tuple[int, ...]
    """Of queries, keys and values: B, T, D."""
    num_heads: int
    causal: bool = False
    has_pairs: bool = False
    """Whether tokens attend to keys of their own pair only."""
    rate: float = 0.0
    """Of dropout of the probabilities."""
    draw: Draw = hardware_bits
    interpret: bool = False
    """Run as JAX operations on any device, for tests."""

    @property
    def threshold(self) -> int:
        """Drop a probability if its 16 random bits are below."""
        return min(round(self.rate * 2**16), 2**16 - 1)

    @property
    def head_size(self) -> int:
        """The width H of a head."""
        return self.shape[2] // self.num_heads

    @property
    def width(self) -> int:
        """The lanes of a block, which hold whole heads."""
        # Blocks must be 128 lanes, or as wide as the array.
        hidden, size = self.shape[2], self.head_size
        if size % LANES == 0:
            return size
        return LANES if LANES % size == 0 and hidden % LANES == 0 else hidden

    @property
    def rows(self) -> int:
        """The rows of a block: several if they are short."""
        batch, length, _ = self.shape
        # A number that divides the batch: there is no block of fewer rows at its end.
        most = max(1, math.isqrt(_SCORES) // length)
        return next(n for n in range(min(most, batch), 0, -1) if batch % n == 0)

    @property
    def queries(self) -> int:
        """The queries of a block: all of a row, unless it is long."""
        length = self.shape[1]
        most = max(1, min(length, _SCORES // length) // LANES) * LANES
        return next(n for n in range(most, 0, -LANES) if length % n == 0)

    @property
    def grid(self) -> tuple[int, int, int]:
        """The blocks of rows, of heads, and of queries."""
        batch, length, hidden = self.shape
        return batch // self.rows, hidden // self.width, length // self.queries

    @property
    def keep_scale(self) -> float:
        """What a probability that is kept is multiplied by."""
        return 2**16 / (2**16 - self.threshold)

    def heads(self) -> range:
        """Return the indices of the heads of a block."""
        return range(self.width // self.head_size)

    def lanes_of(self, head: int, axis: int) -> Bool[Array, "_ _"]:
        """Return which lanes of a block belong to a head, along an axis of two."""
        shape = (1, self.width) if axis else (self.width, 1)
        lane = jax.lax.broadcasted_iota(jnp.int32, shape, axis)
        return lane // self.head_size == head

    def only(self, head: int, block: Float[Array, "_ W"]) -> Float[Array, "_ W"]:
        """Return a block with zeros in the lanes of the other heads."""
        if len(self.heads()) == 1:
            return block
        return jnp.where(self.lanes_of(head, 1), block, jnp.zeros_like(block))

    def merged(self, parts: Sequence[Array], axis: int) -> Float[Array, "_ _"]:
        """Return a block with each head's lanes from its own part."""
        merged = parts[0]
        for head in self.heads()[1:]:
            merged = jnp.where(self.lanes_of(head, axis), parts[head], merged)
        return merged


class Blocks:
    """How arrays are cut into the blocks of a plan."""

    def __init__(self, plan: BlockPlan) -> None:
        # Each function is given the numbers of a block of rows, of heads and of
        # queries, and returns which block of the array is read: of keys the same for
        # all queries.
        rows, queries, width = plan.rows, plan.queries, plan.width
        length = plan.shape[1]
        self.seeds = pl.BlockSpec(memory_space=pltpu.SMEM)
        self.queries = pl.BlockSpec((rows, queries, width), lambda b, h, q: (b, q, h))
        self.keys = pl.BlockSpec((rows, length, width), lambda b, h, q: (b, 0, h))
        self.key_groups = pl.BlockSpec((rows, length, 1), lambda b, h, q: (b, 0, 0))
        self.query_groups = pl.BlockSpec((rows, 1, queries), lambda b, h, q: (b, 0, q))
        self.log_sums = pl.BlockSpec(
            (rows, 1, len(plan.heads()), queries), lambda b, h, q: (b, h, 0, q)
        )

    def inputs(self) -> list[pl.BlockSpec]:
        """Return the blocks of seeds, query, key, value and groups."""
        arrays = [self.seeds, self.queries, self.keys, self.keys]
        return [*arrays, self.key_groups, self.query_groups]

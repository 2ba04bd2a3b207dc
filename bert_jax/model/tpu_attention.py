"""Attention of a TPU as one kernel each for forward and backward pass.

The scores of a block of queries with all keys stay in the chip's vector memory; only
outputs and the logarithms of the softmax's denominators are written (Dao et al. 2022,
without their blocks of keys, as rows of 512 tokens need none). Scores are kept
transposed, keys x queries, so that sums over the keys add whole vectors. A block has
128 lanes of the hidden size, two heads of 64: a head is chosen by zeros in the other
lanes, which costs nothing, as the matrix unit multiplies 128 lanes at a time.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Bool, Float, Int

from bert_jax.model.attention_blocks import BlockPlan, Blocks, Draw, hardware_bits

_HIDDEN = float(jnp.finfo(jnp.float32).min)


def _product(
    left: Array,
    right: Array,
    left_axis: int,
    right_axis: int,
    precision: jax.lax.Precision | None = None,
) -> Float[Array, "_ _"]:
    """Return the product of two matrices over these axes, in float32."""
    axes = (((left_axis,), (right_axis,)), ((), ()))
    product: Array = jax.lax.dot_general(
        left, right, axes, precision, preferred_element_type=jnp.float32
    )
    return product


def _scores(
    plan: BlockPlan,
    head: int,
    query: Float[Array, "Q W"],
    key: Float[Array, "T W"],
    key_groups: Int[Array, "T 1"],
    query_groups: Int[Array, "1 Q"],
) -> Float[Array, "T Q"]:
    """Return the scores of a head, transposed; the lowest number where hidden."""
    scale = 1 / math.sqrt(plan.head_size)
    if math.frexp(scale)[0] == 0.5:  # a power of two: bfloat16 loses nothing
        scores = _product(plan.only(head, key) * scale, query, 1, 1)
    else:
        scores = _product(plan.only(head, key), query, 1, 1) * scale
    # A group is the number of a pair in its row; padding, 0, is never looked at.
    visible = key_groups != 0
    if plan.has_pairs:
        visible = visible & (key_groups == query_groups)
    if plan.causal:
        # A block has all keys, but not all queries: its first one has this position.
        first = pl.program_id(2) * plan.queries
        position = jax.lax.broadcasted_iota(jnp.int32, scores.shape, 1) + first
        visible = visible & (
            jax.lax.broadcasted_iota(jnp.int32, scores.shape, 0) <= position
        )
    return jnp.where(visible, scores, _HIDDEN)


def _kept(plan: BlockPlan, seeds: Any, row: int, head: int) -> Bool[Array, "T Q"]:
    """Return which probabilities dropout keeps; equal in both kernels."""
    # The number of this head's block among all, so that each has words of its own, and
    # the backward kernel draws the same ones again.
    block = pl.program_id(0) * plan.rows + row
    block = block * plan.num_heads + pl.program_id(1) * len(plan.heads()) + head
    block = block * plan.grid[2] + pl.program_id(2)
    shape = (plan.shape[1] // 2, plan.queries)
    # A word of 32 bits decides about two probabilities.
    words = plan.draw(seeds[0], seeds[1] ^ block, shape)
    halves = jnp.concatenate([words & 0xFFFF, words >> 16])
    return halves.astype(jnp.int32) >= plan.threshold


def _forward_kernel(
    plan: BlockPlan,
    seeds: Any,
    query: Any,
    key: Any,
    value: Any,
    key_groups: Any,
    query_groups: Any,
    output: Any,
    log_sums: Any,
) -> None:
    for row in range(plan.rows):
        parts = []
        for head in plan.heads():
            scores = _scores(
                plan, head, query[row], key[row], key_groups[row], query_groups[row]
            )
            # Queries are the lanes, so that sums over keys stay rows.
            highest = scores.max(0, keepdims=True)
            # Of differences to the highest, which do not overflow.
            exponentials = jnp.exp(scores - highest)
            total = exponentials.sum(0, keepdims=True)
            # Without any visible key, the backward kernel's probabilities are all 0.
            log_sum = jnp.where(highest == _HIDDEN, -_HIDDEN, highest + jnp.log(total))
            log_sums[row, 0, head : head + 1] = log_sum
            if plan.threshold:
                kept = _kept(plan, seeds, row, head)
                exponentials = jnp.where(kept, exponentials, 0.0)
            # Divided after the product, which is smaller than the probabilities.
            mixed = _product(value[row], exponentials.astype(value.dtype), 0, 0)
            parts.append(mixed * (plan.keep_scale / total))
        output[row] = plan.merged(parts, 0).T.astype(output.dtype)


def _backward_kernel(
    plan: BlockPlan,
    seeds: Any,
    query: Any,
    key: Any,
    value: Any,
    key_groups: Any,
    query_groups: Any,
    output: Any,
    log_sums: Any,
    grad: Any,
    query_grad: Any,
    key_grad: Any,
    value_grad: Any,
) -> None:
    for row in range(plan.rows):
        mean_changes = _mean_changes(plan, output[row], grad[row])
        parts = []
        for head in plan.heads():
            scores = _scores(
                plan, head, query[row], key[row], key_groups[row], query_groups[row]
            )
            # Computed again from the row sums: nothing of T x Q was stored.
            probabilities = jnp.exp(scores - log_sums[row, 0, head : head + 1])
            change = _product(plan.only(head, value[row]), grad[row], 1, 1)
            dropped = probabilities
            if plan.threshold:
                kept = _kept(plan, seeds, row, head)
                dropped = jnp.where(kept, probabilities, 0.0)
                change = jnp.where(kept, change, 0.0)
            # The derivative of softmax: p (g - Σ p g), whose sum needs no T x Q matrix.
            change = probabilities * (change - mean_changes[head : head + 1])
            change, dropped = (x.astype(query.dtype) for x in (change, dropped))
            parts.append(
                _gradients(plan, query[row], key[row], grad[row], change, dropped)
            )
        of_queries, *of_keys = zip(*parts, strict=True)
        query_grad[row] = plan.merged(of_queries, 0).T.astype(query_grad.dtype)
        for total, heads in zip((key_grad, value_grad), of_keys, strict=True):
            _add(plan, total, row, plan.merged(heads, 1))


def _gradients(
    plan: BlockPlan,
    query: Float[Array, "Q W"],
    key: Float[Array, "T W"],
    grad: Float[Array, "Q W"],
    change: Float[Array, "T Q"],
    dropped: Float[Array, "T Q"],
) -> tuple[Float[Array, "W Q"], Float[Array, "T W"], Float[Array, "T W"]]:
    """Return a head's gradients of query (transposed), key and value, in its lanes.

    Factors that all scores share are applied to these smaller products: `change`, the
    gradient of the scores, and `dropped`, the probabilities, come without them.
    """
    scale = plan.keep_scale / math.sqrt(plan.head_size)
    return (
        _product(key, change, 0, 0) * scale,
        _product(change, query, 1, 0) * scale,
        _product(dropped, grad, 1, 0) * plan.keep_scale,
    )


def _mean_changes(
    plan: BlockPlan, output: Float[Array, "Q W"], grad: Float[Array, "Q W"]
) -> Float[Array, "_ Q"]:
    """Return the mean gradient of each head's probabilities, without dropout's scale.

    It is the sum over the head's lanes of `output` * `grad`, whatever dropout did (Dao
    et al. 2022, B.2), as a product: a sum over lanes would be a column and not a row.
    """
    products = output.astype(jnp.float32) * grad.astype(jnp.float32)
    shape = (max(8, len(plan.heads())), plan.width)
    lane = jax.lax.broadcasted_iota(jnp.int32, shape, 1)
    is_own = lane // plan.head_size == jax.lax.broadcasted_iota(jnp.int32, shape, 0)
    weights = jnp.where(is_own, 1 / plan.keep_scale, 0.0)
    return _product(weights, products, 1, 1, jax.lax.Precision.HIGHEST)


def _add(plan: BlockPlan, total: Any, row: int, part: Float[Array, "T W"]) -> None:
    """Add what a block of queries contributes to the gradient of its keys."""
    if plan.grid[2] == 1:
        total[row] = part.astype(total.dtype)
        return

    # The block of keys stays in memory while the blocks of queries pass.
    @pl.when(pl.program_id(2) == 0)
    def _() -> None:
        total[row] = jnp.zeros(part.shape, total.dtype)

    total[row] += part.astype(total.dtype)


def _call(
    plan: BlockPlan, kernel: Any, name: str, *arrays: Array, **blocks: Any
) -> Any:
    # Blocks of queries come in order, because gradients of keys are added up.
    semantics: Any = ("parallel", "parallel", "arbitrary")
    return pl.pallas_call(
        functools.partial(kernel, plan),
        grid=plan.grid,
        compiler_params=pltpu.CompilerParams(dimension_semantics=semantics),
        interpret=plan.interpret,
        name=name,
        **blocks,
    )(*arrays)


# JAX cannot differentiate a kernel by itself.
@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attention(
    plan: BlockPlan, seeds: Array, groups: Array, query: Array, key: Array, value: Array
) -> Float[Array, "B T D"]:
    return _forward(plan, seeds, groups, query, key, value)[0]


def _forward(
    plan: BlockPlan, seeds: Array, groups: Array, query: Array, key: Array, value: Array
) -> tuple[Float[Array, "B T D"], tuple[Array, ...]]:
    blocks = Blocks(plan)
    batch, length, _ = plan.shape
    # Groups as a column, along the keys, and as a row, along the queries.
    inputs = (seeds, query, key, value, groups[:, :, None], groups[:, None, :])
    log_sums_shape = (batch, plan.grid[1], len(plan.heads()), length)
    output, log_sums = _call(
        plan,
        _forward_kernel,
        "attention_forward",
        *inputs,
        in_specs=blocks.inputs(),
        out_specs=[blocks.queries, blocks.log_sums],
        out_shape=[
            jax.ShapeDtypeStruct(plan.shape, query.dtype),
            jax.ShapeDtypeStruct(log_sums_shape, jnp.float32),
        ],
    )
    return output, (*inputs, output, log_sums)


def _backward(
    plan: BlockPlan, residuals: tuple[Array, ...], grad: Float[Array, "B T D"]
) -> tuple[None, None, Array, Array, Array]:
    blocks = Blocks(plan)
    dtype = grad.dtype
    # Gradients of keys are added up over the blocks of queries.
    key_dtype = dtype if plan.grid[2] == 1 else jnp.float32
    grads = _call(
        plan,
        _backward_kernel,
        "attention_backward",
        *residuals,
        grad,
        in_specs=[*blocks.inputs(), blocks.queries, blocks.log_sums, blocks.queries],
        out_specs=[blocks.queries, blocks.keys, blocks.keys],
        out_shape=[
            jax.ShapeDtypeStruct(plan.shape, each_dtype)
            for each_dtype in (dtype, key_dtype, key_dtype)
        ],
    )
    query_grad, key_grad, value_grad = (g.astype(dtype) for g in grads)
    return None, None, query_grad, key_grad, value_grad


_attention.defvjp(_forward, _backward)


def tpu_attention(
    query: Float[Array, "B T D"],
    key: Float[Array, "B T D"],
    value: Float[Array, "B T D"],
    attention_mask: Bool[Array, "B T"],
    pair_ids: Int[Array, "B T"] | None,
    seeds: Int[Array, "2"] | None,
    *,
    num_heads: int,
    causal: bool = False,
    rate: float = 0.0,
    draw: Draw = hardware_bits,
    interpret: bool = False,
) -> Float[Array, "B T D"]:
    """Return self-attention of all heads, their outputs side by side.

    It is `attention.plain_attention`, with dropout of the probabilities at multiples of
    1/65536 by random numbers of its own. A token without any visible key attends
    evenly, and gets no gradient.

    Args:
        query: T is a multiple of 128.
        pair_ids: 0 on padding; None: each row is one text or pair.
        seeds: of dropout; None without it.
        rate: of dropout.
        draw: the random generator.
        interpret: run on any device, slowly.
    """
    groups = attention_mask.astype(jnp.int32)
    if pair_ids is not None:
        groups = jnp.where(attention_mask, pair_ids.astype(jnp.int32), 0)
    plan = BlockPlan(
        query.shape,
        num_heads=num_heads,
        causal=causal,
        has_pairs=pair_ids is not None,
        rate=rate,
        draw=draw,
        interpret=interpret,
    )
    if seeds is None:
        seeds = jnp.zeros(2, jnp.int32)
    mixed: Array = _attention(plan, seeds, groups, query, key, value)
    return mixed

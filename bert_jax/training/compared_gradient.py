"""The gradient of a loss that compares each row with all others of the global batch.

Its vectors are gathered from all devices once. Such a loss is no sum over microbatches;
with several, the gradient with respect to the vectors of the whole batch is computed
first and kept, and then used microbatch after microbatch (GradCache, Gao et al. 2021,
"Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup", §3.2). It is
the gradient of the whole batch, for the price of another forward pass.
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from bert_jax.config.model import Params
from bert_jax.model.contrastive import Texts
from bert_jax.tasks.task import ComparedTask, Sums
from bert_jax.training.global_batch import (
    StepInputs,
    global_counts,
    split_rows,
    sum_of_means,
)


def compared_gradient(
    task: ComparedTask,
    prepare: Callable[[Params], Params],
    microbatches: int,
    axes: tuple[str, ...],
    inputs: StepInputs,
) -> tuple[Params, Sums]:
    """Return the gradient and the sums over the rows of one batch shard.

    `prepare` gathers parameters, and stops the gradient of frozen ones; the batch is
    sharded over `axes`. The inputs have no fixed parameters, as there is no teacher.
    """
    assert not inputs.fixed
    params, (mask_key, dropout_key) = inputs.params, inputs.keys
    corrupted = task.corrupt_at_step(inputs.batch, mask_key, inputs.step)
    counts = global_counts(task, corrupted, axes)

    def objective(texts: Texts) -> tuple[Float[Array, ""], Sums]:
        if axes:
            everyone = jax.tree.map(
                lambda x: jax.lax.all_gather(x, axes, axis=0, tiled=True), texts
            )
            # Where this shard's rows stand among all: each finds its own text there.
            first = jax.lax.axis_index(axes) * texts.vectors.shape[0]
            sums = task.compare(texts, everyone, first)
        else:
            sums = task.compare(texts, texts, 0)
        return sum_of_means(sums, counts, task.weights), sums

    def represent(params: Params, rows: PyTree, key: Key[Array, ""]) -> Texts:
        return task.represent(prepare(params), rows, key)

    keys = jax.random.split(dropout_key, microbatches)
    if microbatches > 1:
        rows = split_rows(corrupted, microbatches)
        return _cached_gradient(represent, objective, params, rows, keys)

    def of_params(params: Params) -> tuple[Float[Array, ""], Sums]:
        return objective(represent(params, corrupted, keys[0]))

    gradient: tuple[Params, Sums] = jax.grad(of_params, has_aux=True)(params)
    return gradient


def _cached_gradient(
    represent: Callable[[Params, PyTree, Array], Texts],
    objective: Callable[[Texts], tuple[Float[Array, ""], Sums]],
    params: Params,
    rows: PyTree,
    keys: Key[Array, " M"],
) -> tuple[Params, Sums]:
    """Return the gradient of `objective` over all rows, and its sums.

    The rows are those of M microbatches, [M, B / M, …], each with its key.
    """
    # 1. The vectors of all rows, and the gradient with respect to them.
    parts = jax.lax.map(lambda part: represent(params, part[0], part[1]), (rows, keys))
    texts = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), parts)

    def of_vectors(vectors: Float[Array, "B C D"]) -> tuple[Float[Array, ""], Sums]:
        return objective(dataclasses.replace(texts, vectors=vectors))

    by_vector, sums = jax.grad(of_vectors, has_aux=True)(texts.vectors)

    # 2. The gradient with respect to the parameters, microbatch after microbatch.
    def add(total: Params, part: tuple[PyTree, Array, Array]) -> tuple[Params, None]:
        own, key, cotangent = part
        _, pullback = jax.vjp(lambda p: represent(p, own, key).vectors, params)
        return jax.tree.map(jnp.add, total, pullback(cotangent)[0]), None

    # The same keys, so that the second pass drops what the first one dropped.
    zeros = jax.tree.map(jnp.zeros_like, params)
    cotangents = split_rows(by_vector, len(keys))
    grads, _ = jax.lax.scan(add, zeros, (rows, keys, cotangents))
    return grads, sums

"""How many tokens to predict while the masking rate changes from step to step."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bert_jax.config import MaskingConfig
from bert_jax.masking.batch import prediction_counts


def masking_rates(
    steps: Int[np.ndarray, "*S"], masking: MaskingConfig, run: range
) -> Float[np.ndarray, "*S"]:
    """Return the masking rate at each of `steps`; `masking.final_rate` is set.

    It changes linearly from `rate` at the first step of the `run` to `final_rate` at
    its last step (Yang et al. 2023); a run of one step has `rate`.
    """
    assert masking.final_rate is not None
    last = max(len(run) - 1, 1)
    done = steps - run.start
    rates = masking.rate + (masking.final_rate - masking.rate) * (done / last)
    # The sum above may be off by its rounding.
    return np.where(done == last, masking.final_rate, rates)


def steps_of_change(
    sequence_length: int, masking: MaskingConfig, run: range
) -> Int[np.ndarray, "lengths changes"]:
    """Return the steps at which the number of tokens to predict changes by one.

    Entry [n, i] is the first step at which a row of n of T tokens has at least i + 1
    predictions more, or fewer, than at the first step of the run; the end of the run if
    there is no such step. There are as many columns as the largest change.
    """
    limit = masking.num_slots(sequence_length)
    lengths = np.arange(sequence_length + 1)[:, None]
    first = np.array(prediction_counts(sequence_length, masking))[:, None]
    last_rate = masking_rates(np.array(run[-1]), masking, run)
    most = abs(np.clip(np.rint(last_rate * lengths), 1, limit) - first)[1:].max()
    changes = np.arange(1, int(most) + 1)
    # Bisect: the change is at a step from `low` to `high`.
    low = np.full((len(lengths), len(changes)), run.start)
    high = np.full_like(low, run.stop)
    for _ in range(len(run).bit_length()):
        middle = (low + high) // 2
        counts = np.rint(masking_rates(middle, masking, run) * lengths)
        changed = abs(np.clip(counts, 1, limit) - first) >= changes
        # An empty row has no predictions at any step.
        changed &= lengths > 0
        high = np.where(changed, middle, high)
        low = np.where(changed, low, np.minimum(middle + 1, high))
    return high.astype(np.int32)


def counts_at_step(
    step: Int[Array, ""], sequence_length: int, masking: MaskingConfig, run: range
) -> Int[Array, " lengths"]:
    """Return how many tokens to predict in a row of 0, 1, … T tokens at a step.

    The same as `prediction_counts` at that step's rate. The device, which alone knows
    the step, only compares whole numbers, so that every device and mesh predicts the
    same tokens.
    """
    assert masking.final_rate is not None
    first = jnp.asarray(prediction_counts(sequence_length, masking))
    changes = (step >= steps_of_change(sequence_length, masking, run)).sum(axis=1)
    return first + changes if masking.final_rate > masking.rate else first - changes

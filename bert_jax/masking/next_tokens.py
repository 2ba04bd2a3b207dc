"""Predict each token from those before it (Radford et al. 2018, §3.1)."""

import jax.numpy as jnp

from bert_jax.masking.batch import MaskedBatch
from bert_jax.model.inputs import DeviceRows, inputs_of, tokens_after_first


def next_tokens(batch: DeviceRows) -> MaskedBatch:
    """Return rows whose every token but the first of its pair is to be predicted.

    No token is replaced: the model must have causal attention. The label of position t
    is the token at t + 1.
    """
    inputs = inputs_of(batch)
    return MaskedBatch(
        inputs=inputs,
        predicted=None,
        labels=inputs.input_ids[:, 1:],
        weights=tokens_after_first(batch)[:, 1:].astype(jnp.float32),
    )

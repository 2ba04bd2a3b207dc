"""A training loop of one's own: the encoder, on-device masking, optax and two heads.

Run: python examples/own_loop.py DATASET [STEPS], with a dataset of `bert-jax prepare`.
"""

import sys

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

import bert_jax


class Model(nn.Module):
    """The encoder with a masked-LM head, and a head that sees the mean of a row."""

    config: bert_jax.BertConfig

    @nn.compact
    def __call__(self, masked, deterministic=True):
        inputs, predicted = masked.inputs, masked.predicted
        arrays = inputs.input_ids, inputs.segment_ids, inputs.attention_mask
        hidden = bert_jax.Encoder(self.config, name="encoder")(*arrays, deterministic)
        at_masks = jnp.take_along_axis(hidden, predicted[:, :, None], axis=1)
        tokens = nn.Dense(self.config.vocab_size, name="tokens")(at_masks)
        return tokens, nn.Dense(2, name="follows")(hidden.mean(1))


def main(path: str, num_steps: int = 20) -> list[float]:
    """Train a small model; return the loss of each step."""
    dataset = bert_jax.open_dataset(path)
    tokenizer, seed = dataset.tokenizer, jax.random.key(0)
    ids = {"mask_token_id": tokenizer.mask_id, "vocab_size": tokenizer.vocab_size}
    masking = bert_jax.MaskingConfig(max_predictions=20, **ids)
    model = Model(bert_jax.BertConfig.miniature(2, 64, vocab_size=ids["vocab_size"]))
    batches = bert_jax.DatasetBatches(dataset, batch_size=16, seed=0)
    optimizer = optax.adamw(1e-3)

    def loss(params, batch, key):
        mask_key, dropout_key = jax.random.split(key)
        masked = bert_jax.mask_tokens(mask_key, batch, masking)
        rngs = {"dropout": dropout_key}
        tokens, follows = model.apply({"params": params}, masked, False, rngs=rngs)
        total, count = bert_jax.cross_entropy(tokens, masked.labels, masked.weights)
        label = batch["next_sentence_label"][:, 0].astype(jnp.int32)
        pairs = bert_jax.cross_entropy(follows, label, jnp.ones(len(label)))
        return total / count + pairs[0] / pairs[1]

    @jax.jit
    def step(params, state, batch, key):
        value, grads = jax.value_and_grad(loss)(params, batch, key)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value

    first = bert_jax.mask_tokens(seed, batches.training(0), masking)
    params = model.init(seed, first)["params"]
    state, losses = optimizer.init(params), []
    for i in range(num_steps):
        key = jax.random.fold_in(seed, i)
        params, state, value = step(params, state, batches.training(i), key)
        losses.append(float(value))
        print(f"step {i + 1}: loss {losses[-1]:.3f}")
    return losses


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))

"""A training loop of one's own: encoder, on-device masking, optax, an extra head.

Prints the loss of each step. python examples/own_loop.py --dataset DATASET
DATASET: what `bert-jax prepare` made.
"""

import jax
import jax.numpy as jnp
import optax
import tyro
from flax import linen as nn

import bert_jax


class Model(nn.Module):
    config: bert_jax.BertConfig

    @nn.compact
    def __call__(self, masked):
        inputs, positions = masked.inputs, masked.predicted[:, :, None]
        arrays = inputs.input_ids, inputs.segment_ids, inputs.attention_mask
        hidden = bert_jax.Encoder(self.config)(*arrays, deterministic=False)
        tokens = jnp.take_along_axis(hidden, positions, axis=1)
        return nn.Dense(self.config.vocab_size)(tokens), nn.Dense(2)(hidden.mean(1))


def main(dataset: str, num_steps: int = 20):
    rows = bert_jax.open_dataset(dataset)
    size, mask_id = rows.tokenizer.vocab_size, rows.tokenizer.mask_id
    masking = bert_jax.MaskingConfig(vocab_size=size, mask_token_id=mask_id)
    model = Model(bert_jax.BertConfig.miniature(2, 64, vocab_size=size))
    batches = bert_jax.DatasetBatches(rows, batch_size=16, seed=0)
    optimizer, seed, losses = optax.adamw(1e-3), jax.random.key(0), []

    def loss(params, batch, key):
        masked = bert_jax.mask_tokens(key, batch, masking)
        tokens, follows = model.apply(params, masked, rngs={"dropout": key})
        total, count = bert_jax.cross_entropy(tokens, masked.labels, masked.weights)
        labels = jax.nn.one_hot(batch["next_sentence_label"][:, 0], 2)
        return total / count + optax.softmax_cross_entropy(follows, labels).mean()

    @jax.jit
    def step(params, state, batch, key):
        value, grads = jax.value_and_grad(loss)(params, batch, key)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value

    masked = bert_jax.mask_tokens(seed, batches.training(0), masking)
    params = model.init({"params": seed, "dropout": seed}, masked)
    state = optimizer.init(params)
    for i in range(num_steps):
        arguments = batches.training(i), jax.random.fold_in(seed, i)
        params, state, value = step(params, state, *arguments)
        losses.append(float(value))
    return losses


if __name__ == "__main__":
    print(tyro.cli(main, description=__doc__))

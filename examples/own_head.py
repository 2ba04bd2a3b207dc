"""A head of one's own on a pretrained encoder, in plain Flax: attention pooling.

python examples/own_head.py --model MODEL --train A.csv --validation B.csv
MODEL: a workdir or hf:google-bert/bert-base-uncased. Columns of the files: text, label.
"""

import jax
import jax.numpy as jnp
import optax
import tyro
from flax import linen as nn
from pyarrow import csv

import bert_jax


class Classifier(nn.Module):
    config: bert_jax.BertConfig
    num_classes: int

    @nn.compact
    def __call__(self, inputs, deterministic=True):
        arrays = inputs.input_ids, inputs.segment_ids, inputs.attention_mask
        hidden = bert_jax.Encoder(self.config, name="encoder")(*arrays, deterministic)
        scores = nn.Dense(1)(nn.tanh(nn.Dense(64)(hidden)))  # [B, T, 1]
        weights = nn.softmax(scores, axis=1, where=inputs.attention_mask[:, :, None])
        return nn.Dense(self.num_classes)((weights * hidden).sum(1))


def main(model: str, train: str, validation: str, steps: int = 300, length: int = 64):
    bert, key = bert_jax.load(model), jax.random.key(0)
    files = [csv.read_csv(path).to_pydict() for path in (train, validation)]
    inputs, dev = (
        bert_jax.text_inputs(bert.tokenizer, file["text"], length) for file in files
    )
    names = sorted(set(files[0]["label"]))
    labels, gold = (jnp.array([names.index(n) for n in f["label"]]) for f in files)
    head, optimizer = Classifier(bert.config, len(names)), optax.adamw(1e-4)
    params = head.init(key, inputs)
    params["params"]["encoder"] = bert.params["encoder"]  # the pretrained one

    def loss(params, key):
        rows = jax.random.choice(key, len(labels), (16,))
        batch = jax.tree.map(lambda array: array[rows], inputs)
        scores = head.apply(params, batch, False, rngs={"dropout": key})
        return bert_jax.cross_entropy(scores, labels[rows], jnp.ones(16))[0] / 16

    @jax.jit
    def step(params, state, key):
        updates, state = optimizer.update(jax.grad(loss)(params, key), state, params)
        return optax.apply_updates(params, updates), state

    state = optimizer.init(params)
    for i in range(steps):
        params, state = step(params, state, jax.random.fold_in(key, i))
    return {"accuracy": (head.apply(params, dev).argmax(1) == gold).mean().item()}


if __name__ == "__main__":
    print(tyro.cli(main, description=__doc__))

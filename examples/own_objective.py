"""A pretraining objective of one's own: find the tokens that were replaced.

ELECTRA's discriminator (Clark et al. 2020) with random replacements, as a `Task` that
`bert_jax.fit` trains: checkpoints, resuming, meshes and metrics come with it.
Run: python examples/own_objective.py DATASET WORKDIR [STEPS]
"""

import sys

import jax
import jax.numpy as jnp

import bert_jax


class ReplacedTokens(bert_jax.Task):
    """Classify each token: original or replaced."""

    objective = ("replaced_loss",)

    def __init__(self, dataset, config):
        token = dataset.tokenizer
        ids = {"mask_token_id": token.mask_id, "vocab_size": token.vocab_size}
        # All chosen tokens become random ones; none becomes [MASK].
        self.masking = bert_jax.MaskingConfig(mask_share=0.0, random_share=1.0, **ids)
        self.batches = bert_jax.DatasetBatches(dataset, config.batch_size, config.seed)
        self.model, self.batch_size = config.model, config.batch_size
        self.row_numbers, self.batch = self.batches.row_numbers, self.batches.training

    def init_params(self, key):
        return bert_jax.init_params(self.model, key)

    def corrupt(self, batch, key):
        inputs = bert_jax.mask_tokens(key, batch, self.masking).inputs
        return inputs, (inputs.input_ids != batch["tokens"]).astype(jnp.int32)

    def count(self, batch):
        return {"replaced_loss": batch[0].attention_mask.sum(dtype=jnp.float32)}

    def loss(self, params, batch, key=None):
        inputs, labels = batch
        arguments = self.model, params, "classifier_scores", inputs
        scores = bert_jax.compute(*arguments, dropout_key=key)
        arrays = scores, labels, inputs.attention_mask.astype(jnp.float32)
        sums = {"replaced_loss": bert_jax.cross_entropy(*arrays)}
        return sums | {"replaced_accuracy": bert_jax.accuracy(*arrays)}

    def evaluate(self, params, batch):
        return self.loss(params, self.corrupt(batch, jax.random.key(0))), {}

    def evaluation_batches(self):
        return self.batches.validation(self.batch_size)

    def num_tokens(self, batch):
        return int(batch["end"].max(axis=1).sum())


def main(path, workdir, num_steps=20):
    """Train a small model; return its scores over the validation rows."""
    dataset = bert_jax.open_dataset(path)
    head = {"head": "token_classification", "labels": ("original", "replaced")}
    size = {"vocab_size": dataset.tokenizer.vocab_size, **head}
    model = bert_jax.BertConfig.miniature(2, 64, **size)
    config = bert_jax.RunConfig(model=model, num_steps=num_steps, batch_size=16)
    task = ReplacedTokens(dataset, config)
    return bert_jax.fit(task, config, workdir, dataset.tokenizer)


if __name__ == "__main__":
    print(main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])))

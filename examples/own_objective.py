"""An objective of one's own: find replaced tokens, as ELECTRA (Clark et al. 2020).

python examples/own_objective.py --dataset DATASET --workdir WORKDIR --num-steps 100
DATASET: what `bert-jax prepare` made. The same command again resumes WORKDIR.
"""

import jax
import jax.numpy as jnp
import tyro

import bert_jax


class ReplacedTokens(bert_jax.Task):
    """Classify each token: original or replaced."""

    objective = ("replaced_loss",)

    def __init__(self, dataset, config):
        token = dataset.tokenizer
        ids = {"mask_token_id": token.mask_id, "vocab_size": token.vocab_size}
        self.masking = bert_jax.MaskingConfig(mask_share=0.0, random_share=1.0, **ids)
        self.batches = bert_jax.DatasetBatches(dataset, config.batch_size, config.seed)
        self.model = config.model

    def init_params(self, key):
        return bert_jax.init_params(self.model, key)

    def corrupt(self, batch, key):
        inputs = bert_jax.mask_by_row(key, batch, self.masking).inputs
        return inputs, (inputs.input_ids != batch["tokens"]).astype(jnp.int32)

    def count(self, batch):
        return {"replaced_loss": batch[0].attention_mask.sum(dtype=jnp.float32)}

    def loss(self, params, batch, key=None):
        inputs, labels = batch
        model = self.model, params, "classifier_scores"
        scores = bert_jax.compute(*model, inputs, dropout_key=key)
        arrays = scores, labels, inputs.attention_mask.astype(jnp.float32)
        losses = {"replaced_loss": bert_jax.cross_entropy(*arrays)}
        return losses | {"replaced_accuracy": bert_jax.accuracy(*arrays)}

    def evaluate(self, params, batch):
        return self.loss(params, self.corrupt(batch, jax.random.key(0))), {}


def main(dataset: str, workdir: str, num_steps: int = 20):
    rows = bert_jax.open_dataset(dataset)
    head = {"head": "token_classification", "labels": ("original", "replaced")}
    head["vocab_size"] = rows.tokenizer.vocab_size
    model = bert_jax.BertConfig.miniature(2, 64, **head)
    options = {"optimizer": bert_jax.OptimizerConfig(warmup_steps=1), "batch_size": 16}
    config = bert_jax.RunConfig(model=model, num_steps=num_steps, **options)
    task = ReplacedTokens(rows, config)
    return bert_jax.fit(task, config, workdir, rows.tokenizer)


if __name__ == "__main__":
    print(tyro.cli(main, description=__doc__))

"""What a masked LM must beat: guessing each token by how often it occurs.

The frequencies are those of the training rows; the guesses are scored on the very
tokens that the model's validation masks hide.
"""

import jax
import numpy as np
from jaxtyping import Float

from bert_jax.config import PretrainConfig
from bert_jax.data.batches import DatasetBatches
from bert_jax.data.records import Dataset, columns
from bert_jax.model.inputs import maskable_tokens
from bert_jax.tasks.pretraining import continues_word_table, mask_for_evaluation

_ROWS_COUNTED = 1_000_000
_ROWS_AT_ONCE = 8192


def log_frequencies(dataset: Dataset, vocab_size: int) -> Float[np.ndarray, " V"]:
    """The log share of each token among those of the training rows that masks may hide.

    Every token counts once more than it occurs, so that none has probability 0. Of a
    very large dataset the first million rows are counted; rows are in no order.
    """
    counts = np.ones(vocab_size, np.int64)
    number = min(len(dataset.train), _ROWS_COUNTED)
    maskable = jax.jit(maskable_tokens)
    for start in range(0, number, _ROWS_AT_ONCE):
        rows = columns(
            dataset.train.gather(
                np.arange(start, min(start + _ROWS_AT_ONCE, number), dtype=np.int64)
            )
        )
        tokens = rows["tokens"][np.asarray(maskable(rows))]
        counts += np.bincount(tokens, minlength=vocab_size)
    return np.log(counts / counts.sum()).astype(np.float32)


def unigram_baseline(config: PretrainConfig, dataset: Dataset) -> dict[str, float]:
    """`unigram_loss` in nats and `unigram_accuracy` over the masked validation tokens.

    Args:
        config: with `masking.vocab_size` and `masking.mask_token_id` set.
    """
    scores = log_frequencies(dataset, config.model.vocab_size)
    words = continues_word_table(config.masking, dataset)
    commonest = scores.argmax()
    mask = jax.jit(lambda batch: mask_for_evaluation(batch, config.masking, words))
    loss = hits = count = 0.0
    batches = DatasetBatches(dataset, config.batch_size, config.seed)
    for batch in batches.validation(config.batch_size, config.eval_rows):
        masked = mask(batch)
        labels = np.asarray(masked.labels)[np.asarray(masked.weights) > 0]
        loss -= scores[labels].sum(dtype=np.float64)
        hits += (labels == commonest).sum()
        count += len(labels)
    return {"unigram_loss": loss / count, "unigram_accuracy": hits / count}

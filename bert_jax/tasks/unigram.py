"""The baseline of a masked LM: predict each token by its frequency.

The frequencies are those of the training rows. The baseline is scored on the same
masked tokens of the validation rows as the model.
"""

import jax
import numpy as np
from jaxtyping import Float

from bert_jax.config import PretrainConfig
from bert_jax.data.records import Dataset, columns
from bert_jax.model.inputs import maskable_tokens
from bert_jax.tasks.pretraining import PretrainingTask

_MAX_ROWS = 1_000_000
_CHUNK_ROWS = 8192


def log_frequencies(dataset: Dataset, vocab_size: int) -> Float[np.ndarray, " V"]:
    """Return the log frequency of each token among the maskable training tokens.

    Each count is increased by one, so that no token has probability 0. Only the first
    million rows of a large dataset are counted; rows are stored in random order.
    """
    counts = np.ones(vocab_size, np.int64)
    num_rows = min(len(dataset.train), _MAX_ROWS)
    maskable = jax.jit(maskable_tokens)
    for start in range(0, num_rows, _CHUNK_ROWS):
        stop = min(start + _CHUNK_ROWS, num_rows)
        rows = columns(dataset.train.gather(np.arange(start, stop, dtype=np.int64)))
        tokens = rows["tokens"][np.asarray(maskable(rows))]
        counts += np.bincount(tokens, minlength=vocab_size)
    return np.log(counts / counts.sum()).astype(np.float32)


def unigram_baseline(config: PretrainConfig, dataset: Dataset) -> dict[str, float]:
    """Return `unigram_loss` in nats and `unigram_accuracy` over masked tokens.

    Args:
        config: with `masking.vocab_size` and `masking.mask_token_id` set.
    """
    scores = log_frequencies(dataset, config.model.vocab_size)
    most_frequent = scores.argmax()
    task = PretrainingTask(config, dataset)
    mask = jax.jit(lambda batch: task.mask_for_evaluation(batch).masked)
    loss = hits = count = 0.0
    for batch in task.batches.validation(config.batch_size, config.eval_rows):
        masked = mask(batch)
        labels = np.asarray(masked.labels)[np.asarray(masked.weights) > 0]
        loss -= scores[labels].sum(dtype=np.float64)
        hits += (labels == most_frequent).sum()
        count += len(labels)
    return {"unigram_loss": loss / count, "unigram_accuracy": hits / count}

"""The unigram baseline of every run, against counts by hand."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.data.batches import DatasetBatches
from bert_jax.data.records import Dataset, Rows
from bert_jax.runs.pretraining import resolve
from bert_jax.tasks.pretraining.task import (
    PretrainingTask,
    log_frequencies,
    unigram_baseline,
)


def test_frequencies_by_hand(dataset):
    """Two rows of [CLS] a [SEP] b b [SEP]: only a, b, b may be masked."""
    rows = np.zeros(2, dataset.train.dtype)
    rows["tokens"][:, :6] = [2, 7, 3, 8, 8, 3]
    rows["second"], rows["end"] = 3, 6
    small = Dataset(dataset.path, {}, Rows(rows.dtype, [rows]), dataset.validation)
    counts = np.ones(10)
    counts[7] += 2
    counts[8] += 4
    np.testing.assert_allclose(
        log_frequencies(small, 10), np.log(counts / 16), rtol=1e-6
    )


@pytest.mark.slow
def test_the_baseline_is_scored_on_the_masks_of_evaluation(dataset, small_config):
    config = resolve(small_config, dataset)
    frequencies = log_frequencies(dataset, config.model.vocab_size)
    labels, task = [], PretrainingTask(config, dataset)
    for batch in DatasetBatches(dataset, 5, config.seed).validation(5):
        rows = {name: jnp.asarray(values) for name, values in batch.items()}
        masked = task.mask_for_evaluation(rows).masked
        labels += np.asarray(masked.labels)[np.asarray(masked.weights) > 0].tolist()
    scores = unigram_baseline(dataclasses.replace(config, batch_size=16), dataset)
    loss = -frequencies[labels].mean()
    assert scores["unigram_loss"] == pytest.approx(loss, rel=1e-5)
    accuracy = (np.array(labels) == frequencies.argmax()).mean()
    assert scores["unigram_accuracy"] == pytest.approx(accuracy)
    assert 0 < scores["unigram_accuracy"] < 0.5

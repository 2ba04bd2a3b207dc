"""What a run on sentence pairs takes from its source and its examples."""

import dataclasses

import numpy as np

from bert_jax.config import BertConfig, FinetuneConfig
from bert_jax.config.checks import require
from bert_jax.config.embedding import Embedding
from bert_jax.tasks.finetuning import FinetuningTask
from bert_jax.tasks.lengths import row_length
from bert_jax.tasks.pairs.prompts import chosen_embedding
from bert_jax.tasks.pairs.vectors import PairVectorsTask
from bert_jax.tasks.predictions import Split


def with_embedding(
    config: FinetuneConfig, source: BertConfig, embedding: Embedding | None
) -> FinetuneConfig:
    """Return the configuration with how sentence pairs become vectors.

    Args:
        embedding: what the source's files say.
    """
    pairs = config.data.sentence_pairs
    if config.task != "sentence-pairs" or pairs.objective == "rank":
        return config
    theirs = chosen_embedding(embedding, pairs.pooling)
    require(
        theirs.pooling == "mean" or source.attention == "bidirectional",
        "pooling=cls cannot be used with attention=causal, by which [CLS] sees no "
        "other token; pass --data.sentence-pairs.pooling mean.",
    )
    for number in pairs.dimensions:
        width = source.hidden_size
        rule = f"vectors have {width} numbers; name fewer"
        require(number < width, f"data.sentence_pairs.dimensions: {number} but {rule}.")
    length = row_length(config.data, source)
    # The losses compare vectors of length 1, whatever the source compared them by.
    own = dataclasses.replace(
        theirs, normalize=True, max_tokens=length, similarity="cosine"
    )
    data = dataclasses.replace(config.data, embedding=own)
    return dataclasses.replace(config, data=data)


def with_first_length(task: FinetuningTask, *splits: Split) -> FinetuningTask:
    """Return the task with the length of the longest first text, if it is of pairs."""
    if not isinstance(task, PairVectorsTask):
        return task
    rows = [split.tokenized for split in splits]
    longest = max(int(np.diff(one.starts)[:: one.choices].max()) for one in rows)
    return dataclasses.replace(task, first_length=-(-longest // 8) * 8)

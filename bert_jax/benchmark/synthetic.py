"""Rows of random tokens, and pretraining on them."""

import argparse
import dataclasses
from typing import TYPE_CHECKING

import numpy as np
from etils import epath
from jaxtyping import Shaped

from bert_jax.config import (
    PRESETS,
    DataConfig,
    MaskingConfig,
    MeshConfig,
    PretrainConfig,
)
from bert_jax.data.records import Dataset, Rows
from bert_jax.data.shards import row_dtype

if TYPE_CHECKING:
    from bert_jax.tasks.task import Task


def synthetic_rows(
    number: int, sequence_length: int, vocab_size: int
) -> Shaped[np.ndarray, " N"]:
    """Full rows of random tokens, as a prepared dataset holds them."""
    generator = np.random.default_rng(0)
    rows = np.zeros(number, row_dtype(sequence_length, vocab_size))
    shape = rows["tokens"].shape
    rows["tokens"] = generator.integers(5, vocab_size, shape, np.uint16)
    rows["second"] = sequence_length // 2
    rows["end"] = sequence_length
    rows["next_sentence_label"] = generator.integers(0, 2, (number, 1))
    return rows


def synthetic_config(options: argparse.Namespace) -> PretrainConfig:
    """Pretraining of the asked size; beside PyTorch, which takes one, on one device."""
    model = dataclasses.replace(
        PRESETS[options.model], dtype=options.dtype, remat=options.remat
    )
    if options.no_dropout:
        model = dataclasses.replace(
            model, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
        )
    if options.fused_attention:
        model = dataclasses.replace(
            model, fused_attention=True, attention_probs_dropout_prob=0.0
        )
    return PretrainConfig(
        model=model,
        data=DataConfig(sequence_length=options.sequence_length, pairs="nsp"),
        masking=MaskingConfig(
            # The paper's slots: 20 at 128 tokens, 80 at 512.
            max_predictions=-(-options.sequence_length * 5 // 32),
            mask_token_id=4,
            vocab_size=model.vocab_size,
        ),
        mesh=MeshConfig(data=1 if options.compare else -1),
        batch_size=options.batch_size,
        microbatches=options.microbatches,
    )


def synthetic_task(options: argparse.Namespace) -> tuple[PretrainConfig, "Task"]:
    """Pretraining of the asked size on synthetic rows."""
    from bert_jax.tasks.pretraining import PretrainingTask

    config = synthetic_config(options)
    table = synthetic_rows(
        config.batch_size, config.data.sequence_length, config.model.vocab_size
    )
    rows = Rows(table.dtype, [table])
    dataset = Dataset(epath.Path("synthetic"), {}, rows, Rows(table.dtype, []))
    return config, PretrainingTask(config, dataset)

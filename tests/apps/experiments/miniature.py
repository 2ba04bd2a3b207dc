"""An experiment of a few steps, for tests.

As a program: python miniature.py ROOT TEXT TASK runs pooling with one seed, in as many
processes as the variables of the environment name.
"""

import dataclasses
import os
import sys
from pathlib import Path

from bert_jax.apps.experiments.budgets import BUDGETS
from bert_jax.apps.experiments.design import Budget
from bert_jax.apps.experiments.reproduce import ReproductionPlan, make_plan, reproduce
from bert_jax.config import BertConfig
from bert_jax.distributed import startup

MODEL = BertConfig(
    vocab_size=0,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=32,
    initializer_range=0.1,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)


def miniature_budget() -> Budget:
    """Two seeds of a few steps."""
    toy = BUDGETS["toy"]
    return dataclasses.replace(
        toy,
        flops=6e7,
        seeds=2,
        pretraining=dataclasses.replace(
            toy.pretraining,
            model=MODEL,
            batch_size=8,
        ),
        finetuning=dataclasses.replace(
            toy.finetuning,
            # Dropout is sampled on each device, so that their number would change it.
            model=dataclasses.replace(
                toy.finetuning.model,
                hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0,
            ),
            data=dataclasses.replace(toy.finetuning.data, max_length=32, num_buckets=1),
            num_steps=4,
            batch_size=8,
        ),
        sequence_length=32,
        vocab_size=150,
    )


def part_of(plan: ReproductionPlan, *variants: str) -> ReproductionPlan:
    """The plan with fewer variants, and their rows."""
    experiment = plan.experiment
    return dataclasses.replace(
        plan,
        experiment=dataclasses.replace(
            experiment,
            variants=tuple(v for v in experiment.variants if v.name in variants),
            rows=tuple(row for row in experiment.rows if row.variant in variants),
        ),
    )


def main(root: str, text: str, task: str) -> None:
    """Run pooling with one seed."""
    startup.start(os.environ)
    budget = dataclasses.replace(miniature_budget(), seeds=1)
    reproduce(make_plan("pooling", budget, Path(root), (text,), "", (task,)))


if __name__ == "__main__":
    main(*sys.argv[1:])

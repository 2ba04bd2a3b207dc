"""One score of two texts that are read together: a cross-encoder, to rank a few texts.

Nogueira & Cho 2019, §2; with hard negatives, Gao et al. 2021, "Rethink Training of BERT
Rerankers", §3.2.
"""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import final

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.data.examples import TokenizedExamples, from_rows, join_pairs
from bert_jax.model.losses import Sum, cross_entropy, weighted_sum
from bert_jax.tables.rows import TableRow
from bert_jax.tasks.finetuning import FinetuningTask
from bert_jax.tasks.pairs import report
from bert_jax.tasks.pairs.examples import (
    PairExample,
    correlations,
    pair_of_row,
    read_pairs,
    report_kind,
    require_scores,
    write_scores,
)
from bert_jax.tasks.predictions import (
    Prediction,
    Predictions,
    Split,
    SplitOutputs,
    Splits,
)
from bert_jax.tasks.task import DeviceBatch
from bert_jax.tokenization import Tokenizer

RELEVANCE = "relevance"
"""The name of the head's only output."""


@final
@dataclasses.dataclass(frozen=True)
class PairRankingTask(FinetuningTask):
    """The relevance of a second text for a first one.

    With hard negatives, the softmax is over a pair and the first text's negatives; with
    a label from 0 to 1, the sigmoid of the score is the probability of relevance.
    """

    name = "sentence-pairs"
    head = "sequence_classification"
    problem_type = "regression"
    noun = "pairs"
    analyses = report.ANALYSES
    report_kind = staticmethod(report_kind)

    @classmethod
    def suits(cls, data: ExamplesConfig, model: BertConfig | None) -> bool:
        return data.sentence_pairs.objective == "rank"

    def read(self, name: str) -> list[PairExample]:
        return read_pairs(name, self.data)

    def labels(self, examples: Sequence[PairExample]) -> tuple[str, ...]:
        first = examples[0]
        if len(first.texts) == 2:
            require_scores(examples, self.data.label_columns[0], (0.0, 1.0))
        elif first.label is not None:
            raise ValueError(
                f"{first.where} has hard negatives and a label; only one can be "
                "learned from; leave one of them out of the file."
            )
        return (RELEVANCE,)

    def check(self, examples: Sequence[PairExample]) -> None:
        """Accept all pairs: any number may be a label that is only compared."""

    def tokenize(
        self, examples: Sequence[PairExample], tokenizer: Tokenizer
    ) -> TokenizedExamples:
        """Return a row [CLS] first [SEP] other [SEP] for the second and each negative.

        A row is cut to `max_length`, the longer text first. `label` by example is
        float32, if there is one.
        """
        num_others = len(examples[0].texts) - 1
        first = tokenizer.encode_each(example.texts[0] for example in examples)
        others = tokenizer.encode_each(
            text for example in examples for text in example.texts[1:]
        )
        pairs = ((one, next(others)) for one in first for _ in range(num_others))
        rows, cut = join_pairs(tokenizer, pairs, self.max_tokens)
        by_example = {"cut": np.any(cut.reshape(-1, num_others), axis=1)}
        if examples[0].label is not None:
            scores = [example.label for example in examples]
            by_example["label"] = np.array(scores, np.float32)
        return from_rows(rows, by_example=by_example, choices=num_others)

    def score_warnings(self, split: Split) -> list[str]:
        number = sum(
            len(example.texts) - 2 - len(_wrong(example)) for example in split.examples
        )
        line = f"not ranked, since they are texts of their pair: {number} negatives"
        return [line] * (number > 0)

    def label_weights(self, batch: DeviceBatch) -> Float[Array, " B"]:
        return (batch["row"] >= 0).astype(jnp.float32)

    def label_loss(self, scores: Float[Array, "B C"], batch: DeviceBatch) -> Sum:
        """Return the cross-entropy over the texts of a row, or that of the label."""
        weights = self.label_weights(batch)
        if "label" not in batch:
            right = jnp.zeros(len(scores), jnp.int32)
            return cross_entropy(scores, right, weights)
        labels = jnp.where(weights > 0, batch["label"], 0.0)
        losses = optax.sigmoid_binary_cross_entropy(scores[:, 0], labels)
        return weighted_sum(losses, weights)

    def outputs(self, scores: Float[Array, "B C"]) -> dict[str, jax.Array]:
        return {"scores": scores}

    def predict(self, outputs: SplitOutputs) -> list[Prediction]:
        """Return the `score` of each pair, and `negative_scores` if it has negatives.

        The higher the more relevant; its sigmoid is a probability.
        """
        rows = (row["scores"].astype(np.float64).tolist() for row in outputs.rows)
        return [
            {"score": score} | ({"negative_scores": others} if others else {})
            for score, *others in rows
        ]

    def rankings_among(self, outputs: SplitOutputs) -> list[Prediction]:
        """Return the rank of each second text among itself and its hard negatives."""
        rankings = super().rankings_among(outputs)
        for i, row in enumerate(outputs.rows):
            scores = row["scores"].astype(np.float64).tolist()
            if wrong := _wrong(outputs.split.examples[i]):
                # Of equal scores, the negative stands first.
                first = max([*wrong, 1], key=lambda text: scores[text - 1])
                rankings[i] = {
                    "rank": 1 + sum(scores[text - 1] >= scores[0] for text in wrong),
                    "right": (i, 1),
                    "right_score": scores[0],
                    "first": (i, first),
                    "first_score": scores[first - 1],
                }
        return rankings

    def official_scores(self, predictions: Predictions) -> dict[str, float]:
        """Return `spearman` and `pearson` of labelled pairs; else scores of ranking.

        Those are of each second text among itself and its hard negatives.
        """
        examples, values = predictions.examples, predictions.values
        if all(example.label is not None for example in examples):
            return correlations(examples, values)
        ranks = []
        for example, value in zip(examples, values, strict=True):
            own, others = value["score"], value["negative_scores"]
            # Of equal scores, the negative stands first; a NaN is no higher.
            not_lower = [not own > others[text - 2] for text in _wrong(example)]
            ranks.append(1 + sum(not_lower))
        mrr = math.fsum(1 / rank for rank in ranks if rank <= 10) / len(ranks)
        return {"mrr@10": mrr, "recall@1": ranks.count(1) / len(ranks)}

    def write(self, predictions: Predictions, directory: Path) -> list[str]:
        return [write_scores(predictions, directory)]

    def baseline(self, splits: Splits) -> tuple[str, float]:
        """Return the expected score of a random order, or that of equal scores."""
        examples = splits.validation
        if all(example.label is not None for example in examples):
            return "correlation of a constant", 0.0
        expected = []
        for num_texts in (1 + len(_wrong(example)) for example in examples):
            ranks = np.arange(1, min(num_texts, 10) + 1)
            expected.append((1 / ranks).sum() / num_texts)
        return "mrr@10 of a random order", float(np.mean(expected))

    def example_without_label(self, row: TableRow) -> PairExample:
        return pair_of_row(row, self.data)

    def has_label(self, example: PairExample) -> bool:
        return example.label is not None or len(example.texts) > 2

    def group(self, example: PairExample) -> object:
        """Pairs of one first text stay together."""
        return example.texts[0]


def _wrong(example: PairExample) -> list[int]:
    """Return which texts are negatives, and not equal to one of the pair."""
    first, second, *others = example.texts
    return [i for i, text in enumerate(others, 2) if text not in (first, second)]

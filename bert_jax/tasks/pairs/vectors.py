"""Vectors of texts whose cosine similarity says whether two texts belong together.

Reimers & Gurevych 2019; Henderson et al. 2017 for the negatives of the batch.
"""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.config.embedding import CORPUS_PROMPTS, QUERY_PROMPTS
from bert_jax.config.model import Params
from bert_jax.data.examples import TokenizedExamples, from_rows, join_pairs
from bert_jax.data.pipeline import Batch
from bert_jax.model.bert import compute
from bert_jax.model.contrastive import Texts, info_nce, num_wrong_choices
from bert_jax.model.flops import finetuning_flops
from bert_jax.model.heads import unit
from bert_jax.model.inputs import inputs_of_tokenized
from bert_jax.model.losses import Sum, weighted_sum
from bert_jax.tables.rows import TableRow
from bert_jax.tasks.finetuning import FinetuningTask
from bert_jax.tasks.lengths import row_length
from bert_jax.tasks.pairs import report
from bert_jax.tasks.pairs.examples import (
    PairExample,
    correlations,
    has_wrong_choice,
    pair_to_score,
    read_pairs,
    report_kind,
    require_scores,
    text_ids,
    write_scores,
)
from bert_jax.tasks.pairs.prompts import checked_prompt
from bert_jax.tasks.pairs.retrieval import (
    not_found_for_themselves,
    random_retrieval,
    ranks_among,
    retrieval_among,
)
from bert_jax.tasks.predictions import (
    Prediction,
    Predictions,
    Split,
    SplitOutputs,
    Splits,
)
from bert_jax.tasks.task import ComparedTask, DeviceBatch
from bert_jax.tokenization import Tokenizer


@dataclasses.dataclass(frozen=True)
class PairVectorsTask(FinetuningTask):
    """One vector for each text.

    A row of a batch holds the C texts of an example: first, second, hard negatives.
    """

    first_length: int = 0
    """The length to which first texts are padded in training, if rows are longer: they
    are often much shorter than the second ones. 0: as the rows."""

    name = "sentence-pairs"
    head = "encoder"
    problem_type = "regression"
    noun = "pairs"
    objective_name: ClassVar[str]
    """The value of `data.sentence_pairs.objective`."""
    analyses = report.ANALYSES
    report_kind = staticmethod(report_kind)

    @classmethod
    def suits(cls, data: ExamplesConfig, model: BertConfig | None) -> bool:
        return data.sentence_pairs.objective == cls.objective_name

    def read(self, name: str) -> list[PairExample]:
        return read_pairs(name, self.data)

    def check(self, examples: Sequence[PairExample]) -> None:
        """Accept all pairs: any number may be a label that is only compared."""

    def tokenize(
        self, examples: Sequence[PairExample], tokenizer: Tokenizer
    ) -> TokenizedExamples:
        """Return a row [CLS] text [SEP] for each text, with its prompt before it.

        Of a pair to be found, each text has the prompt of its side; of one with a
        score, both have the default prompt.

        `text_ids` by example, int32 [N, C], are equal for equal texts; `label`,
        float32, is the score if there is one; `skip`, int32 [N, C], are the tokens that
        are not pooled, if there are any.
        """
        num_texts = len(examples[0].texts)
        embedding, limit = self.data.embedding, self.max_tokens

        @functools.cache
        def prompt_of(names: tuple[str, ...]) -> tuple[str, int]:
            own = embedding.first_prompt(names)
            return checked_prompt(embedding, tokenizer, own, limit)

        prompts = [
            prompt_of(self._prompt_names(example, i))
            for example in examples
            for i in range(len(example.texts))
        ]
        texts = (text for example in examples for text in example.texts)
        ids = tokenizer.encode_each(
            prompt + text for (prompt, _), text in zip(prompts, texts, strict=True)
        )
        rows, cut = join_pairs(tokenizer, ((one,) for one in ids), limit)
        by_example = {"cut": np.any(cut.reshape(-1, num_texts), axis=1)}
        if any(skips := [skip for _, skip in prompts]):
            by_example["skip"] = np.array(skips, np.int32).reshape(-1, num_texts)
        if examples[0].label is not None:
            scores = [example.label for example in examples]
            by_example["label"] = np.array(scores, np.float32)
        by_example["text_ids"] = text_ids(examples)
        return from_rows(rows, by_example=by_example, choices=num_texts)

    @property
    def max_tokens(self) -> int:
        """The length to which texts are cut: the shorter of run's and model's."""
        length = row_length(self.data, self.model)
        return min(length, self.data.embedding.max_tokens or length)

    @property
    def is_dot(self) -> bool:
        """Whether texts are compared by the dot product of vectors of any length."""
        own = self.data.embedding
        return own.similarity == "dot" and not own.normalize

    def _prompt_names(self, example: PairExample, text: int) -> tuple[str, ...]:
        """Return the names of a text's prompts, the best first; (): the default."""
        return ()

    def for_program(self) -> FinetuningTask:
        data = ExamplesConfig(embedding=self.data.embedding)
        return dataclasses.replace(self, data=data, first_length=0, training=None)

    def shard_flops(self, batch: Batch) -> float:
        num_pairs, num_texts, length = batch["tokens"].shape
        first = min(self.first_length or length, length)
        others = finetuning_flops(self.model, num_pairs * (num_texts - 1), length)
        return others + finetuning_flops(self.model, num_pairs, first)

    def scores(
        self,
        params: Params,
        batch: DeviceBatch,
        dropout_key: Key[Array, ""] | None = None,
    ) -> Float[Array, "B C D"]:
        """Return the vectors of all texts, not normalised."""
        length, skip = batch["tokens"].shape[-1], batch.get("skip")
        keys = (None, None) if dropout_key is None else jax.random.split(dropout_key)
        first = slice(0, 1), min(self.first_length or length, length), keys[0]
        others = slice(1, None), length, keys[1]
        vectors = []
        for texts, width, key in (first, others):
            own = {name: batch[name][:, texts] for name in ("tokens", "second", "end")}
            flat = compute(
                self.model,
                params,
                "embed",
                inputs_of_tokenized(own | {"tokens": own["tokens"][..., :width]}),
                dropout_key=key,
                normalize=False,
                pooling=self.data.embedding.pooling,
                skip=0 if skip is None else skip[:, texts].reshape(-1),
            )
            vectors.append(flat.reshape(len(batch["tokens"]), -1, flat.shape[-1]))
        return jnp.concatenate(vectors, axis=1)

    def label_count(self, batch: DeviceBatch) -> Float[Array, ""]:
        return (batch["row"] >= 0).sum(dtype=jnp.float32)

    def outputs(self, scores: Float[Array, "B C D"]) -> dict[str, jax.Array]:
        """Return the `vectors` [B, C, D], whose dot product is their similarity."""
        return {"vectors": scores if self.is_dot else unit(scores)}

    def predict(self, outputs: SplitOutputs) -> list[Prediction]:
        """Return the `score` of each pair: the similarity of its two texts."""
        vectors = (row["vectors"].astype(np.float64) for row in outputs.rows)
        return [{"score": float(row[0] @ row[1])} for row in vectors]

    def official_scores(self, predictions: Predictions) -> dict[str, float]:
        """Return `spearman` and `pearson` of labelled pairs."""
        if not _has_labels(predictions.examples):
            return {}
        return correlations(predictions.examples, predictions.values)

    def write(self, predictions: Predictions, directory: Path) -> list[str]:
        return [write_scores(predictions, directory)]

    def baseline(self, splits: Splits) -> tuple[str, float]:
        """Return the expected score of a random order, or that of equal cosines."""
        if _has_labels(splits.validation):
            return "correlation of a constant", 0.0
        ids = text_ids(splits.validation)
        return "ndcg@10 of a random order", random_retrieval(ids)

    def example_without_label(self, row: TableRow) -> PairExample:
        return pair_to_score(row, self.data)

    def group(self, example: PairExample) -> object:
        """Pairs of one second text, such as questions on a paragraph, stay together."""
        return example.texts[1]


@final
@dataclasses.dataclass(frozen=True)
class ScoredPairsTask(PairVectorsTask):
    """The cosine of two vectors learns the label of the pair."""

    objective_name = "cosine"

    def labels(self, examples: Sequence[PairExample]) -> tuple[str, ...]:
        """Return (): a vector has no classes."""
        require_scores(examples, self.data.label_columns[0], (-1.0, 1.0))
        return ()

    def label_loss(self, scores: Float[Array, "B C D"], batch: DeviceBatch) -> Sum:
        """Return the squared error of the cosines."""
        units = unit(scores)
        cosines = (units[:, 0] * units[:, 1]).sum(axis=-1)
        label = batch.get("label", jnp.full(len(cosines), jnp.nan))
        known = ~jnp.isnan(label)
        errors = cosines - jnp.where(known, label, 0.0)
        return weighted_sum(errors**2, known.astype(jnp.float32))


@final
@dataclasses.dataclass(frozen=True)
class ContrastivePairsTask(PairVectorsTask, ComparedTask):
    """The second text of a pair is to be found among all of the global batch."""

    objective_name = "contrastive"

    def labels(self, examples: Sequence[PairExample]) -> tuple[str, ...]:
        """Return (): a vector has no classes."""
        column, first = self.data.label_columns[0], examples[0]
        if first.label is not None:
            raise ValueError(
                f"{first.where} has the label {first.label:g} in {column}, and "
                "objective=contrastive takes every row as a pair that belongs "
                "together; keep only such rows, without that column, or choose "
                "--data.sentence-pairs.objective cosine."
            )
        if not has_wrong_choice(text_ids(examples)):
            raise ValueError(
                f"{first.where}: as in all other rows, every second text is in a pair "
                "with the first one, so that there is nothing to tell apart; add pairs "
                "of other texts, or hard negatives."
            )
        return ()

    def _prompt_names(self, example: PairExample, text: int) -> tuple[str, ...]:
        if example.label is not None:
            return ()
        return CORPUS_PROMPTS if text else QUERY_PROMPTS

    def score_warnings(self, split: Split) -> list[str]:
        ids = split.tokenized.by_example["text_ids"]
        number = len(not_found_for_themselves(ids))
        line = "not compared with themselves, since they belong to other texts: "
        line += f"{number} of {len(np.unique(ids[:, 0]))} first texts"
        is_searched = not _has_labels(split.examples)
        return [line] * (number > 0 and is_searched)

    def label_loss(self, scores: Float[Array, "B C D"], batch: DeviceBatch) -> Sum:
        """Return InfoNCE among these rows."""
        texts = Texts(scores, batch["text_ids"])
        return self.compare(texts, texts, 0)["loss"]

    def represent(
        self, params: Params, batch: DeviceBatch, key: Key[Array, ""]
    ) -> Texts:
        return Texts(self.scores(params, batch, key), batch["text_ids"])

    def compare(
        self, own: Texts, everyone: Texts, first: Int[Array, ""] | int
    ) -> dict[str, Sum]:
        """Return the `loss`, and how many `negatives` each pair was compared with."""
        c = self.data.sentence_pairs
        loss = info_nce(own, everyone, first, c.temperature, c.symmetric, c.dimensions)
        return {"loss": loss, "negatives": num_wrong_choices(own, everyone, first)}

    def scores_among(self, outputs: SplitOutputs) -> dict[str, float]:
        """Return the scores of finding each second text among all of the split.

        There are none if the pairs have a label, which they are scored by.
        """
        if _has_labels(outputs.split.examples):
            return {}
        vectors = np.stack([row["vectors"] for row in outputs.rows])
        ids = outputs.split.tokenized.by_example["text_ids"]
        temperature = self.data.sentence_pairs.temperature
        scores = retrieval_among(vectors, ids, temperature)
        if self.is_dot:  # the loss is of cosines, as in training
            units = np.asarray(unit(jnp.asarray(vectors)))
            scores["loss"] = retrieval_among(units, ids, temperature)["loss"]
        return scores

    def rankings_among(self, outputs: SplitOutputs) -> list[Prediction]:
        """Return the rank of the best second text of each different first text."""
        if _has_labels(outputs.split.examples):
            return super().rankings_among(outputs)
        vectors = np.stack([row["vectors"] for row in outputs.rows])
        return ranks_among(vectors, outputs.split.tokenized.by_example["text_ids"])

    def has_label(self, example: PairExample) -> bool:
        """Return True: the second text itself may be found."""
        return True


def _has_labels(examples: Sequence[PairExample]) -> bool:
    return bool(examples) and examples[0].label is not None

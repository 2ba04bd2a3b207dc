"""Question answering: SQuAD 1.1 and 2.0 (Rajpurkar et al. 2016 and 2018).

The answer is a span of the document or, in 2.0, none.
"""

import collections
import dataclasses
import math
import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bert_jax.config.model import ANSWERABLE_LABELS
from bert_jax.data.documents import split_sentences
from bert_jax.data.examples import TokenizedExamples
from bert_jax.metrics.squad import normalize_answer, squad1_scores, squad2_scores
from bert_jax.model.losses import Sum
from bert_jax.tables.rows import TableRow
from bert_jax.tasks.answers import report
from bert_jax.tasks.answers.files import question_from_row, read, write
from bert_jax.tasks.answers.rows import SquadExample, tokenize
from bert_jax.tasks.answers.spans import predict, require_null_answers
from bert_jax.tasks.finetuning import FinetuningTask
from bert_jax.tasks.head_scores import PADDING_SCORE
from bert_jax.tasks.predictions import (
    Prediction,
    Predictions,
    Split,
    SplitOutputs,
    Splits,
)
from bert_jax.tasks.task import DeviceBatch
from bert_jax.tokenization import Tokenizer

_MAX_LISTED, _MAX_REASONS = 5, 3
_FORMS = "bring contexts and answers into one form before they are counted"
_KEPT = "keep contexts as they were when they were counted"
_COUNTS: dict[str, Callable[[str], str]] = {
    "UTF-16 units, as JavaScript and Java do; count characters": partial(
        re.sub, "[\U00010000-\U0010ffff]", r"\g<0>\g<0>"
    ),
    "bytes of UTF-8; count characters": lambda text: text.encode().decode("latin-1"),
    f"line ends as two characters (CRLF); {_KEPT}": partial(re.sub, "\r?\n", "\r\n"),
    f"line ends as one character, not CRLF; {_KEPT}": partial(re.sub, "\r\n", "\n"),
    f"the composed form (NFC); {_FORMS}": partial(unicodedata.normalize, "NFC"),
    f"the decomposed form (NFD); {_FORMS}": partial(unicodedata.normalize, "NFD"),
    f"several blanks as one; {_KEPT}": partial(re.sub, r"\s+", " "),
    "rightly, but capitals differ; copy answers from their contexts": str.casefold,
}
"""How `answer_start` may count, with the remedy, and the text that it then counts."""


@final
@dataclasses.dataclass(frozen=True)
class QuestionAnsweringTask(FinetuningTask):
    """The start and the end of an answer, as scores of the tokens of a window."""

    name = "question-answering"
    head = "question_answering"
    analyses = report.ANALYSES
    noun = "questions"
    length_option = "max_query_length"

    def read(self, name: str) -> list[SquadExample]:
        return read(name, self.data)

    def labels(self, examples: Sequence[SquadExample]) -> tuple[str, ...]:
        """Return `ANSWERABLE_LABELS` if a question is unanswerable, else ()."""
        if self.data.labels:
            raise ValueError(
                f"labels={','.join(self.data.labels)}: question answering has no "
                "classes; leave it out."
            )
        for example in examples:
            if not example.has_label:
                raise ValueError(
                    f'question {example.id!r} has no "answers" to learn; add them.'
                )
        misplaced = [example for example in examples if example.misplaced]
        if not any(example.answers and not example.misplaced for example in examples):
            reason = f" ({_not_learned(misplaced, len(examples))})" if misplaced else ""
            raise ValueError(
                f"{self.data.train or self.data.path}: none of {len(examples)} "
                "questions has an answer at its answer_start; there is nothing to "
                f"learn{reason}."
            )
        impossible = any(example.impossible for example in examples)
        return ANSWERABLE_LABELS if impossible else ()

    def check(self, examples: Sequence[SquadExample]) -> None:
        """Raise ValueError for an unanswerable question, if the model never saw one."""
        for example in examples:
            if example.impossible:
                path = self.data.validation or self.data.path or self.data.train
                what = f"{path}: question {example.id!r} is unanswerable"
                require_null_answers(self.model, what)

    def tokenize(
        self, examples: Sequence[SquadExample], tokenizer: Tokenizer
    ) -> TokenizedExamples:
        return tokenize(examples, tokenizer, self.model, self.data)

    def warnings(self, split: Split) -> list[str]:
        """Report the questions that are not trained on, and those that were cut."""
        examples, tokenized = split.examples, split.tokenized
        labels = tokenized.by_example["label"]
        skipped = np.unique(tokenized.example[labels[:, 0] < 0]).tolist()
        misplaced = [examples[i] for i in skipped if examples[i].answers]
        lines = [_not_learned(misplaced, len(examples))] if misplaced else []
        return lines + super().warnings(split)

    def label_weights(self, batch: DeviceBatch) -> Float[Array, "B 2"]:
        """Return a half for each of start and end of a row with a label."""
        known = (batch["label"][:, :1] >= 0) & (batch["end"][:, None] > 0)
        return known * jnp.full(2, 0.5)

    def label_loss(self, scores: Float[Array, "B T 2"], batch: DeviceBatch) -> Sum:
        """Return the mean cross-entropy of start and end over real tokens, in nats.

        The code of 2018 also chooses among padding, so that its loss depends on the
        length that a batch is padded to.
        """
        return super().label_loss(self._scores_of_tokens(scores, batch), batch)

    def _scores_of_tokens(
        self, scores: Float[Array, "B T 2"], batch: DeviceBatch
    ) -> Float[Array, "B 2 T"]:
        """Return the scores of start and end, with the lowest one on padding."""
        real = jnp.arange(scores.shape[1]) < batch["end"][:, None, None]  # [B, 1, T]
        return jnp.where(real, scores.transpose(0, 2, 1), PADDING_SCORE)

    def distillation_loss(
        self,
        scores: Float[Array, "B T 2"],
        teacher_scores: Float[Array, "B T 2"],
        batch: DeviceBatch,
        temperature: float,
    ) -> Sum:
        """Return the mean divergence of start and end over real tokens."""
        ours, theirs = (
            self._scores_of_tokens(part, batch) for part in (scores, teacher_scores)
        )
        return super().distillation_loss(ours, theirs, batch, temperature)

    def outputs(self, scores: Float[Array, "B T 2"]) -> dict[str, jax.Array]:
        """Return `start` and `end` [B, T], in logits, of real tokens and padding."""
        return {"start": scores[..., 0], "end": scores[..., 1]}

    def predict(self, outputs: SplitOutputs) -> list[Prediction]:
        return predict(outputs, self.model, self.data)

    def official_scores(self, predictions: Predictions) -> dict[str, float]:
        """Return the official scores in per cent, of 2.0 if a question is unanswerable.

        They are what the official script gives for the files of `write`: the answers
        as they are, after `data.null_threshold`. Those of 2.0 include the best scores
        by a threshold on `null_odds`, and the thresholds. As in the script, an answer
        that was already replaced by none is not restored: if the best threshold is not
        below `data.null_threshold`, a higher one may be better.
        """
        for example in predictions.examples:
            if not example.has_label:
                raise ValueError(
                    f'question {example.id!r} has no "answers" to score by.'
                )
        return _official_scores(predictions.examples, predictions.values)

    def write(self, predictions: Predictions, directory: Path) -> list[str]:
        has_null = self.model.labels == ANSWERABLE_LABELS
        return write(predictions.values, has_null, directory)

    def baseline(self, splits: Splits) -> tuple[str, float]:
        """Return the F1 of words from the sentence that is most like the question.

        It takes as many words as training answers have on average, from a position
        drawn with a fixed seed. If the F1 of giving no answer to any question is
        higher, return that.
        """
        generator = np.random.default_rng(0)
        texts = [text for example in splits.train for text, _ in example.answers[:1]]
        sizes = [len(text.split()) for text in texts]
        size = max(1, round(float(np.mean(sizes)))) if sizes else 1
        contexts = dict.fromkeys(example.context for example in splits.validation)
        sentences = {text: split_sentences(text, "split") for text in contexts}
        spans = []
        for example in splits.validation:
            choices = sentences[example.context]
            span = _random_span(example.question, choices, size, generator)
            spans.append({"id": example.id, "answer": span, "null_odds": 0.0})
        rules = {
            "random span in the best-overlap sentence": spans,
            "no answer to any question": [span | {"answer": ""} for span in spans],
        }
        scores = {
            name: _official_scores(splits.validation, answers)["f1"]
            for name, answers in rules.items()
        }
        return max(scores.items(), key=lambda item: item[1])

    def example_without_label(self, row: TableRow) -> SquadExample:
        return question_from_row(row)

    def has_label(self, example: SquadExample) -> bool:
        return example.has_label

    def texts(self, example: SquadExample) -> tuple[str, ...]:
        return (example.question, example.context)

    def group(self, example: SquadExample) -> object:
        return example.title or example.context


def _official_scores(
    examples: Sequence[SquadExample], predictions: Sequence[Prediction]
) -> dict[str, float]:
    gold = {example.id: [text for text, _ in example.answers] for example in examples}
    answers = {prediction["id"]: prediction["answer"] for prediction in predictions}
    if not any(example.impossible for example in examples):
        scores = squad1_scores(gold, answers)
        return {"f1": scores["f1"], "exact_match": scores["exact_match"]}
    null_odds = {p["id"]: p["null_odds"] for p in predictions}
    # The answers are final: `null_odds` only serve to find the best threshold.
    scores = squad2_scores(gold, answers, null_odds, threshold=math.inf)
    names: dict[str, str] = {}  # ours → the official script's
    for group in ("", "HasAns_", "NoAns_"):
        names |= {f"{group}f1": f"{group}f1", f"{group}exact_match": f"{group}exact"}
    for best in ("best_f1", "best_exact"):
        names |= {best: best, f"{best}_threshold": f"{best}_thresh"}
    return {ours: float(scores[name]) for ours, name in names.items() if name in scores}


def _random_span(
    question: str, sentences: Sequence[str], size: int, generator: np.random.Generator
) -> str:
    words_asked = set(normalize_answer(question).split())
    best = max(
        sentences,
        key=lambda sentence: len(words_asked & set(normalize_answer(sentence).split())),
    )
    words = best.split()
    start = int(generator.integers(max(1, len(words) - size + 1)))
    return " ".join(words[start : start + size])


def _not_learned(examples: Sequence[SquadExample], total: int) -> str:
    """Return how many of `total` questions cannot be learned, with ids and reasons."""
    ids = [f"{example.id:.40}" for example in examples[:_MAX_LISTED]]
    more = ", …" if len(examples) > _MAX_LISTED else ""
    reasons = collections.Counter(map(_reason, examples))
    listed = [f"{reason} ({n:,})" for reason, n in reasons.most_common(_MAX_REASONS)]
    return (
        "not trained on, since the answer is not at its answer_start: "
        f"{len(examples):,} of {total:,} questions ({', '.join(ids)}{more}); "
        f"{'; '.join(listed)}"
    )


def _reason(example: SquadExample) -> str:
    """Return why the first answer is not at its `answer_start`, with the remedy."""
    answer, start = example.answers[0]
    context = example.context
    if not example.misplaced:
        return "the answer has no token, only characters that the tokenizer drops"
    for count, form in _COUNTS.items() if start >= 0 else ():
        texts = (form(context), start), (form(context[start:]), 0)
        if any(text.startswith(form(answer), place) for text, place in texts):
            return f"answer_start counts {count}"
    places = [match.start() for match in re.finditer(re.escape(answer), context)]
    if not places:
        return "the context does not hold the answer; copy it from there"
    if start < 0:
        return "answer_start is below 0; write where the answer starts"
    offset = min((place - start for place in places), key=abs)
    side = "later" if offset > 0 else "earlier"
    hint = ", as where counting began at 1 or at a byte order mark" * (offset == -1)
    return f"the answer stands {abs(offset):,} characters {side}{hint}"

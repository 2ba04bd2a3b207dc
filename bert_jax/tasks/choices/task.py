"""Multiple choice: which of a few endings follows (Devlin et al. 2018, §4.4)."""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, final

import jax
import numpy as np
from jaxtyping import Array, Float

from bert_jax.data.examples import TokenizedExamples, from_rows, join_pairs
from bert_jax.storage.files import write_lines
from bert_jax.tables.rows import TableRow, missing_column_message
from bert_jax.tasks.choices import report
from bert_jax.tasks.choices.examples import (
    ChoiceExample,
    choice_from_row,
    choice_from_swag,
    codah_rows,
    is_codah,
    read,
)
from bert_jax.tasks.finetuning import FinetuningTask
from bert_jax.tasks.predictions import (
    Prediction,
    Predictions,
    Split,
    SplitOutputs,
    Splits,
)
from bert_jax.tokenization import Tokenizer


@final
@dataclasses.dataclass(frozen=True)
class MultipleChoiceTask(FinetuningTask):
    """A score for each choice; the softmax is over the choices of a question."""

    name = "multiple-choice"
    head = "multiple_choice"
    analyses = report.ANALYSES
    noun = "questions"

    def read(self, name: str) -> list[ChoiceExample]:
        return read(name, self.data)

    def labels(self, examples: Sequence[ChoiceExample]) -> tuple[str, ...]:
        """Return (): choices have no names."""
        for example in examples:
            if example.label is None:
                column, columns = self.data.label_columns[0], example.columns
                missing = f"{example.where} has no label."
                if columns and column not in columns:
                    missing = missing_column_message(example.where, column, columns)
                raise ValueError(
                    f"{missing} To learn, each row must have one; name its column by "
                    "--label-column."
                )
        self.check(examples)
        return ()

    def check(self, examples: Sequence[ChoiceExample]) -> None:
        for example in examples:
            label, num_choices = example.label, len(example.choices)
            if label is not None and not 0 <= label < num_choices:
                raise ValueError(
                    f"{example.where}: label={label} must be from 0 to "
                    f"{num_choices - 1}, the number of the right choice."
                )

    def tokenize(
        self, examples: Sequence[ChoiceExample], tokenizer: Tokenizer
    ) -> TokenizedExamples:
        """Return a row [CLS] context [SEP] choice [SEP] for each choice.

        The choice starts with the question, if there is one. A row is cut to
        `max_length`, the longer of the two first. A choice that a question lacks and
        another has is [CLS] alone, with its second segment at 0. `label` by example is
        int32, -1 if it is not known.
        """
        num_choices = max(len(example.choices) for example in examples)
        contexts = tokenizer.encode_each(example.context for example in examples)
        endings = tokenizer.encode_each(
            f"{example.question} {choice}" if example.question else choice
            for example in examples
            for choice in example.choices
        )
        rows: list[tuple[list[int], int]] = []
        cut: list[bool] = []
        for example, context in zip(examples, contexts, strict=True):
            pairs = [(context, next(endings)) for _ in example.choices]
            own_rows, own_cut = join_pairs(tokenizer, pairs, self.max_tokens)
            absent = [([tokenizer.cls_id], 0)] * (num_choices - len(pairs))
            rows += own_rows + absent
            cut.append(bool(own_cut.any()))
        labels = [
            -1 if example.label is None else example.label for example in examples
        ]
        by_example = {"label": np.array(labels, np.int32), "cut": np.array(cut)}
        return from_rows(rows, by_example=by_example, choices=num_choices)

    def warnings(self, split: Split) -> list[str]:
        num_choices = [len(example.choices) for example in split.examples]
        num_fewer = sum(number < max(num_choices) for number in num_choices)
        line = f"fewer than {max(num_choices)} choices: {num_fewer} of "
        lines = [f"{line}{len(num_choices)} questions"] * (num_fewer > 0)
        return lines + super().warnings(split)

    def outputs(self, scores: Float[Array, "B C"]) -> dict[str, jax.Array]:
        """Return the `probabilities` [B, C] of the choices."""
        return {"probabilities": jax.nn.softmax(scores)}

    def predict(self, outputs: SplitOutputs) -> list[Prediction]:
        """Return the most probable `choice`, from 0, and the `probabilities` of all."""
        pairs = zip(outputs.split.examples, outputs.rows, strict=True)
        tables = (row["probabilities"][: len(one.choices)] for one, row in pairs)
        return [
            {"choice": int(own.argmax()), "probabilities": own.tolist()}
            for own in tables
        ]

    def official_scores(self, predictions: Predictions) -> dict[str, float]:
        """Return the `accuracy` over the questions with a label."""
        choices = [value["choice"] for value in predictions.values]
        return {"accuracy": _accuracy(predictions.examples, choices)}

    def write(self, predictions: Predictions, directory: Path) -> list[str]:
        """Write predictions.csv for SWAG's leaderboard.

        It has a column `pred` of numbers from 0, and one line per row of the file, in
        its order.
        """
        name = "predictions.csv"
        lines = ["pred", *(str(value["choice"]) for value in predictions.values)]
        write_lines(lines, directory / name)
        return [name]

    def baseline(self, splits: Splits) -> tuple[str, float]:
        """Return the accuracy without a model.

        It is that of a guess, or of the position that is right most often in training,
        if that is higher.
        """
        counts = Counter(one.label for one in splits.train if one.label is not None)
        numbers = [len(example.choices) for example in splits.validation]
        chance = sum(1 / number for number in numbers) / len(numbers)
        if counts:
            position = min(counts, key=lambda label: (-counts[label], label))
            accuracy = _accuracy(splits.validation, [position] * len(numbers))
            if accuracy > chance:
                return f"majority position ({position})", accuracy
        return "chance", chance

    def rows_to_predict(self, source: str, **options: Any) -> Iterator[TableRow]:
        if is_codah(source):
            return codah_rows(source, self.data.label_columns[0])
        return super().rows_to_predict(source, **options)

    def example_without_label(self, row: TableRow) -> ChoiceExample:
        if "sent1" in row.values:
            return choice_from_swag(row, label_column="")
        return choice_from_row(row, label_column="")

    def texts(self, example: ChoiceExample) -> tuple[str, ...]:
        return (example.context, example.question, *example.choices)

    def group(self, example: ChoiceExample) -> object:
        return example.context


def _accuracy(examples: Sequence[ChoiceExample], choices: Sequence[int]) -> float:
    correct = [
        example.label == choice
        for example, choice in zip(examples, choices, strict=True)
        if example.label is not None
    ]
    if not correct:
        raise ValueError(
            f"{examples[0].where} and all others have no label; there is nothing to "
            "score by."
        )
    return sum(correct) / len(correct)

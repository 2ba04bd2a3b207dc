"""What is said of texts and pairs of texts (Devlin et al. 2018, §4.1).

All tasks of GLUE, and a user's own table of texts.
"""

import abc
import collections
import dataclasses
import functools
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.config.checks import spaced
from bert_jax.data.examples import TokenizedExamples, from_rows, join_pairs
from bert_jax.tables.damage import parse_rows
from bert_jax.tables.read import table_rows, undamaged
from bert_jax.tables.rows import TableRow
from bert_jax.tasks.class_names import (
    class_finder,
    joined_names,
    joined_warnings,
    list_warnings,
    unknown_class_message,
)
from bert_jax.tasks.finetuning import FinetuningTask
from bert_jax.tasks.predictions import Prediction, Predictions, SplitOutputs, Splits
from bert_jax.tasks.texts.examples import (
    TextExample,
    classes_of,
    labelled_example,
    name_counts,
    require_labels,
    require_num_texts,
    require_same_number,
    significant_digits,
    texts_of,
    write_table,
)
from bert_jax.tasks.texts.glue import GLUE, read_glue, submission_name
from bert_jax.tokenization import Tokenizer


@dataclasses.dataclass(frozen=True)
class TextTask(FinetuningTask):
    """Texts or pairs of texts, and what is to be said of each."""

    head = "sequence_classification"
    reads_numbers = False
    """Whether the labels of files are numbers."""

    def read(self, name: str) -> list[TextExample]:
        config, groups = self.data, dict[str, str]()
        if config.glue:
            task = GLUE[config.glue]
            config = config.changed(text_columns=task.texts, label_column=task.label)
            pairs = read_glue(config.glue, config.path, name)
            groups = {row.where: group for row, group in pairs}
            rows: Iterable[TableRow] = [row for row, _ in pairs]
        elif config.path:
            raise ValueError(
                f"data.path={config.path} but no task of GLUE is named; name one, as "
                "in `bert-jax finetune mrpc`, or give the files by --data.train and "
                "--data.validation."
            )
        else:
            rows = table_rows(name, config.delimiter)

        def parse(row: TableRow) -> TextExample:
            group = groups.get(row.where, "")
            return labelled_example(row, config, self.reads_numbers, group)

        if groups and name == "test":  # its server wants an answer for each row
            return list(map(parse, undamaged(rows)))
        source = f"{config.path}, {name}" if groups else name
        skip = config.skip_damaged
        return parse_rows(source, rows, parse, skip, has_label=self.has_label)

    @classmethod
    def suits(cls, data: ExamplesConfig, model: BertConfig | None) -> bool:
        if model is not None and model.labels:
            return model.problem_type == cls.problem_type
        return data.multi_label == (cls.problem_type == "multi_label_classification")

    def labels(self, examples: Sequence[TextExample]) -> tuple[str, ...]:
        data = self.data
        require_labels(examples, data)
        if len(data.labels) == 1 and not data.multi_label:
            raise ValueError(
                f"data.labels names only {data.labels[0]!r}; there must be at least "
                f"two classes{spaced(data.labels[0]) or '.'}"
            )
        if data.labels or data.glue:
            return data.labels or GLUE[data.glue].labels
        column = ", ".join(data.label_columns)
        joined = joined_names(name_counts(examples), data.merge_labels)
        names = sorted(set(joined.values()))
        if len(names) < 2 and not data.multi_label:
            raise ValueError(
                f"{examples[0].where}: {column} is {names[0]!r} in all "
                f"{len(examples)} rows; there must be at least two classes."
            )
        if not names:
            raise ValueError(
                f"{examples[0].where}: neither this nor any other row names a class in "
                f"{column}; there is nothing to learn."
            )
        return data.label_columns if len(data.label_columns) > 1 else tuple(names)

    def label_warnings(self, examples: Sequence[TextExample]) -> list[str]:
        data, labels = self.data, self.model.labels
        if data.glue:
            return []
        counts = name_counts(examples)
        joined = [] if data.labels else joined_warnings(counts, data.merge_labels)
        marks = list_warnings(labels, data.multi_label, data.label_separator)
        return joined + super().label_warnings(examples) + marks

    def check(self, examples: Sequence[TextExample]) -> None:
        self.match_labels(examples)

    def match_labels(self, examples: Sequence[TextExample]) -> list[TextExample]:
        labels = self.model.labels
        find = functools.cache(class_finder(labels, self.data.merge_labels))
        matched = []
        for example in examples:
            require_same_number(example, examples[0])
            require_num_texts(example, self.data.num_texts)
            names = classes_of(example)
            known = tuple(name for name in map(find, names) if name is not None)
            if len(known) < len(names):
                unknown = next(name for name in names if find(name) is None)
                raise ValueError(unknown_class_message(example.where, unknown, labels))
            if known != names:
                label = known[0] if isinstance(example.label, str) else known
                example = dataclasses.replace(example, label=label)
            matched.append(example)
        return matched

    def tokenize(
        self, examples: Sequence[TextExample], tokenizer: Tokenizer
    ) -> TokenizedExamples:
        """Return one row per example, cut to `max_length`, the longer text first.

        Raise ValueError if some examples are pairs, and some are not.
        """
        for example in examples:
            require_same_number(example, examples[0])
        columns = zip(*(example.texts for example in examples), strict=True)
        pairs = zip(*map(tokenizer.encode_each, columns), strict=True)
        rows, cut = join_pairs(tokenizer, pairs, self.max_tokens)
        by_example = {"cut": cut}
        if all(example.label is not None for example in examples):
            by_example["label"] = self._label_array(examples)
        return from_rows(rows, by_example=by_example)

    @abc.abstractmethod
    def _label_array(self, examples: Sequence[TextExample]) -> np.ndarray:
        """Return the labels of examples as the loss reads them, [N, …]."""

    def predict(self, outputs: SplitOutputs) -> list[Prediction]:
        return [
            self._prediction(row["values"].astype(np.float64)) for row in outputs.rows
        ]

    @abc.abstractmethod
    def _prediction(self, values: np.ndarray) -> Prediction:
        """Return the prediction of the outputs `values` [C] of a text."""

    def official_scores(self, predictions: Predictions) -> dict[str, float]:
        """Return the scores of all examples, and those of a named group by its name."""
        pairs = list(zip(predictions.examples, predictions.values, strict=True))
        scores: dict[str, float] = {}
        for group in dict.fromkeys(example.group for example, _ in pairs):
            chosen = [pair for pair in pairs if pair[0].group == group]
            examples, values = zip(*chosen, strict=True)
            own_scores = self._scores(examples, values)
            glue = self.data.glue
            names = GLUE[glue].scores if glue else tuple(own_scores)
            suffix = f"_{group}" if group else ""
            scores |= {f"{name}{suffix}": own_scores[name] for name in names}
        return scores

    @abc.abstractmethod
    def _scores(
        self, examples: Sequence[TextExample], values: Sequence[Prediction]
    ) -> dict[str, float]:
        """Return the scores of examples, of one group or of all."""

    def write(self, predictions: Predictions, directory: Path) -> list[str]:
        """Write tables of index and prediction, as GLUE's server accepts them.

        For other texts, predictions.tsv has the texts, too, their labels if they have
        any, and the probability of the predicted class, or of each one.
        """
        examples, values = predictions.examples, predictions.values
        separator, unit = self.data.label_separator, self.model.target_deviation
        predicted = [_predicted(value, separator, unit) for value in values]
        if glue := self.data.glue:
            tables = collections.defaultdict[str, list[str]](list)
            for example, cell in zip(examples, predicted, strict=True):
                tables[submission_name(glue, example.group)].append(cell)
            for name, cells in tables.items():
                write_table({"prediction": cells}, directory / name)
            return list(tables)
        columns: dict[str, Sequence[str]] = {"prediction": predicted}
        if any("probabilities" in value for value in values):
            columns["probability"] = [
                separator.join(
                    f"{value['probabilities'][name]:.6g}"
                    for name in value.get("labels", [value.get("label")])
                )
                for value in values
            ]
        if any(example.label is not None for example in examples):
            columns["label"] = [
                f"{one.label:.15g}"
                if isinstance(one.label, float)
                else separator.join(classes_of(one))
                for one in examples
            ]
        texts = zip(*(example.texts for example in examples), strict=True)
        for i, column in enumerate(texts, 1):
            columns["text" if len(examples[0].texts) == 1 else f"text_{i}"] = column
        write_table(columns, directory / "predictions.tsv")
        return ["predictions.tsv"]

    def baseline(self, splits: Splits) -> tuple[str, float]:
        """Return a score of the most frequent label, or the error of the mean.

        Both are those of the examples to score: no constant does better, and it is the
        same number whether or not the examples to learn from are known.
        """
        glue = GLUE[self.data.glue].scores if self.data.glue else ("accuracy",)
        if glue[0] in ("mcc", "pearson"):  # 0 for any constant
            return f"{glue[0]} of the commonest label", 0.0
        return self._constant(splits.validation)

    @abc.abstractmethod
    def _constant(self, examples: Sequence[TextExample]) -> tuple[str, float]:
        """Return the name and the score of the best constant."""

    def classes(self, example: TextExample) -> tuple[str, ...]:
        return classes_of(example)

    def example_without_label(self, row: TableRow) -> TextExample:
        return TextExample(texts_of(row, self.data), where=row.where)


def _predicted(prediction: Prediction, separator: str, unit: float) -> str:
    if "value" in prediction:
        value = prediction["value"]
        is_plain = value == 0 or (1e-2 <= abs(value) < 1e9 and unit >= 1e-2)
        digits = 15 if abs(value) >= 1e9 else significant_digits(value, unit)
        return f"{value:{'.4f' if is_plain else f'.{min(15, digits)}g'}}"
    if "labels" in prediction:
        return separator.join(prediction["labels"])
    return str(prediction["label"])

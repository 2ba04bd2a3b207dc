"""What all cells of an experiment share: vocabulary, datasets, and tasks."""

import dataclasses
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from bert_jax.config import FinetuneConfig, PrepareConfig, VocabularyConfig
from bert_jax.config.checks import require
from bert_jax.config.finetuning import TaskName
from bert_jax.data.installed_documentation import write_corpus
from bert_jax.data.paragraph_origins import (
    COLUMNS,
    SPLITS,
    paragraph_origins,
    write_origins,
)
from bert_jax.data.prepare import prepare
from bert_jax.data.sources import find_sources
from bert_jax.data.vocabulary import train_vocabulary
from bert_jax.storage.files import require_regular_file
from bert_jax.tables.lines import suffix_of
from bert_jax.tables.read import read_table
from bert_jax.tasks.kinds import finetuning_task
from bert_jax.tokenization import Tokenizer

LIBRARIES = "libraries"
"""The task that needs no file: which installed library is a paragraph from?"""
TABLES = (".csv", ".tsv", ".jsonl")
PAIR_COLUMNS = ("text_a", "text_b")
_NAME = "[a-z][a-z0-9]*(_[a-z0-9]+)*"  # no two become one file name


@dataclasses.dataclass(frozen=True)
class TaskFiles:
    """A task that every variant is measured on."""

    name: str
    task: TaskName
    train: str
    test: str
    text_columns: tuple[str, ...] = ()
    label_column: str = "label"

    @property
    def is_text(self) -> bool:
        """Whether texts get a class; else words get tags."""
        return self.task == "text-classification"

    def config(self, base: FinetuneConfig) -> FinetuneConfig:
        """Return the configuration of this task; its test file is validated on once."""
        return base.changed(
            task=self.task,
            data={
                "train": self.train,
                "validation": self.test,
                "text_columns": self.text_columns,
                "label_column": self.label_column,
            },
            eval_every=base.num_steps,
            checkpoint_every=base.num_steps,
        )


@dataclasses.dataclass(frozen=True)
class ExperimentInputs:
    """The files of an experiment, under its directory."""

    root: Path
    text: tuple[str, ...]
    """Files of the text to pretrain on; empty: the embedded corpus."""
    tokenizer: str
    """Directory of a tokenizer; empty: one learned from the text."""
    tasks: tuple[TaskFiles, ...]

    @property
    def corpus(self) -> Path:
        return self.root / "corpus"

    def dataset(self, kind: str) -> str:
        """Return the directory of the rows of one kind, as `Variant.kind` names it."""
        return str(self.root / f"rows_{kind}")

    def task(self, name: str) -> TaskFiles:
        return next(task for task in self.tasks if task.name == name)

    def check(self, base: FinetuneConfig) -> None:
        """Read what the user named: text, tokenizer and the files of tasks.

        Raise ValueError if one is damaged, or a task has nothing to learn or to score.
        """
        if self.text:
            find_sources(self.text)
        if self.tokenizer:
            Tokenizer.load(self.tokenizer)
        for task in self.tasks:
            if task.name == LIBRARIES:  # made from the embedded corpus
                continue
            data = task.config(base).data
            train = finetuning_task(task.task, data).read(task.train)
            labels = finetuning_task(task.task, data).labels(train)
            model = base.model.changed(labels=labels)
            reader = finetuning_task(task.task, data, model)
            test = reader.read(task.test)
            require(
                bool(test) and all(map(reader.has_label, test)),
                f"{task.test} has examples without a label, or none at all; the "
                f"{task.name} task is scored on it.",
            )
            reader.check(test)
            require(
                len(labels) > 1,
                f"{task.train} has one class, {labels}; the {task.name} task needs "
                "two or more.",
            )

    def remove(self, kinds: Iterable[str]) -> None:
        """Remove what `make` wrote of the user's text: vocabulary and rows."""
        for name in [str(self.root / "vocabulary"), *map(self.dataset, kinds)]:
            shutil.rmtree(name, ignore_errors=True)

    def make(self, kinds: Iterable[str], vocab_size: int, length: int) -> None:
        """Write what is not there yet: corpus, tasks, vocabulary and rows.

        Raise ValueError for unusable text, OSError for a missing file or full disk.
        """
        has_libraries = any(task.name == LIBRARIES for task in self.tasks)
        if (not self.text or has_libraries) and not self.corpus.exists():
            write_corpus(self.corpus)
        origins = self.root / LIBRARIES
        if has_libraries and not origins.exists():
            write_origins(paragraph_origins(self.corpus), origins)
        text = self.text or (str(self.corpus / "*.txt"),)
        output = self.tokenizer or str(self.root / "vocabulary")
        if not Path(output).exists():
            train_vocabulary(
                VocabularyConfig(input=text, output=output, vocab_size=vocab_size)
            )
        for kind in sorted(set(kinds)):
            prepare(
                PrepareConfig(
                    input=text,
                    tokenizer=output,
                    output=self.dataset(kind),
                    pairs="nsp" if kind.startswith("nsp") else "none",
                    sequence_length=length // (2 if kind.endswith("half") else 1),
                )
            )


def parse_task(text: str, root: Path) -> TaskFiles:
    """Return the task that an option names: `libraries`, or NAME=TRAIN,TEST.

    Files that end in .csv, .tsv or .jsonl, also packed, have the columns text, or
    text_a and text_b, and label; others are sentences to tag. Raise ValueError for an
    option of another form, FileNotFoundError if a file is missing.
    """
    if text == LIBRARIES:
        train, test = (str(root / LIBRARIES / f"{split}.csv") for split in SPLITS)
        column, label = COLUMNS
        return TaskFiles(text, "text-classification", train, test, (column,), label)
    name, _, files = text.partition("=")
    paths = files.split(",")
    is_name = re.fullmatch(_NAME, name) and name != LIBRARIES
    if not is_name or len(paths) != 2 or not all(paths) or "://" in files:
        raise ValueError(
            f"tasks={text!r:.80} must be {LIBRARIES}, or NAME=TRAIN,TEST, as in "
            "polarity=train.csv,test.csv: another name, of lower-case letters and "
            "digits, and two local files."
        )
    for path in paths:
        require_regular_file(path, f"the {name} task")
    train, test = paths
    if suffix_of(train) not in TABLES:
        return TaskFiles(name, "token-classification", train, test)
    rows = read_table(train)
    is_pair = bool(rows) and set(PAIR_COLUMNS) <= set(rows[0].values)
    columns = PAIR_COLUMNS if is_pair else ("text",)
    return TaskFiles(name, "text-classification", train, test, columns)

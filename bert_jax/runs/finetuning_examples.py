"""The examples of a fine-tuning run: their fingerprint, their tokens, what is said."""

import contextlib
import contextvars
import dataclasses
import importlib.metadata
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from etils import epath

from bert_jax.config import ExamplesConfig, FinetuneConfig
from bert_jax.config.checks import require
from bert_jax.config.files import finetuning_config, given_config
from bert_jax.data.example_cache import cached_examples, content_key
from bert_jax.distributed.collectives import is_primary
from bert_jax.tables.memory import RowsInMemory, named_source
from bert_jax.tasks.example_report import unknown_tokens
from bert_jax.tasks.finetuning import FinetuningTask
from bert_jax.tasks.predictions import Example, Split, Splits
from bert_jax.tasks.splits import fingerprint
from bert_jax.tasks.texts.classes import ClassTask, balanced_rows, balanced_weights
from bert_jax.terminal.messages import say
from bert_jax.tokenization import Tokenizer


def chosen_config(
    config: FinetuneConfig | str | os.PathLike[str],
    model: str | os.PathLike[str] = "",
    **sources: RowsInMemory | None,
) -> FinetuneConfig:
    """Return the configuration with a model to start from, and what to learn from.

    `config` may be the name of a task. Each of `train`, `validation` and `test` in
    `sources` is the name of a file, or rows in memory; None: as in the configuration.
    Raise ValueError if there is no such task, or a source is none of these.
    """
    config = given_config(config, FinetuneConfig, finetuning_config)
    given = {n: named_source(s, n) for n, s in sources.items() if s is not None}
    if "train" in given:
        config = config.without_record()
    require(
        isinstance(model, str | os.PathLike),
        f"model={model!r:.80} must be a path or a name; save what is in memory by "
        "bert.save(DIRECTORY, to='checkpoint'), and name that.",
    )
    start = os.fspath(model) or config.init_from
    return config.changed(data=given, init_from=start)


def with_fingerprints(
    data: ExamplesConfig, train: Sequence[Example], splits: Splits, recorded: str = ""
) -> ExamplesConfig:
    """Return the settings with the fingerprints of the examples.

    `train` are the training examples as they were read, `splits` all with the labels of
    the model. Raise ValueError if a configuration has another fingerprint of them,
    `recorded`.
    """
    own = fingerprint(train, data.fingerprint)
    require(
        recorded in ("", own),
        f"data.fingerprint={recorded} but the training examples have {own}; name their "
        "file by --data.train if it is meant, or the other file.",
    )
    return data.changed(
        fingerprint=own,
        validation_fingerprint=fingerprint(splits.validation),
        test_fingerprint=fingerprint(splits.test) if splits.test else "",
    )


_PRINTED: contextvars.ContextVar[set[str] | None] = contextvars.ContextVar(
    "printed", default=None
)


@contextlib.contextmanager
def each_line_once() -> Iterator[None]:
    """Let `say_on_primary` print no line twice: several runs prepare the same files."""
    token = _PRINTED.set(set())
    try:
        yield
    finally:
        _PRINTED.reset(token)


def say_on_primary(lines: Iterable[str]) -> None:
    """Print lines on the primary process."""
    printed = _PRINTED.get()
    for line in lines if is_primary() else ():
        if printed is None or line not in printed:
            say(line)
        if printed is not None:
            printed.add(line)


def check_unknown_tokens(
    task: FinetuningTask, tokenizer: Tokenizer, examples: Sequence[Example]
) -> None:
    """Print how many tokens are [UNK], and why; refuse a text of mostly [UNK]."""
    report = unknown_tokens(task, tokenizer, examples)
    try:
        report.require_sense()
    except ValueError as error:
        raise ValueError(
            f"{task.data.train or task.data.path}: {error} Or name another model by "
            "--init-from, whose vocabulary has what is unknown."
        ) from error
    say_on_primary(report.warnings() or report.lines())


def tokenize_cached(
    task: FinetuningTask,
    tokenizer: Tokenizer,
    config: FinetuneConfig,
    cache: epath.Path,
    examples: Sequence[Example],
) -> Split:
    """Tokenize examples, once for all runs that share `cache`."""
    names = "train validation test path fingerprint validation_fingerprint".split()
    blank: dict[str, Any] = dict.fromkeys([*names, "test_fingerprint"], "")
    data = config.data.changed(balance=False, **blank)
    model = task.model
    key = content_key(
        fingerprint(examples),
        tokenizer.fingerprint,
        config.task,
        dataclasses.asdict(data),
        [model.max_position_embeddings, model.labels, model.problem_type],
        [model.target_mean, model.target_deviation],
        importlib.metadata.version("bert_jax"),
    )
    tokenized = cached_examples(cache, key, lambda: task.tokenize(examples, tokenizer))
    split = Split(examples, tokenized)
    say_on_primary(task.warnings(split))
    return split


def with_balance(
    config: FinetuneConfig, task: FinetuningTask, train: Split
) -> tuple[FinetuningTask, Split]:
    """Return the task with weights of its classes, or the examples with repeats."""
    if not isinstance(task, ClassTask):
        return task, train
    if config.class_weights == "balanced":
        labels = train.tokenized.by_example["label"]
        weights = balanced_weights(labels, len(task.model.labels))
        return dataclasses.replace(task, class_weights=weights), train
    if config.data.balance:
        rows = balanced_rows(train.tokenized.by_example["label"], config.seed)
        num_texts = len(train.tokenized)
        line = f"Balanced classes: {num_texts:,} texts are repeated to {len(rows):,}."
        say_on_primary([line])
        return task, Split(train.examples, train.tokenized.take(rows))
    return task, train

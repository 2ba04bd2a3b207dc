"""What a fine-tuned model learned from, and which examples of a file are among it."""

import contextlib
import dataclasses
import os
from collections.abc import Sequence

from bert_jax.tables.memory import MemoryTable
from bert_jax.tasks.finetuning import FinetuningTask
from bert_jax.tasks.predictions import Example
from bert_jax.tasks.splits import fingerprint, hold_out


def training_examples(
    task: FinetuningTask, scored: Sequence[Example]
) -> Sequence[Example]:
    """Return the examples that a run learned from; [] if they are not found.

    They come from the run's file, or from the file to score if it is the same under
    another name.

    Args:
        task: with the settings of the run.
        scored: the examples to score, as they were read.
    """
    data = task.data
    file = "train" if data.path else data.train
    # Nothing is downloaded: an address is not looked at.
    is_there = isinstance(file, MemoryTable) or os.path.exists(data.path or file)
    files = [file] if is_there else []
    for name in (*files, "") if data.fingerprint else ():
        with contextlib.suppress(OSError, ValueError):
            examples = task.read(name) if name else _renamed(scored, data.train)
            if not (data.path or data.validation):
                examples = hold_out(task, examples).train
            if fingerprint(examples, data.fingerprint) == data.fingerprint:
                return task.match_labels(examples)
    return []


def _renamed(examples: Sequence[Example], path: str) -> Sequence[Example]:
    """Return examples as if they were read from `path`, where they say their file."""
    return [
        dataclasses.replace(example, path=path) if hasattr(example, "path") else example
        for example in examples
    ]


def learned_line(
    task: FinetuningTask, train: Sequence[Example], scored: Sequence[Example]
) -> str:
    """Return how many of the examples to score the model learned from; "": none."""
    known = set(map(task.texts, train))
    shared = sum(task.texts(example) in known for example in scored)
    which = "all" if shared == len(scored) else f"{shared:,} of"
    return (
        f"The model learned from {which} {len(scored):,} examples; their scores do not "
        "say how good it is on others."
        if shared
        else ""
    )

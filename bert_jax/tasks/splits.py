"""Which records are learned from, and which are scored on."""

import math
from collections.abc import Sequence

import numpy as np

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.data.pipeline import permute
from bert_jax.tasks.problem import Problem, Record


def read_parts(
    problem: Problem, data: ExamplesConfig
) -> tuple[list[Record], list[Record]]:
    """Training and validation records.

    Raises:
        ValueError: no training file is named, or one cannot be read.
    """
    if data.path:
        return problem.read("train", data), problem.read("validation", data)
    if not data.train:
        raise ValueError(
            "data.train is empty; pass --data.train with a file, or --data.path with "
            "the directory of a published dataset."
        )
    records = problem.read(data.train, data)
    if data.validation:
        return records, problem.read(data.validation, data)
    return hold_out(problem, records, data.validation_fraction)


def hold_out(
    problem: Problem, records: Sequence[Record], fraction: float
) -> tuple[list[Record], list[Record]]:
    """Records to learn from, and to score on: always the same of the same file.

    Raises:
        ValueError: one of the two would be empty.
    """
    groups = list(dict.fromkeys(problem.group(r) for r in records))
    order = permute(np.arange(len(groups)), len(groups), key=0)
    held = {groups[i] for i in order[: math.ceil(fraction * len(groups))]}
    parts: tuple[list[Record], list[Record]] = ([], [])
    for record in records:
        parts[problem.group(record) in held].append(record)
    if not all(parts):
        raise ValueError(
            f"data.validation_fraction={fraction} leaves {len(parts[0])} of "
            f"{len(records)} examples to learn from and {len(parts[1])} to score on; "
            "name a file by --data.validation."
        )
    return parts


def check_validation(
    problem: Problem,
    records: Sequence[Record],
    model: BertConfig,
    data: ExamplesConfig,
) -> None:
    """Refuse records that cannot be scored.

    Raises:
        ValueError: one has no label, or a label that is none of the model's.
    """
    file = data.validation or data.path or data.train
    unlabelled = [i for i, each in enumerate(records) if not problem.labelled(each)]
    if unlabelled:
        where = getattr(records[unlabelled[0]], "where", "")
        place = where if isinstance(where, str) and where else file
        raise ValueError(
            f"{place}: {len(unlabelled)} of {len(records)} validation examples have no "
            "label, and cannot be scored; add them, or hold some training examples out."
        )
    problem.check(records, model, file)

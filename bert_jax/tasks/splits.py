"""The splits of a task's examples: their files, and those held out for validation."""

import dataclasses
import hashlib
import math
import os
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from bert_jax.data.pipeline import permute
from bert_jax.tasks.class_names import class_key
from bert_jax.tasks.finetuning import FinetuningTask
from bert_jax.tasks.predictions import Example, Splits

SPLIT_NAMES = ("train", "validation", "test")
_NAMES_OF_0_1_0 = {
    "TextExample": "TextRecord",
    "SquadExample": "Record",
    "ChoiceExample": "Choice",
}
"""Old class names, which keep fingerprints the same as in version 0.1.0."""


def fingerprint(examples: Sequence[Example], before: str = "") -> str:
    """Return the hexadecimal sha256 of the examples, whose files may be moved.

    The fingerprint `before` of a run is returned if it is that of the examples with
    their places, as older versions computed it.
    """
    fields = [field for e in examples[:1] for field in dataclasses.fields(e)]
    shown = {field.name for field in fields if field.repr}
    places: dict[str, Any] = dict.fromkeys(shown & {"where", "path"}, "")
    if not places:
        return _digest(examples)
    if before and before == _digest(examples):
        return before
    return _digest([dataclasses.replace(example, **places) for example in examples])


def _digest(examples: Sequence[Example]) -> str:
    digest = hashlib.sha256()
    for example in examples:
        name = type(example).__qualname__
        fields = repr(example).removeprefix(name)
        line = f"{_NAMES_OF_0_1_0.get(name, name)}{fields}\n"
        digest.update(line.encode())
    return digest.hexdigest()


def changed_splits(task: FinetuningTask) -> list[str]:
    """Return which files hold other examples than those of the run, such as "train".

    Args:
        task: with the settings and the model of the run; its files may have new names.
    """
    data, splits = task.data, read_splits(task)
    if fingerprint(splits.train, data.fingerprint) != data.fingerprint:
        return ["train"]
    matched = match_splits(task, splits)
    pairs = {
        "validation": (matched.validation, data.validation_fingerprint),
        "test": (matched.test, data.test_fingerprint),
    }
    return [
        name
        for name, (examples, before) in pairs.items()
        if before and fingerprint(examples) != before
    ]


def split_file(
    name: str, directory: str, published: Sequence[tuple[str, str, str]]
) -> str:
    """Return the file of a split in `directory`, or `name` itself if it is a path.

    Args:
        name: "train", "validation" or "test" if there is a directory, else a path.
        directory: `ExamplesConfig.path`.
        published: file names of known datasets, as (train, validation, test). The
            dataset with the most files in the directory is used, the first if equal.

    Raises:
        FileNotFoundError: the directory does not exist, or has no file of the split.
    """
    if not directory or name not in SPLIT_NAMES:
        return name
    if not os.path.isdir(directory):
        raise FileNotFoundError(
            f"path={directory} is not a directory; give the one that holds the files."
        )
    existing = set(os.listdir(directory))
    index = SPLIT_NAMES.index(name)
    best = max(published, key=lambda names: len(existing & set(names)))
    if best[index] not in existing:
        candidates = dict.fromkeys(names[index] for names in published if names[index])
        raise FileNotFoundError(
            f"path={directory} has no {name} file; looked for {', '.join(candidates)}. "
            "Rename it, or give files instead of path."
        )
    return os.path.join(directory, best[index])


def read_splits(task: FinetuningTask) -> Splits:
    """Read what to train and to validate on; raise ValueError if no file is named."""
    data = task.data
    if data.path:
        return Splits(task.read("train"), task.read("validation"))
    if not data.train:
        raise ValueError(
            "data.train is empty; pass --data.train with a file, in Python train, or "
            "--data.path with the directory of a published dataset."
        )
    examples = task.read(data.train)
    if data.validation:
        return Splits(examples, task.read(data.validation))
    return hold_out(task, examples)


def hold_out(task: FinetuningTask, examples: Sequence[Example]) -> Splits:
    """Hold about `data.validation_fraction` of the examples out for validation.

    Examples with equal `group` stay together. The split depends on the order of groups
    in the file only; `data.split` is the rule. Raise ValueError if a part is empty.
    """
    fraction = task.data.validation_fraction
    keys = [task.group(example) for example in examples]
    held_out = held_out_keys(task, examples, keys)
    if not held_out and fraction and len(set(keys)) < len(keys):
        # Each class has a single text, and more than once: better than no score.
        keys = list(map(id, examples))
        held_out = held_out_keys(task, examples, keys)
    parts: tuple[list[Example], list[Example]] = ([], [])
    for key, example in zip(keys, examples, strict=True):
        parts[key in held_out].append(example)
    if not all(parts):
        names = {name for example in examples for name in task.classes(example)}
        reason = ""
        if fraction and len(names) == len(examples) > 1:
            reason = " Each has a class of its own; amounts are for `bert-jax finetune "
            reason += "text-regression`."
        raise ValueError(
            f"data.validation_fraction={fraction} leaves {len(parts[0])} of "
            f"{len(examples)} examples to learn from and {len(parts[1])} to score on; "
            f"name a file by --data.validation, in Python by validation.{reason}"
        )
    return Splits(train=parts[0], validation=parts[1])


def held_out_keys(
    task: FinetuningTask, examples: Sequence[Example], keys: Sequence[object]
) -> set[object]:
    """Return the keys of the groups to hold out; `keys` has that of each example."""
    fraction, merge = task.data.validation_fraction, task.data.merge_labels
    groups: dict[object, list[Example]] = {}
    for key, example in zip(keys, examples, strict=True):
        groups.setdefault(key, []).append(example)
    if task.data.split == "rows":
        order = permute(np.arange(len(groups)), len(groups), key=0)
        chosen = set(order[: math.ceil(fraction * len(groups))].tolist())
    else:
        names = [
            {class_key(name, merge) for e in own for name in task.classes(e)}
            for own in groups.values()
        ]
        chosen = stratified_groups([*map(len, groups.values())], names, fraction)
    return {key for i, key in enumerate(groups) if i in chosen}


def stratified_groups(
    sizes: Sequence[int], classes: Sequence[Collection[str]], fraction: float
) -> set[int]:
    """Return the numbers of the groups to hold out.

    The classes are gone through from the one with the fewest groups to the one with the
    most (Sechidis et al. 2011). Of each, groups are held out up to the fraction of its
    examples: at least one group, and never all, where other classes keep one, too.

    Args:
        sizes: the number of examples of each group.
        classes: the classes of its examples; a group without a class is of one more.
    """
    members: dict[str, list[int]] = {}
    names_of = [own or ("",) for own in classes]
    for number, names in enumerate(names_of):
        for name in names:
            members.setdefault(name, []).append(number)
    chosen, decided = set[int](), set[int]()
    left = {name: len(groups) for name, groups in members.items()}

    def may_leave(number: int) -> bool:
        return min(left[name] for name in names_of[number]) > 1

    for name in sorted(members, key=lambda name: (len(members[name]), name)):
        groups = members[name]
        order = permute(np.arange(len(groups)), len(groups), key=0).tolist()
        held = [number for number in groups if number in chosen]
        able = [groups[i] for i in order if may_leave(groups[i])]
        # If rarer classes have decided all of them, one is chosen all the same.
        free = [i for i in able if i not in decided] or ([] if held else able)
        num_rows = sum(sizes[i] for i in held)
        limit = fraction * sum(sizes[number] for number in groups) + 0.5
        if fraction and free and not held:
            limit = max(limit, min(sizes[number] for number in free))
        for number in free:
            if may_leave(number) and num_rows + sizes[number] <= limit:
                chosen.add(number)
                num_rows += sizes[number]
                left |= {n: left[n] - 1 for n in names_of[number]}
        decided.update(free)
    return chosen


def match_splits(task: FinetuningTask, splits: Splits) -> Splits:
    """Return the splits with the model's labels, and the examples of `data.test`.

    Raise ValueError if a training example has a label that the model does not have, or
    another example cannot be scored.
    """
    data, matched = task.data, [task.match_labels(splits.train)]
    file = data.validation or data.path or data.train
    test = task.read(data.test) if data.test else []
    for name, path, examples in (
        ("validation", file, splits.validation),
        ("test", data.test, test),
    ):
        if unlabelled := [one for one in examples if not task.has_label(one)]:
            where = getattr(unlabelled[0], "where", "")
            raise ValueError(
                f"{(where if isinstance(where, str) else '') or path}: "
                f"{len(unlabelled)} of {len(examples)} {name} examples have no label, "
                "and cannot be scored; add labels, or leave the file out."
            )
        matched.append(task.match_labels(examples))
    return Splits(matched[0], matched[1], matched[2])

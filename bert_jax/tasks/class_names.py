"""The names of classes: how cells write them, which are one class, and warnings."""

import ast
import collections
import contextlib
import json
import re
import shlex
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.config.checks import require
from bert_jax.tables.rows import HALF_CHARACTER, column_names

_DECIMAL = re.compile(r"\s*([+-]?)(0|[1-9]\d*)(?:\.(\d*))?\s*", re.ASCII)
"""A plain number; a code with leading zeros, such as 01, is none."""
_ITEM = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[+-]?\d[\d.]*""", re.DOTALL)
_SEPARATORS = "|,;"
_MAX_CODES, _MAX_SECTIONS = 20, 5
"""More integers, or numbers with a fraction, are no names of classes, such as stars."""


def class_names(value: object, where: str, separator: str = "") -> tuple[str, ...]:
    """Return the names of the classes in a cell.

    Args:
        separator: between several classes, which may also be a list, or a text of JSON
            or Python that is one; "": the cell is one name.

    Raises:
        ValueError: the cell is empty, or holds something else than names.
    """
    is_blank = isinstance(value, str) and not value.strip()
    if value is None or (is_blank and not separator):
        raise ValueError(f"{where} is empty; fill it in, or leave the row out.")
    names: Any = [value]
    if separator and isinstance(value, list | str):
        listed = value if isinstance(value, list) else _listed(value)
        names = str(value).split(separator) if listed is None else listed
    for name in names:
        if not isinstance(name, str | int | float):
            rule = "a single class; for lists of classes, pass --data.multi-label"
            if separator:
                rule = "the name of a class, or a list of names"
            raise ValueError(f"{where}={value!r:.80} must be {rule}.")
        if HALF_CHARACTER.search(str(name)):
            raise ValueError(f"{where} holds half of a surrogate pair; correct it.")
        if "\0" in str(name):
            raise ValueError(f"{where} holds a NUL character; correct it.")
    return tuple(str(name) for name in names if not separator or str(name).strip())


def _listed(text: str) -> list[Any] | None:
    """Return the items of a list of JSON, Python or NumPy; None if it is no list."""
    text = text.strip().removeprefix("set")
    if text[:1] + text[-1:] not in ("[]", "()", "{}"):
        return None
    with contextlib.suppress(ValueError):
        values = json.loads(text)
        return values if isinstance(values, list) else None
    items, others = _ITEM.findall(text[1:-1]), _ITEM.sub("", text[1:-1])
    numbers = [item for item in items if item[0] not in "'\""]
    if others.strip(", \t\r\n") or (numbers and text[0] != "["):
        return None
    with contextlib.suppress(SyntaxError, ValueError):
        return [i if i in numbers else ast.literal_eval(i) for i in items]
    return None


def flag(value: object, where: str) -> bool:
    """Return whether a column of 0 and 1 holds 1; raise ValueError for another value.

    Both may be numbers or words.
    """
    key = class_key(str(value), merge=False)
    if key not in ("0", "1", "false", "true"):
        raise ValueError(
            f"{where}={value!r:.40} must be 0 or 1, since several columns of labels "
            "are named: whether the text has the class of the column."
        )
    return key in ("1", "true")


def _normalised(name: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def class_key(name: str, merge: bool) -> str:
    """Return what the names of one class share.

    Equal decimal numbers do, and words for true and false in any case; with `merge`
    also names that differ only in white space, case or Unicode normalisation.
    """
    if match := _DECIMAL.fullmatch(name):
        sign, integer, fraction = match.groups(default="")
        number = ".".join(filter(None, (integer, fraction.rstrip("0"))))
        return f"-{number}" if sign == "-" and number != "0" else number
    if (word := name.strip().lower()) in ("true", "false"):
        return word
    return _normalised(name) if merge else name


def joined_names(counts: collections.Counter[str], merge: bool) -> dict[str, str]:
    """Return the class of names: of equal numbers the shortest, else the commonest."""
    groups: dict[str, list[str]] = {}
    for name in counts:
        groups.setdefault(class_key(name, merge), []).append(name)
    classes: dict[str, str] = {}
    for names in groups.values():
        is_number = _DECIMAL.fullmatch(names[0])
        size = len if is_number else lambda name: -counts[name]
        classes |= dict.fromkeys(names, min(names, key=size))
    return classes


def class_finder(labels: Sequence[str], merge: bool) -> Callable[[str], str | None]:
    """Return a function from a name to the label that is its class, or None.

    A label of the same spelling comes first.
    """
    spelled, by_key = set(labels), dict[str, str]()
    for label in labels:
        by_key.setdefault(class_key(label, merge), label)
    return lambda name: name if name in spelled else by_key.get(class_key(name, merge))


def unknown_class_message(where: str, name: str, labels: Sequence[str]) -> str:
    """Return an error on a class that a model lacks, with the option that may help."""
    message = (
        f"{where}: {name!r:.80} is none of the classes that the model has "
        f"({column_names(labels)}); "
    )
    if all(re.fullmatch(r"LABEL_\d+", label) for label in labels):
        renamed = shlex.quote(f"{labels[0]}={name}")
        return f"{message}name them by --data.label-names {renamed} …"
    if close := [label for label in labels if _normalised(label) == _normalised(name)]:
        return f"{message}pass --data.merge-labels to take it for {close[0]!r}."
    return (
        f"{message}correct it, train with all classes in --data.labels, or give the "
        "model's classes the names of the file by --data.label-names OLD=NEW."
    )


def named_as(model: BertConfig, data: ExamplesConfig) -> BertConfig:
    """Return the model with new names of its classes, `data.label_names` as OLD=NEW.

    A model that has NEW already keeps it; raise ValueError if it has not OLD either.
    """
    labels, renamed = model.labels, list(model.labels)
    for text in data.label_names:
        old = [i for i, name in enumerate(labels) if text.startswith(f"{name}=")]
        if old:
            renamed[old[0]] = text.removeprefix(f"{labels[old[0]]}=")
            continue
        require(
            "=" in text and text.partition("=")[2] in labels,
            f"data.label_names has {text!r:.80}, and the model's classes are "
            f"{column_names(labels) or 'none'}; write OLD=NEW with one of them as OLD.",
        )
    return model.changed(labels=tuple(renamed)) if data.label_names else model


def similar_label_warnings(labels: Sequence[str]) -> list[str]:
    """Return a line for each class whose name nearly equals another's.

    They differ only in white space, case or Unicode normalisation.
    """
    groups = collections.defaultdict[str, list[str]](list)
    for label in labels:
        groups[_normalised(label)].append(label)
    return [
        f"The classes {first!a} and {label!a} differ only in white space, case or "
        "Unicode normalisation, and are learned as two; if they are one, pass "
        "--data.merge-labels."
        for first, *others in groups.values()
        for label in others
    ]


def joined_warnings(counts: collections.Counter[str], merge: bool) -> list[str]:
    """Return a line with the names that `joined_names` takes for others, if any."""
    classes = joined_names(counts, merge)
    pairs = [f"{name!a} is {new!a}" for name, new in classes.items() if name != new]
    if not pairs:
        return []
    listed = ", ".join(pairs[:8]) + (f" and {len(pairs) - 8} more" if pairs[8:] else "")
    return [
        f"Names of one class: {listed}. To keep names apart, list all classes in "
        "--data.labels."
    ]


def amounts_warning(labels: Sequence[str]) -> list[str]:
    """Return a line if the classes are numbers, and so many that they are amounts."""
    numbers = [match for label in labels if (match := _DECIMAL.fullmatch(label))]
    fractions = [match[0] for match in numbers if (match[3] or "").strip("0")]
    most = _MAX_SECTIONS if fractions else _MAX_CODES
    if len(numbers) < len(labels) or len(labels) <= most:
        return []
    return [
        f"All {len(labels)} classes are numbers, such as {(fractions or labels)[0]!a}, "
        "and are learned as classes of no order; if they are amounts, use `bert-jax "
        "finetune text-regression`."
    ]


def list_warnings(
    labels: Sequence[str], is_multi_label: bool, separator: str
) -> list[str]:
    """Return a line for each mark in class names that may stand between classes."""
    lines = []
    switch = [] if is_multi_label else ["--data.multi-label"]
    for mark in _SEPARATORS:
        names = [name for name in labels if mark in name[1:-1]]
        if names and not (is_multi_label and mark == separator):
            option = [] if mark == separator else [f"--data.label-separator '{mark}'"]
            remedy = f"if it separates classes, pass {' '.join(switch + option)}"
            lines.append((names, repr(mark), remedy))
    if names := [name for name in labels if name[0] + name[-1] in ("[]", "{}")]:
        remedy = "write a list as JSON" if is_multi_label else f"pass {switch[0]}"
        lines.append((names, "brackets", f"if they are lists of classes, {remedy}"))
    return [
        f"{len(names)} of {len(labels)} class names hold {mark}, such as "
        f"{names[0]!a:.80}; {remedy}."
        for names, mark, remedy in lines
    ]

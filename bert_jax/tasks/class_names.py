"""Warnings on class names that may mean the same class."""

import unicodedata
from collections.abc import Sequence


def similar_label_warnings(labels: Sequence[str]) -> list[str]:
    """Return a line for each class whose name is nearly that of another.

    They differ only in white space, case or Unicode normalisation.
    """
    first: dict[str, str] = {}
    lines = []
    for label in labels:
        normalised = " ".join(unicodedata.normalize("NFKC", label).casefold().split())
        other = first.setdefault(normalised, label)
        if other != label:
            lines.append(
                f"The classes {other!a} and {label!a} differ only in white space, case "
                "or Unicode normalisation, and are learned as two; correct the file "
                "if they are one."
            )
    return lines

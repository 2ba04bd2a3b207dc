"""Names of classes that may be meant to be one."""

import unicodedata
from collections.abc import Sequence


def similar_label_warnings(labels: Sequence[str]) -> list[str]:
    """A line for each class whose name differs from another's in white space, case or
    Unicode normalisation alone."""
    first: dict[str, str] = {}
    lines = []
    for label in labels:
        plain = " ".join(unicodedata.normalize("NFKC", label).casefold().split())
        other = first.setdefault(plain, label)
        if other != label:
            lines.append(
                f"The classes {other!a} and {label!a} differ in white space, case or "
                "Unicode normalisation alone, and are learned as two; mend the file "
                "if they are one."
            )
    return lines

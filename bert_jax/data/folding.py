"""Case and accents removed from single characters, the same on every Python.

Unicode grows with Python's version (14 in Python 3.11, 15 in 3.12). A vocabulary must
not: the rules are those of Unicode 14, whose characters later versions hardly change.
"""

import sys
import unicodedata
from collections.abc import Iterator

_UNASSIGNED = ("Cn", "Co", "Cs")  # unassigned, private use, surrogate
# Code points without a character in Unicode 14 that Unicode 15 to 18 give a rule.
_LATER = """
558 58b-58c 5c8-5c9 897 b53-b54 ece 1acf-1af0 1c89 209d-209f a7cb-a7ce a7d2 a7d4
a7da-a7f1 ab6c-ab6d 105c9-105e4 107bb-107bf 10d50-10d6d 10ecb-10eff 11241 11383-113e2
11b60-11b66 11df0 11f00-11f5a 13439-13455 1611e-1612f 16d68-16d6a 16ea0-16eb8
1b123-1b126 1ccd6-1ccf9 1d127-1d128 1d25b-1d25c 1d6a6 1df40-1dfff 1e030-1e08f
1e4ec-1e6f5
"""
_MARKS_THEN = "\U0001171e"  # a mark that Unicode 16 calls a letter's part


def without_marks(word: str) -> str:
    """Return a word as the uncased normalizer leaves it, but for its case."""
    parts = unicodedata.normalize("NFD", word)
    kept = (c for c in parts if unicodedata.category(c) != "Mn")
    return unicodedata.normalize("NFC", "".join(kept))


def fold(character: str) -> str:
    """Apply NFKC, lower case, and removal of accents, as BERT does if uncased.

    Control characters are deleted and white space becomes a space.
    """
    category = unicodedata.category(character)
    if category.startswith("Z") or character in "\t\n\r":
        return " "
    if category in ("Cc", "Cf", "Mn") or character in ("\ufffd", _MARKS_THEN):
        return ""
    return without_marks(unicodedata.normalize("NFKC", character).lower())


def fold_rules() -> Iterator[tuple[str, str]]:
    """Yield each character that `fold` changes, by code point, and its replacement."""
    later: set[int] = set()
    for span in _LATER.split():
        first, _, last = span.partition("-")
        later.update(range(int(first, 16), int(last or first, 16) + 1))
    for code in range(1, sys.maxunicode + 1):
        character = chr(code)
        if code in later or unicodedata.category(character) in _UNASSIGNED:
            continue
        if (folded := fold(character)) != character:
            yield character, folded

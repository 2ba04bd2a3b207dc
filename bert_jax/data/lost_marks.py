"""Marks that an uncased vocabulary strips although words differ by them.

BERT's uncased normalizer decomposes characters and drops their marks: "é" becomes "e".
Japanese and the scripts of India and South East Asia write vowels and consonants so.
"""

import collections
import unicodedata
import warnings
from collections.abc import Iterable, Iterator

from bert_jax.data.folding import without_marks

ACCENTS = frozenset({"LATIN", "GREEK", "CYRILLIC", "COPTIC", "HEBREW", "ARABIC"})
"""Scripts whose marks are accents, or are usually not written."""
MAX_LINES = 10_000
_MIN_FRACTION = 0.01


def loses_marks(word: str) -> bool:
    """Return whether a word has a mark that is more than an accent."""
    if word.isascii():
        return False
    base = ""
    for character in unicodedata.normalize("NFD", word):
        if unicodedata.category(character) != "Mn":
            base = character
        elif unicodedata.category(base or " ").startswith("L"):
            if unicodedata.name(base, "?").split()[0] not in ACCENTS:
                return True
    return False


def warn_of_lost_marks(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines; warn if, of the first ones, many words lose marks."""
    lost: collections.Counter[str] = collections.Counter()
    num_words = 0
    for number, line in enumerate(lines):
        if number < MAX_LINES:
            words = line.split()
            num_words += len(words)
            lost.update(filter(loses_marks, words))
        yield line
    if sum(lost.values()) > _MIN_FRACTION * num_words:
        word, _ = max(lost.items(), key=lambda item: (item[1], item[0]))
        warnings.warn(
            f"An uncased vocabulary strips marks that this text needs: {word[:20]} "
            f"becomes {without_marks(word[:20])}. Use --cased.",
            stacklevel=2,
        )

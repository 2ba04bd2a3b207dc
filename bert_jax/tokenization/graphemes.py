"""Characters as a reader sees them: a letter with its marks, an emoji of several."""

import functools

import numpy as np
from jaxtyping import Int
from tokenizers import Regex, pre_tokenizers

_NON_JOINER = "\u200c"


def whole_characters(text: str, start: int, end: int) -> tuple[int, int]:
    r"""Return the span, extended to whole grapheme clusters (Unicode Annex 29).

    Tokens of uncased models leave out combining marks and joiners, and tokens of all
    models may end within a syllable or an emoji. A non-joiner after the span stays out:
    it says how the last letter is written, and is no part of it.
    """
    if text[start : start + 1].isascii() and text[end : end + 1].isascii():
        return start, end  # none of them continues another one
    bounds = _bounds(text)
    start = int(bounds[np.searchsorted(bounds, start, side="right") - 1])
    last = int(bounds[np.searchsorted(bounds, end)])
    while last > end and text[last - 1] == _NON_JOINER:
        last -= 1
    return start, last


@functools.lru_cache(maxsize=16)
def _bounds(text: str) -> Int[np.ndarray, " _"]:
    r"""Return where the grapheme clusters of a text start, and its length."""
    clusters = pre_tokenizers.Split(Regex(r"\X"), "isolated").pre_tokenize_str(text)
    return np.array([*(start for _, (start, _) in clusters), len(text)])

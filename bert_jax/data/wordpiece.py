"""Learn WordPiece's pieces from counted words, by counting and merging.

Hugging Face's trainer gives other pieces in another process; here every choice is
settled by counts and text alone.
"""

import collections
import heapq
from collections.abc import Mapping

from bert_jax.tokenization import MAX_WORD_CHARACTERS, SPECIAL_TOKENS

ALPHABET_SIZE = 1000
"""WordPiece keeps so many characters, the most frequent; words with others are
[UNK]."""
MIN_PAIR_COUNT = 2
"""Pieces that stand together only once are not merged: that learns a text by heart."""


def learn_pieces(words: Mapping[str, int], size: int) -> list[str]:
    """A WordPiece vocabulary of exactly `size` tokens for words with their counts.

    Special tokens, then single characters in the order of their code points, then the
    pieces that come from merging, again and again, the most frequent pair of
    neighbours; of equal counts the pair that sorts first.

    Raises:
        ValueError: `size` is too small for the characters, or too large for the text.
    """
    alphabet = _alphabet(words)
    tokens = dict.fromkeys([*SPECIAL_TOKENS, *alphabet])
    if size < len(tokens):
        raise ValueError(
            f"vocab_size={size} is less than the {len(tokens)} special tokens and "
            f"characters of the text; use at least {len(tokens)}."
        )
    pairs = _Pairs(words, set(alphabet))
    heap = [(-count, *pair) for pair, count in pairs.counts.items()]
    heapq.heapify(heap)
    while len(tokens) < size:
        if not heap:
            raise ValueError(
                f"vocab_size={size} is more than the text can fill, as no pair of "
                f"pieces is left that occurs {MIN_PAIR_COUNT} times; "
                f"use {len(tokens)} or less, or more text."
            )
        count, left, right = heapq.heappop(heap)
        # Counts fall while an entry waits: an old one goes back with today's count.
        today = -pairs.counts.get((left, right), 0)
        if today > -MIN_PAIR_COUNT:
            continue
        if today != count:
            heapq.heappush(heap, (today, left, right))
            continue
        piece, grown = pairs.merge(left, right)
        tokens[piece] = None
        for pair in grown:
            heapq.heappush(heap, (-pairs.counts[pair], *pair))
    return list(tokens)


def _alphabet(words: Mapping[str, int]) -> list[str]:
    """The kept characters, each in the forms in which it occurs, sorted."""
    counts: collections.Counter[str] = collections.Counter()
    for word, count in words.items():
        for character in word:
            counts[character] += count
    kept = set(sorted(counts, key=lambda c: (-counts[c], c))[:ALPHABET_SIZE])
    forms = {word[0] for word in words if word[0] in kept}
    forms |= {f"##{c}" for c in set().union(*(word[1:] for word in words)) & kept}
    return sorted(forms)


class _Pairs:
    """How often two pieces are neighbours, over all words, while pieces are merged."""

    def __init__(self, words: Mapping[str, int], alphabet: set[str]) -> None:
        self.counts: dict[tuple[str, str], int] = collections.defaultdict(int)
        self._words: list[list[str]] = []
        self._word_counts: list[int] = []
        # Where a pair may be; a word stays listed after the pair is gone from it.
        self._places: dict[tuple[str, str], list[int]] = collections.defaultdict(list)
        for word, count in words.items():
            pieces = [word[0], *(f"##{character}" for character in word[1:])]
            if len(word) > MAX_WORD_CHARACTERS or not alphabet.issuperset(pieces):
                continue  # encoded as [UNK], whatever is learned
            for pair in zip(pieces, pieces[1:], strict=False):
                self.counts[pair] += count
                self._places[pair].append(len(self._words))
            self._words.append(pieces)
            self._word_counts.append(count)

    def merge(self, left: str, right: str) -> tuple[str, list[tuple[str, str]]]:
        """Make one piece of two in every word; also gives the pairs that grew."""
        piece = left + right.removeprefix("##")
        grown: dict[tuple[str, str], None] = {}
        for place in self._places.pop((left, right)):
            word, count = self._words[place], self._word_counts[place]
            i = 0
            while (i := _find(word, left, right, i)) >= 0:
                if i > 0:
                    self.counts[word[i - 1], left] -= count
                    self._grow((word[i - 1], piece), count, place, grown)
                if i + 2 < len(word):
                    self.counts[right, word[i + 2]] -= count
                    self._grow((piece, word[i + 2]), count, place, grown)
                word[i : i + 2] = [piece]
                i += 1
        del self.counts[left, right]
        return piece, list(grown)

    def _grow(
        self,
        pair: tuple[str, str],
        count: int,
        place: int,
        grown: dict[tuple[str, str], None],
    ) -> None:
        self.counts[pair] += count
        self._places[pair].append(place)
        grown[pair] = None


def _find(word: list[str], left: str, right: str, start: int) -> int:
    """Where `left`, `right` next stand side by side in `word`, or -1."""
    for i in range(start, len(word) - 1):
        if word[i] == left and word[i + 1] == right:
            return i
    return -1

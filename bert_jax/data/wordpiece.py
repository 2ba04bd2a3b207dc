"""Learn the pieces of a WordPiece vocabulary from word counts, by merging pairs.

Hugging Face's trainer is not deterministic: it returns other pieces in another process.
Here every choice depends on counts and text alone.
"""

import collections
import heapq
import itertools
from collections.abc import Mapping

from bert_jax.tokenization import MAX_WORD_CHARACTERS, SPECIAL_TOKENS

ALPHABET_SIZE = 1000
"""The number of characters kept, the most frequent; words with others are [UNK]."""
MIN_PAIR_COUNT = 2
"""Pairs that occur less often are not merged, to avoid memorizing the text."""

_Pair = tuple[str, str]


def learn_pieces(
    words: Mapping[str, int],
    size: int,
    alphabet_size: int = ALPHABET_SIZE,
    min_count: int = MIN_PAIR_COUNT,
) -> list[str]:
    """Return a WordPiece vocabulary of at most `size` tokens, given each word's count.

    It has fewer if no pair is left that occurs `min_count` times. It holds the special
    tokens, then single characters by code point, then the pieces made by repeatedly
    merging the most frequent pair of adjacent pieces. If counts are equal, the pair
    that sorts first is merged.

    Raises:
        ValueError: `size` is too small for the characters.
    """
    alphabet = _alphabet(words, alphabet_size)
    tokens = dict.fromkeys([*SPECIAL_TOKENS, *alphabet])
    if size < len(tokens):
        raise ValueError(
            f"vocab_size={size} is less than the {len(tokens)} special tokens and "
            f"characters of the text; use at least {len(tokens)}."
        )
    pairs = _PairCounts(words, set(alphabet))
    heap = [(-count, *pair) for pair, count in pairs.counts.items()]
    heapq.heapify(heap)
    while heap and len(tokens) < size:
        count, left, right = heapq.heappop(heap)
        # The count may have decreased since the entry was pushed: push it again.
        current = -pairs.counts.get((left, right), 0)
        if current > -min_count:
            continue
        if current != count:
            heapq.heappush(heap, (current, left, right))
            continue
        piece, increased = pairs.merge(left, right)
        tokens[piece] = None
        for pair in increased:
            heapq.heappush(heap, (-pairs.counts[pair], *pair))
    return list(tokens)


def _alphabet(words: Mapping[str, int], size: int) -> list[str]:
    """Return the kept characters as they occur, with or without ##, sorted."""
    counts: collections.Counter[str] = collections.Counter()
    for word, count in words.items():
        for character in word:
            counts[character] += count
    kept = set(sorted(counts, key=lambda c: (-counts[c], c))[:size])
    forms = {word[0] for word in words if word[0] in kept}
    forms |= {f"##{c}" for c in set().union(*(word[1:] for word in words)) & kept}
    return sorted(forms)


class _PairCounts:
    """The counts of adjacent pieces over all words, updated as pieces are merged."""

    def __init__(self, words: Mapping[str, int], alphabet: set[str]) -> None:
        self.counts: dict[_Pair, int] = collections.defaultdict(int)
        self._words: list[list[str]] = []
        self._word_counts: list[int] = []
        # The words that may contain a pair; words are not removed if the pair is gone.
        self._words_with: dict[_Pair, list[int]] = collections.defaultdict(list)
        for word, count in words.items():
            pieces = [word[0], *(f"##{character}" for character in word[1:])]
            if len(word) > MAX_WORD_CHARACTERS or not alphabet.issuperset(pieces):
                continue  # always encoded as [UNK]
            for pair in itertools.pairwise(pieces):
                self.counts[pair] += count
                self._words_with[pair].append(len(self._words))
            self._words.append(pieces)
            self._word_counts.append(count)

    def merge(self, left: str, right: str) -> tuple[str, list[_Pair]]:
        """Merge a pair in every word; return the piece and the pairs that increased."""
        piece = left + right.removeprefix("##")
        increased: dict[_Pair, None] = {}
        for index in self._words_with.pop((left, right)):
            word, count = self._words[index], self._word_counts[index]
            i = -1
            while (i := i + 1) < len(word) - 1:
                if word[i] != left or word[i + 1] != right:
                    continue
                new_pairs = []
                if i > 0:
                    self.counts[word[i - 1], left] -= count
                    new_pairs.append((word[i - 1], piece))
                if i + 2 < len(word):
                    self.counts[right, word[i + 2]] -= count
                    new_pairs.append((piece, word[i + 2]))
                for pair in new_pairs:
                    self.counts[pair] += count
                    self._words_with[pair].append(index)
                    increased[pair] = None
                word[i : i + 2] = [piece]
        del self.counts[left, right]
        return piece, list(increased)

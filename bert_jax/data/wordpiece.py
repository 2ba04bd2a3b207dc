"""Learn the pieces of a WordPiece vocabulary from word counts, by merging pairs.

Hugging Face's trainer is not deterministic: it returns other pieces in another process.
Here every choice depends on counts and text alone.
"""

import array
import collections
import heapq
import itertools
from collections.abc import Iterable, Mapping

from bert_jax.tokenization import MAX_WORD_CHARACTERS, SPECIAL_TOKENS

MIN_ALPHABET = 1000
"""The number of characters, the most frequent, that are always kept."""
MAX_UNKNOWN = 10_000
"""More are kept until one word of as many has another character and is [UNK]."""
MIN_PAIR_COUNT = 2
"""Pairs that occur less often are not merged, to avoid memorizing the text."""
MAX_PAIRS = 400_000
"""Distinct pairs that are counted; past it, the rarer half is forgotten."""

_Pair = tuple[str, str]


def learn_pieces(
    words: Mapping[str, int],
    size: int,
    min_count: int = MIN_PAIR_COUNT,
    min_alphabet: int = MIN_ALPHABET,
) -> list[str]:
    """Return a WordPiece vocabulary of at most `size` tokens, given each word's count.

    It has fewer if no pair is left that occurs `min_count` times. It holds the special
    tokens, then single characters by code point, then the pieces made by repeatedly
    merging the most frequent pair of adjacent pieces. If counts are equal, the pair
    that sorts first is merged.

    A word with a character that is not kept is [UNK]. Characters are kept by their
    counts: the first 1,000; and more until at most one word of 10,000 is [UNK], or
    single characters are half of the vocabulary, or all of it that pieces do not fill.
    Raise ValueError if `size` is too small for the first 1,000 characters.
    """
    alphabet = _alphabet(words, min_alphabet, size // 2)
    tokens = _merge_pairs(words, alphabet, size, min_count)
    if unfilled := size - len(tokens):
        more = _alphabet(words, min_alphabet, len(alphabet) + unfilled)
        if more != alphabet:
            return _merge_pairs(words, more, size, min_count)
    return tokens


def _merge_pairs(
    words: Mapping[str, int], alphabet: list[str], size: int, min_count: int
) -> list[str]:
    """Return the special tokens, the alphabet, and the pieces that fit."""
    tokens = dict.fromkeys([*SPECIAL_TOKENS, *alphabet])
    if size < len(tokens):
        raise ValueError(
            f"vocab_size={size} is less than the {len(tokens)} special tokens and "
            f"characters of the text; use at least {len(tokens)}."
        )
    pairs = _PairCounts(words, alphabet)
    while len(tokens) < size and (pair := pairs.pop_most_frequent(min_count)):
        first, second = pair
        tokens[pairs.merge(first, second)] = None
    return list(tokens)


def _alphabet(words: Mapping[str, int], at_least: int, max_tokens: int) -> list[str]:
    """Return the kept characters as they occur, with or without ##, sorted."""
    counts: collections.Counter[str] = collections.Counter()
    for word, count in words.items():
        for character in word:
            counts[character] += count
    ranked = sorted(counts, key=lambda c: (-counts[c], c))
    rank = {character: number for number, character in enumerate(ranked)}
    # Words become known with their rarest character.
    known: collections.Counter[int] = collections.Counter()
    for word, count in words.items():
        known[max(map(rank.__getitem__, word))] += count
    first = {word[0] for word in words}
    inside = set().union(*(word[1:] for word in words))
    unknown = total = known.total()
    kept: list[str] = []
    for number, character in enumerate(ranked):
        forms = [character] if character in first else []
        forms += [f"##{character}"] if character in inside else []
        if number >= at_least and (
            unknown * MAX_UNKNOWN <= total or len(kept) + len(forms) > max_tokens
        ):
            break
        kept += forms
        unknown -= known[number]
    return sorted(kept)


class _PairCounts:
    """The counts of adjacent pieces over all words, updated as pieces are merged."""

    def __init__(self, words: Mapping[str, int], alphabet: Iterable[str]) -> None:
        self._counts: dict[_Pair, int] = {}
        self._heap: list[tuple[int, str, str]] = []
        """Negative counts of pairs, which may have decreased since."""
        self._words: list[list[str]] = []
        self._word_counts: list[int] = []
        # The words that may contain a pair; words are not removed if the pair is gone.
        self._words_with: dict[_Pair, array.array[int]] = {}
        first = set(alphabet)
        inside = {piece[2:]: piece for piece in first if piece[2:]}
        for word, count in words.items():
            if len(word) > MAX_WORD_CHARACTERS:
                continue  # always encoded as [UNK]
            pieces = [word[0], *(inside.get(character, "") for character in word[1:])]
            if first.issuperset(pieces):
                for pair in itertools.pairwise(pieces):
                    self._add(pair, count, len(self._words))
                self._words.append(pieces)
                self._word_counts.append(count)
                self._forget_rare()
        self._make_heap()

    def pop_most_frequent(self, min_count: int) -> _Pair | None:
        """Return the pair with the highest count; None if all are below `min_count`."""
        while self._heap:
            count, left, right = heapq.heappop(self._heap)
            # The count may have decreased since the entry was pushed: push it again.
            current = -self._counts.get((left, right), 0)
            if current > -min_count:
                continue
            if current == count:
                return left, right
            heapq.heappush(self._heap, (current, left, right))
        return None

    def merge(self, left: str, right: str) -> str:
        """Merge a pair in every word, and return the piece."""
        piece = left + right.removeprefix("##")
        increased: dict[_Pair, None] = {}
        for index in self._words_with.pop((left, right)):
            word, count = self._words[index], self._word_counts[index]
            i = -1
            while left in word[i + 1 : -1]:
                i = word.index(left, i + 1)
                if word[i + 1] != right:
                    continue
                new_pairs = []
                if i > 0:
                    self._subtract((word[i - 1], left), count)
                    new_pairs.append((word[i - 1], piece))
                if i + 2 < len(word):
                    self._subtract((right, word[i + 2]), count)
                    new_pairs.append((piece, word[i + 2]))
                for pair in new_pairs:
                    self._add(pair, count, index)
                    increased[pair] = None
                word[i : i + 2] = [piece]
        self._counts.pop((left, right), None)
        for pair in increased:
            if count := self._counts.get(pair, 0):
                heapq.heappush(self._heap, (-count, *pair))
        if self._forget_rare():
            self._make_heap()
        return piece

    def _add(self, pair: _Pair, count: int, index: int) -> None:
        self._counts[pair] = self._counts.get(pair, 0) + count
        self._words_with.setdefault(pair, array.array("i")).append(index)

    def _subtract(self, pair: _Pair, count: int) -> None:
        if pair in self._counts:
            self._counts[pair] -= count
            if self._counts[pair] <= 0:
                del self._counts[pair]
                self._words_with.pop(pair, None)

    def _forget_rare(self) -> bool:
        """Forget the rarer half of the pairs if there are more than `MAX_PAIRS`."""
        if len(self._counts) <= MAX_PAIRS:
            return False
        rare = sorted(self._counts.values())[MAX_PAIRS // 2]
        for pair in [p for p, count in self._counts.items() if count <= rare]:
            del self._counts[pair], self._words_with[pair]
        return True

    def _make_heap(self) -> None:
        self._heap = [(-count, *pair) for pair, count in self._counts.items()]
        heapq.heapify(self._heap)

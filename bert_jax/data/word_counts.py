"""Count the words of a text of any size, in bounded memory.

Text without spaces between words has nearly as many distinct strings as strings. Past a
limit, the rare ones are thinned, so that what is counted stays right on average.
"""

import collections
import zlib
from collections.abc import Iterable, Iterator

from tokenizers import pre_tokenizers

from bert_jax.tokenization import MAX_WORD_CHARACTERS, bert_normalizer

MAX_SIZE = 5_000_000
"""The most characters of distinct words, each with `_WORD_COST` more."""
_WORD_COST = 8
MAX_BUFFERED = 1 << 17
"""Distinct strings that are collected before they are split into words."""
_UNSPACED = 64
"""Mean length of strings between spaces above which few strings repeat."""


class WordCounter:
    """Counts words, split as the tokenizer splits them.

    The normalizer acts on single characters and a space always separates words, so each
    distinct string between spaces is normalized once. (`str.split()` would also split
    at control characters, which the normalizer deletes.)
    """

    def __init__(
        self, cased: bool, max_size: int = MAX_SIZE, max_buffered: int = MAX_BUFFERED
    ) -> None:
        self.words: collections.Counter[str] = collections.Counter()
        """The count of each word that is not too long."""
        self.total = 0
        """The number of these words, before any were thinned."""
        self.num_long = 0
        """The number of words of more than `MAX_WORD_CHARACTERS`: always [UNK]."""
        self.times_thinned = 0
        self._max_size, self._max_buffered = max_size, max_buffered
        self._normalizer = bert_normalizer(cased)
        self._pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        self._raw: collections.Counter[str] = collections.Counter()
        self._parts: collections.Counter[str] = collections.Counter()

    def update(self, lines: Iterable[str]) -> "WordCounter":
        """Count the words of some lines; the result depends on their order alone."""
        for line in lines:
            strings = line.split(" ")
            if len(line) < _UNSPACED * len(strings):
                self._raw.update(strings)
            else:
                self._parts.update(self._split(line))
            if len(self._raw) + len(self._parts) > self._max_buffered:
                self._flush()
        self._flush()
        return self

    def _split(self, text: str, count: int = 1) -> list[str]:
        """Return the strings between spaces, without words that are too long."""
        parts = self._normalizer.normalize_str(text).split()
        if all(len(part) <= MAX_WORD_CHARACTERS for part in parts):
            return parts
        words = [word for part in parts for word in self._words(part)]
        kept = [word for word in words if len(word) <= MAX_WORD_CHARACTERS]
        self.num_long += count * (len(words) - len(kept))
        return kept

    def _words(self, part: str) -> Iterator[str]:
        if part.isalnum():  # the common case: nothing to split
            yield part
        else:
            yield from (word for word, _ in self._pre_tokenizer.pre_tokenize_str(part))

    def _flush(self) -> None:
        for text, count in self._raw.items():
            for part in self._split(text, count):
                self._parts[part] += count
        for part, count in self._parts.items():
            for word in self._words(part):
                self.words[word] += count
                self.total += count
        self._raw.clear()
        self._parts.clear()
        while sum(map(len, self.words)) + _WORD_COST * len(self.words) > self._max_size:
            self._thin()

    def _thin(self) -> None:
        """Drop half of the rare words, and count the others twice.

        A checksum says which, and another bit of it each time: Python's own hashes
        differ between processes. Counts of pairs and characters stay as they were on
        average (as in Ting 2018, "Data sketches for disaggregated subset sum and
        frequent item estimation").
        """
        rare = sorted(self.words.values())[len(self.words) // 2]
        bit = self.times_thinned % 32
        for word in [word for word, count in self.words.items() if count <= rare]:
            if zlib.crc32(word.encode()) >> bit & 1:
                del self.words[word]
            else:
                self.words[word] *= 2
        self.times_thinned += 1

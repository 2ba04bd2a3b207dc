"""The tokens of a chunk's documents, and a report of what happened to their text."""

import bisect
import dataclasses
import itertools
import sys
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Bool, Int32

from bert_jax.config import PrepareConfig
from bert_jax.data.documents import Documents, read_text, split_sentences
from bert_jax.data.text_report import DIVIDED, SINGLE, TextReport
from bert_jax.tables.lines import split_lines
from bert_jax.tokenization import Tokenizer

_SPANS_PER_ROW, _MIN_SPAN = 4, 8


@dataclasses.dataclass(frozen=True)
class ChunkTokens:
    """The tokens of a chunk, one document after another."""

    tokens: Int32[np.ndarray, " M"]
    documents: list[list[int]]
    """The bounds of each document's sentences."""
    report: TextReport
    """Each place in it is the index of a file, the offset of a document there, and the
    index of a line of that: numbers with zeros before them, so that places sort."""


def read_tokens(
    documents: Documents,
    config: PrepareConfig,
    files: Sequence[str],
    tokenizer: Tokenizer,
) -> ChunkTokens:
    """Read, split and tokenize documents; leave out those without a token.

    If pairs are made, a sentence that is longer than a row is divided.
    """
    reader = _Reader(config, tokenizer)
    spans = zip(documents.file, documents.offset, documents.length, strict=True)
    for file, offset, length in spans:
        text, undecodable = read_text(files[file], int(offset), int(length))
        reader.report.add("undecodable bytes", undecodable)
        samples = {"undecodable bytes": "\ufffd"} if undecodable else {}
        reader.add(text, samples)
        for kind, sample in samples.items():
            place = f"{file:09} {offset:018} {_line_of(text, sample):09}"
            reader.first[kind] = min(reader.first.get(kind, place), place)
    return reader.finish()


def _line_of(text: str, sample: str) -> int:
    """Return the index of the first line that holds a sample, whatever its spaces."""
    words = " ".join(sample.split())
    lines = enumerate(split_lines(text))
    return next((i for i, line in lines if words in " ".join(line.split())), 0)


class _Reader:
    """Gathers the tokens of documents, and counts what happens to their text."""

    def __init__(self, config: PrepareConfig, tokenizer: Tokenizer) -> None:
        self.report = TextReport()
        self.first = self.report.first
        self._config, self._tokenizer = config, tokenizer
        has_pairs = config.pairs != "none"
        self._longest = config.sequence_length - 3 if has_pairs else sys.maxsize
        self._lengths: list[int] = []  # of the sentences, before they are divided
        self._pieces: list[Int32[np.ndarray, " _"]] = []
        self._bounds: list[list[int]] = []
        self._end = 0

    def add(self, text: str, samples: dict[str, str]) -> None:
        """Add a document; put the first text of each kind of loss into `samples`."""
        tokenizer, report = self._tokenizer, self.report
        sentences = split_sentences(text, self._config.sentences, self._config.language)
        kept: list[Int32[np.ndarray, " _"]] = []
        before = len(self._lengths)
        for sentence, ids in _encode(sentences, tokenizer):
            kinds = report.add_tokens(tokenizer, sentence, ids)
            self._lengths.append(len(ids))
            kept.append(np.array(ids, np.int32))
            if len(ids) > self._longest:
                report.text[DIVIDED] += 1
                kinds.append(DIVIDED)
                kept[-1:] = divide(kept[-1], tokenizer.continues_word, self._longest)
            for kind in kinds:
                samples.setdefault(kind, sentence)
        without = len(sentences) - (len(self._lengths) - before)
        report.add("sentences without a token", without)
        report.add("documents without a token", int(not kept))
        report.text[SINGLE] += len(kept) == 1
        report.text["sentences"] += len(kept)
        if kept:
            sizes = map(len, kept)
            self._bounds.append(list(itertools.accumulate(sizes, initial=self._end)))
            self._end = self._bounds[-1][-1]
            self._pieces += kept

    def finish(self) -> ChunkTokens:
        """Return all tokens; raise ValueError if an id is too large."""
        tokens = np.concatenate([np.empty(0, np.int32), *self._pieces])
        vocab_size = self._tokenizer.vocab_size
        if (largest := tokens.max(initial=0)) >= vocab_size:
            raise ValueError(
                f"the tokenizer gave id {largest}, but has {vocab_size} ids."
            )
        self.report.add_lengths("sentence_tokens", self._lengths)
        lengths = (bounds[-1] - bounds[0] for bounds in self._bounds)
        self.report.add_lengths("document_tokens", lengths)
        return ChunkTokens(tokens, self._bounds, self.report)


def _encode(
    sentences: Sequence[str], tokenizer: Tokenizer
) -> Iterator[tuple[str, list[int]]]:
    """Yield the sentences that have tokens, and these."""
    encoded = [*sentences[:1], *tokenizer.after_space(sentences[1:])]
    ids = tokenizer.encode_each(encoded)
    return filter(lambda pair: pair[1], zip(sentences, ids, strict=True))


def divide(
    tokens: Int32[np.ndarray, " N"], continues_word: Bool[np.ndarray, " V"], limit: int
) -> list[Int32[np.ndarray, " _"]]:
    """Divide a sentence into spans that end at word starts, where there are any.

    A span has at most a quarter of `limit` tokens, so that a row has several.

    Args:
        continues_word: for each token of the vocabulary, whether it continues a word.
        limit: the most tokens of a pair.
    """
    size = max(-(-limit // _SPANS_PER_ROW), min(limit, _MIN_SPAN))
    starts = [0, *np.flatnonzero(~continues_word[tokens]).tolist()]
    cuts = [0]
    while len(tokens) - cuts[-1] > size:
        end = cuts[-1] + size
        start = starts[bisect.bisect_right(starts, end) - 1]
        cuts.append(start if start > cuts[-1] else end)
    return np.split(tokens, cuts[1:])

"""The tokens of a chunk's documents, and a report of what happened to their text."""

import bisect
import itertools
import sys
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Int32

from bert_jax.config import PrepareConfig
from bert_jax.data.documents import Documents, read_text, split_sentences
from bert_jax.data.text_report import DIVIDED, SINGLE, TextReport
from bert_jax.tables.lines import split_lines
from bert_jax.tokenization import Tokenizer

_SPANS_PER_ROW, _MIN_SPAN = 4, 8


def read_tokens(
    documents: Documents,
    config: PrepareConfig,
    files: Sequence[str],
    tokenizer: Tokenizer,
) -> tuple[Int32[np.ndarray, " M"], list[list[int]], TextReport]:
    """Read, split and tokenize documents; leave out those without a token.

    If pairs are made, a sentence that is longer than a row is divided. Return the
    tokens of all documents; the bounds of each document's sentences; a report. A place
    in it is the index of a file, the offset of a document there, and the index of a
    line of that: numbers with zeros before them, so that places sort.
    """
    report, bounds = TextReport(), list[list[int]]()
    pieces = [np.empty(0, np.int32)]
    spans = zip(documents.file, documents.offset, documents.length, strict=True)
    for file, offset, length in spans:
        text, undecodable = read_text(files[file], int(offset), int(length))
        report.add("undecodable bytes", undecodable)
        samples = {"undecodable bytes": "\ufffd"} if undecodable else {}
        kept = _tokenize(text, config, tokenizer, report, samples)
        for kind, sample in samples.items():
            words = " ".join(sample.split())
            lines = (" ".join(line.split()) for line in split_lines(text))
            number = next((i for i, line in enumerate(lines) if words in line), 0)
            place = f"{file:09} {offset:018} {number:09}"
            report.first[kind] = min(report.first.get(kind, place), place)
        if kept:
            start = bounds[-1][-1] if bounds else 0
            bounds.append(list(itertools.accumulate(map(len, kept), initial=start)))
            pieces += kept
    tokens = np.concatenate(pieces)
    if (largest := tokens.max(initial=0)) >= tokenizer.vocab_size:
        raise ValueError(
            f"the tokenizer gave id {largest}, but has {tokenizer.vocab_size} ids."
        )
    report.add_lengths("document_tokens", (ends[-1] - ends[0] for ends in bounds))
    return tokens, bounds, report


def _tokenize(
    text: str,
    config: PrepareConfig,
    tokenizer: Tokenizer,
    report: TextReport,
    samples: dict[str, str],
) -> list[Int32[np.ndarray, " _"]]:
    """Return the tokens of each sentence or span; count what happens to the text.

    The first text of each kind of loss is put into `samples`.
    """
    longest = config.sequence_length - 3 if config.pairs != "none" else sys.maxsize
    sentences = split_sentences(text, config.sentences, config.language)
    encoded = [*sentences[:1], *tokenizer.after_space(sentences[1:])]
    kept: list[Int32[np.ndarray, " _"]] = []
    lengths: list[int] = []
    for sentence, ids in zip(sentences, tokenizer.encode_each(encoded), strict=True):
        if not ids:
            continue
        kinds = report.add_tokens(tokenizer, sentence, ids)
        lengths.append(len(ids))  # before the sentence is divided
        kept.append(np.array(ids, np.int32))
        if len(ids) > longest:
            report.text[DIVIDED] += 1
            kinds.append(DIVIDED)
            kept[-1:] = divide(kept[-1], tokenizer.continues_word, longest)
        for kind in kinds:
            samples.setdefault(kind, sentence)
    report.add("sentences without a token", len(sentences) - len(lengths))
    report.add("documents without a token", int(not kept))
    report.text[SINGLE] += len(kept) == 1
    report.text["sentences"] += len(kept)
    report.add_lengths("sentence_tokens", lengths)
    return kept


def divide(
    tokens: Int32[np.ndarray, " N"], continues_word: Bool[np.ndarray, " V"], limit: int
) -> list[Int32[np.ndarray, " _"]]:
    """Divide a sentence into spans that end at word starts, where there are any.

    A span has at most a quarter of `limit`, the most tokens of a pair, so that a row
    has several. `continues_word` is of each token of the vocabulary.
    """
    size = max(-(-limit // _SPANS_PER_ROW), min(limit, _MIN_SPAN))
    starts = [0, *np.flatnonzero(~continues_word[tokens]).tolist()]
    cuts = [0]
    while len(tokens) - cuts[-1] > size:
        end = cuts[-1] + size
        start = starts[bisect.bisect_right(starts, end) - 1]
        cuts.append(start if start > cuts[-1] else end)
    return np.split(tokens, cuts[1:])

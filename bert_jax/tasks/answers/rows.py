"""Tokenize questions and documents into rows, one for each window of a document.

A row is [CLS] question [SEP] window [SEP] (Devlin et al. 2018, §4.2 and §4.3).
"""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Int32, Integer

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.data.examples import (
    TokenizedExamples,
    build_row,
    from_rows,
    num_special_tokens,
)
from bert_jax.tasks.lengths import row_length
from bert_jax.tokenization import Encoding, Tokenizer


@dataclasses.dataclass(frozen=True)
class SquadExample:
    """A question about a document."""

    id: str
    title: str
    question: str
    context: str
    answers: tuple[tuple[str, int], ...] = ()
    """Each accepted text, and the character of `context` at which it starts."""
    impossible: bool = False
    """Whether the document does not answer the question (Rajpurkar et al. 2018)."""

    @property
    def has_label(self) -> bool:
        """Whether the example has an answer or is marked as impossible."""
        return self.impossible or bool(self.answers)

    @property
    def misplaced(self) -> bool:
        """Whether the first answer, the one to learn, is not at its offset."""
        if not self.answers:
            return False
        text, start = self.answers[0]
        at_offset = self.context[start : start + len(text)] if start >= 0 else ""
        return at_offset != text or not text.strip()


def tokenize(
    examples: Sequence[SquadExample],
    tokenizer: Tokenizer,
    model: BertConfig,
    config: ExamplesConfig,
) -> TokenizedExamples:
    """Return one row for each window of each example's document.

    A document that several questions share is encoded once.

    Returns:
        by_example: `label` int32 [N, 2], the first and last token of the answer;
            (0, 0), which is [CLS], if the window does not hold the whole answer;
            (-1, -1) if there is nothing to learn. `cut` int32 [N], the number of tokens
            of the question that were left out.
        by_token: `offset` int32 [S, 2], start and end in the document, in characters;
            (-1, -1) outside of it. `max_context` bool [S], whether this is the window
            in which the token has the most context.

    Raises:
        ValueError: rows are too short for questions and stride.
    """
    max_length, query_length = row_length(config, model), config.max_query_length
    num_special = num_special_tokens(tokenizer, 2)
    _check_lengths(config, max_length, num_special)
    questions = tokenizer.encode_batch([example.question for example in examples])
    contexts = dict.fromkeys(example.context for example in examples)
    documents = {context: _encode_document(context, tokenizer) for context in contexts}
    rows = []
    for i, (example, question) in enumerate(zip(examples, questions, strict=True)):
        document, query = documents[example.context], question[:query_length]
        width = max_length - len(query) - num_special
        spans = windows(len(document.ids), width, config.document_stride)
        own = _rows(example, query, document, spans, tokenizer)
        rows += [(i, len(question) - len(query), *row) for row in own]
    example_indices, cut, tokens, offset, max_context, label = zip(*rows, strict=True)
    return from_rows(
        list(tokens),
        np.array(example_indices, np.int32),
        by_example={"label": np.array(label, np.int32), "cut": np.array(cut, np.int32)},
        by_token={
            "offset": np.concatenate(offset),
            "max_context": np.concatenate(max_context),
        },
    )


def _check_lengths(config: ExamplesConfig, max_length: int, num_special: int) -> None:
    """Check that a row has room for a stride beside the longest possible question.

    Actual questions do not matter: a model that was trained must not fail on new ones.
    """
    query, stride = config.max_query_length, config.document_stride
    room = max_length - query - num_special
    if stride > room:
        left, remedies = room, list[str]()
        if room < 1:
            shorter = min(max_length // 2, max_length - num_special - 1)
            left = max_length - shorter - num_special
            remedies.append(f"--data.max-query-length {shorter} or less")
        if stride > left:
            remedies.append(f"--data.document-stride {max(1, left // 2)}")
        raise ValueError(
            f"document_stride={stride} must be at most {room}, which a row of "
            f"{max_length} tokens leaves beside max_query_length={query} and "
            f"{num_special} special tokens; pass {' and '.join(remedies)}."
        )


def windows(length: int, width: int, stride: int) -> Integer[np.ndarray, "K 2"]:
    """Return start and end of windows of at most `width` tokens that cover `length`.

    Windows start `stride` tokens apart; the last one is the first that reaches the end.
    """
    assert 0 < stride <= width, "windows must cover every token"
    starts = stride * np.arange(1 + max(0, -(-(length - width) // stride)))
    return np.stack([starts, np.minimum(starts + width, length)], axis=1)


def window_of_most_context(
    spans: Integer[np.ndarray, "K 2"], length: int
) -> Integer[np.ndarray, " length"]:
    """Return the index of the window in which each of `length` tokens has most context.

    Context is the smaller number of tokens to the left or right, plus a hundredth of
    the window's length; the first of equal windows wins, as in the code of 2018.
    """
    index, most = np.zeros(length, np.int64), np.full(length, -1.0)
    # One window after the other: all at once, they take K times the memory.
    for i, (start, end) in enumerate(spans.tolist()):
        position = np.arange(end - start)
        context = np.minimum(position, position[::-1]) + 0.01 * len(position)
        better = start + np.flatnonzero(context > most[start:end])
        index[better], most[better] = i, context[better - start]
    return index


def token_span(
    offsets: Int32[np.ndarray, "T 2"], start: int, end: int
) -> tuple[int, int] | None:
    """Return the first and last token that overlap the characters [start, end).

    None if no token does: the tokenizer drops control characters.
    """
    tokens = np.flatnonzero((offsets[:, 0] < end) & (offsets[:, 1] > start))
    return (int(tokens[0]), int(tokens[-1])) if len(tokens) else None


def _encode_document(context: str, tokenizer: Tokenizer) -> Encoding:
    """Return the tokens of a document, with offsets that exclude white space.

    The offsets of a sentencepiece token include the space before it.
    """
    encoding = tokenizer.encode(context)
    offsets = encoding.offsets.copy()
    for i, (start, end) in enumerate(encoding.offsets.tolist()):
        text = context[start:end]
        if text != (stripped := text.strip()):
            start += len(text) - len(text.lstrip())
            offsets[i] = start, start + len(stripped)
    return dataclasses.replace(encoding, offsets=offsets)


def _rows(
    example: SquadExample,
    query: list[int],
    document: Encoding,
    spans: Integer[np.ndarray, "K 2"],
    tokenizer: Tokenizer,
) -> Iterator[tuple[tuple[list[int], int], np.ndarray, np.ndarray, tuple[int, int]]]:
    """Yield the row, `offset`, `max_context` and `label` of each window."""
    best_window = window_of_most_context(spans, len(document.ids))
    answer = None
    if example.answers and not example.misplaced:
        text, first = example.answers[0]
        answer = token_span(document.offsets, first, first + len(text))
    for i, (start, end) in enumerate(spans.tolist()):
        ids, second = build_row(tokenizer, query, document.ids[start:end].tolist())
        offset = np.full((len(ids), 2), -1, np.int32)
        offset[second:-1] = document.offsets[start:end]
        max_context = np.zeros(len(ids), np.bool_)
        max_context[second:-1] = best_window[start:end] == i
        label = (0, 0) if answer or example.impossible else (-1, -1)
        if answer and start <= answer[0] and answer[1] < end:
            label = (answer[0] - start + second, answer[1] - start + second)
        yield (ids, second), offset, max_context, label

"""Questions and documents → rows of tokens, documents in overlapping windows.

Devlin et al. 2018, §4.2 and §4.3. A row is [CLS] question [SEP] window [SEP].
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Int32, Integer

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.data.examples import TokenizedExamples, build_row
from bert_jax.tokenization import Encoding, Tokenizer


@dataclasses.dataclass(frozen=True)
class SquadExample:
    """A question about a document."""

    id: str
    title: str
    question: str
    context: str
    answers: tuple[tuple[str, int], ...] = ()
    """Each accepted text, and the character of `context` that it starts at."""
    impossible: bool = False
    """The document does not answer the question (Rajpurkar et al. 2018)."""

    @property
    def has_label(self) -> bool:
        """Whether the answer, or that there is none, is known."""
        return self.impossible or bool(self.answers)

    @property
    def misplaced(self) -> bool:
        """Whether the first answer, which is learned, stands elsewhere or nowhere."""
        if not self.answers:
            return False
        text, start = self.answers[0]
        there = self.context[start : start + len(text)] if start >= 0 else ""
        return there != text or not text.strip()


def tokenize(
    examples: Sequence[SquadExample],
    tokenizer: Tokenizer,
    model: BertConfig,
    config: ExamplesConfig,
) -> TokenizedExamples:
    """One example for each window of each record's document.

    A document that several questions share is encoded once.

    Returns:
        by_example: `label` int32 [N, 2], the tokens that the answer starts and ends at,
            (0, 0), which is [CLS], where the window does not hold all of it, and
            (-1, -1) where nothing is to be learned; `cut` int32 [N], how many tokens of
            the question were left out.
        by_token: `offset` int32 [S, 2], start and end in the document, in characters,
            and (-1, -1) outside it; `max_context` bool [S], whether the token has more
            context in this window than in any other.

    Raises:
        ValueError: rows are too short for questions and stride.
    """
    most = min(config.max_length, model.max_position_embeddings)
    _check_lengths(config, most)
    questions = tokenizer.encode_batch([example.question for example in examples])
    documents: dict[str, Encoding] = {}
    example_indices: list[int] = []
    rows: list[_Window] = []
    for i, (example, question) in enumerate(zip(examples, questions, strict=True)):
        if example.context not in documents:
            documents[example.context] = _tokens_of(example.context, tokenizer)
        document = documents[example.context]
        windows_of_example = _rows(example, question, document, tokenizer, config, most)
        example_indices += [i] * len(windows_of_example)
        rows += windows_of_example
    lengths = [len(row.tokens) for row in rows]
    return TokenizedExamples(
        tokens=np.concatenate([row.tokens for row in rows]),
        starts=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
        second=np.array([row.second for row in rows], np.int32),
        example=np.array(example_indices, np.int32),
        by_example={
            "label": np.array([row.label for row in rows], np.int32),
            "cut": np.array([row.cut for row in rows], np.int32),
        },
        by_token={
            "offset": np.concatenate([row.offset for row in rows]),
            "max_context": np.concatenate([row.max_context for row in rows]),
        },
    )


def _check_lengths(config: ExamplesConfig, most: int) -> None:
    """The rule is of the options alone: what trains must not fail on a new question.

    Args:
        most: tokens of a row: `max_length`, or what the model takes if that is less.
    """
    query, stride = config.max_query_length, config.document_stride
    room = most - query - 3
    if stride > room:
        advice = f"pass --data.document-stride {max(1, room // 2)}"
        if room < 1:
            advice = f"pass --data.max-query-length {most // 2} or less"
        raise ValueError(
            f"document_stride={stride} must be at most {room}, which a row of {most} "
            f"tokens leaves beside max_query_length={query} and 3 special tokens; "
            f"{advice}."
        )


def windows(length: int, width: int, stride: int) -> Integer[np.ndarray, "K 2"]:
    """Start and end of each window of at most `width` tokens on `length` tokens.

    They start `stride` tokens apart; the last is the first that reaches the end.
    """
    assert 0 < stride <= width, "no token is left out"
    starts = stride * np.arange(1 + max(0, -(-(length - width) // stride)))
    return np.stack([starts, np.minimum(starts + width, length)], axis=1)


def window_of_most_context(
    spans: Integer[np.ndarray, "K 2"], length: int
) -> Integer[np.ndarray, " length"]:
    """The window in which each of `length` tokens has most context.

    The lesser of the tokens on its left and on its right, and a hundredth of the
    window's length; of equals the first window, as in the code of 2018.
    """
    position = np.arange(length)
    left, right = position - spans[:, :1], spans[:, 1:] - 1 - position
    lesser = np.minimum(left, right)
    context = lesser + 0.01 * (spans[:, 1:] - spans[:, :1])
    return np.where(lesser >= 0, context, -1.0).argmax(axis=0)


def token_span(
    offsets: Int32[np.ndarray, "T 2"], start: int, end: int
) -> tuple[int, int] | None:
    """First and last token with one of the characters from `start` to before `end`.

    None where no token has any: the tokenizer drops control characters.
    """
    found = np.flatnonzero((offsets[:, 0] < end) & (offsets[:, 1] > start))
    return (int(found[0]), int(found[-1])) if len(found) else None


def _tokens_of(context: str, tokenizer: Tokenizer) -> Encoding:
    """The tokens of a document, their places without the white space around them.

    A piece of sentencepiece has the space before it.
    """
    encoding = tokenizer.encode(context)
    offsets = encoding.offsets.copy()
    for i, (start, end) in enumerate(encoding.offsets.tolist()):
        text = context[start:end]
        if text != (inner := text.strip()):
            start += len(text) - len(text.lstrip())
            offsets[i] = start, start + len(inner)
    return dataclasses.replace(encoding, offsets=offsets)


@dataclasses.dataclass(frozen=True)
class _Window:
    """A window of a document with its question."""

    tokens: Int32[np.ndarray, " T"]
    second: int
    offset: Int32[np.ndarray, "T 2"]
    max_context: Bool[np.ndarray, " T"]
    label: tuple[int, int]
    cut: int


def _rows(
    example: SquadExample,
    question: list[int],
    document: Encoding,
    tokenizer: Tokenizer,
    config: ExamplesConfig,
    most: int,
) -> list[_Window]:
    length = len(document.ids)
    query = question[: config.max_query_length]
    width = most - len(query) - 3
    spans = windows(length, width, config.document_stride)
    chosen = window_of_most_context(spans, length)
    answer = _answer_tokens(example, document)
    rows = []
    for number, (start, end) in enumerate(spans.tolist()):
        ids, second = build_row(tokenizer, query, document.ids[start:end].tolist())
        offset = np.full((len(ids), 2), -1, np.int32)
        offset[second:-1] = document.offsets[start:end]
        max_context = np.zeros(len(ids), np.bool_)
        max_context[second:-1] = chosen[start:end] == number
        inside = answer is not None and start <= answer[0] and answer[1] < end
        rows.append(
            _Window(
                tokens=np.array(ids, np.int32),
                second=second,
                offset=offset,
                max_context=max_context,
                label=_label(example, answer, second - start, inside),
                cut=len(question) - len(query),
            )
        )
    return rows


def _answer_tokens(example: SquadExample, document: Encoding) -> tuple[int, int] | None:
    """First and last token of the answer to learn; None where there is none."""
    if not example.answers or example.misplaced:
        return None
    text, start = example.answers[0]
    return token_span(document.offsets, start, start + len(text))


def _label(
    example: SquadExample, answer: tuple[int, int] | None, shift: int, inside: bool
) -> tuple[int, int]:
    if answer is None:
        return (0, 0) if example.impossible else (-1, -1)
    return (answer[0] + shift, answer[1] + shift) if inside else (0, 0)

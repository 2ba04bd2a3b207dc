"""Tokenized examples for fine-tuning and prediction: rows of tokens of many lengths."""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Bool, Int, Int32, Int64

from bert_jax.data.pipeline import Batch
from bert_jax.tokenization import Tokenizer

BATCH_FIELDS = frozenset({"label", "text_ids", "skip"})
"""Of `TokenizedExamples.by_example`: labels, numbers of equal texts, and how many
tokens at the beginning of each row are not pooled."""


@dataclasses.dataclass(frozen=True)
class TokenizedExamples:
    """N examples of C rows each (one, or the choices of a question), S tokens in all.

    A row is [CLS] first [SEP], or [CLS] first [SEP] second [SEP].
    """

    tokens: Int32[np.ndarray, " S"]
    """The ids of all rows, concatenated."""
    starts: Int64[np.ndarray, " _"]
    """R + 1 offsets: the start of each row in `tokens`, then S; R is N times C."""
    second: Int32[np.ndarray, " R"]
    """Start of the second segment in its row; the row's length if there is none."""
    example: Int32[np.ndarray, " N"]
    """Index of the raw example that each tokenized example was made from."""
    by_example: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    """Arrays [N, …]. Fields named in `BATCH_FIELDS` are part of a batch."""
    by_token: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    """Arrays [S, …] parallel to `tokens`. `label`, if present, is part of a batch; a
    label below 0 means that the token has none."""
    choices: int = 1
    """C."""

    def __len__(self) -> int:
        return len(self.example)

    @property
    def lengths(self) -> Int64[np.ndarray, " N"]:
        """The number of tokens in each example's longest row."""
        return np.diff(self.starts).reshape(-1, self.choices).max(axis=1)

    def rows_of(self, example: int) -> range:
        return range(example * self.choices, (example + 1) * self.choices)

    def token_values(self, name: str, example: int) -> np.ndarray:
        """Return `by_token[name]` of an example that has one row."""
        return self.by_token[name][self.starts[example] : self.starts[example + 1]]

    def take(self, numbers: Int[np.ndarray, " M"]) -> "TokenizedExamples":
        """Return the examples of these indices, which may repeat, in this order."""
        rows = (numbers[:, None] * self.choices + np.arange(self.choices)).ravel()
        lengths = np.diff(self.starts)[rows]
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        # Where each of the new tokens stands now.
        index = np.arange(starts[-1])
        index += np.repeat(self.starts[rows] - starts[:-1], lengths)
        return TokenizedExamples(
            tokens=self.tokens[index],
            starts=starts,
            second=self.second[rows],
            example=self.example[numbers],
            by_example={k: values[numbers] for k, values in self.by_example.items()},
            by_token={k: values[index] for k, values in self.by_token.items()},
            choices=self.choices,
        )

    def gather(self, numbers: Int[np.ndarray, " B"], length: int) -> Batch:
        """Return the batch of the examples of these indices; index -1 is padding.

        It has `tokens` [B, T], or [B, C, T] for several choices, padded to `length`;
        `second` and `end`, int32 without T; `row` [B], the indices; and those of
        `BATCH_FIELDS`, which in padding are -1, or NaN if they are floats.
        """
        rows = numbers[:, None] * self.choices + np.arange(self.choices)
        rows = rows[:, 0] if self.choices == 1 else rows
        start = self.starts[rows]
        end = np.where(rows < 0, 0, self.starts[rows + 1] - start)
        assert end.max(initial=0) <= length
        # The index of each position in `tokens`; 0 where the row has no token.
        position = np.arange(length)
        real = position < end[..., None]
        index = np.where(real, start[..., None] + position, 0)
        batch = {
            "tokens": np.where(real, self.tokens[index], 0),
            "second": np.where(rows < 0, 0, self.second[rows]),
            "end": end.astype(np.int32),
        }
        if "label" in self.by_token:
            batch["label"] = np.where(real, self.by_token["label"][index], -1)
        for name in BATCH_FIELDS & self.by_example.keys():
            values = self.by_example[name][numbers]
            values[numbers < 0] = -1 if values.dtype.kind == "i" else np.nan
            batch[name] = values
        return batch | {"row": numbers.astype(np.int32)}


def from_rows(
    rows: list[tuple[list[int], int]],
    example: Int32[np.ndarray, " N"] | None = None,
    by_example: dict[str, np.ndarray] | None = None,
    by_token: dict[str, np.ndarray] | None = None,
    choices: int = 1,
) -> TokenizedExamples:
    """Return the examples of rows that `build_row` made.

    If `example` is None, each tokenized example has a raw one of its own.
    """
    if example is None:
        example = np.arange(len(rows) // choices, dtype=np.int32)
    lengths = [len(ids) for ids, _ in rows]
    return TokenizedExamples(
        tokens=np.concatenate([np.array(ids, np.int32) for ids, _ in rows]),
        starts=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
        second=np.array([second for _, second in rows], np.int32),
        example=example,
        by_example=by_example or {},
        by_token=by_token or {},
        choices=choices,
    )


def build_row(tokenizer: Tokenizer, *segments: Iterable[int]) -> tuple[list[int], int]:
    """Return the ids of a row and the position at which its second segment starts.

    A row is [CLS] A [SEP], or [CLS] A [SEP] B [SEP], of the segments A and B; some
    tokenizers have two [SEP] between them. Without B, the position is the length of the
    row.
    """
    first, *others = segments
    ids = [tokenizer.cls_id, *first, tokenizer.sep_id]
    if others:
        ids += [tokenizer.sep_id] * (tokenizer.num_separators - 1)
    second = len(ids)
    for segment in others:
        ids += [*segment, tokenizer.sep_id]
    return ids, second


def num_special_tokens(tokenizer: Tokenizer, num_segments: int) -> int:
    """Return how many special tokens `build_row` adds to one or two segments."""
    return 2 if num_segments == 1 else 2 + tokenizer.num_separators


def join_pair(
    tokenizer: Tokenizer, *segments: list[int], max_length: int
) -> tuple[list[int], int]:
    """Return `build_row` of one or two segments, truncated to `max_length` ids.

    Tokens are removed from the end of the longer segment until both are equally long,
    then from both in turn, as `_truncate_seq_pair` of the 2018 code does.
    """
    room = max_length - num_special_tokens(tokenizer, len(segments))
    if len(segments) == 1:
        return build_row(tokenizer, segments[0][:room])
    first, second = segments
    kept = min(len(first), max(room - len(second), (room + 1) // 2))
    return build_row(tokenizer, first[:kept], second[: room - kept])


def join_pairs(
    tokenizer: Tokenizer, pairs: Iterable[Sequence[list[int]]], max_length: int
) -> tuple[list[tuple[list[int], int]], Bool[np.ndarray, " R"]]:
    """Return `join_pair` of each one or two segments, and whether it was truncated."""
    rows, cut = [], []
    for segments in pairs:
        room = max_length - num_special_tokens(tokenizer, len(segments))
        rows.append(join_pair(tokenizer, *segments, max_length=max_length))
        cut.append(sum(map(len, segments)) > room)
    return rows, np.array(cut, np.bool_)


def num_cut(examples: TokenizedExamples) -> int:
    """Return the number of raw examples that `by_example["cut"]` marks as truncated."""
    cut = examples.by_example.get("cut")
    return 0 if cut is None else len(np.unique(examples.example[cut > 0]))

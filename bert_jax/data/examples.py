"""Examples to fine-tune on, or to predict for: rows of tokens of many lengths."""

import dataclasses

import numpy as np
from jaxtyping import Int, Int32, Int64

from bert_jax.tokenization import Tokenizer

Batch = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Examples:
    """N examples of C rows each (one, or the choices of a question), S tokens in all.

    A row is [CLS] first [SEP], or [CLS] first [SEP] second [SEP].
    """

    tokens: Int32[np.ndarray, " S"]
    """The ids of all rows, end to end."""
    starts: Int64[np.ndarray, " _"]
    """R + 1: where each row starts in `tokens`, and last S; R is N times C."""
    second: Int32[np.ndarray, " R"]
    """Where in its row the second segment starts; the row's length if there is none."""
    record: Int32[np.ndarray, " N"]
    """Which record of the file each example came from."""
    by_example: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    """Arrays [N, …]. `label`, if there, goes to the device."""
    by_token: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    """Arrays [S, …] beside the tokens. `label`, if there, goes to the device; a label
    below 0 is none."""
    choices: int = 1
    """C."""

    def __len__(self) -> int:
        return len(self.record)

    @property
    def lengths(self) -> Int64[np.ndarray, " N"]:
        """Tokens of each example's longest row."""
        rows = np.diff(self.starts).reshape(-1, self.choices)
        return rows.max(axis=1)

    def rows_of(self, example: int) -> range:
        """The numbers of an example's rows."""
        return range(example * self.choices, (example + 1) * self.choices)

    def token_values(self, name: str, example: int) -> np.ndarray:
        """`by_token[name]` of an example of one row."""
        return self.by_token[name][self.starts[example] : self.starts[example + 1]]

    def gather(self, numbers: Int[np.ndarray, " B"], length: int) -> Batch:
        """The batch of some examples, padded to `length`; a number below 0 is nobody.

        Returns:
            `tokens` [B, T], or [B, C, T] of several choices; `second` and `end`, int32,
            without T; `row` [B], the numbers; and `label`, which of nobody is -1, or
            not a number.
        """
        rows = numbers[:, None] * self.choices + np.arange(self.choices)
        shape = rows.shape
        tokens = np.zeros((*shape, length), np.int32)
        second, end = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
        batch = {"tokens": tokens, "second": second, "end": end}
        labels = self.by_token.get("label")
        if labels is not None:
            batch["label"] = np.full((*shape, length), -1, labels.dtype)
        for place in np.ndindex(shape):
            row = rows[place]
            if row < 0:
                continue
            part = slice(self.starts[row], self.starts[row + 1])
            end[place] = part.stop - part.start
            second[place] = self.second[row]
            tokens[place][: end[place]] = self.tokens[part]
            if labels is not None:
                batch["label"][place][: end[place]] = labels[part]
        if self.choices == 1:
            batch = {name: values[:, 0] for name, values in batch.items()}
        if "label" in self.by_example:
            label = self.by_example["label"][numbers]
            label[numbers < 0] = -1 if label.dtype.kind == "i" else np.nan
            batch["label"] = label
        return batch | {"row": numbers.astype(np.int32)}


def from_rows(
    rows: list[tuple[list[int], int]],
    record: Int32[np.ndarray, " N"],
    by_example: dict[str, np.ndarray] | None = None,
    by_token: dict[str, np.ndarray] | None = None,
    choices: int = 1,
) -> Examples:
    """Examples of rows given as ids and where their second segment starts."""
    lengths = [len(ids) for ids, _ in rows]
    return Examples(
        tokens=np.concatenate([np.array(ids, np.int32) for ids, _ in rows]),
        starts=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
        second=np.array([second for _, second in rows], np.int32),
        record=record,
        by_example=by_example or {},
        by_token=by_token or {},
        choices=choices,
    )


def join(
    tokenizer: Tokenizer,
    first: list[int],
    second: list[int] | None = None,
    *,
    most: int,
) -> tuple[list[int], int]:
    """[CLS] first [SEP], or [CLS] first [SEP] second [SEP], of `most` ids at most.

    What is too long is cut at the end, the longer text until both are as long, as in
    the code of 2018.

    Returns:
        The ids, and where the second segment starts.
    """
    if second is None:
        ids = [tokenizer.cls_id, *first[: most - 2], tokenizer.sep_id]
        return ids, len(ids)
    room = most - 3
    kept = len(first)
    if len(first) + len(second) > room:
        kept = min(len(first), max(room - len(second), (room + 1) // 2))
    ids = [tokenizer.cls_id, *first[:kept], tokenizer.sep_id]
    return [*ids, *second[: room - kept], tokenizer.sep_id], len(ids)


def too_long(*parts: list[int], most: int) -> bool:
    """Whether `join` would cut."""
    return sum(map(len, parts)) + len(parts) + 1 > most


def cut_notice(examples: Examples, what: str, most: int) -> list[str]:
    """A line on how many were cut, by `by_example["cut"]`; none if none were."""
    number = int(examples.by_example["cut"].sum())
    return [f"cut to {most} tokens: {number} of {len(examples)} {what}"] * (number > 0)

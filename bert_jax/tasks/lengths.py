"""Row lengths that fit a model with fewer positions than the defaults."""

import dataclasses

from bert_jax.config import ExamplesConfig

DEFAULT_LENGTHS = (128, 384)
"""Default `max_length`: of texts and sentences, and of documents."""
TAKES_NO_MORE = "the model takes no more: shorten or divide them"


def fit_lengths(data: ExamplesConfig, positions: int) -> ExamplesConfig:
    """Return `data` with lengths that fit a model with `positions` positions.

    Only lengths with their default values change. `max_length` becomes `positions`.
    `max_query_length` becomes half of the row if it would leave less than a quarter of
    the row to the document. `document_stride` becomes half of the room for the document
    if it is larger than that room.
    """
    default = ExamplesConfig()
    length, query, stride = data.max_length, data.max_query_length, data.document_stride
    if length > positions and length in DEFAULT_LENGTHS:
        length = positions
    is_stride_set = stride != default.document_stride
    min_room = stride if is_stride_set else length // 4
    # A row has 3 special tokens: [CLS] question [SEP] document [SEP].
    if query == default.max_query_length and length - query - 3 < min_room:
        query = min(query, length // 2)
    room = length - query - 3
    if not is_stride_set and 0 < room < stride:
        stride = max(1, room // 2)
    return dataclasses.replace(
        data, max_length=length, max_query_length=query, document_stride=stride
    )


def cut_lines(
    num_cut: int, num_examples: int, limit: int, remedy: str, noun: str = "texts"
) -> list[str]:
    """Return a line with the number of texts that are cut, if there are any."""
    line = (
        f"cut to {limit} tokens: {num_cut:,} of {num_examples:,} {noun} "
        f"({num_cut / max(num_examples, 1):.1%}); {remedy}"
    )
    return [line] * (num_cut > 0)


def changed_lengths(before: ExamplesConfig, after: ExamplesConfig) -> list[str]:
    """Return the lengths of `after` that differ from `before`, as "max_length=32"."""
    names = ("max_length", "max_query_length", "document_stride")
    return [
        f"{name}={getattr(after, name)}"
        for name in names
        if getattr(before, name) != getattr(after, name)
    ]

"""Lengths of rows that go with a model, where the usual ones do not."""

import dataclasses

from bert_jax.config import ExamplesConfig

DEFAULT_LENGTHS = (128, 384)
"""`max_length` where none is named: of texts and sentences, and of documents."""


def fit_lengths(data: ExamplesConfig, positions: int) -> ExamplesConfig:
    """The same, with lengths that a model of so many positions can take.

    Only lengths that were left at their defaults change: `max_length` becomes the
    positions; `document_stride`, where a row has less room for its document, half of
    that room; and `max_query_length`, where a question could leave less than a quarter
    of the row, half of the row.
    """
    usual = ExamplesConfig()
    most, query, stride = data.max_length, data.max_query_length, data.document_stride
    if most > positions and most in DEFAULT_LENGTHS:
        most = positions
    own_stride = stride != usual.document_stride
    least = stride if own_stride else most // 4
    if query == usual.max_query_length and most - query - 3 < least:
        query = min(query, most // 2)
    room = most - query - 3
    if not own_stride and 0 < room < stride:
        stride = max(1, room // 2)
    return dataclasses.replace(
        data, max_length=most, max_query_length=query, document_stride=stride
    )


def changed_lengths(before: ExamplesConfig, after: ExamplesConfig) -> list[str]:
    """The lengths in which two configurations differ, as "max_length=32"."""
    names = ("max_length", "max_query_length", "document_stride")
    return [
        f"{name}={getattr(after, name)}"
        for name in names
        if getattr(before, name) != getattr(after, name)
    ]

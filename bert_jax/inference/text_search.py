"""Search the rows of a file for queries, as lines for a terminal."""

import shutil
from collections.abc import Iterator, Sequence

from bert_jax.config.checks import require
from bert_jax.inference.predictor import load
from bert_jax.inference.vectors import with_cut
from bert_jax.tables.read import source_rows
from bert_jax.tables.rows import text_of
from bert_jax.terminal.messages import one_line, say

_WIDTH = 80


def text_search_lines(
    model: str,
    queries: Sequence[str],
    corpus: str,
    *,
    k: int,
    text_column: str = "text",
    delimiter: str = "",
    batch_size: int = 32,
    query_prompt: str | None = None,
    corpus_prompt: str | None = None,
) -> Iterator[str]:
    """Yield for each query the query, and its nearest texts: similarity, row, text.

    Args:
        model: as `load`.
        corpus: a table or lines of text; rows count from 1, empty ones are left out.

    Raises:
        FileNotFoundError: there is no such file or model.
        ValueError: a row has no such column, or all are empty.
    """
    rows, num_empty = {}, 0
    for number, row in enumerate(source_rows(corpus, text_column, delimiter), 1):
        text = row.values.get(text_column)
        if isinstance(text, str) and not text.strip():
            num_empty += 1
        else:
            rows[number] = text_of(row, text_column)
    require(bool(rows), f"{corpus} has no text to search; it must have at least one.")
    if num_empty:
        say(f"{corpus}: {num_empty:,} empty rows are left out.")
    bert = load(model)
    bert.embedding = with_cut(bert.embedding, bert.config)
    texts = list(rows.values())
    hits = bert.search(
        list(queries),
        texts,
        min(k, len(texts)),
        batch_size,
        query_prompt,
        corpus_prompt,
    )
    numbers, width = list(rows), shutil.get_terminal_size((_WIDTH, 24)).columns
    for query, places, scores in zip(queries, hits.indices, hits.scores, strict=True):
        yield one_line(query)
        for place, score in zip(places.tolist(), scores.tolist(), strict=True):
            line = f"  {score:7.4f}  {numbers[place]:>6}  {one_line(texts[place])}"
            yield line if len(line) <= width else f"{line[: width - 1]}…"

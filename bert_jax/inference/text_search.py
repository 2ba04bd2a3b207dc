"""Search the rows of a file for queries, as lines for a terminal."""

import shutil
from collections.abc import Iterator, Sequence

from bert_jax.config.checks import require
from bert_jax.inference.predictor import load
from bert_jax.inference.vectors import with_cut
from bert_jax.tables.read import named_text_of, source_rows
from bert_jax.terminal.messages import one_line, say

_WIDTH = 80


def corpus_texts(
    corpus: str, text_column: str = "text", delimiter: str = ""
) -> dict[int, str]:
    """Return the texts of a table, or of lines, by their rows, which count from 1.

    Empty ones are left out, and counted; raise ValueError if all are empty.
    """
    texts, num_empty = {}, 0
    for number, row in enumerate(source_rows(corpus, text_column, delimiter), 1):
        text = row.values.get(text_column, "?")
        if text is None or (isinstance(text, str) and not text.strip()):
            num_empty += 1
        else:
            texts[number] = named_text_of(row, text_column)
    require(bool(texts), f"{corpus} has no text to search; it must have at least one.")
    if num_empty:
        say(f"{corpus}: {num_empty:,} empty rows are left out.")
    return texts


def text_search_lines(
    model: str,
    queries: Sequence[str],
    texts: dict[int, str],
    k: int,
    batch_size: int = 32,
    prompts: tuple[str | None, str | None] = (None, None),
) -> Iterator[str]:
    """Yield for each query the query, and its nearest texts: similarity, row, text.

    `texts` are by the numbers of their rows; the prompts are of the queries and of the
    texts, None: the model's. Raise FileNotFoundError without a model, ValueError where
    `Predictor.search` does.
    """
    bert = load(model)
    bert.embedding = with_cut(bert.embedding, bert.config)
    numbers, corpus = list(texts), list(texts.values())
    of_queries, of_texts = prompts
    hits = bert.search(
        list(queries), corpus, min(k, len(corpus)), batch_size, of_queries, of_texts
    )
    width = shutil.get_terminal_size((_WIDTH, 24)).columns
    for query, places, scores in zip(queries, hits.indices, hits.scores, strict=True):
        yield one_line(query)
        for place, score in zip(places.tolist(), scores.tolist(), strict=True):
            line = f"  {score:7.4f}  {numbers[place]:>6}  {one_line(corpus[place])}"
            yield line if len(line) <= width else f"{line[: width - 1]}…"

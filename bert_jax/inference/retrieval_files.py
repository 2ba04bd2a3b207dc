"""A corpus, queries and relevance judgements in the files of BEIR and TREC.

A directory holds `corpus.jsonl` (`_id`, `title`, `text`), `queries.jsonl` (`_id`,
`text`) and, to score a search, `qrels/SPLIT.tsv` (Thakur et al. 2021).
"""

import dataclasses
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from bert_jax.tables.lines import ended_lines, require_file
from bert_jax.tables.read import source_rows, undamaged
from bert_jax.tables.rows import HALF_CHARACTER, TableRow, missing_column_message

CORPUS, QUERIES = "corpus.jsonl", "queries.jsonl"
NOT_JUDGED = "queries that are not judged"
_MAX_LISTED = 5

NumberT = TypeVar("NumberT", int, float)

Rankings = dict[str, dict[str, float]]
"""For each query, its documents, the best first, and the score of each."""


@dataclasses.dataclass(frozen=True)
class Collection:
    """Texts to search, and what to find in them."""

    corpus: dict[str, str]
    """Title and text of each document, by its id."""
    queries: dict[str, str]
    """The queries to search for, by their ids: the judged ones, if there are any."""
    relevance: dict[str, dict[str, int]]
    """For each query, the grade of each judged document; above 0 it is relevant. {} if
    the directory has no judgements."""
    notes: list[str]
    """What was left out of the files, a line each."""
    unjudged: frozenset[str] = frozenset()
    """Queries of the file that are left out, since there is no judgement of them."""


def read_collection(directory: Path, split: str) -> Collection:
    """Read a directory of BEIR's files.

    Judgements of queries or documents that the other files do not have, and queries
    without a judgement, are left out, counted and listed in `notes`. Raise
    FileNotFoundError if there is no corpus or no queries, or no judgements though there
    are those of another split, ValueError if a file is damaged, an id stands twice, or
    no judgement is left.
    """
    corpus = _read_texts(directory / CORPUS, ("title", "text"))
    queries = _read_texts(directory / QUERIES, ("text",))
    notes = []
    for file, texts, what in (
        (CORPUS, corpus, "documents"),
        (QUERIES, queries, "queries"),
    ):
        if empty := [name for name, text in texts.items() if not text]:
            notes.append(f"{directory / file}: {counted(empty, what)} without text.")
    folder = directory / "qrels"
    path = folder / f"{split}.tsv"
    if not folder.exists():
        return Collection(corpus, queries, {}, notes)
    splits = ", ".join(sorted(other.stem for other in folder.glob("*.tsv")))
    require_file(path, f"name a split that {folder} has: {splits or 'there is none'}.")
    relevance, unknown = known_only(read_judgements(path), corpus, queries)
    notes += [f"{path}: {note}, left out." for note in unknown]
    if not relevance:
        raise ValueError(
            f"{path} judges no query and document of {directory}; the ids of its lines "
            f"must be those of {QUERIES} and {CORPUS}."
        )
    judged = {name: queries[name] for name in relevance}
    others = [name for name in queries if name not in relevance]
    if others:
        notes.append(f"{path}: {counted(others, NOT_JUDGED)}, left out.")
    return Collection(corpus, judged, relevance, notes, frozenset(others))


def known_only(
    values: Mapping[str, Mapping[str, NumberT]],
    corpus: Mapping[str, str],
    queries: Mapping[str, str],
) -> tuple[dict[str, dict[str, NumberT]], list[str]]:
    """Return the values of known queries and documents, and a line on the others."""
    documents = dict.fromkeys(name for own in values.values() for name in own)
    unknown = {
        "queries": [name for name in values if name not in queries],
        "documents": [name for name in documents if name not in corpus],
    }
    known = {
        query: {name: value for name, value in own.items() if name in corpus}
        for query, own in values.items()
        if query in queries
    }
    lines = [counted(ids, f"unknown {what}") for what, ids in unknown.items() if ids]
    return {query: own for query, own in known.items() if own}, lines


def counted(names: Sequence[str], what: str) -> str:
    """Return the number of names, and the first of them."""
    more = ", …" if len(names) > _MAX_LISTED else ""
    listed = ", ".join(f"{name:.40}" for name in names[:_MAX_LISTED])
    return f"{len(names):,} {what} ({listed}{more})"


def read_judgements(path: Path) -> dict[str, dict[str, int]]:
    """Return the grades of BEIR's three columns, or of the four of TREC.

    Raise ValueError if a line has another form, or judges a document again.
    """
    relevance: dict[str, dict[str, int]] = {}
    for number, fields in _fields(path):
        if number == 1 and fields[-1] == "score":
            continue
        if len(fields) not in (3, 4):
            raise ValueError(
                f"{path}, line {number} has {len(fields)} fields; it must have three: "
                "query, document, grade; or four, as TREC's with a 0 after the query."
            )
        query, document, grade = fields[0], fields[-2], fields[-1]
        if not re.fullmatch("-?[0-9]{1,9}", grade):
            raise ValueError(
                f"{path}, line {number}: grade {grade!r:.40} must be a whole number."
            )
        own = relevance.setdefault(query, {})
        if document in own:
            raise ValueError(
                f"{path}, line {number} judges {document} for {query} again; keep one "
                "of the lines."
            )
        own[document] = int(grade)
    return relevance


def read_run(path: Path) -> Rankings:
    """Return the lists of TREC's run file: query, Q0, document, rank, score, name.

    Raise FileNotFoundError without a file, ValueError for another form or a repetition.
    """
    require_file(path, "name a run file of TREC's form.")
    rankings: Rankings = {}
    for number, fields in _fields(path):
        if len(fields) != 6:
            raise ValueError(
                f"{path}, line {number} has {len(fields)} fields; it must have six: "
                "query, Q0, document, rank, score and a name."
            )
        query, _, document, _, digits, _ = fields
        try:
            score = float(digits)
        except ValueError:
            score = math.nan
        own = rankings.setdefault(query, {})
        if not math.isfinite(score) or document in own:
            reason = f"lists {document} for {query} again"
            if not math.isfinite(score):
                reason = f"has the score {digits!r:.40}, which is no number"
            raise ValueError(f"{path}, line {number} {reason}; correct it.")
        own[document] = score
    return {query: ranked(own) for query, own in rankings.items()}


def ranked(scores: Mapping[str, float]) -> dict[str, float]:
    """Return the documents by falling score; equal ones by falling id, as trec_eval."""
    return dict(sorted(scores.items(), key=lambda pair: pair[::-1], reverse=True))


def run_lines(rankings: Rankings, name: str) -> Iterator[str]:
    """Yield the lines of TREC's run file; nine digits tell float32 scores apart."""
    for query, own in rankings.items():
        for rank, (document, score) in enumerate(own.items(), 1):
            yield f"{query} Q0 {document} {rank} {score:.9g} {name}\n"


def _fields(path: Path) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(ended_lines(str(path)), 1):
        if fields := line.split():
            yield number, fields


def _read_texts(path: Path, columns: Iterable[str]) -> dict[str, str]:
    require_file(path, "name a directory with corpus.jsonl and queries.jsonl.")
    texts: dict[str, str] = {}
    for row in undamaged(source_rows(str(path))):
        name = _string(row, "_id")
        if name in texts or not name or name.split() != [name]:
            rule = "stands twice" if name in texts else "must be a word"
            raise ValueError(f"{row.where}: the _id {name!r:.80} {rule}; correct it.")
        parts = [_string(row, column, column == "title") for column in columns]
        texts[name] = " ".join(part.strip() for part in parts).strip()
    if not texts:
        raise ValueError(f"{path} has no lines; it must have at least one.")
    return texts


def _string(row: TableRow, column: str, is_optional: bool = False) -> str:
    if column not in row.values and not is_optional:
        raise ValueError(missing_column_message(row.where, column, row.values))
    text = "" if row.values.get(column) is None else row.values[column]
    if not isinstance(text, str) or HALF_CHARACTER.search(text):
        raise ValueError(f"{row.where}: {column}={text!r:.80} must be a text.")
    return text

"""Reader of SQuAD's files, and writer of the official prediction files.

Both releases have one format: 2.0 adds `is_impossible` (Rajpurkar et al. 2018). Tables
have a question a row.
"""

import itertools
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from etils import epath

from bert_jax.config import ExamplesConfig
from bert_jax.storage.files import JsonObject, write_json
from bert_jax.tables.damage import parse_rows
from bert_jax.tables.json_lines import json_row, parse_json
from bert_jax.tables.lines import ended_lines, read_text, require_file, suffix_of
from bert_jax.tables.read import is_table, table_rows
from bert_jax.tables.rows import HALF_CHARACTER, TableRow, missing_column_message
from bert_jax.tasks.answers.rows import SquadExample
from bert_jax.tasks.predictions import Prediction
from bert_jax.tasks.splits import split_file

_RELEASES = [(f"train-{v}.json", f"dev-{v}.json") for v in ("v1.1", "v2.0")]
_BOOLEANS = {"true": True, "false": False, "": None}
"""What a field of a .csv file says."""
_WRITE_JSON = (
    "Write them by json.dumps; or the table as lines, by pandas's "
    "to_json(PATH, orient='records', lines=True), or as .parquet."
)
_NBEST_FIELDS = ("text", "probability", "start_logit", "end_logit")
_JSON_TYPES = {
    type(None): "null",
    bool: "a boolean",
    int: "a whole number",
    float: "a number",
    str: "a string",
    list: "an array",
    dict: "an object",
}


def read(path: str, config: ExamplesConfig) -> list[SquadExample]:
    """Return the questions of a file, or of a split of the directory `config.path`.

    An answer whose text is not at its offset is accepted: see `SquadExample.misplaced`.
    Raise FileNotFoundError if there is no such file, and ValueError if it is neither in
    SQuAD's format nor a table of questions, if two have the same id, or if some have
    answers and others do not.
    """
    file = _file(path, config.path)
    if is_table(file) or _has_rows(file):
        rows = table_rows(file, config.delimiter)
        parse, noun = _example_of_row, "rows"
    else:
        rows = _json_rows(file)
        parse, noun = _example_of_entry, "questions"
    skip = config.skip_damaged
    examples = parse_rows(file, rows, parse, skip, noun, lambda one: one.has_label)
    if not examples:
        raise ValueError(f"{file}: there is no question.")
    seen: set[str] = set()
    for example in examples:
        if example.id in seen:
            raise ValueError(
                f"{file}: two questions have the id {example.id!r}; predictions are "
                "listed by id, so give each its own."
            )
        seen.add(example.id)
        if example.has_label != examples[0].has_label:
            unlabelled = example if examples[0].has_label else examples[0]
            raise ValueError(
                f"{file}: question {unlabelled.id!r} has no 'answers', and others "
                "have; add them or leave it out."
            )
    return examples


def _has_rows(file: str) -> bool:
    """Whether a .json is an array of questions, or has one a line."""
    if suffix_of(file) != ".json" or not os.path.isfile(file):
        return False
    try:
        head = [*itertools.islice(filter(str.strip, ended_lines(file)), 2)]
    except ValueError:  # `_json_rows` tells where it is no UTF-8
        return False
    if len(head) == 2 and head[0].lstrip()[0] == "{":
        return all("question" in json_row(line, file).values for line in head)
    return bool(re.match(r"\s*\[\s*\{", "".join(head)))


def _json_rows(file: str) -> Iterator[TableRow]:
    """Return each question with its paragraph and article, or why there is none."""
    require_file(file, "give one of SQuAD's JSON format, or its directory as path.")
    content = parse_json(read_text(Path(file)), f"{file}, one of SQuAD's JSON files,")
    for article in _entries(TableRow(content, file), "data", ": "):
        if isinstance(article.values, dict) and "question" in article.values:
            yield TableRow(article.values, article.where)
            continue
        for paragraph in _entries(article, "paragraphs"):
            for question in _entries(paragraph, "qas"):
                nested = {"entries": (article, paragraph, question)}
                yield TableRow(nested, question.where, question.problem)


def _entries(parent: TableRow, name: str, separator: str = ".") -> Iterator[TableRow]:
    """Yield what the list `name` of an object holds; a problem stays one entry."""
    try:
        if parent.problem:
            raise ValueError(parent.problem)
        entries = _field(parent.values, name, list, parent.where)
    except ValueError as error:
        yield TableRow(parent.values, parent.where, str(error))
        return
    for i, entry in enumerate(entries):
        yield TableRow(entry, f"{parent.where}{separator}{name}[{i}]")


def _example_of_entry(row: TableRow) -> SquadExample:
    entries = row.values.get("entries")
    if not isinstance(entries, tuple):  # which JSON has not
        return _example_of_row(row)
    article, paragraph, question = entries
    named = "title" in article.values
    title = _string(article.values, "title", article.where) if named else ""
    context = _text(paragraph.values, "context", paragraph.where)
    id_ = _text(question.values, "id", question.where)
    where = f"{article.where.rpartition(': ')[0]}: question {id_!r}"
    text = _text(question.values, "question", where)
    answers, impossible = _answers_of(question.values, where)
    return SquadExample(id_, title, text, context, answers, impossible)


def _example_of_row(row: TableRow) -> SquadExample:
    """Return the labelled question of a row; its line takes the place of an `id`."""
    example, (id_, title) = question_from_row(row), map(row.values.get, ("id", "title"))
    answers, impossible = _answers_of(row.values, row.where)
    return SquadExample(
        row.where.rpartition(", ")[2] if id_ in (None, "") else example.id,
        "" if title is None else str(title),
        example.question,
        example.context,
        answers,
        impossible,
    )


def question_from_row(row: TableRow) -> SquadExample:
    """Return the question of a row, with its document, and its `id` if there is one.

    Raise ValueError if question or context is missing, empty or not a text.
    """
    if "data" in row.values and "question" not in row.values:
        raise ValueError(
            f"{row.where} is of SQuAD's nested form, which `bert-jax evaluate` reads; "
            "give a row for each question, with question and context."
        )
    question, context = (
        _text(row.values, name, row.where) for name in ("question", "context")
    )
    id_ = row.values.get("id")
    id_ = row.where if id_ in (None, "") else str(id_)
    return SquadExample(id_, "", question, context)


def _file(name: str, directory: str) -> str:
    """Return the file `name`, or the file of that split in `directory`."""
    if directory.startswith("tfds:"):
        raise ValueError(
            f"path={directory} is not read for question answering; "
            "give a directory with SQuAD's own JSON files."
        )
    existing = [
        [file for file in release if os.path.exists(os.path.join(directory, file))]
        for release in _RELEASES
    ]
    if directory and all(existing):
        raise ValueError(
            f"path={directory} holds {', '.join(sum(existing, []))}, of two releases; "
            "keep one of them, or give files instead of path."
        )
    return split_file(name, directory, [(*release, "") for release in _RELEASES])


def _answers_of(values: Any, where: str) -> tuple[tuple[tuple[str, int], ...], bool]:
    """Return the answers to a question, and whether it is impossible.

    A question is impossible if it is marked so, or if its answers hold no text.
    """
    marked = values.get("is_impossible")
    if isinstance(marked, str):
        marked = _BOOLEANS.get(marked.lower(), marked)
    if marked is not None:
        marked = _field({"is_impossible": marked}, "is_impossible", bool, where)
    answers = _answers(values.get("answers"), where)
    if marked and answers:
        raise ValueError(
            f"{where}: is_impossible is true and there are answers; remove one of them."
        )
    if answers == () and marked is False:
        raise ValueError(
            f"{where}: is_impossible is false and answers holds no text; correct one "
            "of them, or leave both out if no answer is known."
        )
    return answers or (), bool(marked) or answers == ()


def _answers(entries: Any, where: str) -> tuple[tuple[str, int], ...] | None:
    """Return the texts that are not empty, and their starts; None: not known.

    They are a list of objects as in SQuAD's files, or an object of lists as in tables;
    in a .csv file, that as JSON.
    """
    if isinstance(entries, str) and entries.strip():
        try:
            entries = parse_json(entries, f"{where}: answers")
        except ValueError as error:
            raise ValueError(f"{error} {_WRITE_JSON}") from error
    if entries is None or isinstance(entries, str):
        return None
    if isinstance(entries, dict):
        columns = {k: v if isinstance(v, list) else [v] for k, v in entries.items()}
        texts, starts = (
            _field(columns, name, list, where) for name in ("text", "answer_start")
        )
        if len(texts) != len(starts):
            raise ValueError(
                f"{where}: answers has {len(texts)} text and {len(starts)} "
                "answer_start; each text needs its own."
            )
        pairs = zip(texts, starts, strict=True)
        entries = [{"text": text, "answer_start": start} for text, start in pairs]
    answers = []
    for entry in _field({"answers": entries}, "answers", list, where):
        text = entry.get("text", "?") if isinstance(entry, dict) else "?"
        if text is not None and not (isinstance(text, str) and not text.strip()):
            text = _string(entry, "text", where)
            answers.append((text, _field(entry, "answer_start", int, where)))
    return tuple(answers)


def _kind(value: object) -> str:
    """Return what a value is; Parquet and rows in memory hold more than JSON."""
    return _JSON_TYPES.get(type(value)) or f"a value of type {type(value).__name__}"


def _field(values: object, name: str, type_: type, where: str) -> Any:
    """Return the field `name` of an object; raise ValueError unless it is a `type_`."""
    if not isinstance(values, dict):
        raise ValueError(
            f"{where}: {_kind(values)} in place of an object with "
            f"{name!r}, as SQuAD's files have it."
        )
    if name not in values:
        raise ValueError(missing_column_message(where, name, values, "fields"))
    value = values[name]
    if type(value) is not type_:
        raise ValueError(
            f"{where}: {name!r} holds {_kind(value)}; it must be {_JSON_TYPES[type_]}."
        )
    return value


def _string(values: object, name: str, where: str) -> str:
    text: str = _field(values, name, str, where)
    if match := HALF_CHARACTER.search(text):
        raise ValueError(
            f"{where}: {name!r} holds {match[0]!a} at character {match.start()}, which "
            "is half of a character; correct it."
        )
    return text


def _text(values: object, name: str, where: str) -> str:
    if not (text := _string(values, name, where)).strip():
        raise ValueError(f"{where}: {name!r} is empty; it must be a text.")
    return text


def write(
    predictions: Sequence[Prediction], has_null: bool, directory: Path
) -> list[str]:
    """Write the prediction files of the code of 2018; return their names.

    With `has_null`, for a model trained on SQuAD 2.0, null_odds.json is one of them.
    """
    nbest = {
        p["id"]: [{name: one[name] for name in _NBEST_FIELDS} for one in p["nbest"]]
        for p in predictions
    }
    files: JsonObject = {
        "predictions.json": {p["id"]: p["answer"] for p in predictions},
        "nbest_predictions.json": nbest,
    }
    if has_null:
        files["null_odds.json"] = {p["id"]: p["null_odds"] for p in predictions}
    for name, values in files.items():
        write_json(values, epath.Path(directory) / name)
    return list(files)

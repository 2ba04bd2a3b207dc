"""The files of SQuAD: questions are read from them, and predictions written.

One format serves both releases: 2.0 adds `is_impossible` (Rajpurkar et al. 2018).
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from etils import epath

from bert_jax.config import ExamplesConfig
from bert_jax.storage.files import write_json
from bert_jax.tasks.files import split_file
from bert_jax.tasks.finetuning_task import Prediction
from bert_jax.tasks.squad_rows import SquadExample
from bert_jax.tasks.tables import (
    HALF_CHARACTER,
    TableRow,
    parse_json,
    read_text,
    require_file,
)

_RELEASES = [(f"train-{v}.json", f"dev-{v}.json") for v in ("v1.1", "v2.0")]
_NBEST = ("text", "probability", "start_logit", "end_logit")
_KINDS = {
    type(None): "null",
    bool: "a truth value",
    int: "a whole number",
    float: "a number",
    str: "a string",
    list: "an array",
    dict: "an object",
}


def read(path: str, config: ExamplesConfig) -> list[SquadExample]:
    """The questions of a file, or of a part of the directory `config.path`.

    An answer that does not stand where its offset says is no error, but
    `SquadExample.misplaced`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not of SQuAD's format; two questions have one id; some have
            answers and others do not.
    """
    file = _file(path, config.path)
    examples = []
    for i, article in enumerate(_field(_parse(file), "data", list, file)):
        where = f"{file}: data[{i}]"
        paragraphs = _field(article, "paragraphs", list, where)
        title = _string(article, "title", where) if "title" in article else ""
        for j, paragraph in enumerate(paragraphs):
            place = f"{where}.paragraphs[{j}]"
            context = _text(paragraph, "context", place)
            for k, qa in enumerate(_field(paragraph, "qas", list, place)):
                name = _text(qa, "id", f"{place}.qas[{k}]")
                where_asked = f"{file}: question {name!r}"
                examples.append(_record(qa, name, title, context, where_asked))
    _check_together(examples, file)
    return examples


def question_from_row(row: TableRow) -> SquadExample:
    """Return the example of `question` and `context`, and of an `id` if there is one.

    Raises:
        ValueError: one of the two is missing, empty or no text.
    """
    question, context = (
        _text(row.values, name, row.where) for name in ("question", "context")
    )
    return SquadExample(str(row.values.get("id", row.where)), "", question, context)


def _file(name: str, directory: str) -> str:
    """The file of that name, or of that part of what was published."""
    if directory.startswith("tfds:"):
        raise ValueError(
            f"path={directory} is not read for question answering; "
            "give a directory with SQuAD's own JSON files."
        )
    there = [
        [part for part in release if os.path.exists(os.path.join(directory, part))]
        for release in (_RELEASES if directory else ())
    ]
    if all(there) and directory:
        raise ValueError(
            f"path={directory} holds {', '.join(sum(there, []))}, of two releases; "
            "keep one there, or give files instead of path."
        )
    return split_file(name, directory, [(*release, "") for release in _RELEASES])


def _parse(file: str) -> Any:
    require_file(file, "give one of SQuAD's JSON format, or its directory as path.")
    return parse_json(read_text(Path(file)), f"{file}, one of SQuAD's JSON files,")


def _record(qa: Any, name: str, title: str, context: str, where: str) -> SquadExample:
    question = _text(qa, "question", where)
    impossible = "is_impossible" in qa and _field(qa, "is_impossible", bool, where)
    listed = _field(qa, "answers", list, where) if "answers" in qa else None
    if impossible and listed:
        raise ValueError(
            f"{where}: is_impossible is true and there are answers; one must go."
        )
    if listed == [] and not impossible:
        raise ValueError(
            f'{where}: answers is empty; add "is_impossible": true if the text has no '
            "answer, or leave answers out if none is known."
        )
    answers = tuple(
        (_string(answer, "text", where), _field(answer, "answer_start", int, where))
        for answer in listed or ()
    )
    return SquadExample(name, title, question, context, answers, impossible)


def _field(values: Any, name: str, kind: type, where: str) -> Any:
    """The value of that name, which must be of that kind."""
    if not isinstance(values, dict):
        raise ValueError(
            f"{where}: {_KINDS[type(values)]} stands where an object with {name!r} "
            "must, as in SQuAD's files."
        )
    if name not in values:
        there = ", ".join(map(repr, values))[:100] or "nothing"
        raise ValueError(f"{where}: there is no {name!r}, but {there}.")
    value = values[name]
    if type(value) is not kind:
        raise ValueError(
            f"{where}: {name!r} holds {_KINDS[type(value)]}; it must be {_KINDS[kind]}."
        )
    return value


def _string(values: Any, name: str, where: str) -> str:
    text: str = _field(values, name, str, where)
    if found := HALF_CHARACTER.search(text):
        raise ValueError(
            f"{where}: {name!r} holds {found[0]!a} at character {found.start()}, which "
            "is half of a character; mend it."
        )
    return text


def _text(values: Any, name: str, where: str) -> str:
    if not (text := _string(values, name, where)).strip():
        raise ValueError(f"{where}: {name!r} is empty; it must be a text.")
    return text


def _check_together(examples: Sequence[SquadExample], file: str) -> None:
    if not examples:
        raise ValueError(f"{file}: there is no question.")
    seen: set[str] = set()
    for example in examples:
        if example.id in seen:
            raise ValueError(
                f"{file}: question {example.id!r} stands there twice; predictions go "
                "by id, so give each its own."
            )
        seen.add(example.id)
        if example.has_label != examples[0].has_label:
            one, other = example.id, examples[0].id
            without = one if examples[0].has_label else other
            raise ValueError(
                f"{file}: question {without!r} has no 'answers', and others have; "
                "add them or leave it out."
            )


def write(
    predictions: Sequence[Prediction], has_null: bool, directory: Path
) -> list[str]:
    """Write the files of the code of 2018; return their names.

    Args:
        has_null: whether to write `null_odds.json`, for a model trained on SQuAD 2.0.
    """
    files: dict[str, Any] = {
        "predictions.json": {p["id"]: p["answer"] for p in predictions},
        "nbest_predictions.json": {
            p["id"]: [{name: entry[name] for name in _NBEST} for entry in p["nbest"]]
            for p in predictions
        },
    }
    if has_null:
        files["null_odds.json"] = {p["id"]: p["null_odds"] for p in predictions}
    for name, values in files.items():
        write_json(values, epath.Path(directory) / name)
    return list(files)

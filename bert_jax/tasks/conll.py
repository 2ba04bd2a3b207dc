"""Words in columns, a tag last: the files of CoNLL's shared tasks, read and written."""

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path

from bert_jax.metrics.entities import (
    Scheme,
    chunks,
    convert_tags,
    detect_scheme,
    marks_entities,
)
from bert_jax.tasks.tables import TableRow, json_row, read_text, require_file

DOCSTART = "-DOCSTART-"
"""A line that begins with it starts a document, and is no word."""

_BLANKS = " \t\r"
_GAP = re.compile("[ \t]+")
_FORMAT = "must hold a word, any other columns, and last the tag"


@dataclasses.dataclass(frozen=True)
class Sentence:
    """Words in order, what is known of each, and where they stand."""

    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None
    """One a word, as the file has them; None where it has none."""
    scheme: Scheme | None = None
    """Of the file's tags; None of plain labels, as parts of speech are."""
    columns: tuple[tuple[str, ...], ...] = ()
    """Of each word's line, all there are; empty where the words are not in columns."""
    separator: str = "\t"
    """What parts the columns where they are written."""
    path: str = ""
    line: int = 0
    """Where the first word stands, from 1."""
    before: tuple[str, ...] = ()
    """The lines between the sentence before and this: blank, or -DOCSTART- ones."""
    after: tuple[str, ...] = ()
    """Those after the last sentence."""
    text: str = ""
    """What the words were found in, if it was plain text."""
    offsets: tuple[tuple[int, int], ...] = ()
    """Start and end of each word in `text`, in characters."""

    def where(self, word: int) -> str:
        """The file, and the line that a word stands in."""
        return f"{self.path}, line {self.line_of(word)}"

    def line_of(self, word: int) -> int:
        """The line that a word stands in, from 1."""
        return self.line + (word if self.columns else 0)

    def tags_in(self, scheme: Scheme | None) -> list[str]:
        """The same entities as well-formed tags of a scheme; plain labels as they are.

        What is ill-formed is read as conlleval reads it.
        """
        assert self.tags is not None
        if scheme is None or self.scheme is None:
            return list(self.tags)
        return convert_tags(self.tags, scheme)


def read_sentences(path: str) -> list[Sentence]:
    """The sentences of a file of columns, or of .jsonl with `tokens` and `tags`.

    Columns are parted by tabs if the first word's line has one, else by white space; of
    one column alone, they are words without tags. Blank lines part sentences. The
    scheme of the tags is the one that most of them are well-formed in; where none has a
    prefix as B- or I-, they are plain labels and have no scheme.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a line has more or fewer columns than the first; some tags have a
            prefix and others are none; there is no sentence; the file is not UTF-8, or
            not JSON lines.
    """
    require_file(path, "name one of columns, or a .jsonl.")
    read = _read_json if path.endswith(".jsonl") else _read_columns
    sentences = read(path)
    if not sentences:
        raise ValueError(f"{path} holds no sentence; each line {_FORMAT}.")
    if sentences[0].tags is None:
        return sentences
    known = {tag for each in sentences for tag in each.tags or ()}
    if not marks_entities(known):
        return sentences
    _check_tags(sentences, known)
    scheme = detect_scheme([each.tags or () for each in sentences])
    return [dataclasses.replace(each, scheme=scheme) for each in sentences]


def write_sentences(
    sentences: Sequence[Sentence], tags: Sequence[Sequence[str]], path: Path
) -> None:
    """Write the columns that were read, and the given tags as one more at the end.

    conlleval reads it (of tabs, with -d '\\t'): the last two columns are the file's tag
    and the given one. -DOCSTART- lines get O, and are padded with it to the width that
    conlleval asks for; it counts them as words, so where there are some its accuracy
    differs from ours.
    """
    lines: list[str] = []
    for sentence, given in zip(sentences, tags, strict=True):
        columns = sentence.columns or _columns_of(sentence)
        width = len(columns[0]) if columns else 1
        if lines and lines[-1] and "" not in sentence.before:
            lines.append("")  # neighbours here need not be so in the file
        lines += _written_breaks(sentence.before, sentence.separator, width)
        lines += [
            sentence.separator.join((*row, tag))
            for row, tag in zip(columns, given, strict=True)
        ]
        lines += _written_breaks(sentence.after, sentence.separator, width)
    path.write_text("\n".join(lines) + "\n", "utf-8", newline="\n")


def _columns_of(sentence: Sentence) -> tuple[tuple[str, ...], ...]:
    if sentence.tags is None:
        return tuple((word,) for word in sentence.words)
    return tuple(zip(sentence.words, sentence.tags, strict=True))


def _written_breaks(breaks: Sequence[str], separator: str, width: int) -> list[str]:
    written = []
    for line in breaks:
        columns = _split(line, "\t" in line)
        padding = ["O"] * max(1, width + 1 - len(columns))
        written.append(separator.join([*columns, *padding]) if columns else "")
    return written


def _read_columns(path: str) -> list[Sentence]:
    # Not splitlines: a word may hold one of the rarer line breaks.
    lines = read_text(Path(path)).removesuffix("\n").split("\n")
    _check_line_ends(lines, path)
    first = next((n for n, line in enumerate(lines, 1) if _is_word(line)), 0)
    if not first:
        return []
    tabs = "\t" in lines[first - 1].strip(_BLANKS)
    width = len(_split(lines[first - 1], tabs))
    sentences: list[Sentence] = []
    before: list[str] = []
    rows: list[tuple[str, ...]] = []
    for number, line in enumerate([*lines, ""], 1):
        if _is_word(line):
            rows.append(_split(line, tabs))
            if len(rows[-1]) != width:
                raise ValueError(
                    f"{path}, line {number}: {len(rows[-1])} in place of the {width} "
                    f"columns of line {first}; each {_FORMAT}, parted by "
                    f"{'a tab' if tabs else 'white space'}.{_hint(lines[first - 1])}"
                )
            continue
        if rows:
            start = number - len(rows)
            sentences.append(_sentence(rows, before, tabs, path, start))
            before, rows = [], []
        before.append(line.strip(_BLANKS))
    _check_first_column(sentences[0], width)
    last = dataclasses.replace(sentences[-1], after=tuple(before[:-1]))
    return [*sentences[:-1], last]


def _hint(first: str) -> str:
    comment = first.startswith("#")
    return " That looks like a comment; the format has none: drop it." * comment


def _check_line_ends(lines: Sequence[str], path: str) -> None:
    for number, line in enumerate(lines, 1):
        if "\r" in line.strip(_BLANKS):
            raise ValueError(
                f"{path}, line {number} holds a carriage return; end lines by a line "
                "feed, or by both."
            )


def _check_first_column(sentence: Sentence, width: int) -> None:
    """CoNLL-X and CoNLL-U count the words in the first of their ten columns."""
    numbers = tuple(str(i) for i in range(1, len(sentence.words) + 1))
    if width >= 8 and sentence.words == numbers:
        raise ValueError(
            f"{sentence.where(0)}: the first of {width} columns counts the words, as "
            "CoNLL-U does; leave the word's and the tag's columns, as by `cut -f2,4`."
        )


def _sentence(
    rows: list[tuple[str, ...]], before: list[str], tabs: bool, path: str, line: int
) -> Sentence:
    tagged = len(rows[0]) > 1
    return Sentence(
        words=tuple(row[0] for row in rows),
        tags=tuple(row[-1] for row in rows) if tagged else None,
        columns=tuple(rows),
        separator="\t" if tabs else " ",
        path=path,
        line=line,
        before=tuple(before),
    )


def _is_word(line: str) -> bool:
    columns = _GAP.split(line.strip(_BLANKS), maxsplit=1)
    return columns[0] not in ("", DOCSTART)


def _split(line: str, tabs: bool) -> tuple[str, ...]:
    bare = line.strip(_BLANKS)
    if not bare:
        return ()
    if tabs:
        return tuple(column.strip(_BLANKS) for column in bare.split("\t"))
    return tuple(_GAP.split(bare))


def sentence_from_row(row: TableRow, tagged: bool = True) -> Sentence:
    """The sentence of a JSON object with `tokens` and, if they are known, `tags`.

    Args:
        tagged: look at the tags.

    Raises:
        ValueError: they are no strings, or unequal in number.
    """
    words = _strings(row, "tokens")
    # Written in columns, they must be told apart again.
    for word in words:
        if not word.strip(_BLANKS) or re.search("[\t\r\n\ud800-\udfff]", word):
            raise ValueError(
                f"{row.where}: token {word!r} must hold something besides blanks, and "
                "no tab, line break or half of a character; leave it out, and its tag."
            )
    tags = _strings(row, "tags") if tagged and "tags" in row.values else None
    if tags is not None and len(tags) != len(words):
        raise ValueError(
            f"{row.where}: {len(tags)} tags for {len(words)} tokens; each must have "
            "one."
        )
    return Sentence(words, tags)


def _read_json(path: str) -> list[Sentence]:
    sentences: list[Sentence] = []
    for number, line in enumerate(read_text(Path(path)).split("\n"), 1):
        if not line.strip():
            continue
        row = json_row(line, f"{path}, line {number}")
        found = dataclasses.replace(sentence_from_row(row), path=path, line=number)
        if sentences and (found.tags is None) != (sentences[0].tags is None):
            has = "no tags" if found.tags is None else "tags"
            raise ValueError(
                f"{row.where} has {has}, unlike line {sentences[0].line}; all lines "
                "must, or none."
            )
        sentences.append(found)
    return sentences


def _strings(row: TableRow, field: str) -> tuple[str, ...]:
    values = row.values.get(field)
    if not isinstance(values, list) or not values:
        raise ValueError(
            f"{row.where}: {field}={values!r:.40} must be a list of strings, as in "
            '{"tokens": ["In", "Oslo"], "tags": ["O", "B-LOC"]}.'
        )
    for value in values:
        if not isinstance(value, str):
            raise ValueError(
                f"{row.where}: {field} holds {value!r:.40}; each must be a string."
            )
    return tuple(values)


def _check_tags(sentences: Sequence[Sentence], known: set[str]) -> None:
    """Refuse what is no tag in a file where others are."""
    wrong: dict[str, ValueError] = {}
    for tag in known:
        try:
            chunks([tag])
        except ValueError as error:
            wrong[tag] = error
    for sentence in sentences if wrong else ():
        for i, tag in enumerate(sentence.tags or ()):
            if tag in wrong:
                other = min(known - wrong.keys() - {"O"}, default="")
                beside = f", and others are tags, as {other!r:.80}" if other else ""
                raise ValueError(
                    f"{sentence.where(i)}: {wrong[tag]} It stands in the last column"
                    f"{beside}; to predict, give the words alone."
                )

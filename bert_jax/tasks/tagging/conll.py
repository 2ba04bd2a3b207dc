"""Readers and a writer of CoNLL files: words in columns, with the tag in the last."""

import dataclasses
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from bert_jax.metrics.entities import (
    Scheme,
    are_entity_tags,
    convert_tags,
    detect_scheme,
    extract_entities,
)
from bert_jax.storage.files import write_lines
from bert_jax.tables.damage import parse_rows
from bert_jax.tables.lines import numbered, read_text, require_file, suffix_of
from bert_jax.tables.read import table_rows
from bert_jax.tables.rows import TableRow, missing_column_message

TAG_FIELDS = ("tags", "ner_tags")
DOCSTART = "-DOCSTART-"
"""A line that begins with it separates documents; it holds no word."""

_BLANKS = " \t\r"
_GAP = re.compile("[ \t]+")
_LINE_FORMAT = "must hold a word, any other columns, and the tag in the last column"
_COMMENT_HINT = " That looks like a comment; the format has none: drop it."
_COMMA_HINT = (
    " Its columns seem to be separated by commas or semicolons: write a tab between "
    "the word and its tag, a blank line between sentences, and no header."
)


@dataclasses.dataclass(frozen=True)
class Sentence:
    """The words of a sentence, their tags, and their place in a file."""

    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None
    """The tag of each word as in the file; None if the file has no tags."""
    scheme: Scheme | None = None
    """The scheme of the file's tags; None for plain labels, such as parts of speech."""
    columns: tuple[tuple[str, ...], ...] = ()
    """All columns of each word's line; () if the words were not read from columns."""
    separator: str = "\t"
    """The separator of columns when they are written."""
    path: str = ""
    line: int = 0
    """The line of the first word, from 1."""
    before: tuple[str, ...] = ()
    """The lines between the previous sentence and this: blank, or -DOCSTART- lines."""
    after: tuple[str, ...] = ()
    """Such lines after the last sentence of a file."""
    text: str = ""
    """The plain text that was split into the words, if any."""
    offsets: tuple[tuple[int, int], ...] = ()
    """Start and end of each word in `text`, in characters."""
    fields: tuple[str, ...] = dataclasses.field(default=(), repr=False, compare=False)
    """The fields of the row, if none of them holds tags."""

    def where(self, word: int) -> str:
        """Return the file and line of a word, for messages."""
        return f"{self.path}, {numbered(self.path)} {self.line_of(word)}"

    def line_of(self, word: int) -> int:
        """Return the line number of a word, from 1."""
        return self.line + (word if self.columns else 0)

    def tags_in(self, scheme: Scheme | None) -> list[str]:
        """Return the entities as well-formed tags of a scheme; plain labels unchanged.

        Ill-formed tags are read as conlleval reads them. [] if there are no tags.
        """
        tags = self.tags or ()
        if scheme is None or self.scheme is None:
            return list(tags)
        return convert_tags(tags, scheme)


def read_sentences(
    path: str,
    names: Sequence[str] = (),
    fields: Sequence[str] = TAG_FIELDS,
    skip_damaged: bool = False,
) -> list[Sentence]:
    """Return the sentences of a file of columns, or of a table with `tokens` and tags.

    Columns are separated by tabs if the first word's line has one, else by white space;
    a single column holds words without tags. Blank lines separate sentences. The scheme
    of the tags is the one in which most of them are well-formed; if no tag has a prefix
    such as B- or I-, they are plain labels and have no scheme.

    Raise FileNotFoundError if there is no such file, and ValueError if a line has more
    or fewer columns than the first, some tags have a prefix and others are not tags, a
    number has no name, there is no sentence, or the file is not UTF-8 or such a table.
    """
    require_file(path, "name a file of columns, or a .jsonl.")
    if suffix_of(path) in (".jsonl", ".ndjson", ".json", ".parquet"):
        sentences = _read_rows(path, fields, names, skip_damaged)
    else:
        sentences = _read_columns(path, skip_damaged)
    if not sentences:
        raise ValueError(f"{path} holds no sentence; each line {_LINE_FORMAT}.")
    all_tags = {tag for sentence in sentences for tag in sentence.tags or ()}
    if not all_tags or not are_entity_tags(all_tags):
        return sentences
    sentences = _with_valid_tags(sentences, all_tags, skip_damaged)
    scheme = detect_scheme([sentence.tags or () for sentence in sentences])
    return [dataclasses.replace(sentence, scheme=scheme) for sentence in sentences]


def write_sentences(
    sentences: Sequence[Sentence], tags: Sequence[Sequence[str]], path: Path
) -> None:
    r"""Write the columns that were read, and `tags` as one more column at the end.

    conlleval can read the file (with -d '\t' if it has tabs): its last two columns are
    the file's tag and the given one. -DOCSTART- lines are padded with O to the same
    number of columns. conlleval counts them as words, so that its accuracy then differs
    from ours.
    """
    lines: list[str] = []
    for sentence, new_tags in zip(sentences, tags, strict=True):
        tag_column = () if sentence.tags is None else (sentence.tags,)
        columns = tuple(zip(sentence.words, *tag_column, strict=True))
        rows = sentence.columns or columns
        width = len(rows[0]) if rows else 1
        if lines and lines[-1] and "" not in sentence.before:
            lines.append("")  # the sentences may not be neighbours in the file
        lines += _break_lines(sentence.before, sentence.separator, width)
        lines += [
            sentence.separator.join((*row, tag))
            for row, tag in zip(rows, new_tags, strict=True)
        ]
        lines += _break_lines(sentence.after, sentence.separator, width)
    write_lines(lines, path)


def _break_lines(breaks: Sequence[str], separator: str, width: int) -> list[str]:
    """Return the lines between sentences, with -DOCSTART- lines padded with O."""
    lines = []
    for line in breaks:
        columns = _split(line, "\t" in line)
        padding = ["O"] * max(1, width + 1 - len(columns))
        lines.append(separator.join([*columns, *padding]) if columns else "")
    return lines


def _read_columns(path: str, skip_damaged: bool) -> list[Sentence]:
    # Joined files have several byte order marks; one before a blank is a word.
    text = re.sub("\n\ufeff(?![ \t])", "\n", read_text(Path(path)))
    # Not splitlines, which also splits at characters that a word may hold.
    lines = text.removesuffix("\n").split("\n")
    _check_line_ends(lines, path)
    first = next((n for n, line in enumerate(lines, 1) if _is_word(line)), 0)
    if not first:
        return []
    tabs = "\t" in lines[first - 1].strip(_BLANKS)
    width = len(_split(lines[first - 1], tabs))
    hint = _COMMENT_HINT * lines[first - 1].startswith("#")
    hint += _COMMA_HINT * (suffix_of(path) == ".csv")

    def parse(row: TableRow) -> Sentence:
        rows = tuple(_split(line, tabs) for line in row.values["lines"])
        start = row.values["start"]
        for line_number, columns in enumerate(rows, start):
            if len(columns) != width:
                raise ValueError(
                    f"{path}, line {line_number}: {len(columns)} columns, but line "
                    f"{first} has {width}; each {_LINE_FORMAT}, separated by "
                    f"{'a tab' if tabs else 'white space'}.{hint}"
                )
        return Sentence(
            words=tuple(columns[0] for columns in rows),
            tags=tuple(columns[-1] for columns in rows) if width > 1 else None,
            columns=rows,
            separator="\t" if tabs else " ",
            path=path,
            line=start,
            before=row.values["before"],
        )

    rows = _rows_of_lines(lines, path)
    sentences = parse_rows(path, rows, parse, skip_damaged, "sentences")
    _check_first_column(sentences, width)
    end = next(n for n in range(len(lines), 0, -1) if _is_word(lines[n - 1]))
    after = tuple(line.strip(_BLANKS) for line in lines[end:])
    return [*sentences[:-1], dataclasses.replace(sentences[-1], after=after)]


def _rows_of_lines(lines: Sequence[str], path: str) -> Iterator[TableRow]:
    """Yield the lines of each sentence, the number of the first, and those before."""
    start, before = 1, tuple[str, ...]()
    for are_words, group in itertools.groupby(lines, _is_word):
        chunk = tuple(group)
        if are_words:
            values = {"lines": chunk, "start": start, "before": before}
            yield TableRow(values, f"{path}, line {start}")
            before = ()
        else:
            before = tuple(line.strip(_BLANKS) for line in chunk)
        start += len(chunk)


def no_tags_message(sentence: Sentence, consequence: str) -> str:
    """Return that a sentence has no tags, and a hint if its columns have commas."""
    joined = all(re.search(".[,;].", word) for word in sentence.words)
    hint = _COMMA_HINT * (joined and bool(sentence.columns))
    return f"{sentence.path} has no tags; {consequence}.{hint}"


def require_tags(sentence: Sentence) -> tuple[str, ...]:
    """Return the tags of a sentence; raise ValueError if it has none."""
    if sentence.tags is None:
        raise ValueError(no_tags_message(sentence, "there is nothing to score by"))
    return sentence.tags


def _check_line_ends(lines: Sequence[str], path: str) -> None:
    for line_number, line in enumerate(lines, 1):
        if "\r" in line.strip(_BLANKS):
            raise ValueError(
                f"{path}, line {line_number} holds a carriage return; end lines by a "
                "line feed, or by both."
            )


def _check_first_column(sentences: Sequence[Sentence], width: int) -> None:
    """Refuse CoNLL-X, CoNLL-U and GermEval, whose first column numbers the words.

    One sentence tells it of eight columns; of fewer, two of them or three words do.
    """
    least = 1 if width >= 8 else 3
    looked_at = sentences[:1] if width >= 8 else sentences
    if width < 3 or (len(looked_at) < 2 and len(looked_at[0].words) < least):
        return
    numbers = list(map(str, range(1, 1 + max(len(one.words) for one in looked_at))))
    if all([*one.words] == numbers[: len(one.words)] for one in looked_at):
        raise ValueError(
            f"{sentences[0].where(0)}: the first of {width} columns counts the words, "
            "as in CoNLL-U; keep only the columns of the word and the tag, for example "
            f"by `cut -f2,{4 if width >= 8 else 3}`."
        )


def _is_word(line: str) -> bool:
    columns = _GAP.split(line.strip(_BLANKS), maxsplit=1)
    return columns[0] not in ("", DOCSTART)


def _split(line: str, tabs: bool) -> tuple[str, ...]:
    stripped = line.strip(_BLANKS)
    columns = stripped.split("\t") if tabs else _GAP.split(stripped)
    return tuple(column.strip(_BLANKS) for column in columns if stripped)


def sentence_from_row(
    row: TableRow,
    fields: Sequence[str] = (),
    names: Sequence[str] = (),
    path: str = "",
) -> Sentence:
    """Return the sentence of a row with `tokens` and, in one of the fields, tags.

    `names` are of tags that are numbers; without `fields` no tags are read. Raise
    ValueError if tokens or tags are not strings, or not equally many.
    """
    words = _strings(row, "tokens")
    field = next((name for name in fields if row.values.get(name) is not None), None)
    tags = None if field is None else _strings(row, field, names)
    if tags is not None and len(tags) != len(words):
        raise ValueError(
            f"{row.where}: {len(tags)} tags for {len(words)} tokens; each must have "
            "one."
        )
    line = int(row.where.rpartition(" ")[2]) if path else 0
    columns = () if tags else tuple(row.values)
    return Sentence(words, tags, path=path, line=line, fields=columns)


def _read_rows(
    path: str, fields: Sequence[str], names: Sequence[str], skip_damaged: bool
) -> list[Sentence]:
    sentences = parse_rows(
        path,
        table_rows(path),
        lambda row: sentence_from_row(row, fields, names, path),
        skip_damaged,
        has_label=lambda one: one.tags is not None,
    )
    for sentence in sentences:
        if (sentence.tags is None) != (sentences[0].tags is None):
            content = "no tags" if sentence.tags is None else "tags"
            raise ValueError(
                f"{sentence.where(0)} has {content}, unlike {numbered(path)} "
                f"{sentences[0].line}; all {numbered(path)}s must, or none."
            )
    return sentences


def _strings(row: TableRow, field: str, names: Sequence[str] = ()) -> tuple[str, ...]:
    example = '{"tokens": ["In", "Oslo"], "tags": ["O", "B-LOC"]}'
    if field not in row.values:
        missing = missing_column_message(row.where, field, row.values)
        raise ValueError(f"{missing} Write {example}.")
    values = row.values[field]
    if not isinstance(values, list) or not values:
        raise ValueError(
            f"{row.where}: {field}={values!r:.40} must be a list of strings, as in "
            f"{example}."
        )
    if field != "tokens" and type(values[0]) is int:
        if not names:
            raise ValueError(
                f"{row.where}: {field} holds numbers, whose names the file does not "
                "have; give them in the order of the numbers, as in --data.labels O "
                "B-PER I-PER."
            )
        for value in values:
            if type(value) is not int or not 0 <= value < len(names):
                raise ValueError(
                    f"{row.where}: {field} holds {value!r:.40}, and --data.labels has "
                    f"{len(names)} names, for the numbers from 0 to {len(names) - 1}."
                )
        values = [names[value] for value in values]
    for value in values:
        if not isinstance(value, str):
            raise ValueError(
                f"{row.where}: {field} holds {value!r:.40}; each must be a string."
            )
    noun, other = ("token", "tag") if field == "tokens" else ("tag", "token")
    for text in values:  # each must be read again once it is in a column
        if not text.strip(_BLANKS) or re.search("[\t\r\n\ud800-\udfff]", text):
            raise ValueError(
                f"{row.where}: {noun} {text!r} must hold more than blanks, and no tab, "
                f"line break or half of a character; leave it and its {other} out."
            )
    return tuple(values)


def _with_valid_tags(
    sentences: Sequence[Sentence], all_tags: set[str], skip_damaged: bool
) -> list[Sentence]:
    """Refuse sentences with a tag that has no valid prefix, or leave them out."""
    errors: dict[str, ValueError] = {}
    for tag in all_tags:
        try:
            extract_entities([tag])
        except ValueError as error:
            errors[tag] = error
    if not errors:
        return list(sentences)
    valid = min(all_tags - errors.keys() - {"O"}, default="")
    hint = f", and others are tags, such as {valid!r:.80}" if valid else ""

    def check(row: TableRow) -> Sentence:
        sentence: Sentence = row.values["sentence"]
        for i, tag in enumerate(sentence.tags or ()):
            if tag in errors:
                place = "last column" if sentence.columns else "field of the tags"
                raise ValueError(
                    f"{sentence.where(i)}: {errors[tag]} It is in the {place}"
                    f"{hint}; to predict, give the words alone."
                )
        return sentence

    rows = (TableRow({"sentence": one}, one.where(0)) for one in sentences)
    return parse_rows(sentences[0].path, rows, check, skip_damaged, "sentences")

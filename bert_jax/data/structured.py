"""Read records with a text field: JSON, tables, Parquet, TensorFlow Datasets.

Texts are bytes, in UTF-8 if the source is valid; invalid bytes are passed on unchanged.
"""

import collections
import contextlib
import functools
import json
import re
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

from bert_jax.config import TextConfig
from bert_jax.data.sources import (
    BOM,
    TFDS,
    Source,
    encoding_of_source,
    find_sources,
    read_lines,
)
from bert_jax.storage.encodings import is_object
from bert_jax.storage.files import JsonObject, located
from bert_jax.storage.quiet_tensorflow import quiet_tensorflow
from bert_jax.tables.read import open_parquet, source_rows, undamaged
from bert_jax.terminal.messages import say

_KINDS = {
    type(None): "null",
    bool: "a truth value",
    float: "a number",
    list: "an array",
    dict: "an object",
}
_ROWS_PER_BATCH = 256
_SURROGATE = re.compile("[\ud800-\udfff]")
# Without those that Python's error handler "surrogateescape" uses for bytes.
_OTHER_SURROGATE = re.compile("[\ud800-\udc7f\udd00-\udfff]")


def sources_of(config: TextConfig) -> list[Source]:
    """Return what `find_sources` does; raise ValueError if a field is of no record."""
    sources = find_sources(config.input, config.output)
    has_records = any(source.holds_records for source in sources)
    why_not = "text files, of which all is text; leave it out."
    config.require_effect("text_field", has_records, why_not)
    return sources


def read_records(
    source: Source, config: TextConfig, dropped: collections.Counter[str]
) -> Iterator[bytes]:
    """Yield the text of each of the `located_records`."""
    return (text for _, text in located_records(source, config, dropped))


def located_records(
    source: Source, config: TextConfig, dropped: collections.Counter[str]
) -> Iterator[tuple[str, bytes]]:
    """Yield the place and the text of each record; count those without text.

    Raise ValueError if the source is damaged, or has no such text field, or a text is
    not UTF-8 and `config.strict` is set.
    """
    read = {
        "jsonl": _read_jsonl,
        "json": _read_json,
        "table": _read_table,
        "parquet": _read_parquet,
        "tfds": _read_tfds,
    }
    for where, text in read[source.kind](source, config):
        if not text.strip():
            dropped["records without text"] += 1
            continue
        try:
            if config.strict:
                text.decode()
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{where}: {config.text_field!r} is not UTF-8 at its byte "
                f"{error.start}; fix it, or with --no-strict such bytes are replaced "
                "and counted."
            ) from error
        yield where, text


def _read_jsonl(source: Source, config: TextConfig) -> Iterator[tuple[str, bytes]]:
    for number, line in enumerate(read_lines(source), 1):
        # Joined files have several byte order marks.
        if line := line.removeprefix(BOM).strip():
            where = f"{source.path}:{number}"
            with located(where):
                values, surrogate = _parse(line, config.text_field)
                yield where, _text_of(values, surrogate, config.text_field)


def _read_json(source: Source, config: TextConfig) -> Iterator[tuple[str, bytes]]:
    """Yield the texts of an array of objects, of one object, or of lines of objects."""
    lines = read_lines(source)
    first = next(filter(bytes.strip, lines), b"").removeprefix(BOM)
    if is_object(first):
        yield from _read_jsonl(source, config)
        return
    with located(source.path):
        value, surrogate = _parse(b"\n".join([first, *lines]), config.text_field)
    records = value if isinstance(value, list) else [value]
    for number, record in enumerate(records, 1):
        where = f"{source.path}: object {number}"
        with located(where):
            yield where, _text_of(record, surrogate, config.text_field)


def _read_table(source: Source, config: TextConfig) -> Iterator[tuple[str, bytes]]:
    encoding_of_source(source)  # refuses what is no text by what it is
    # After the semicolon, the line names an option of finetune.
    rows = source_rows(source.path, notify=lambda line: say(line.partition(";")[0]))
    for row in undamaged(rows):
        with located(row.where):
            yield row.where, _text_of(row.values, _SURROGATE, config.text_field)


def _parse(content: bytes, field: str) -> tuple[Any, re.Pattern[str]]:
    """Return a JSON value, and what matches its halves of surrogate pairs.

    Of two texts in one object, one would be lost; the check takes time, so that only
    what has the field's name twice is checked.
    """
    try:
        text, surrogate = content.decode(), _SURROGATE
    except UnicodeDecodeError:
        text, surrogate = content.decode(errors="surrogateescape"), _OTHER_SURROGATE
    try:
        # parse_int: Python refuses integers of 4,300 digits; no number is needed here.
        is_twice = text.count(json.dumps(field, ensure_ascii=False)) > 1
        hook = functools.partial(_with_one, field) if is_twice else None
        return json.loads(text, parse_int=float, object_pairs_hook=hook), surrogate
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if error.lineno > 1 else ""
        reason = f"{error.msg}, {line}column {error.colno}"
        raise ValueError(f"not JSON ({reason}).") from error
    except RecursionError as error:
        raise ValueError("not JSON that can be read: it is nested too deep.") from error


def _with_one(field: str, pairs: list[tuple[str, Any]]) -> JsonObject:
    """Return an object of JSON; raise ValueError if it has the field twice."""
    if [name for name, _ in pairs].count(field) > 1:
        raise ValueError(f"the key {field!r:.80} occurs twice in an object; keep one.")
    return dict(pairs)


def _text_of(record: object, surrogate: re.Pattern[str], field: str) -> bytes:
    if not isinstance(record, dict):
        raise ValueError('not an object; each line must be one, such as {"text": "…"}.')
    if field not in record:
        raise ValueError(_choose_from(record, f"there is no {field!r}, but"))
    if not isinstance(text := record[field], str):
        raise ValueError(f"{field!r} holds {_KINDS[type(text)]}; it must be a string.")
    # A lone surrogate is not a character: replace it by a byte that UTF-8 never has.
    return surrogate.sub("\udcff", text).encode(errors="surrogateescape")


def _choose_from(names: Iterable[str], problem: str) -> str:
    present = textwrap.shorten(", ".join(names), 200, placeholder=" …") or "nothing"
    return f"{problem} {present}; choose by --text-column."


def _read_parquet(source: Source, config: TextConfig) -> Iterator[tuple[str, bytes]]:
    import pyarrow

    number, field = 0, config.text_field
    with open_parquet(source.path) as file:
        schema = file.schema_arrow
        columns = [f"{column.name} ({column.type})" for column in schema]
        if schema.names.count(field) != 1:
            problem = f"{source.path}: there is no {field!r}, but"
            raise ValueError(_choose_from(columns, problem))
        kind = schema.field(field).type
        kind = kind.value_type if pyarrow.types.is_dictionary(kind) else kind
        # A shard without any text has a column of type null.
        if str(kind) not in ("string", "large_string", "string_view", "null"):
            rule = "must be a string; the columns are"
            problem = f"{source.path}: column {field!r} {rule}"
            raise ValueError(_choose_from(columns, problem))
        for batch in file.iter_batches(_ROWS_PER_BATCH, columns=[field]):
            column = batch.column(field)  # "a.b" also finds b in a
            if pyarrow.types.is_dictionary(column.type):
                column = column.dictionary_decode()
            # As bytes, because they may not be valid UTF-8.
            for text in column.cast(pyarrow.large_binary(), safe=False):
                number += 1
                yield f"{source.path}: row {number}", text.as_py() or b""


def _read_tfds(source: Source, config: TextConfig) -> Iterator[tuple[str, bytes]]:
    field, name = config.text_field, source.path.removeprefix(TFDS)
    builder = _tfds_builder(name, config.tfds_data_dir)
    tfds, features = _tensorflow_datasets(), builder.info.features
    names = features.keys() if hasattr(features, "keys") else ()
    if field not in names:
        problem = f"{source.path}: there is no {field!r}, but"
        raise ValueError(_choose_from(names, problem))
    if not isinstance(features[field], tfds.features.Text):
        kinds = (f"{name} ({type(kind).__name__})" for name, kind in features.items())
        problem = f"{source.path}: {field!r} must be a Text; the features are"
        raise ValueError(_choose_from(kinds, problem))
    split, decoders = config.tfds_split, tfds.decode.PartialDecoding({field: True})
    examples = _tfds_examples(builder, source.path, split, decoders)
    for number, example in enumerate(examples, 1):
        yield f"{source.path}: example {number} of {split}", example[field]


def tfds_rows(name: str, split: str) -> Iterator[JsonObject]:
    """Yield the examples of a TFDS dataset, as str and Python numbers.

    Raise ValueError if the dataset cannot be found, prepared or read.
    """
    builder = _tfds_builder(name, "")
    for example in _tfds_examples(builder, f"{TFDS}{name}", split, None):
        yield {
            field: value.decode() if isinstance(value, bytes) else value.item()
            for field, value in example.items()
        }


def _tfds_builder(name: str, data_dir: str) -> Any:
    with _one_line_errors(f"{TFDS}{name} cannot be found"):
        return _tensorflow_datasets().builder(name, data_dir=data_dir or None)


def _tfds_examples(builder: Any, name: str, split: str, decoders: Any) -> Iterator[Any]:
    """Yield the examples in the order of the files."""
    tfds = _tensorflow_datasets()
    with _one_line_errors(f"{name} cannot be downloaded and prepared"):
        builder.download_and_prepare()
    with _one_line_errors(f"{name} cannot be read, tfds_split={split!r}"):
        in_order = tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False)
        dataset = builder.as_dataset(
            split=split, shuffle_files=False, read_config=in_order, decoders=decoders
        )
        yield from tfds.as_numpy(dataset)


def _tensorflow_datasets() -> Any:
    """Import TFDS without progress bars, after `quiet_tensorflow`."""
    quiet_tensorflow()
    import tensorflow_datasets as tfds

    tfds.disable_progress_bar()
    return tfds


@contextlib.contextmanager
def _one_line_errors(problem: str) -> Iterator[None]:
    """Raise any error of TFDS, which has many classes and lengths, as one line."""
    try:
        yield
    except Exception as error:
        # TensorFlow puts the name of an operation before and after its message.
        message = re.sub(r"^{{.*?}}|\[Op:.*", "", str(error).strip())
        line = (message or type(error).__name__).splitlines()[0].strip(" .:!")
        raise ValueError(f"{problem}: {line}.") from error

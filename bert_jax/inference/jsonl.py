"""`bert-jax predict` and `features`: predictions or hidden states of lines."""

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from bert_jax.inference.batching import numbered
from bert_jax.inference.features import SUFFIXES, Features, features, write_features
from bert_jax.inference.row_predictions import Request, prediction_rows
from bert_jax.pretrained import load_pretrained
from bert_jax.storage.files import require_output_file
from bert_jax.tables.lines import STDIN, display_name, read_lines, require_file
from bert_jax.tables.read import is_table
from bert_jax.tables.standard_input import announce_typing
from bert_jax.tables.write import write_rows
from bert_jax.terminal.messages import say, warn
from bert_jax.terminal.progress import Progress, tell_terminal

_CHUNK_LINES = 1024
"""The number of lines in memory at a time."""


def json_line(values: object) -> str:
    """Return values as a line of JSON, without characters that a terminal obeys."""
    line = json.dumps(values, ensure_ascii=False)
    return re.sub("[\x7f-\x9f]", lambda match: f"\\u{ord(match[0]):04x}", line)


def prediction_lines(request: Request) -> Iterator[str]:
    """Yield a line of JSON for each row's prediction.

    A terminal shows how far it is, unless the rows are typed there.
    """
    is_typed = request.source == STDIN and announce_typing()
    tell = (lambda _: None) if is_typed else tell_terminal
    for rows in prediction_rows(request, tell):
        for row in rows:
            yield json_line(row)


def write_predictions(request: Request, output: str) -> str:
    """Write predictions to a file; return a message with their number.

    Lines on the way say how far it is.
    """
    path = Path(output)
    rows = prediction_rows(request, say, path.suffix.lower())
    num_rows = write_rows(rows, path)
    return f"{output}: {num_rows:,} predictions of {display_name(request.source)}."


def write_feature_file(
    model: str,
    input: str,
    output: str,
    layers: Sequence[int],
    combine: str,
    batch_size: int,
) -> str:
    """Write features of each line of `input`; return a message with their number."""
    require_output_file(Path(output), *SUFFIXES)
    placed, name = load_pretrained(model).placed(), display_name(input)
    num_lines = 0
    if input != STDIN:
        require_file(input, "name one, or - for standard input.")
        if is_table(input):
            warn(
                f"{input} is a table, and a text a line is read; write its texts to a "
                ".txt file, or call bert.features(texts) in Python."
            )
        num_lines = sum(1 for _ in read_lines(input))

    def chunks() -> Iterator[list[Features]]:
        progress = Progress("lines", num_lines)
        lines, names = read_lines(input), numbered(f"{name}, line", 1)
        while chunk := list(itertools.islice(lines, _CHUNK_LINES)):
            yield features(placed, chunk, layers, combine, batch_size, names)
            progress.advance(len(chunk))

    num_lines = write_features(chunks(), Path(output))
    return f"{output}: features of {num_lines} lines of {name}."

"""`bert-jax predict`, `features` and `fill`: what a model computes of lines."""

import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bert_jax.inference.arguments import require_text
from bert_jax.inference.batching import numbered, rows_of
from bert_jax.inference.features import SUFFIXES, Features, features, write_features
from bert_jax.inference.language_model import masked_segments
from bert_jax.inference.predictor import load
from bert_jax.inference.row_predictions import Request, prediction_rows
from bert_jax.pretrained import load_pretrained
from bert_jax.storage.files import require_output_file
from bert_jax.tables.lines import (
    STDIN,
    chunks,
    display_name,
    read_lines,
    require_file,
)
from bert_jax.tables.read import is_table
from bert_jax.tables.standard_input import announce_typing
from bert_jax.tables.write import write_rows
from bert_jax.terminal.messages import printable, say, warn
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

    def parts() -> Iterator[list[Features]]:
        progress = Progress("lines", num_lines)
        lines, names = read_lines(input), numbered(f"{name}, line", 1)
        while chunk := list(itertools.islice(lines, _CHUNK_LINES)):
            yield features(placed, chunk, layers, combine, batch_size, names)
            progress.advance(len(chunk))

    num_lines = write_features(parts(), Path(output))
    return f"{output}: features of {num_lines} lines of {name}."


def filled_texts(
    path: str,
    texts: Sequence[str],
    top_k: int,
    report: Callable[[str], None],
    as_json: bool = False,
) -> Iterator[str]:
    """Yield what the model at `path` fills in each text: lines to read, or JSON.

    Without texts, they are the lines of standard input that are not blank. `report`
    takes a line on each text that has no mask or is too long. Raise ValueError if the
    model fills no masks.
    """
    bert = load(path)
    bert.fill_mask([], top_k=top_k)  # may refuse the model, before a text is typed
    source, what = ("", "text") if texts else (STDIN, f"{display_name(STDIN)}, line")
    if not texts:
        announce_typing()
    lines = enumerate(texts or read_lines(STDIN), 1)
    for chunk in chunks(source, lines, _CHUNK_LINES):
        usable = []
        for number, text in chunk:
            if texts or text.strip():
                try:
                    names = [f"{what} {number}"]
                    require_text(names[0], text)
                    segments = masked_segments(bert.tokenizer, [text], names)
                    rows_of(bert.model, segments, names)
                    usable.append(text)
                except ValueError as error:
                    report(str(error))
        filled = bert.fill_mask(usable, top_k=top_k)
        for text, filling in zip(usable, filled, strict=True):
            # Of a single mask, the tokens themselves.
            masks = filling if isinstance(filling[0], list) else [filling]
            if not as_json:
                yield _shown(text, masks)
                continue
            values = [
                [{"token": t, "probability": float(f"{p:.6g}")} for t, p in mask]
                for mask in masks
            ]
            yield json_line({"text": text, "masks": values})


def _shown(text: str, masks: list[list[tuple[str, float]]]) -> str:
    lines = [text]
    for number, mask in enumerate(masks, 1):
        which = f"{number}. " if len(masks) > 1 else ""
        lines.append(f"  {which}" + "  ".join(f"{token} {p:.1%}" for token, p in mask))
    return "\n".join(map(printable, "\n".join(lines).split("\n")))

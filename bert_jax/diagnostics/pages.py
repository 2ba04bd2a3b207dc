"""What `bert-jax inspect` and `evaluate` print and draw, for programs and notebooks."""

import io
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bert_jax.config import ExamplesConfig
from bert_jax.diagnostics import inspect as inspection
from bert_jax.diagnostics.run_comparison import write_run_page
from bert_jax.diagnostics.summary import summary as summary_of
from bert_jax.diagnostics.when_seen import when_seen
from bert_jax.inference.attention_page import write_attention_page
from bert_jax.inference.evaluation import evaluate
from bert_jax.inference.predictor import Predictor, load
from bert_jax.storage.files import require_output_file
from bert_jax.storage.web_page import SUFFIX
from bert_jax.tables.memory import RowsInMemory
from bert_jax.terminal.messages import printable

StrPath = str | os.PathLike[str]
_WIDTH = 120
"""The columns of a table."""


class Printed(str):
    """A text that a notebook shows as `print` does."""

    def __repr__(self) -> str:
        return str(self)


def inspect(
    path: StrPath,
    *,
    verify: bool = False,
    when: str | Sequence[str] = (),
    run: StrPath = "",
    summary: bool = False,
    sequence_length: int = 0,
) -> Printed:
    """Return what `bert-jax inspect` prints of a dataset, a workdir or a model.

    Args:
        path: its directory, or hf:OWNER/NAME.
        verify: compare the sha256 of every file.
        when: a text, or several: at which steps the pretraining run `path` has seen and
            will see the rows that contain it.
        run: with `when`, if `path` is a dataset: the workdir of the run.
        summary: a model's parameters by module, their memory, and the FLOPs of a row.
        sequence_length: with `summary`: the tokens of that row; 0: as in the model's
            pretraining, or 128.

    Raises:
        FileNotFoundError: there is none of these.
        ValueError: it is none of these, a file is damaged, or an argument has no effect
            with another one.
    """
    texts = (when,) if isinstance(when, str) and when else tuple(when)
    given = [f"when={texts!r:.80}"] * bool(texts)
    given += ["verify"] * verify + ["summary"] * summary
    if len(given) > 1:
        raise ValueError(f"{given[0]} has no effect with {given[1]}; leave one out.")
    for name, value, needed, is_given in (
        ("run", run, "when", texts),
        ("sequence_length", sequence_length, "summary", summary),
    ):
        if value and not is_given:
            raise ValueError(f"{name}={value!r:.80} has no effect without {needed}.")
    place = os.fspath(path)
    if texts:
        lines = when_seen(place, texts, os.fspath(run))
    elif summary:
        lines = _summary_lines(place, sequence_length)
    else:
        lines = inspection.inspect(place, verify)
    return Printed("\n".join(map(printable, lines)))


def _summary_lines(path: str, sequence_length: int) -> Iterator[str]:
    from rich.console import Console

    title, table, lines = summary_of(path, sequence_length)
    drawn = io.StringIO()
    Console(file=drawn, highlight=False, markup=False, width=_WIDTH).print(table)
    yield from (title, *drawn.getvalue().splitlines(), *lines)


def run_page(workdir: StrPath | Sequence[StrPath], output: StrPath) -> Path:
    """Write a page of a run, or of several side by side; return its path.

    One run is shown by its curves, samples and configuration; several by curves over
    one another, scores, and what differs in their configurations.

    Args:
        workdir: of a pretraining or fine-tuning run, which may still go on, or of
            several; or a directory of several, which `finetune_runs` has made.
        output: a file that ends in .html; it needs no network.

    Raises:
        FileNotFoundError: `workdir` is not one.
        ValueError: a run is damaged, or named twice; or `output` is no .html.
        OSError: the page cannot be written.
    """
    several = (workdir,) if isinstance(workdir, str | os.PathLike) else tuple(workdir)
    if not several:
        raise ValueError("workdir=() names no run; name one or several.")
    write_run_page([os.fspath(own) for own in several], Path(output))
    return Path(output)


def attention_page(
    model: Predictor | StrPath | Mapping[str, Predictor], text: str, output: StrPath
) -> Path:
    """Write a page of the attention of each layer and head in `text`; return its path.

    Args:
        model: as `load` takes or returns it; or several by name, side by side.
        output: as `run_page`.

    Raises:
        ValueError: the text is too long for the model or for a page, or `output` is no
            .html.
        OSError: the page cannot be written.
    """
    require_output_file(Path(output), SUFFIX)  # before the model is loaded
    if isinstance(model, Predictor):
        model = {"the model": model}
    elif not isinstance(model, Mapping):
        model = {str(model): load(model)}
    write_attention_page(model, text, Path(output))
    return Path(output)


def error_page(
    model: StrPath, output: StrPath, data: ExamplesConfig | RowsInMemory | None = None
) -> Path:
    """Write a page of what a fine-tuned model gets wrong; return its path.

    The same is written as JSON beside it.

    Args:
        model: as `load` takes.
        output: as `run_page`.
        data: as `evaluate`.

    Raises:
        ValueError: as `evaluate`; the file must have labels.
        OSError: the page cannot be written.
    """
    evaluate(model, data, report=output)
    return Path(output)

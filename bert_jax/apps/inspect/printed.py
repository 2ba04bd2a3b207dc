"""What `bert-jax inspect` prints, for programs and notebooks."""

import io
import os
from collections.abc import Iterable, Sequence

from bert_jax.apps.inspect import inspect as inspection
from bert_jax.apps.inspect.summary import summary as summary_of
from bert_jax.apps.inspect.when_seen import when_seen
from bert_jax.terminal.messages import printable

_WIDTH = 120
"""The columns of a table."""


class Printed(str):
    """A text that a notebook shows as `print` does."""

    def __repr__(self) -> str:
        return str(self)


def inspect(
    path: str | os.PathLike[str],
    *,
    verify: bool = False,
    when: str | Sequence[str] = (),
    run: str | os.PathLike[str] = "",
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
    lines: Iterable[str]
    if texts:
        lines = when_seen(place, texts, os.fspath(run))
    elif summary:
        from rich.console import Console

        title, table, more = summary_of(place, sequence_length)
        drawn = io.StringIO()
        Console(file=drawn, highlight=False, markup=False, width=_WIDTH).print(table)
        lines = [title, *drawn.getvalue().splitlines(), *more]
    else:
        lines = inspection.inspect(place, verify)
    return Printed("\n".join(map(printable, lines)))

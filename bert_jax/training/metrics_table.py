"""The scalars of a run as rows of a table that grows while it trains."""

import math
import shutil
from collections.abc import Iterator, Mapping

from bert_jax.tasks.predictions import score_format, without_repeats
from bert_jax.terminal.columns import GAP, padded, width

_FORMATS = {
    "loss": ("loss", ".4f"),
    "mlm_accuracy": ("MLM", ".1%"),
    "nsp_accuracy": ("NSP", ".1%"),
    "mlm_perplexity": ("perplexity", ".1f"),
    "clm_accuracy": ("CLM", ".1%"),
    "clm_perplexity": ("perplexity", ".1f"),
    "bits_per_byte": ("bits/byte", ".3f"),
    "tokens_per_second": ("tokens/s", ",.0f"),
    "mfu": ("MFU", ".1%"),
    "data_wait": ("data wait", ".1%"),
}
"""Headings and formats of scalars; others have their name."""
_HIDDEN = (
    "mlm_loss clm_loss bytes_per_token nsp_loss sop_loss grad_norm learning_rate "
    "skipped_in_a_row"
).split()
_LEAST_WIDTH = 6
_HEADING_EVERY = 20
"""Rows between two lines of headings, so that the end of a log has one."""
_MORE = "…"
"""Heads the last column where others are in `metrics.jsonl` alone."""


class MetricsTable:
    """Rows of training and of validation, each kind in columns of its own.

    A row is as wide as the terminal, or 80 columns, at most: the columns that do not
    fit are left out, and `…` stands for them.
    """

    def __init__(self, num_steps: int) -> None:
        """Take the last step, which decides the width of the first column."""
        self._num_steps = num_steps
        self._columns: dict[str, dict[str, int]] = {}
        self._rows_since: dict[str, int] = {}

    def lines(
        self, step: int, split: str, scalars: Mapping[str, float], note: str = ""
    ) -> Iterator[str]:
        """Yield a row, which ends in `note`, after the headings where they are due."""
        cells = {
            heading: format(value, kind) if math.isfinite(value) else "–"
            for name, value in without_repeats(scalars).items()
            if name not in _HIDDEN
            for heading, kind in [_FORMATS.get(name, (name, score_format(name)))]
        }
        size = max(2 * len(str(self._num_steps)) + 1, len("step"))
        # Columns keep the widths of earlier rows; if one changes, the headings are due.
        # Those that do not fit are left out; the first always fits.
        before, columns = self._columns.get(split, {}), dict[str, int]()
        used = size + len(GAP) + 10 + len(note) + len(GAP + _MORE)
        left = shutil.get_terminal_size().columns - 1 - used
        for name, cell in cells.items():
            own = max(_LEAST_WIDTH, width(name), len(cell), before.get(name, 0))
            left -= len(GAP) + own
            if left < 0 and columns and name not in before:
                break
            columns[name] = own
        if columns != before:
            self._columns[split] = columns
            self._rows_since.pop(split, None)

        def row(step: str, cells: Mapping[str, str], *after: str) -> str:
            parts = [padded(step, size, False), padded(split, 10, True)]
            parts += [padded(cells[name], columns[name], False) for name in columns]
            return GAP.join([*parts, *after]).rstrip()

        for kind in self._rows_since:
            self._rows_since[kind] += 1
        if self._rows_since.get(split, _HEADING_EVERY) >= _HEADING_EVERY:
            self._rows_since[split] = 0
            more = [_MORE] * (len(columns) < len(cells))
            yield row("step", {name: name for name in columns}, *more)
        yield row(f"{step}/{self._num_steps}", cells, *filter(None, [note]))

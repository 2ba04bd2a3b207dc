"""Write the metrics of a run as a table."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import final

from etils import epath

from bert_jax.tables.write import write_rows
from bert_jax.training.logger import Logger
from bert_jax.training.metrics_file import METRICS, VALIDATION, read_metrics

CSV = "metrics.csv"


@final
class CsvTable(Logger):
    """`metrics.csv`: `metrics.jsonl` as a table, with a column for each scalar.

    All of it is written at each evaluation and checkpoint, since columns may be added.
    """

    name = "csv"

    def __init__(self, folder: epath.Path) -> None:
        """Take the directory of `metrics.jsonl`."""
        self._folder = folder

    def _write(self, step: int, split: str, scalars: Mapping[str, float]) -> None:
        del step, scalars
        if split == VALIDATION:
            self._flush()

    def _flush(self) -> None:
        rows = [
            {"step": line.step, "split": line.split}
            | {k: value for k, value in line.scalars.items() if math.isfinite(value)}
            for line in read_metrics(self._folder / METRICS)[0]
        ]
        if rows:
            write_rows([rows], Path(self._folder / CSV))

    _close = _flush

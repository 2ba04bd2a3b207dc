"""Metrics files: each step once, whatever happened before."""

import dataclasses
import io
import json
import math
import re
import tracemalloc

import pytest
from etils import epath

from bert_jax.config import OptimizerConfig, RunConfig
from bert_jax.training.metrics_file import keep_lines_until
from bert_jax.training.metrics_table import MetricsTable
from bert_jax.training.report import Report

CONFIG = RunConfig(num_steps=4, optimizer=OptimizerConfig(warmup_steps=0))


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_later_and_torn_lines_go(tmp_path):
    path = tmp_path / "metrics.jsonl"
    whole = [json.dumps({"step": step, "split": "train"}) for step in (1, 2, 3)]
    path.write_text("\n".join(whole) + '\n{"step": 4, "sp')
    keep_lines_until(epath.Path(path), 2)
    assert [line["step"] for line in lines(path)] == [1, 2]


def test_a_broken_line_in_the_middle_is_not_ours_to_drop(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\nnonsense\n{"step": 2}\n')
    with pytest.raises(ValueError, match="line 2 is not a metrics line"):
        keep_lines_until(epath.Path(path), 2)
    assert "nonsense" in path.read_text()


def test_rows_of_many_steps_are_not_in_memory_at_once(tmp_path):
    path, row = tmp_path / "examples.jsonl", list(range(500))
    with path.open("w") as file:
        for step in range(1, 101):
            file.write(f"{json.dumps({'step': step, 'rows': row})}\n")
    tracemalloc.start()
    keep_lines_until(epath.Path(path), 79)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < path.stat().st_size / 4 and len(lines(path)) == 79


def test_a_report_goes_on_where_the_run_does(tmp_path, capsys):
    directory = epath.Path(tmp_path)
    with Report(directory, 0, CONFIG) as report:
        for step in (1, 2, 3):
            report.write(step, "train", {"loss": 1.0 / step, "bad": math.nan})
    with Report(directory, 2, CONFIG) as report:
        report.write(3, "train", {"loss": 7.0})
    found = lines(tmp_path / "metrics.jsonl")
    assert [(line["step"], line["loss"]) for line in found] == [
        (1, 1.0),
        (2, 0.5),
        (3, 7.0),
    ]
    # JSON knows no NaN.
    assert found[0]["bad"] is None
    output = capsys.readouterr().out
    assert re.search(r"^step  train +loss\n 3/4  train +7\.0000$", output, re.MULTILINE)
    assert re.search(r"^ 3/4  train +0\.3333 .* left$", output, re.MULTILINE)


def test_rows_are_aligned_in_80_columns(monkeypatch):
    """Each kind of row in its columns, from one heading to the next."""
    monkeypatch.setenv("COLUMNS", "80")
    table = MetricsTable(900)
    scores = {f"f1_of_{name}": 0.5 for name in ("a", "long", "longer")}
    shown = []
    for step in range(1, 31):
        train = {"loss": 10.0 / step, "tokens_per_second": 1e4, "grad_norm": 1.0}
        shown += table.lines(step, "train", train, "0:00:10 left")
        if step % 10 == 0:
            loss = {"loss": math.nan, "accuracy": 0.25, "macro_f1": 0.125}
            shown += table.lines(step, "validation", loss | scores, "best so far")
    assert max(map(len, shown)) < 80
    assert [line.split()[0] for line in shown].count("step") == 4
    train = [line for line in shown if "train" in line]
    assert train[0].split() == ["step", "train", "loss", "tokens/s"]
    assert {line.index("10,000") + 6 for line in train[1:] if "10,000" in line} == {
        train[0].index("tokens/s") + 8
    }
    heading, row, *_ = (line for line in shown if "validation" in line)
    assert heading.endswith("…") and row.split()[2:5] == ["–", "0.2500", "0.1250"]
    assert row.index("0.1250") + 6 == heading.index("macro_f1") + 8


def test_a_narrow_terminal_shows_step_time_and_scores(tmp_path, monkeypatch):
    """Rows above the bar, with headings; the bar has the step and the time left."""
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdout", terminal)
    for name, value in {"COLUMNS": "80", "TERM": "xterm", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    scalars = {"loss": 6.5, "mlm_accuracy": 0.11, "nsp_accuracy": 0.55}
    rates = {"tokens_per_second": 13114.0, "data_wait": 0.029}
    config = dataclasses.replace(CONFIG, num_steps=10_000)
    with Report(epath.Path(tmp_path), 0, config) as report:
        for step in range(1000):
            report.advance(step)
        report.write(1000, "train", scalars | rates)
        report.write(1000, "validation", scalars | {"mlm_perplexity": 70.1}, "best")
        report.write(1100, "train", scalars | rates)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue()).splitlines()
    rows = [line.split() for line in shown if " train " in line or "validation" in line]
    assert [row[0] for row in rows] == ["step", "1000/10000"] * 2 + ["1100/10000"]
    assert rows[1][2:] == ["6.5000", "11.0%", "55.0%", "13,114", "2.9%"]
    assert rows[3][2:] == ["6.5000", "11.0%", "55.0%", "70.1", "best"]
    assert any(re.search(r" 1100/10000 steps [\d:-]+ left$", line) for line in shown)
    assert max(map(len, shown)) <= 80

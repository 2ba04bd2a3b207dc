"""Metrics files: each step once, whatever happened before."""

import dataclasses
import io
import json
import math
import re

import pytest
from etils import epath

from bert_jax.config import OptimizerConfig, RunConfig
from bert_jax.training.metrics_file import keep_lines_until
from bert_jax.training.report import Report, format_scalars

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
    assert "step 3/4  train  loss 7.0000" in output and "left" in output


def test_what_is_shown_on_one_line():
    scalars = {"loss": 1.5, "mlm_accuracy": 0.25, "tokens_per_second": 12345.6}
    assert format_scalars(scalars) == "loss 1.5000  MLM 25.0%  12,346 tokens/s"
    assert format_scalars({"loss": math.nan}) == ""


def test_a_narrow_terminal_shows_step_time_and_scores(tmp_path, monkeypatch):
    """At 80 columns the scores of training and validation have a line each."""
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
    last = [line.strip() for line in shown if line.strip()][-3:]
    assert re.search(r" 1100/10000 steps [\d:-]+ left$", last[0])
    assert last[1].endswith("NSP 55.0%  13,114 tokens/s  data wait 2.9%")
    assert last[2].endswith("NSP 55.0%  perplexity 70.1  best")
    assert max(map(len, shown)) <= 80

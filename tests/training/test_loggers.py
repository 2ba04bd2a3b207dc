"""Where metrics go besides metrics.jsonl: tables, and Weights & Biases."""

import csv
import dataclasses
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from etils import epath
from run_helpers import assert_same_run, logged_lines, write_config

from bert_jax.config import OptimizerConfig, RunConfig
from bert_jax.runs.pretraining import pretrain
from bert_jax.training.report import Report

CONFIG = RunConfig(num_steps=4, optimizer=OptimizerConfig(warmup_steps=0))


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def with_loggers(*names: str) -> RunConfig:
    return dataclasses.replace(CONFIG, report=names)


def test_a_table_has_each_step_once_and_every_scalar(tmp_path):
    with Report(epath.Path(tmp_path), 0, with_loggers("csv")) as report:
        report.write(1, "train", {"loss": 2.0, "bad": float("nan")})
        report.write(2, "train", {"loss": 1.0, "mfu": 0.5})
        assert not (tmp_path / "metrics.csv").exists()
        report.write(2, "validation", {"loss": 1.5, "accuracy": 0.25})
        assert len(table(tmp_path / "metrics.csv")) == 3
        report.write(3, "train", {"loss": 0.5})
    # The run resumes from its checkpoint at step 2.
    with Report(epath.Path(tmp_path), 2, with_loggers("csv")) as report:
        report.write(3, "train", {"loss": 0.75})
    rows = table(tmp_path / "metrics.csv")
    found = [(row["step"], row["split"], row["loss"], row["accuracy"]) for row in rows]
    assert found == [
        ("1", "train", "2.0", ""),
        ("2", "train", "1.0", ""),
        ("2", "validation", "1.5", "0.25"),
        ("3", "train", "0.75", ""),
    ]
    assert not (tmp_path / "tensorboard").exists()


@pytest.mark.parametrize(("first_step", "hidden_from"), [(0, 0), (4, 5)])
def test_points_of_steps_that_are_taken_again_are_hidden(
    first_step, hidden_from, tmp_path
):
    """As in metrics.jsonl: a run that begins again scores step 0 again, too."""
    from tensorboardX.proto.event_pb2 import Event, SessionLog

    with Report(epath.Path(tmp_path), first_step, with_loggers("tensorboard")):
        pass
    [file] = (tmp_path / "tensorboard").iterdir()
    content, events = file.read_bytes(), []
    while content:
        end = 12 + struct.unpack("<Q", content[:8])[0]
        events.append(Event.FromString(content[12:end]))
        content = content[end + 4 :]
    starts = [e.step for e in events if e.session_log.status == SessionLog.START]
    assert starts == [hidden_from]


def test_a_run_goes_on_without_a_logger_that_fails(tmp_path, capsys):
    (tmp_path / "metrics.csv").mkdir()
    (tmp_path / "tensorboard").write_text("in the way")
    config = with_loggers("csv", "tensorboard")
    with Report(epath.Path(tmp_path), 0, config) as report:
        for step in (1, 2):
            report.write(step, "validation", {"loss": 1.0})
    assert [line["step"] for line in logged_lines(tmp_path, "validation")] == [1, 2]
    lines = capsys.readouterr().err.splitlines()
    for name in ("csv", "tensorboard"):
        [line] = [line for line in lines if line.startswith(f"report={name} stops")]
        assert line.endswith("The run goes on.")


@pytest.mark.slow
def test_loggers_do_not_change_a_run(small_config, pretrained, tmp_path):
    config = dataclasses.replace(small_config, report=("csv",))
    pretrain(config, tmp_path)
    assert_same_run(tmp_path, pretrained)
    lines = [
        (str(line["step"]), str(line["loss"]))
        for split in ("train", "validation")
        for line in logged_lines(tmp_path, split)
    ]
    rows = [(row["step"], row["loss"]) for row in table(tmp_path / "metrics.csv")]
    assert sorted(rows) == sorted(lines)


def test_a_missing_package_is_found_before_the_run(small_config, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    config = dataclasses.replace(small_config, report=("wandb",))
    with pytest.raises(ValueError, match=r"pip install 'bert_jax\[wandb\]'"):
        pretrain(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_run_of_wandb_is_written_offline(small_config, tmp_path):
    """In a process of its own, as a user starts it."""
    pytest.importorskip("wandb")
    config = dataclasses.replace(small_config, num_steps=2, log_every=1)
    file = write_config(config, tmp_path / "config.py")
    workdir = tmp_path / "run"
    command = [sys.executable, "-m", "bert_jax", "pretrain", str(file)]
    environment = {
        **os.environ,
        "WANDB_MODE": "offline",
        "XLA_FLAGS": "",
        "HOME": str(tmp_path),
    }
    result = subprocess.run(
        [*command, "--workdir", str(workdir), "--report", "wandb"],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert result.returncode == 0, result.stderr
    assert "report=wandb" not in result.stderr
    [written] = workdir.glob("wandb/offline-run-*/run-*.wandb")
    identifier = (workdir / "wandb_run_id.txt").read_text().strip()
    assert written.stem == f"run-{identifier}"
    records = read_records(written)
    logged = [record for record in records if "train/loss" in record]
    assert [record["step"] for record in logged] == ["1", "2"]
    expected = [str(line["loss"]) for line in logged_lines(workdir, "train")]
    assert [record["train/loss"] for record in logged] == expected
    assert any("validation/loss" in record for record in records)


def read_records(path: Path) -> list[dict[str, str]]:
    """The history lines of a file of wandb's, as names and JSON texts.

    After seven bytes, it has the form of LevelDB's logs: blocks of 32 KiB with parts of
    records, of a checksum, a length and a type each; the last part has type 1 or 4.
    """
    from wandb.proto import wandb_internal_pb2

    content, position, parts, records = path.read_bytes(), 7, b"", []
    while position + 7 <= len(content):
        if (left := -position % 32768) and left < 7:
            position += left
            continue
        _, length, kind = struct.unpack_from("<IHB", content, position)
        parts += content[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):
            record = wandb_internal_pb2.Record.FromString(parts)
            parts = b""
            if record.WhichOneof("record_type") == "history":
                items = record.history.item
                names = [item.key or ".".join(item.nested_key) for item in items]
                values = [item.value_json for item in items]
                records.append(dict(zip(names, values, strict=True)))
    return records

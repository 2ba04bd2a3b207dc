"""A workdir in a bucket, to which writes fail for a while or for ever."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
from run_helpers import assert_same_run, write_config
from runs import run, saves_often, started_program

from bert_jax.config import PretrainConfig

SCRIPT = Path(__file__).with_name("bucket_run.py")
FOR_EVER = 10**9


@pytest.mark.reliability
@pytest.mark.parametrize(("failures", "code"), [(1, 0), (3, 0), (9, 0), (FOR_EVER, 1)])
def test_A6_uploads_that_fail(
    failures: int,
    code: int,
    small_config: PretrainConfig,
    tmp_path: Path,
    record_row: Callable[..., None],
):
    """They are tried again; without end they end the run as its own failure."""
    config = dataclasses.replace(saves_often(small_config, 12), max_failed_saves=3)
    file = write_config(config, tmp_path / "config.py")
    command = ["pretrain", str(file), "--workdir"]
    (tmp_path / "bucket").mkdir()
    program = [str(SCRIPT), str(tmp_path), str(failures)]
    with started_program(
        [*program, *command, "gs://bucket/run"], tmp_path / "uploads"
    ) as process:
        assert process.code(300) == code, process.stderr()[-3000:]
    assert process.stdout().count("a write fails") >= min(failures, 9)
    error = process.stderr()
    assert "Traceback" not in error
    if code:
        assert error.splitlines()[-1].startswith("bert-jax: "), error
        assert "gs://bucket/run" in error or str(tmp_path) in error, error
    # What is in the bucket is a workdir as any other, from which the run goes on.
    workdir = tmp_path / "bucket" / "run"
    if code:
        run([*command, str(workdir)], tmp_path / "again")
    run([*command, str(tmp_path / "never")], tmp_path / "never_failed")
    assert_same_run(workdir, tmp_path / "never")
    often = "for ever" if failures == FOR_EVER else f"{failures} times"
    record_row(f"uploads fail {often}", 1, f"code {code}, bit-identical", "so")

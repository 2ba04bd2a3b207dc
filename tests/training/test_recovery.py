"""What a run does of itself after a stop, damage, or a disk that fails."""

import contextlib
import dataclasses
import io
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import jax
import pytest
from etils import epath
from run_helpers import assert_same_run, logged_lines, write_config

import bert_jax
from bert_jax.checkpoints import manager
from bert_jax.checkpoints.manager import Checkpoints
from bert_jax.checkpoints.steps import (
    best_verified_step,
    latest_verified_step,
    list_steps,
)
from bert_jax.cli.main import main
from bert_jax.config import PretrainConfig
from bert_jax.runs.pretraining import pretrain
from bert_jax.storage.manifest import read_manifest, write_manifest
from bert_jax.tasks.pretraining.task import PretrainingTask
from bert_jax.training.faults import Watchdog
from bert_jax.training.lock import LOCK, RunLock, run_lock, this_process
from bert_jax.training.resume import drop_score, find_resume


@pytest.fixture(scope="module")
def resumed(
    small_config: PretrainConfig,
    pretrained: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, str]:
    """A run that went on after a crash at step 10; its workdir and what it printed.

    The crash left lines after the checkpoint of step 8 and a torn one. Until then, the
    run had 96 CPU cores and a damaged metrics file of version 0.1.0.
    """
    workdir = tmp_path_factory.mktemp("resumed") / "run"
    shutil.copytree(pretrained, workdir)
    shutil.rmtree(workdir / "checkpoints" / "10")
    with (workdir / "metrics.jsonl").open("a") as metrics:
        metrics.write('{"step": 11, "spl')
    write_old_metrics(workdir, "{")
    path = workdir / "config.json"
    config = json.loads(path.read_text())
    assert config["history"][0]["cpu_cores"] == len(os.sched_getaffinity(0))
    config["history"][0]["cpu_cores"] = 96
    path.write_text(json.dumps(config))
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        pretrain(small_config, workdir)
    return workdir, output.getvalue()


def write_old_metrics(workdir: Path, content: str) -> None:
    """Write Orbax's metrics of step 8, which version 0.1.0 had."""
    folder = workdir / "checkpoints" / "8" / "metrics"
    folder.mkdir()
    (folder / "metrics").write_text(content)


def test_a_crashed_run_goes_on_bit_identically(resumed, pretrained):
    workdir, output = resumed
    assert "Resuming from the checkpoint at step 8." in output
    assert_same_run(workdir, pretrained)


def test_another_number_of_cores_is_reported(resumed):
    workdir, output = resumed
    assert "This run had 96 CPU cores and has" in output
    assert len(json.loads((workdir / "config.json").read_text())["history"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize("content", ["", "[]", '{"merit": "x"}'])
def test_metrics_of_version_0_1_0_do_not_stop_a_run(
    content, pretrained, small_config, tmp_path
):
    """Orbax read those of all steps at the start. "{" is tested in `resumed`."""
    workdir = tmp_path / "run"
    shutil.copytree(pretrained, workdir)
    write_old_metrics(workdir, content)
    shutil.rmtree(workdir / "checkpoints" / "10")
    pretrain(small_config, workdir)
    assert_same_run(workdir, pretrained)


def test_the_workdirs_config_may_be_lost(pretrained, small_config, tmp_path, capsys):
    """That of the newest whole checkpoint stands for it; a damaged one is named."""
    workdir = tmp_path / "run"
    shutil.copytree(pretrained, workdir)
    (workdir / "config.json").write_text("[]")
    with pytest.raises(ValueError, match=r"config.json holds \[\].*remove it, and the"):
        pretrain(small_config, workdir)
    (workdir / "config.json").unlink()
    pretrain(small_config, workdir)
    assert_same_run(workdir, pretrained)


@pytest.mark.parametrize("recorded", [0, -3, "x", 2.5])
def test_a_damaged_record_of_the_predictions_is_named(
    recorded, pretrained, small_config, tmp_path
):
    workdir = tmp_path / "run"
    shutil.copytree(pretrained, workdir)
    config = json.loads((workdir / "config.json").read_text())
    config["masking"]["max_predictions"] = recorded
    (workdir / "config.json").write_text(json.dumps(config))
    masking = dataclasses.replace(small_config.masking, max_predictions=None)
    with pytest.raises(
        ValueError, match=f"^{workdir} has a damaged config.json: .*max_predictions"
    ):
        pretrain(dataclasses.replace(small_config, masking=masking), workdir)


@pytest.mark.slow
def test_a_manifest_with_a_flipped_key_is_passed_over(
    pretrained, small_config, tmp_path
):
    workdir = tmp_path / "run"
    shutil.copytree(pretrained, workdir)
    path = workdir / "checkpoints" / "10" / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b'"files"', b'"fides"'))
    with pytest.warns(UserWarning, match="10/manifest.json differs from its own check"):
        bert_jax.load(workdir)
    pretrain(small_config, workdir)
    assert_same_run(workdir, pretrained)
    # What was passed over is put aside, not removed.
    assert (workdir / "checkpoints" / "10.damaged" / "state").exists()


def test_orbax_writes_no_metrics_that_could_be_damaged(pretrained):
    for step in ("8", "10"):
        names = {path.name for path in (pretrained / "checkpoints" / step).iterdir()}
        assert "metrics" not in names and "manifest.json" in names


def test_a_nan_score_is_never_best(pretrained, tmp_path):
    checkpoints = epath.Path(tmp_path / "checkpoints")
    shutil.copytree(pretrained / "checkpoints", checkpoints)
    for step, score in ((8, 0.1), (10, math.nan)):
        manifest = read_manifest(checkpoints / str(step))
        write_manifest(manifest | {"selection_score": score}, checkpoints / str(step))
    assert best_verified_step(checkpoints) == (8, [])


def test_a_finished_run_returns_its_line(pretrained, small_config, tmp_path, capsys):
    """It neither restores nor evaluates: its checkpoint may be one of another shape."""
    workdir = tmp_path / "run"
    shutil.copytree(pretrained, workdir)
    before = (workdir / "checkpoints" / "10" / "manifest.json").stat().st_mtime_ns
    scores = pretrain(small_config, workdir)
    assert_same_run(workdir, pretrained)
    assert scores["loss"] == logged_lines(workdir)[-1]["loss"]
    assert "unigram_loss" in scores
    assert "Resuming" not in capsys.readouterr().out
    after = (workdir / "checkpoints" / "10" / "manifest.json").stat().st_mtime_ns
    assert before == after


def test_an_evaluation_that_was_cut_short_is_made_up_for(
    pretrained, small_config, tmp_path
):
    """A run that was killed after its checkpoint and before its scores."""
    workdir = tmp_path / "run"
    shutil.copytree(pretrained, workdir)
    path = workdir / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-1]))
    place = epath.Path(workdir) / "checkpoints" / "10"
    before = read_manifest(place)["selection_score"]
    write_manifest(read_manifest(place) | {"selection_score": None}, place)
    pretrain(small_config, workdir)
    assert_same_run(workdir, pretrained)
    assert read_manifest(place)["selection_score"] == before


def test_evaluation_takes_the_first_rows_only(small_config, dataset):
    config = dataclasses.replace(small_config, eval_rows=5, batch_size=4)
    batches = PretrainingTask(config, dataset).evaluation_batches()
    rows = [row for batch in batches for row in batch["row"][batch["end"].any(1)]]
    assert len(dataset.validation) > 5
    assert rows == [0, 1, 2, 3, 4]


def test_a_longer_run_needs_to_be_asked_for(pretrained, small_config, tmp_path, capsys):
    workdir = tmp_path / "run"
    shutil.copytree(pretrained, workdir)
    optimizer = dataclasses.replace(small_config.optimizer, peak_learning_rate=5e-3)
    longer = dataclasses.replace(small_config, num_steps=12, optimizer=optimizer)
    longer = dataclasses.replace(longer, eval_rows=8)  # always free to change
    with pytest.raises(
        ValueError, match="pass --extend; .*--keep-optimizer with a new"
    ):
        pretrain(longer, workdir)
    with pytest.raises(ValueError, match="seed was 0 and is 1. Repeat"):
        pretrain(dataclasses.replace(longer, seed=1), workdir, extend=True)
    shorter = dataclasses.replace(small_config, num_steps=9)
    with pytest.raises(
        ValueError, match="num_steps=9 but .* step 10 already.*-steps 10 --ext"
    ):
        pretrain(shorter, workdir, extend=True)
    pretrain(longer, workdir, extend=True)
    output = capsys.readouterr().out
    assert "num_steps was 10 and is 12" in output
    # The scores are those of other rows.
    assert "after step 10 are not comparable with earlier ones (eval_rows)" in output
    places = (epath.Path(workdir) / "checkpoints").iterdir()
    scores = {p.name: read_manifest(p).get("selection_score") for p in places}
    best = logged_lines(workdir, "validation")[-1]["loss"]
    assert scores == {"10": None, "12": -best}
    assert logged_lines(workdir)[-1]["step"] == 12
    history = json.loads((workdir / "config.json").read_text())["history"]
    fields = [change["field"] for change in history[-1]["changed"]]
    assert history[-1]["step"] == 10
    assert fields == ["eval_rows", "num_steps", "optimizer.peak_learning_rate"]
    pretrain(longer, workdir)  # it needs to be asked for once


@pytest.mark.parametrize("is_scored", [True, False])
def test_a_run_may_end_sooner(pretrained, small_config, tmp_path, capsys, is_scored):
    """At the step that it is at, whether that was evaluated or not."""
    workdir = tmp_path / "run"
    shutil.copytree(pretrained, workdir)
    config = json.loads((workdir / "config.json").read_text())
    (workdir / "config.json").write_text(json.dumps(config | {"num_steps": 20}))
    scores = logged_lines(workdir, "validation")[-1]
    if not is_scored:
        (workdir / "metrics.jsonl").write_text("")
    with pytest.raises(ValueError, match="num_steps was 20 and is 10.*pass --extend"):
        pretrain(small_config, workdir)
    ended = pretrain(small_config, workdir, extend=True)
    assert ended["loss"] == pytest.approx(scores["loss"], rel=1e-6)
    assert "num_steps was 20 and is 10" in capsys.readouterr().out
    pretrain(small_config, workdir)  # it is the run's end now
    assert "Resuming" not in capsys.readouterr().out


@pytest.mark.slow
def test_no_checkpoint_while_updates_are_left_out(small_config, tmp_path, capsys):
    """A rate that leads to infinities: the steps that skip their update keep none."""
    optimizer = dataclasses.replace(
        small_config.optimizer, peak_learning_rate=1e30, warmup_steps=0
    )
    config = dataclasses.replace(
        small_config, optimizer=optimizer, checkpoint_every=1, num_steps=8
    )
    file, workdir = write_config(config, tmp_path / "config.py"), tmp_path / "run"
    # It did not recover, and is the run's failure.
    assert main(["pretrain", str(file), "--workdir", str(workdir)]) == 1
    skipping = {
        line["step"]
        for line in logged_lines(workdir)
        if line["split"] == "train" and line["skipped_in_a_row"]
    }
    assert skipping, "the rate must lead to updates that are left out"
    output, error = capsys.readouterr()
    assert f"No checkpoint at step {min(skipping)}" in output
    assert "best so far" not in output and "NaN" not in output
    warning, failure = error.splitlines()
    assert "peak_learning_rate=1e+30 is far above" in warning
    assert failure.startswith("bert-jax: The gradient was not finite for ")
    assert " up to step 8; lower optimizer." in failure
    assert not set(list_steps(epath.Path(workdir) / "checkpoints")) & {8, *skipping}


@pytest.mark.slow
def test_a_last_step_without_a_loss_is_a_failure(
    small_config, tmp_path, capsys, caplog
):
    """Parameters of 1e37 are finite; what they give is not. Again, when it is asked."""
    optimizer = dataclasses.replace(
        small_config.optimizer, peak_learning_rate=1e38, warmup_steps=0
    )
    config = dataclasses.replace(small_config, optimizer=optimizer, num_steps=1)
    file, workdir = write_config(config, tmp_path / "config.py"), tmp_path / "run"
    for warnings in (["peak_learning_rate=1e+38"], []):  # nothing trains again
        assert main(["pretrain", str(file), "--workdir", str(workdir)]) == 1
        output, error = capsys.readouterr()
        *before, failure = error.splitlines()
        assert [line.split()[0] for line in before] == warnings
        assert failure.startswith(
            "bert-jax: The validation loss is not finite at step 1;"
        )
        assert "best so far" not in output
    assert not [record for record in caplog.records if "tensorboardX" in record.name]


class Uploads:
    """A metrics upload that fails the first times, or always."""

    def __init__(self, failures: float) -> None:
        self.failures = failures

    def __call__(self) -> "Future[None]":
        future: Future[None] = Future()
        if self.failures > 0:
            self.failures -= 1
            future.set_exception(ConnectionResetError(104, "Connection reset by peer"))
        else:
            future.set_result(None)
        return future


@pytest.mark.parametrize(
    "failures",
    [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, math.inf))],
)
def test_a_failed_save_is_tried_again(failures, tmp_path):
    """With the state of a later step; three in a row that fail end the run."""
    (tmp_path / "tokenizer").mkdir()
    directory = epath.Path(tmp_path / "checkpoints")
    files = epath.Path(tmp_path / "tokenizer")
    checkpoints = Checkpoints(directory, 2, {}, files, max_failed=3)
    state = {"x": jax.numpy.arange(3)}
    uploads = Uploads(failures)
    if failures == math.inf:
        with pytest.raises(RuntimeError, match="Connection reset.* 3 in a row"):
            checkpoints.save_or_raise(5, state, state, uploads)
        assert list_steps(directory) == []
    else:
        checkpoints.save_or_raise(5, state, state, uploads)
        assert latest_verified_step(directory) == (5, [])
        assert len(checkpoints.take_messages()) == failures
    checkpoints.close()


def test_a_message_is_kept_that_is_made_while_others_are_taken(tmp_path, monkeypatch):
    """The background thread makes it: a run says what could not be saved each step."""
    files, taken = epath.Path(tmp_path), []
    checkpoints = Checkpoints(files / "checkpoints", 2, {}, files)

    class SlowError(OSError):
        def __str__(self) -> str:
            taken.extend(checkpoints.take_messages())
            return "slow"

    def fail(root):
        raise SlowError

    monkeypatch.setattr(manager, "read_manifest", fail)
    checkpoints.record_score(5, 0.5)
    checkpoints.close()
    taken += checkpoints.take_messages()
    assert taken == ["The score of step 5 was not saved: slow"]


def test_a_failed_save_asks_to_be_tried_again(tmp_path):
    (tmp_path / "tokenizer").mkdir()
    files = epath.Path(tmp_path / "tokenizer")
    checkpoints = Checkpoints(epath.Path(tmp_path / "checkpoints"), 2, {}, files)
    state, uploads = {"x": jax.numpy.arange(3)}, Uploads(1)
    checkpoints.save(5, state, state, uploads)
    deadline = time.monotonic() + 60
    while not checkpoints.retry_due:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    checkpoints.save(6, state, state, uploads)
    assert not checkpoints.retry_due
    assert checkpoints.wait()
    assert list_steps(epath.Path(tmp_path / "checkpoints")) == [6]
    checkpoints.close()


def test_two_runs_do_not_share_a_workdir(pretrained, small_config, tmp_path, capsys):
    workdir = tmp_path / "run"
    shutil.copytree(pretrained, workdir)
    file = write_config(small_config, tmp_path / "config.py")
    with run_lock(epath.Path(workdir)):
        code = main(["pretrain", str(file), "--workdir", str(workdir)])
        error = capsys.readouterr().err
    assert code == 2 and error.count("\n") == 1
    assert f"in use by process {os.getpid()} on " in error
    assert not (workdir / LOCK).exists()


def write_lock(workdir: Path, **changes: Any) -> None:
    (workdir / LOCK).write_text(json.dumps(this_process() | changes))


def test_the_lock_of_a_process_that_has_ended_is_taken_over(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    write_lock(tmp_path, pid=child.pid)
    lock = RunLock(epath.Path(tmp_path))
    lock.acquire()
    assert json.loads((tmp_path / LOCK).read_text())["pid"] == os.getpid()
    lock.release()
    # The number was given to another process since.
    write_lock(tmp_path, process_start="1")
    lock = RunLock(epath.Path(tmp_path))
    lock.acquire()
    lock.release()
    assert list(tmp_path.iterdir()) == []


def test_the_lock_of_another_host_is_watched(tmp_path):
    """One that is not renewed is taken over, one that is stays."""
    write_lock(tmp_path, host="elsewhere")
    lock = RunLock(epath.Path(tmp_path), stale_seconds=1.0)
    lock.acquire()
    lock.release()
    write_lock(tmp_path, host="elsewhere", token="t")
    renewing = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import json, os, pathlib, sys, time\n"
            "lock, new = pathlib.Path(sys.argv[1]), sys.argv[1] + '.new'\n"
            "owner = json.loads(lock.read_text())\n"
            "for i in range(200):\n"
            "    pathlib.Path(new).write_text(json.dumps(owner | {'renewals': i}))\n"
            "    os.replace(new, lock)\n"
            "    time.sleep(0.1)\n",
            str(tmp_path / LOCK),
        ]
    )
    with pytest.raises(ValueError, match="in use by process .* on elsewhere"):
        RunLock(epath.Path(tmp_path), stale_seconds=10.0).acquire()
    renewing.kill()
    renewing.wait()


def test_a_run_that_was_taken_over_writes_no_more(tmp_path):
    with run_lock(epath.Path(tmp_path)) as check:
        check()
        write_lock(tmp_path, host="elsewhere")
        with pytest.raises(RuntimeError, match="has taken over from this run"):
            check()
    assert (tmp_path / LOCK).exists(), "it is not ours to remove"


HANGING = """
import time
from bert_jax.training.faults import Watchdog
from bert_jax.training.loop import fit
with Watchdog(0.01) as watchdog:
    time.sleep(1.5)  # the first step may take as long as it likes
    watchdog.beat()
    def hang_here():
        time.sleep(60)
    hang_here()
"""


@pytest.mark.slow
def test_a_process_that_hangs_is_ended_with_its_stacks():
    done = subprocess.run(
        [sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=50
    )
    assert done.returncode == -signal.SIGABRT
    assert done.stderr.startswith("bert-jax: no step has ended for 0.01 minutes")
    assert "hang_here" in done.stderr


@pytest.mark.slow
def test_a_first_step_that_hangs_is_ended_too():
    program = HANGING.replace("Watchdog(0.01)", "Watchdog(60.0, 0.01)")
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=50
    )
    assert done.returncode == -signal.SIGABRT
    assert "0.01 minutes (first_step_timeout_minutes)" in done.stderr


def test_an_evaluation_before_the_first_step_leaves_it_its_limit(monkeypatch):
    """As of a fine-tuned model that is trained on, or of a checkpoint at a resume."""
    aborted = threading.Event()
    monkeypatch.setattr(os, "abort", aborted.set)
    with Watchdog(0.001, 60.0) as watchdog:
        watchdog.beat(has_trained=False)
        assert not aborted.wait(0.3)
        watchdog.beat()
        assert aborted.wait(20.0)


def test_the_watchdog_can_be_off():
    with Watchdog(0.0) as watchdog:
        watchdog.beat()
        time.sleep(0.1)
    assert not watchdog._thread.is_alive()


def test_older_and_newer_damaged_checkpoints(pretrained, tmp_path, capsys):
    """What was changed at the newer one holds from where the run goes on."""
    workdir = tmp_path / "run"
    shutil.copytree(pretrained, workdir)
    change = {"field": "eval_rows", "before": 8, "now": 0}
    config = json.loads((workdir / "config.json").read_text())
    config["history"] += [{"step": 10, "changed": [change]}]
    (workdir / "config.json").write_text(json.dumps(config))
    (workdir / "checkpoints" / "10" / "manifest.json").write_text("{")
    resume = find_resume(epath.Path(workdir))
    assert resume is not None and resume.step == resume.incomparable_until == 8
    drop_score(epath.Path(workdir / "checkpoints" / "10"), [change])
    assert "10/manifest.json is not JSON" in capsys.readouterr().out

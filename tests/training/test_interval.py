"""Lines of metrics: means over the steps since the line before, also after a stop."""

import dataclasses
import json
import math
import signal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from run_helpers import assert_same_run, logged_lines

import bert_jax
from bert_jax.runs.pretraining import pretrain
from bert_jax.training.faults import InterruptedRun
from bert_jax.training.interval import Interval


def sums(total: float, count: float) -> tuple[jax.Array, jax.Array]:
    return jnp.float32(total), jnp.float32(count)


def test_means_are_of_all_rows_and_not_of_steps():
    interval = Interval(("mlm_loss", "nsp_loss"))
    interval.add({"mlm_loss": sums(6, 3), "nsp_loss": sums(2, 4), "x": sums(1, 0)})
    interval.add({"mlm_loss": sums(10, 1), "nsp_loss": sums(6, 4), "x": sums(2, 0)})
    expected = {"loss": 5.0, "mlm_loss": 4.0, "nsp_loss": 1.0, "x": 3.0}
    assert interval.means() == expected
    # A line begins a new interval.
    interval.add({"mlm_loss": sums(1, 2), "nsp_loss": sums(0, 0)})
    assert interval.means() == {"loss": 0.5, "mlm_loss": 0.5, "nsp_loss": 0.0}


def test_the_loss_weighs_its_terms():
    weights = {"mlm_loss": 0.5}
    interval = Interval.resumed(("mlm_loss", "nsp_loss"), None, weights)
    interval.add({"mlm_loss": sums(6, 2), "nsp_loss": sums(2, 4)})
    assert interval.means() == {"loss": 2.0, "mlm_loss": 3.0, "nsp_loss": 0.5}


def test_a_step_that_is_not_finite_is_left_out():
    interval = Interval(("loss",))
    interval.add({"loss": sums(math.nan, 4)})
    assert math.isnan(interval.means()["loss"])
    interval.add({"loss": sums(math.inf, 4)})
    interval.add({"loss": sums(8, 4)})
    assert interval.means() == {"loss": 2.0}


def test_a_step_whose_loss_is_not_finite_has_no_accuracy_either():
    interval = Interval(("loss",))
    interval.add({"loss": sums(math.nan, 4), "accuracy": sums(0, 4)})
    interval.add({"loss": sums(8, 4), "accuracy": sums(3, 4)})
    assert interval.means() == {"loss": 2.0, "accuracy": 0.75}


def test_counts_below_one_are_divided_by_too():
    """Counts are sums of class weights."""
    interval = Interval(("loss",))
    interval.add({"loss": sums(0.5, 0.25)})
    assert interval.means() == {"loss": 2.0}


def test_the_sums_of_a_checkpoint_go_on_exactly():
    values = [0.1, 1e7, 3e-7, 0.7]
    whole, first = Interval(("loss",)), Interval(("loss",))
    for value in values:
        whole.add({"loss": sums(value, 3)})
    for value in values[:2]:
        first.add({"loss": sums(value, 3)})
    saved = json.loads(json.dumps(first.sums()))
    second = Interval.resumed(("loss",), saved)
    for value in values[2:]:
        second.add({"loss": sums(value, 3)})
    assert second.means() == whole.means()


@pytest.mark.parametrize("damaged", [None, 3, [], {"loss": 3}, {"loss": ["a", "b"]}])
def test_what_is_no_sums_counts_as_none(damaged):
    interval = Interval.resumed(("loss",), damaged)
    interval.add({"loss": sums(4, 2)})
    assert interval.means() == {"loss": 2.0}


class StopAt(bert_jax.Callback):
    """Sends this process a signal at an evaluation."""

    def on_evaluation(self, step, scores):
        signal.raise_signal(signal.SIGTERM)


@pytest.fixture(scope="module")
def sparse(small_config, tmp_path_factory):
    """The same run with a line every four steps, and its configuration."""
    config = dataclasses.replace(small_config, log_every=4, checkpoint_every=3)
    workdir = tmp_path_factory.mktemp("sparse") / "run"
    pretrain(config, workdir)
    return config, workdir


def test_lines_are_means_over_their_steps(sparse, pretrained):
    _, workdir = sparse
    each = {line["step"]: line for line in logged_lines(pretrained, "train")}
    lines = logged_lines(workdir, "train")
    assert [line["step"] for line in lines] == [4, 8, 10]
    for line, steps in zip(lines, [(1, 2, 3, 4), (5, 6, 7, 8), (9, 10)], strict=True):
        # Each batch has as many pairs as the others, but not as many masked tokens.
        mean = np.mean([each[step]["nsp_loss"] for step in steps])
        assert line["nsp_loss"] == pytest.approx(mean, rel=1e-6)
        low, high = (f([each[s]["mlm_loss"] for s in steps]) for f in (min, max))
        assert low < line["mlm_loss"] < high
        assert line["learning_rate"] == each[steps[-1]]["learning_rate"]


@pytest.mark.slow
def test_a_run_that_stopped_between_two_lines_writes_the_same_lines(sparse, tmp_path):
    config, workdir = sparse
    with pytest.raises(InterruptedRun, match="at step 6"):
        pretrain(config, tmp_path / "run", callbacks=[StopAt()])
    manifest = tmp_path / "run" / "checkpoints" / "6" / "manifest.json"
    assert json.loads(manifest.read_text())["interval"]
    pretrain(config, tmp_path / "run")
    assert_same_run(tmp_path / "run", workdir)

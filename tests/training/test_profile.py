"""The trace of some steps, and runs that it cannot be of."""

import dataclasses
import gzip
import json
import re
from pathlib import Path

import jax
import pytest
from etils import epath
from run_helpers import logged_lines

from bert_jax.config import FinetuneConfig, OptimizerConfig, PretrainConfig
from bert_jax.config.training import parse_step_range
from bert_jax.runs.pretraining import pretrain
from bert_jax.runs.workdir import FREE_TO_CHANGE
from bert_jax.training.profile import Profile

SMALL = {"optimizer": OptimizerConfig(warmup_steps=0)}


def traced(workdir: Path) -> list[int]:
    """The steps that the trace's annotations name."""
    (path,) = (workdir / "profile").rglob("*.trace.json.gz")
    assert list(path.parent.glob("*.xplane.pb")), "what TensorBoard and XProf read"
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return [int(e["args"]["step_num"]) for e in events if e.get("name") == "train"]


@pytest.fixture
def calls(monkeypatch):
    """Stands for the profiler: what it is told."""
    found = []
    monkeypatch.setattr(jax.profiler, "start_trace", lambda _: found.append("start"))
    monkeypatch.setattr(jax.profiler, "stop_trace", lambda: found.append("stop"))
    return found


def profiled(calls, told: str, first: int, last: int) -> list:
    """What happens in the steps from `first` to `last`."""
    config = dataclasses.replace(PretrainConfig(), profile_steps=told)
    with Profile(config, epath.Path("nowhere"), first - 1) as profile:
        step = profile.wrap(lambda state, batch: (state, calls.append(batch), {}))
        for number in range(first, last + 1):
            step(None, number)
    return calls


def test_the_first_and_the_last_are_in(calls):
    assert profiled(calls, "3:4", 1, 6) == [1, 2, "start", 3, 4, "stop", 5, 6]


def test_a_run_that_goes_on_traces_what_is_left(calls):
    assert profiled(calls, "3:4", 4, 6) == ["start", 4, "stop", 5, 6]
    calls.clear()
    assert profiled(calls, "3:4", 5, 6) == [5, 6]


def test_steps_that_a_resumed_run_has_done_are_named(calls, capsys):
    profiled(calls, "3:4", 5, 6)
    told = "profile_steps=3:4 traces nothing: the run is at step 4 already"
    assert told in capsys.readouterr().err


def test_a_run_that_ends_among_them_keeps_what_it_has(calls):
    assert profiled(calls, "3:9", 3, 4) == ["start", 3, 4, "stop"]


def test_without_steps_the_step_is_itself():
    def step(state, batch):
        return state, batch, {}

    with Profile(PretrainConfig(), epath.Path("nowhere"), 0) as profile:
        assert profile.wrap(step) is step


@pytest.mark.slow
def test_a_run_writes_its_trace_and_learns_the_same(small_config, pretrained, tmp_path):
    config = dataclasses.replace(small_config, profile_steps="4:6")
    pretrain(config, tmp_path / "run")
    assert logged_lines(tmp_path / "run") == logged_lines(pretrained)
    assert traced(tmp_path / "run") == [4, 5, 6]
    assert "profile_steps" in FREE_TO_CHANGE


@pytest.mark.parametrize(
    "told", ["5", "5:", "a:b", "0:3", "7:6", "-1:3", "9:11", "11:12", "3:4:5", "3-4"]
)
def test_refused_steps(told, small_config):
    rule = f"profile_steps={told} must be FIRST:LAST, two steps of the run, as in 10:15"
    with pytest.raises(ValueError, match=re.escape(rule) + ".* from 1 to 10"):
        dataclasses.replace(small_config, profile_steps=told)


def test_a_refused_range_leaves_nothing(refused, tmp_path):
    asked = ["--workdir", str(tmp_path / "run"), "--profile-steps", "15:10"]
    assert "profile_steps=15:10 must be" in refused("pretrain", *asked)
    assert not list(tmp_path.iterdir())


def test_the_number_of_steps_may_come_later():
    """A fine-tuning run learns it from its examples."""
    config = FinetuneConfig(profile_steps="10:15", **SMALL)
    with pytest.raises(ValueError, match="steps are counted from 1 to 12"):
        dataclasses.replace(config, num_steps=12)
    with pytest.raises(ValueError, match="are counted from 1"):
        FinetuneConfig(profile_steps="15:10", **SMALL)
    assert list(parse_step_range("10:12")) == [10, 11, 12]

"""What only a GPU can show: `JAX_PLATFORMS=cuda pytest -m gpu`."""

import dataclasses
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import pytest

from bert_jax.config import PretrainConfig
from bert_jax.config_json import to_dict

pytestmark = pytest.mark.gpu
TOLERANCE = 1e-3
"""Of a loss, where the order of sums is left to the GPU."""

RUN = """
import json, os, signal, sys, time
from bert_jax import backend

config, workdir, deterministic, killed = sys.argv[1:]
backend.prepare(os.environ, deterministic == "True", keep_programs=False)
from bert_jax.config import PretrainConfig
from bert_jax.config_json import from_dict
from bert_jax.run import pretrain
from bert_jax.training.report import Report

write = Report.write

def write_and_die(self, step, split, scalars):
    write(self, step, split, scalars)
    if step == 30 and split == "train":
        while not os.path.exists(workdir + "/checkpoints/25/manifest.json"):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGKILL)

if killed == "True":
    Report.write = write_and_die
pretrain(from_dict(PretrainConfig, json.loads(config)), workdir)
"""


@pytest.fixture(scope="module", autouse=True)
def gpu() -> None:
    if jax.default_backend() != "gpu":
        pytest.skip("needs a GPU")


def run(config: PretrainConfig, workdir: Path, *flags: bool) -> int:
    """The exit code of a process that trains.

    Args:
        flags: whether it is deterministic, and whether it is killed after step 30.
    """
    options = [json.dumps(to_dict(config)), str(workdir), *map(str, flags)]
    return subprocess.run([sys.executable, "-c", RUN, *options]).returncode


def losses(workdir: Path) -> dict[tuple[int, str], float]:
    lines: list[dict[str, Any]] = [
        json.loads(line)
        for line in (workdir / "metrics.jsonl").read_text().splitlines()
    ]
    return {(line["step"], line["split"]): line["loss"] for line in lines}


@pytest.mark.parametrize("deterministic", [True, False])
def test_twenty_five_steps_and_as_many_are_fifty(deterministic, small_config, tmp_path):
    config = dataclasses.replace(small_config, num_steps=50, checkpoint_every=25)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert run(config, whole, deterministic, False) == 0
    assert run(config, parts, deterministic, True) == -signal.SIGKILL
    assert run(config, parts, deterministic, False) == 0
    one, other = losses(whole), losses(parts)
    assert one.keys() == other.keys()
    if deterministic:
        assert one == other
    else:
        assert other == pytest.approx(one, rel=TOLERANCE)

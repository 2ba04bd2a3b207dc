"""What only a GPU can show: `JAX_PLATFORMS=cuda pytest tests/training/test_gpu.py`."""

import dataclasses
import functools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config import BertConfig, PretrainConfig
from bert_jax.config.serialization import to_dict
from bert_jax.distributed import environment as backend
from bert_jax.model.encoder import Encoder

pytestmark = pytest.mark.gpu
TOLERANCE = 1e-3
"""Of a loss, where the order of sums is left to the GPU."""

RUN = """
import json, os, signal, sys, time
from bert_jax.distributed import environment as backend

config, workdir, deterministic, killed = sys.argv[1:]
backend.configure_jax(os.environ, deterministic == "True", compilation_cache=False)
from bert_jax.config import PretrainConfig
from bert_jax.config.serialization import from_dict
from bert_jax.runs.pretraining import pretrain
from bert_jax.training.report import Report

write = Report.write

def write_and_die(self, step, split, *rest):
    write(self, step, split, *rest)
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
    # That of the tests would hand each process the program of the one before.
    own = {name: value for name, value in os.environ.items() if name != backend.CACHE}
    command = [sys.executable, "-c", RUN, *options]
    return subprocess.run(command, env=own).returncode


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


def test_cudnn_keeps_row_mates_apart():
    """Two texts of 64 tokens a row; the second is changed, and the first stays."""
    config = BertConfig.miniature(
        2,
        128,
        dtype="bfloat16",
        attention_kernel="fused",
        attention_probs_dropout_prob=0.0,
    )
    ids = jax.random.randint(jax.random.key(0), (4, 128), 5, config.vocab_size)
    second = jnp.broadcast_to(jnp.arange(128) >= 64, ids.shape)
    rest = jnp.zeros_like(ids), jnp.ones_like(ids)
    encoder = Encoder(config)
    params = encoder.init(jax.random.key(1), ids, *rest)
    encode = jax.jit(functools.partial(encoder.apply, pair_ids=second + 1))
    program = encode.lower(params, ids, *rest).compile().as_text()
    assert "__cudnn$fmha" in program, "it is another's kernel that would be tested"
    changed = jnp.where(second, (ids + 7) % config.vocab_size, ids)
    before, after = encode(params, ids, *rest), encode(params, changed, *rest)
    np.testing.assert_array_equal(before[:, :64], after[:, :64])
    assert (before[:, 64:] != after[:, 64:]).any(axis=(1, 2)).all()

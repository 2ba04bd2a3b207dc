"""A small run compiled as users have it: its loss, and its bits after a stop."""

import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from etils import epath

from bert_jax.checkpoints.restore import read_params
from bert_jax.config import PretrainConfig
from bert_jax.runs.pretraining import pretrain

pytestmark = pytest.mark.precise

# After ten steps; a change of it means that the same seed and data now train something
# else: say why in the commit that changes it.
GOLDEN_LOSS = 4.966530


@pytest.fixture(scope="module")
def run(small_config: PretrainConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    workdir = tmp_path_factory.mktemp("golden")
    pretrain(small_config, workdir)
    return workdir


def losses(workdir: Path) -> list[float]:
    lines = map(json.loads, (workdir / "metrics.jsonl").read_text().splitlines())
    return [line["loss"] for line in lines if line["split"] == "train"]


def test_the_golden_loss(run):
    assert losses(run)[-1] == pytest.approx(GOLDEN_LOSS, rel=1e-4), (
        "The same data, seed and configuration train something else than before."
    )


def test_it_goes_on_with_the_same_bits(run, small_config, tmp_path):
    again = tmp_path / "again"
    shutil.copytree(run, again)
    shutil.rmtree(again / "checkpoints" / "10")
    pretrain(small_config, again)
    assert losses(again) == losses(run)
    params = [read_params(epath.Path(w) / "checkpoints" / "10") for w in (run, again)]
    jax.tree.map(np.testing.assert_array_equal, *params)

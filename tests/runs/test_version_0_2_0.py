"""Runs that version 0.2.0 began end as they would have ended there.

`golden/version_0_2_0.tar.gz` holds a dataset of packed pairs, a pretraining and a
tagging workdir of a one-layer model, each at step 4 of 8, and in `step_8.npz` the
parameters that version 0.2.0 had at step 8.
"""

import dataclasses
import tarfile
from pathlib import Path

import numpy as np
import pytest
from flax.traverse_util import flatten_dict

import bert_jax
from bert_jax.config import FinetuneConfig, MeshConfig, PretrainConfig
from bert_jax.config.files import load_config

ARCHIVE = Path(__file__).parent.parent / "golden" / "version_0_2_0.tar.gz"


@pytest.mark.parametrize(
    ("name", "kind", "run"),
    [
        ("pretraining", PretrainConfig, bert_jax.pretrain),
        pytest.param(
            *("finetuning", FinetuneConfig, bert_jax.finetune), marks=pytest.mark.slow
        ),
    ],
)
def test_a_run_goes_on(tmp_path, monkeypatch, name, kind, run):
    """Masks, dropout, order of rows and the optimizer's state are still the same."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    expected = dict(np.load("step_8.npz"))

    config = load_config(f"{name}/config.json", kind)
    # It began on one device; dropout depends on their number.
    run(dataclasses.replace(config, mesh=MeshConfig(data=1)), name)
    params = flatten_dict(bert_jax.load(f"{name}/checkpoints/8").params, sep="/")

    assert {f"{name}/{path}" for path in params} == {
        path for path in expected if path.startswith(f"{name}/")
    }
    for path, value in params.items():
        wanted = expected[f"{name}/{path}"]
        np.testing.assert_allclose(value, wanted, rtol=1e-5, atol=1e-6, err_msg=path)

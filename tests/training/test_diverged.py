"""Runs and models whose numbers are not finite are refused by name."""

import dataclasses
import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from etils import epath

import bert_jax
from bert_jax.apps.dry_run.pretraining import dry_run
from bert_jax.checkpoints.restore import read_params
from bert_jax.cli.start import scores_json
from bert_jax.config.model import Params
from bert_jax.model.finite import nonfinite_names
from bert_jax.runs.pretraining import pretrain
from bert_jax.storage.files import write_json
from bert_jax.storage.manifest import (
    describe_files,
    files_below,
    read_manifest,
    write_manifest,
)

LAYER_NORM = "encoder/embeddings/layer_norm"
MESSAGE = f"has 2 parameters with numbers that are not finite, .* {LAYER_NORM}/bias; "


def write_params(params: Params, checkpoint: epath.Path) -> None:
    """Replace the parameters of a checkpoint, as if a run had written them."""
    shutil.rmtree(checkpoint / "state")
    with ocp.StandardCheckpointer() as saver:
        saver.save(checkpoint / "state", params)
    manifest = read_manifest(checkpoint)
    names = [name for name in files_below(checkpoint) if name != "manifest.json"]
    files = describe_files(checkpoint, names)
    write_manifest(manifest | {"files": files}, checkpoint)


@pytest.fixture(scope="module")
def diverged(pretrained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workdir of a run whose newest checkpoint an older version has written."""
    workdir = tmp_path_factory.mktemp("diverged") / "run"
    shutil.copytree(pretrained, workdir)
    checkpoint = epath.Path(workdir) / "checkpoints" / "10"
    params = read_params(checkpoint)
    norm = params["encoder"]["embeddings"]["layer_norm"]
    norm["scale"], norm["bias"] = norm["scale"] * np.inf, norm["bias"].copy()
    norm["bias"][3] = np.nan
    write_params(params, checkpoint)
    return workdir


def test_a_model_that_is_not_finite_is_opened_nowhere(
    diverged, small_config, tmp_path, refused
):
    with pytest.raises(ValueError, match=f"checkpoints/10 {MESSAGE}"):
        bert_jax.load(diverged)
    source = dataclasses.replace(small_config, init_from=str(diverged))
    with pytest.raises(ValueError, match=MESSAGE):
        dry_run(source, "")
    output = ["--output", str(tmp_path / "new")]
    for command in (
        ["embed", "--model", str(diverged), "--input", __file__, *output],
        ["convert", "export", str(diverged), "--to", "huggingface", *output],
    ):
        error = refused(*command)
        assert "not finite" in error
    assert not (tmp_path / "new").exists()


def test_what_is_computed_must_be_finite(pretrained, tmp_path, refused):
    """Parameters of 1e38 are finite, and no prediction or vector follows from them."""
    workdir, texts = tmp_path / "run", tmp_path / "texts.txt"
    shutil.copytree(pretrained, workdir)
    checkpoint = epath.Path(workdir) / "checkpoints" / "10"
    params = jax.tree.map(lambda leaf: leaf * 0 + 1e38, read_params(checkpoint))
    write_params(params, checkpoint)
    texts.write_text("the judge\n")
    output = ["--output", str(tmp_path / "new")]
    error = refused("embed", "--model", str(workdir), "--input", str(texts), *output)
    assert "the model computes is not finite: its training" in error
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("keep_optimizer", [True, False])
def test_a_run_does_not_go_on_from_there(
    keep_optimizer, diverged, small_config, tmp_path
):
    """Neither the run itself nor one that keeps its optimizer."""
    config, workdir = dataclasses.replace(small_config, num_steps=12), tmp_path / "run"
    if keep_optimizer:
        config = dataclasses.replace(
            config, init_from=str(diverged), keep_optimizer=True
        )
    else:
        shutil.copytree(diverged, workdir)
    with pytest.raises(ValueError, match=MESSAGE):
        pretrain(config, workdir, extend=True)


def test_parameters_that_are_not_finite_are_named():
    values = np.full((2, 3), 3e38, np.float32)  # whose sum is not a float32
    tree = {"a": values, "b": {"c": values * np.inf, "d": values}, "e": values - np.nan}
    assert nonfinite_names({"a": values}) == []
    assert nonfinite_names(tree) == ["b/c", "e"]
    on_device = {"a": jnp.zeros(2), "b": jnp.array([np.inf, -np.inf])}
    assert nonfinite_names(on_device) == ["b"]


def test_json_has_no_numbers_that_are_not_finite(tmp_path):
    scores = {"loss": np.nan, "f1": 0.25, "best_threshold": -np.inf}
    line = json.loads(scores_json(scores), parse_constant=pytest.fail)
    assert line == {"loss": None, "f1": 0.25, "best_threshold": None}
    write_json({"runs": [scores, ("a", np.inf)]}, epath.Path(tmp_path / "runs.json"))
    text = (tmp_path / "runs.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == {"runs": [line, ["a", None]]}

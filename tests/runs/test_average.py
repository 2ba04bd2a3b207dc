"""The mean of several checkpoints of a run."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from etils import epath
from run_helpers import classifier_config, read_arrays, read_params
from small_world import SUBJECTS

import bert_jax
from bert_jax.cli.main import main
from bert_jax.config import PretrainConfig
from bert_jax.runs.average import average
from bert_jax.runs.finetuning import finetune
from bert_jax.runs.pretraining import pretrain
from bert_jax.storage.manifest import describe_files, read_manifest, write_manifest


@pytest.fixture(scope="module")
def source(small_config: PretrainConfig, tmp_path_factory) -> Path:
    """A run with checkpoints at steps 4, 8 and 10."""
    workdir = tmp_path_factory.mktemp("averages") / "run"
    pretrain(dataclasses.replace(small_config, keep_checkpoints=9), workdir)
    return workdir


@pytest.fixture(scope="module")
def mean(source: Path, tmp_path_factory) -> Path:
    """The mean of all three, made by the command line."""
    output = tmp_path_factory.mktemp("means") / "mean"
    steps = ["--steps", "10", "4", "8"]
    command = ["convert", "average", str(source), *steps, "--output", str(output)]
    assert main(command) == 0
    return output


def saved(checkpoint: Path) -> dict[str, np.ndarray]:
    arrays = read_arrays(checkpoint, "state")
    return {name.removeprefix("state/"): leaf for name, leaf in arrays.items()}


def test_the_mean_is_exact(source, mean, tmp_path):
    """As exact fractions: a float64 holds the sum of three float32 of like size."""
    three = [read_params(source, step) for step in (4, 8, 10)]
    assert not np.array_equal(three[0]["masked_lm/bias"], three[1]["masked_lm/bias"])
    ours = saved(mean)
    assert ours.keys() == three[0].keys()
    for name, leaf in ours.items():
        total = sum(params[name].astype(np.float64) for params in three)
        assert leaf.dtype == np.float32
        np.testing.assert_array_equal(leaf, (total / 3).astype(np.float32))
    average(str(source), [8, 4], epath.Path(tmp_path / "two"))
    for name, leaf in saved(tmp_path / "two").items():
        a, b = (params[name].astype(np.longdouble) for params in three[:2])
        np.testing.assert_array_equal(leaf, ((a + b) / 2).astype(np.float32))


def test_the_order_of_the_steps_has_no_effect(source, mean, tmp_path):
    average(str(source), [4, 8, 10], epath.Path(tmp_path / "again"))
    ours, theirs = saved(tmp_path / "again"), saved(mean)
    assert all(ours[name].tobytes() == theirs[name].tobytes() for name in theirs)


def test_the_receipt_names_the_sources(source, mean):
    receipt = json.loads((mean / "conversion.json").read_text())
    assert receipt["source"] == str(source)
    paths = [source / "checkpoints" / str(step) for step in (4, 8, 10)]
    assert [entry["checkpoint"] for entry in receipt["mean_of"]] == list(
        map(str, paths)
    )
    for path, entry in zip(paths, receipt["mean_of"], strict=True):
        manifest = json.loads((path / "manifest.json").read_text())
        assert entry["files"] == manifest["files"]


def test_the_card_of_its_export_names_no_import(mean, tmp_path):
    bert_jax.load(mean).save(tmp_path / "exported")
    card = (tmp_path / "exported" / "README.md").read_text()
    assert "it is the mean of checkpoints of a run" in card and "imported" not in card


@pytest.mark.slow
def test_every_command_loads_it(mean, tmp_path, small_config, capsys):
    bert = bert_jax.load(mean)
    ((_, probability), *_) = bert.fill_mask("The [MASK] reads the letter.", k=2)
    assert 0 < probability < 1
    assert main(["inspect", str(mean), "--verify"]) == 0
    assert "every file verified" in capsys.readouterr().out
    table = tmp_path / "train.csv"
    rows = [f"The {SUBJECTS[i % 2]} reads {i}.,{SUBJECTS[i % 2]}" for i in range(24)]
    table.write_text("review,who\n" + "\n".join(rows) + "\n")
    config = classifier_config(table, mean, num_steps=2)
    assert 0 <= finetune(config, tmp_path / "tuned")["accuracy"] <= 1
    config = dataclasses.replace(small_config, init_from=str(mean), num_steps=2)
    assert pretrain(config, tmp_path / "run")["mlm_loss"] > 0


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ("", "--steps has no step; give two or more"),
        ("4", "--steps has 4; give two or more"),
        ("4 8 4", "--steps has a step twice, in 4, 4, 8"),
        ("4 5", "no complete checkpoint of step 5; it has those of 4, 8, 10."),
        ("4 -8", "no complete checkpoint of step -8"),
        ("4 x", "--steps"),
    ],
)
def test_refused_steps(steps, message, source, tmp_path, refused_mean):
    assert message in refused_mean(source, tmp_path / "out", *steps.split())


@pytest.fixture
def refused_mean(refused):
    """The one line that is printed; nothing is written."""

    def average(source: Path, output: Path, *steps: str) -> str:
        options = ("--output", output, "--steps", *steps)
        command = ("convert", "average", source, *options)
        return refused(*command, unchanged=output.parent)

    return average


def test_refused_directories(source, tmp_path, mean, refused_mean):
    for name in (tmp_path / "none", mean):
        error = refused_mean(name, tmp_path / "out", "4", "8")
        assert f"{name} is not the workdir of a run" in error
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("mine")
    error = refused_mean(source, tmp_path / "taken", "4", "8")
    assert "exists and is not an empty directory" in error


@pytest.mark.slow
def test_checkpoints_of_other_models(source, tmp_path, small_config, refused_mean):
    wide = dataclasses.replace(
        small_config,
        model=dataclasses.replace(small_config.model, intermediate_size=32),
        num_steps=8,
        keep_checkpoints=9,
    )
    pretrain(wide, tmp_path / "wide")
    run = tmp_path / "run"
    shutil.copytree(source, run)
    shutil.rmtree(run / "checkpoints" / "8")
    shutil.copytree(tmp_path / "wide" / "checkpoints" / "8", run / "checkpoints" / "8")
    error = refused_mean(run, tmp_path / "out", "4", "8", "10")
    assert "are not of one model: intermediate_size is 64 and 32." in error
    for change, message in (
        ({"intermediate_size": 64}, "their parameters have different shapes."),
        (
            {"intermediate_size": 64, "hidden_act": "relu"},
            "hidden_act is gelu and relu",
        ),
    ):
        change_model(run / "checkpoints" / "8", **change)
        error = refused_mean(run, tmp_path / "out", "4", "8")
        assert message in error


def change_model(checkpoint: Path, **change: object) -> None:
    """Change the model in a checkpoint's config.json, and the manifest with it."""
    path = checkpoint / "config.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps(values | {"model": values["model"] | change}))
    root = epath.Path(checkpoint)
    manifest = read_manifest(root)
    names = [entry["path"] for entry in manifest["files"]]
    write_manifest(manifest | {"files": describe_files(root, names)}, root)


def test_a_damaged_checkpoint_is_not_averaged(source, tmp_path, refused_mean):
    run = tmp_path / "run"
    shutil.copytree(source, run)
    vocabulary = run / "checkpoints" / "8" / "tokenizer" / "vocab.txt"
    vocabulary.write_text(vocabulary.read_text() + "x\n")
    assert f"{vocabulary} has" in refused_mean(run, tmp_path / "out", "4", "8")

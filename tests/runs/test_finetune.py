"""Whole fine-tuning runs: they learn, resume bit by bit, and keep what they should."""

import csv
import dataclasses
import json
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from etils import epath
from small_world import OBJECTS, PLACES, SUBJECTS, VERBS

import bert_jax
from bert_jax.checkpoints.restore import read_params
from bert_jax.checkpoints.steps import latest_verified_step
from bert_jax.config import (
    BertConfig,
    ExamplesConfig,
    FinetuneConfig,
    MeshConfig,
    OptimizerConfig,
)
from bert_jax.config.serialization import to_dict
from bert_jax.distributed.mesh import path_name
from bert_jax.inference.evaluation import evaluate
from bert_jax.runs.finetuning import finetune
from bert_jax.storage.manifest import read_manifest, write_manifest
from bert_jax.tasks.finetuning import Learning
from bert_jax.tasks.splits import hold_out
from bert_jax.tasks.text_classification import TEXT_CLASSIFICATION
from bert_jax.tasks.texts import TextRecord

RATES = ("tokens_per_second", "data_wait", "mfu")


def sentence(generator: random.Random, subject: str) -> str:
    places = [generator.choice(PLACES) for _ in range(generator.choice([1, 1, 3]))]
    verb, thing = generator.choice(VERBS), generator.choice(OBJECTS)
    return f"The {subject} {verb} the {thing} in the {' and the '.join(places)}."


def write_table(path: Path, number: int) -> Path:
    """Sentences about one of two people, and who it is."""
    generator = random.Random(number)
    subjects = [SUBJECTS[i % 2] for i in range(number)]
    with open(path, "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["review", "who"])
        table.writerows([sentence(generator, each), each] for each in subjects)
    return path


@pytest.fixture(scope="module")
def config(
    encoder_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> FinetuneConfig:
    """Six epochs of twelve steps, with dropout, on the mean of the tokens."""
    folder = tmp_path_factory.mktemp("tables")
    return FinetuneConfig(
        data=ExamplesConfig(
            train=str(write_table(folder / "train.csv", 96)),
            validation=str(write_table(folder / "dev.csv", 30)),
            text_columns=("review",),
            label_column="who",
            max_length=32,
            num_buckets=2,
        ),
        optimizer=OptimizerConfig(
            peak_learning_rate=2e-2, warmup_steps=0, warmup_share=0.1
        ),
        model=BertConfig(pooling="mean"),
        mesh=MeshConfig(data=1),
        num_epochs=6.0,
        batch_size=8,
        init_from=str(encoder_checkpoint),
        log_every=1,
        eval_every=24,
        checkpoint_every=24,
    )


@pytest.fixture(scope="module")
def traced() -> list[tuple[int, ...]]:
    return []


@pytest.fixture(scope="module")
def whole(
    config: FinetuneConfig,
    tmp_path_factory: pytest.TempPathFactory,
    traced: list[tuple[int, ...]],
) -> tuple[Path, dict[str, float]]:
    """A run that was never stopped, and what it returned; notes what is traced."""
    workdir = tmp_path_factory.mktemp("whole")
    loss = Learning.loss

    def counted(self: Learning, params: Any, rows: Any, key: Any) -> Any:
        traced.append(rows["tokens"].shape)
        return loss(self, params, rows, key)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Learning, "loss", counted)
        scores = finetune(dataclasses.replace(config, log_examples=True), workdir)
    return workdir, scores


def metrics(workdir: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl without what a clock says."""
    lines = map(json.loads, (workdir / "metrics.jsonl").read_text().splitlines())
    return [{k: v for k, v in line.items() if k not in RATES} for line in lines]


def params_of(workdir: Path, step: int | None = None) -> dict[str, np.ndarray]:
    """By name, of the newest checkpoint or of the one that is named."""
    checkpoints = epath.Path(workdir) / "checkpoints"
    step = latest_verified_step(checkpoints)[0] if step is None else step
    return by_name(read_params(checkpoints / str(step)))


def by_name(params: Any) -> dict[str, np.ndarray]:
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {path_name(path): np.asarray(leaf) for path, leaf in leaves}


def assert_same_run(one: Path, other: Path) -> None:
    assert metrics(one) == metrics(other)
    a, b = params_of(one), params_of(other)
    assert a.keys() == b.keys()
    for name, values in a.items():
        np.testing.assert_array_equal(values, b[name], err_msg=name)


def test_it_learns(whole):
    """Who a sentence is about; always naming the same one has half of them right."""
    _, scores = whole
    assert scores["accuracy"] > 0.9
    (baseline,) = (value for name, value in scores.items() if "commonest" in name)
    assert baseline == 0.5


def test_lines_of_a_run(whole):
    workdir, _ = whole
    train = [line for line in metrics(workdir) if line["split"] == "train"]
    validation = [line for line in metrics(workdir) if line["split"] == "validation"]
    assert [line["step"] for line in train] == list(range(1, 73))
    assert [line["step"] for line in validation] == [24, 48, 72]
    rates = [line["learning_rate"] for line in train]
    assert rates[0] == 0 and rates[7] == max(rates) == pytest.approx(2e-2)
    assert train[-1]["loss"] < train[0]["loss"]


def test_each_example_is_seen_once_an_epoch(whole):
    lines = (whole[0] / "examples.jsonl").read_text().splitlines()
    rows = np.array([json.loads(line)["rows"] for line in lines])
    for epoch in rows.reshape(6, -1):
        assert sorted(epoch) == list(range(96))


def test_a_step_is_traced_at_most_once_a_bucket(whole, traced):
    assert len(traced) == len(set(traced)) == 2
    assert {batch for batch, _ in traced} == {8}


def test_the_best_checkpoint_is_what_one_gets(whole, config):
    """The last of the best."""
    workdir, scores = whole
    lines = [line for line in metrics(workdir) if line["split"] == "validation"]
    best = max(lines, key=lambda line: (line["accuracy"], line["step"]))
    for name in ("accuracy", "macro_f1", "mcc", "f1", "loss"):
        assert scores[name] == best[name]
    found, _ = evaluate(workdir)
    assert found == pytest.approx({k: best[k] for k in found})
    assert list(found) == ["accuracy", "macro_f1", "mcc", "f1"]
    loaded, kept = (
        by_name(bert_jax.load(workdir).params),
        params_of(workdir, best["step"]),
    )
    assert loaded.keys() == kept.keys() and not other_leaves(loaded, kept)


def test_a_worse_end_is_passed_over(whole, tmp_path):
    """Where the best stands first, it is loaded and the newest goes on training."""
    workdir = tmp_path / "run"
    shutil.copytree(whole[0], workdir)
    checkpoints = sorted((workdir / "checkpoints").iterdir(), key=lambda p: int(p.name))
    for score, path in zip((0.9, 0.2), checkpoints[-2:], strict=True):
        manifest = read_manifest(epath.Path(path))
        write_manifest(manifest | {"selection_score": score}, epath.Path(path))
    for path in checkpoints[:-2]:
        shutil.rmtree(path)
    better = params_of(workdir, int(checkpoints[-2].name))
    loaded = bert_jax.load(workdir).params["classifier"]["dense"]["kernel"]
    np.testing.assert_array_equal(loaded, better["classifier/dense/kernel"])


KILLED = """
import json, os, signal, sys, time
from bert_jax.config import FinetuneConfig
from bert_jax.config.serialization import from_dict
from bert_jax.runs.finetuning import finetune
from bert_jax.training.report import Report

write = Report.write

def write_and_die(self, step, split, scalars):
    write(self, step, split, scalars)
    if step == 27 and split == "train":
        while not os.path.exists(sys.argv[2] + "/checkpoints/24/manifest.json"):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGKILL)

Report.write = write_and_die
finetune(from_dict(FinetuneConfig, json.loads(sys.argv[1])), sys.argv[2])
"""


def test_a_killed_run_goes_on_bit_identically(whole, config, tmp_path, capsys):
    command = [sys.executable, "-c", KILLED, json.dumps(to_dict(config))]
    killed = subprocess.run([*command, str(tmp_path)], capture_output=True, timeout=300)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-2000:]
    finetune(config, tmp_path)
    assert "Going on from the checkpoint at step 24" in capsys.readouterr().out
    assert_same_run(whole[0], tmp_path)


def test_a_finished_run_is_left_as_it_is(whole, config, tmp_path):
    workdir = tmp_path / "run"
    shutil.copytree(whole[0], workdir)
    assert finetune(config, workdir) == whole[1]
    assert_same_run(whole[0], workdir)


def test_another_training_file_is_refused(whole, config, tmp_path):
    """Moved it may be, but not changed."""
    moved = tmp_path / "moved.csv"
    shutil.copy(config.data.train, moved)

    def data(**options: Any) -> FinetuneConfig:
        changed = dataclasses.replace(config.data, **options)
        return dataclasses.replace(config, data=changed)

    workdir = tmp_path / "run"
    shutil.copytree(whole[0], workdir)
    finetune(data(train=str(moved)), workdir)
    moved.write_text(moved.read_text().replace(SUBJECTS[0], SUBJECTS[1], 1))
    with pytest.raises(ValueError, match="belongs to another run: data.fingerprint"):
        finetune(data(train=str(moved)), workdir)


@pytest.fixture(scope="module")
def still(config: FinetuneConfig) -> FinetuneConfig:
    """One step on [CLS], at a learning rate of 0: it saves what it begins with."""
    optimizer = OptimizerConfig(peak_learning_rate=1e-3, warmup_steps=1)
    data = dataclasses.replace(config.data, num_buckets=1)
    changed = {"optimizer": optimizer, "data": data, "model": BertConfig()}
    return dataclasses.replace(config, num_steps=1, **changed)


@pytest.fixture(scope="module")
def beginning(
    still: FinetuneConfig, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, np.ndarray]:
    finetune(still, workdir := tmp_path_factory.mktemp("still"))
    return params_of(workdir)


def other_leaves(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> set[str]:
    return {
        name for name in one.keys() & other.keys() if (one[name] != other[name]).any()
    }


def constant(name: str) -> bool:
    """Whether a leaf is drawn as zeros or ones, the same by every seed."""
    return name.endswith(("bias", "scale"))


@pytest.fixture(scope="module")
def given(encoder_checkpoint: Path) -> dict[str, np.ndarray]:
    return by_name(read_params(epath.Path(encoder_checkpoint)))


def test_a_run_begins_with_its_source(beginning, given):
    assert not other_leaves(beginning, given)
    assert given.keys() < beginning.keys()
    new = beginning.keys() - given.keys()
    assert new == {"classifier/dense/kernel", "classifier/dense/bias"}


def test_from_scratch_draws_everything(still, beginning, tmp_path):
    finetune(dataclasses.replace(still, from_scratch=True), tmp_path)
    found = params_of(tmp_path)
    assert found.keys() == beginning.keys()
    same = beginning.keys() - other_leaves(found, beginning)
    # The seed is the same, so is the head.
    assert {n for n in same if not constant(n)} == {"classifier/dense/kernel"}


def test_topmost_layers_drawn_anew(still, beginning, tmp_path):
    finetune(dataclasses.replace(still, reinitialise_layers=1), tmp_path)
    changed = other_leaves(params_of(tmp_path), beginning)
    top = {n for n in beginning if n.startswith(("encoder/layer_0/", "pooler/"))}
    assert {n for n in top if not constant(n)} <= changed <= top


def test_more_layers_than_there_are(still, tmp_path):
    optimizer = dataclasses.replace(still.optimizer, frozen_layers=3)
    for field, many in (
        ("reinitialise_layers=2", {"reinitialise_layers": 2}),
        ("optimizer.frozen_layers=3", {"optimizer": optimizer}),
    ):
        with pytest.raises(ValueError, match=f"{field} but the model has 1 layers"):
            finetune(dataclasses.replace(still, **many), tmp_path / "many")
    assert not (tmp_path / "many").exists()


def test_validation_examples_must_have_labels(still, tmp_path):
    file = tmp_path / "dev.csv"
    file.write_text("review\nThe clerk reads.\n")
    data = dataclasses.replace(still.data, validation=str(file))
    with pytest.raises(ValueError, match="dev.csv, line 2: 1 of 1 validation examples"):
        finetune(dataclasses.replace(still, data=data), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def frozen(
    still: FinetuneConfig,
    config: FinetuneConfig,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, np.ndarray]:
    """After training without the lowest layer, on the mean of the tokens."""
    optimizer = dataclasses.replace(
        config.optimizer, frozen_layers=1, weight_decay=0.5, layer_decay=0.5
    )
    model = BertConfig(pooling="mean")
    finetune(
        dataclasses.replace(still, optimizer=optimizer, model=model, num_steps=6),
        workdir := tmp_path_factory.mktemp("frozen"),
    )
    assert bert_jax.load(workdir).config.pooling == "mean"
    return params_of(workdir)


def test_frozen_layers_stay_and_the_rest_learns(frozen, given):
    assert not other_leaves(frozen, given), "encoder and embeddings, bit by bit"
    assert frozen["classifier/dense/bias"].any(), "which began with zeros"


def test_without_pooler_where_the_mean_is_seen(frozen):
    assert not any(name.startswith("pooler") for name in frozen)


def records(number: int) -> list[TextRecord]:
    return [TextRecord((str(i),), "ab"[i % 2]) for i in range(number)]


@pytest.mark.parametrize("fraction", [0.01, 0.1, 0.5])
def test_what_is_held_out_is_fixed_and_disjoint(fraction):
    train, held = hold_out(TEXT_CLASSIFICATION, records(50), fraction)
    assert len(held) == max(1, round(50 * fraction))
    assert sorted(train + held, key=str) == sorted(records(50), key=str)
    assert hold_out(TEXT_CLASSIFICATION, records(50), fraction) == (train, held)


def test_what_is_held_out_is_spread_over_the_file():
    """Files are often sorted by class."""
    _, held = hold_out(TEXT_CLASSIFICATION, records(100), 0.2)
    tens = {int(each.texts[0]) // 10 for each in held}
    assert len(tens) >= 6


def test_nothing_is_left_to_hold_out():
    for number, fraction in ((1, 0.5), (5, 0.0), (5, 0.99)):
        with pytest.raises(ValueError, match=f"data.validation_fraction={fraction} le"):
            hold_out(TEXT_CLASSIFICATION, records(number), fraction)

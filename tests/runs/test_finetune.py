"""Fine-tuning runs: they learn, resume bit by bit, and keep the best checkpoint."""

import csv
import dataclasses
import random
import shutil
import types
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from etils import epath
from run_helpers import (
    assert_same_run,
    classifier_config,
    logged_lines,
    read_params,
)
from small_world import OBJECTS, PLACES, SUBJECTS, VERBS

import bert_jax
from bert_jax.cli.main import main
from bert_jax.config import (
    BertConfig,
    ExamplesConfig,
    FinetuneConfig,
    OptimizerConfig,
)
from bert_jax.distributed.sharding import path_name
from bert_jax.inference.evaluation import evaluate
from bert_jax.model import attention
from bert_jax.runs.finetuning import examples_line, finetune
from bert_jax.runs.finetuning_examples import chosen_config
from bert_jax.runs.finetuning_setup import merge_model_config, rate_for
from bert_jax.storage.manifest import read_manifest, write_manifest
from bert_jax.tasks.finetuning import FinetuningTask
from bert_jax.tasks.predictions import Splits
from bert_jax.tasks.splits import hold_out
from bert_jax.tasks.texts.classes import ClassTask
from bert_jax.tasks.texts.examples import TextExample


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
        table.writerows([sentence(generator, name), name] for name in subjects)
    return path


@pytest.fixture(scope="module")
def config(
    encoder_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> FinetuneConfig:
    """Six epochs of twelve steps, with dropout, on the mean of the tokens."""
    folder = tmp_path_factory.mktemp("tables")
    config = classifier_config(
        write_table(folder / "train.csv", 96),
        encoder_checkpoint,
        model=BertConfig(pooling="mean"),
        num_epochs=6.0,
        log_every=1,
        eval_every=24,
        checkpoint_every=24,
        log_examples=True,
    )
    data = dataclasses.replace(
        config.data,
        validation=str(write_table(folder / "dev.csv", 30)),
        num_buckets=2,
    )
    optimizer = dataclasses.replace(config.optimizer, warmup_steps=0, warmup_share=0.1)
    return dataclasses.replace(config, data=data, optimizer=optimizer)


@pytest.fixture(scope="module")
def traced() -> list[tuple[int, ...]]:
    return []


@pytest.fixture(scope="module")
def uninterrupted(
    config: FinetuneConfig,
    tmp_path_factory: pytest.TempPathFactory,
    traced: list[tuple[int, ...]],
) -> tuple[Path, dict[str, float]]:
    """A run that was never stopped, and what it returned; records what is traced."""
    workdir = tmp_path_factory.mktemp("uninterrupted")
    loss = FinetuningTask.loss

    def counted(self: FinetuningTask, params: Any, batch: Any, key: Any) -> Any:
        traced.append(batch["tokens"].shape)
        return loss(self, params, batch, key)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FinetuningTask, "loss", counted)
        scores = finetune(config, workdir)
    return workdir, scores


def by_name(params: Any) -> dict[str, np.ndarray]:
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {path_name(path): np.asarray(leaf) for path, leaf in leaves}


def test_a_kernel_without_dropout_is_refused_first(config, tmp_path, monkeypatch):
    """Not when the first step is traced, after the files of the run are written."""
    gpu = types.SimpleNamespace(platform="gpu", device_kind="NVIDIA H200")
    monkeypatch.setattr(attention, "target_device", lambda: gpu)
    model = dataclasses.replace(
        config.model,
        attention_kernel="fused",
        attention_probs_dropout_prob=0.1,
        dtype="bfloat16",
    )
    with pytest.raises(ValueError, match=r"attention_probs_dropout_prob=0.1 cannot"):
        finetune(dataclasses.replace(config, model=model), tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_the_attention_kernel_is_of_the_run():
    """A model that a TPU trained by its kernel may be fine-tuned on a GPU."""
    source = BertConfig.tiny(attention_kernel="fused")
    config = FinetuneConfig()
    assert merge_model_config(config, source, "there").attention_kernel == "plain"
    config = FinetuneConfig(model=BertConfig(attention_kernel="fused"))
    assert merge_model_config(config, source, "there").attention_kernel == "fused"


@pytest.mark.parametrize(("rows", "said"), [(2, ""), (7, " (7 and 1 rows)")])
def test_examples_are_counted_and_rows_too_if_they_differ(rows, said):
    """Long sentences to tag and documents take several rows each."""
    train, validation = (
        types.SimpleNamespace(examples=[None] * n, tokenized=[None] * number)
        for n, number in ((2, rows), (1, 1))
    )
    setup: Any = types.SimpleNamespace(
        config=FinetuneConfig(num_steps=4), train=train, validation=validation
    )
    line = f"2 examples to learn from, 1 to score on{said}; 4 steps of 32."
    assert examples_line(setup) == line


def test_a_record_has_the_shape_and_the_rate_of_another_model():
    """Whether its examples stay or are others, as `finetune(train=…)` names them."""
    narrow, wide = BertConfig.tiny(), BertConfig.mini()
    rate = OptimizerConfig(peak_learning_rate=1e-3, warmup_steps=0)
    record = FinetuneConfig(
        model=dataclasses.replace(narrow, head="sequence_classification"),
        data=ExamplesConfig(fingerprint="f"),
        optimizer=rate,
        rate_by_size=True,
    )
    for config in (record, chosen_config(record, train="other.csv")):
        assert merge_model_config(config, wide, "there") == wide
        assert rate_for(config, wide, None) == 3e-5
        assert rate_for(config, narrow, None) == 1e-3
    edited = OptimizerConfig(peak_learning_rate=1e-4, warmup_steps=0)
    assert rate_for(dataclasses.replace(record, optimizer=edited), wide, None) == 1e-4
    no_record = dataclasses.replace(record, data=ExamplesConfig())
    with pytest.raises(ValueError, match="model.hidden_size=128 but there has 256"):
        merge_model_config(no_record, wide, "there")


def test_it_learns(uninterrupted):
    """Who a sentence is about; the baseline, one class for all, has accuracy 0.5."""
    _, scores = uninterrupted
    assert scores["accuracy"] > 0.9
    (baseline,) = (value for name, value in scores.items() if "commonest" in name)
    assert baseline == 0.5


def test_lines_of_a_run(uninterrupted):
    workdir, _ = uninterrupted
    train = logged_lines(workdir, "train")
    validation = logged_lines(workdir, "validation")
    assert [line["step"] for line in train] == list(range(1, 73))
    assert [line["step"] for line in validation] == [24, 48, 72]
    rates = [line["learning_rate"] for line in train]
    assert rates[0] == 0 and rates[7] == max(rates) == pytest.approx(2e-2)
    assert train[-1]["loss"] < train[0]["loss"]


def test_each_example_is_seen_once_an_epoch(uninterrupted):
    lines = logged_lines(uninterrupted[0], name="examples.jsonl")
    rows = np.array([line["rows"] for line in lines])
    for epoch in rows.reshape(6, -1):
        assert sorted(epoch) == list(range(96))


def test_a_step_is_traced_at_most_once_a_bucket(uninterrupted, traced):
    assert len(traced) == len(set(traced)) == 2
    assert {batch for batch, _ in traced} == {8}


def test_the_best_checkpoint_is_loaded_and_evaluated(uninterrupted, config):
    """Of equally good ones the last."""
    workdir, scores = uninterrupted
    lines = logged_lines(workdir, "validation")
    best = max(lines, key=lambda line: (line["accuracy"], line["step"]))
    for name in ("accuracy", "macro_f1", "mcc", "f1", "loss"):
        assert scores[name] == best[name]
    evaluated, _ = evaluate(workdir)
    rule, value = evaluated.popitem()
    assert rule == "baseline: accuracy of the commonest label" and 0.5 <= value < 1
    assert evaluated == pytest.approx({k: best[k] for k in evaluated})
    both = [f"f1_{name}" for name in sorted(SUBJECTS[:2])]
    assert list(evaluated) == ["accuracy", "macro_f1", "mcc", "f1", *both]
    assert evaluated["f1"] == evaluated[both[1]], "f1 is that of the second class"
    loaded, kept = (
        by_name(bert_jax.load(workdir).params),
        read_params(workdir, best["step"]),
    )
    assert loaded.keys() == kept.keys() and not other_leaves(loaded, kept)


def test_a_worse_last_checkpoint_is_not_loaded(uninterrupted, tmp_path):
    workdir = tmp_path / "run"
    shutil.copytree(uninterrupted[0], workdir)
    checkpoints = sorted((workdir / "checkpoints").iterdir(), key=lambda p: int(p.name))
    for score, path in zip((0.9, 0.2), checkpoints[-2:], strict=True):
        manifest = read_manifest(epath.Path(path))
        write_manifest(manifest | {"selection_score": score}, epath.Path(path))
    for path in checkpoints[:-2]:
        shutil.rmtree(path)
    better = read_params(workdir, int(checkpoints[-2].name))
    loaded = bert_jax.load(workdir).params["classifier"]["dense"]["kernel"]
    np.testing.assert_array_equal(loaded, better["classifier/dense/kernel"])


def test_a_crashed_run_goes_on_bit_identically(uninterrupted, config, tmp_path, capsys):
    """After a crash that left lines of later steps, the last one torn."""
    workdir = tmp_path / "run"
    shutil.copytree(uninterrupted[0], workdir)
    shutil.rmtree(workdir / "checkpoints" / "72")
    with (workdir / "metrics.jsonl").open("a") as metrics:
        metrics.write('{"step": 73, "spl')
    finetune(config, workdir)
    assert "Resuming from the checkpoint at step 48" in capsys.readouterr().out
    assert_same_run(workdir, uninterrupted[0])


def test_a_finished_run_is_left_as_it_is(uninterrupted, config, tmp_path):
    workdir = tmp_path / "run"
    shutil.copytree(uninterrupted[0], workdir)
    assert finetune(config, workdir) == uninterrupted[1]
    assert_same_run(workdir, uninterrupted[0])


def test_a_finished_run_is_scored_on_a_file_that_has_changed(
    uninterrupted, config, tmp_path, capsys
):
    workdir, dev = tmp_path / "run", tmp_path / "dev.csv"
    shutil.copytree(uninterrupted[0], workdir)
    lines = Path(config.data.validation).read_text().splitlines()
    dev.write_text("\n".join([*lines[:8], *([lines[3]] * 8)]) + "\n")
    record = (workdir / "config.json").read_text()
    (workdir / "config.json").write_text(
        record.replace(config.data.validation, str(dev))
    )
    data = dataclasses.replace(config.data, validation=str(dev))
    scores = finetune(dataclasses.replace(config, data=data), workdir)
    assert scores == evaluate(workdir, str(dev))[0]
    assert "examples have changed; they are scored" in capsys.readouterr().out


def test_another_training_file_is_refused(uninterrupted, config, tmp_path):
    """It may be moved, but not changed."""
    moved = tmp_path / "moved.csv"
    shutil.copy(config.data.train, moved)

    def data(**options: Any) -> FinetuneConfig:
        changed = dataclasses.replace(config.data, **options)
        return dataclasses.replace(config, data=changed)

    workdir = tmp_path / "run"
    shutil.copytree(uninterrupted[0], workdir)
    finetune(data(train=str(moved)), workdir)
    moved.write_text(moved.read_text().replace(SUBJECTS[0], SUBJECTS[1], 1))
    with pytest.raises(ValueError, match="belongs to another run: data.fingerprint"):
        finetune(data(train=str(moved)), workdir)


def test_the_validation_file_and_the_source_may_be_named_anew(
    uninterrupted, config, encoder_checkpoint, tmp_path, monkeypatch, refused
):
    workdir, moved = tmp_path / "run", tmp_path / "moved.csv"
    shutil.copytree(uninterrupted[0], workdir)
    shutil.copy(config.data.validation, moved)
    monkeypatch.chdir(encoder_checkpoint.parent)
    data = dataclasses.replace(config.data, validation=str(moved))
    again = dataclasses.replace(config, data=data, init_from=encoder_checkpoint.name)
    assert finetune(again, workdir) == uninterrupted[1]
    fork = ["fork", workdir, "--at", "48", "--output", tmp_path / "fork"]
    error = refused(*fork, "--data.validation", "gone.csv")
    assert "are gone: gone.csv" in error and "pass --data.validation with" in error
    assert main([*map(str, fork), "--data.validation", str(moved)]) == 0


@pytest.fixture(scope="module")
def still(config: FinetuneConfig) -> FinetuneConfig:
    """One step on [CLS], at a learning rate of 0: it saves its initial parameters."""
    optimizer = OptimizerConfig(peak_learning_rate=1e-3, warmup_steps=1)
    data = dataclasses.replace(config.data, num_buckets=1)
    changed = {"optimizer": optimizer, "data": data, "model": BertConfig()}
    return dataclasses.replace(config, num_steps=1, **changed)


@pytest.fixture(scope="module")
def beginning(
    still: FinetuneConfig, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, np.ndarray]:
    finetune(still, workdir := tmp_path_factory.mktemp("still"))
    return read_params(workdir)


def other_leaves(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> set[str]:
    return {
        name for name in one.keys() & other.keys() if (one[name] != other[name]).any()
    }


def constant(name: str) -> bool:
    """Whether a leaf is drawn as zeros or ones, the same by every seed."""
    return name.endswith(("bias", "scale"))


@pytest.fixture(scope="module")
def given(encoder_checkpoint: Path) -> dict[str, np.ndarray]:
    return by_name(bert_jax.load(encoder_checkpoint).params)


def test_a_run_begins_with_its_source(beginning, given):
    assert not other_leaves(beginning, given)
    assert given.keys() < beginning.keys()
    new = beginning.keys() - given.keys()
    assert new == {"classifier/dense/kernel", "classifier/dense/bias"}


def test_from_scratch_draws_everything(still, beginning, tmp_path):
    finetune(dataclasses.replace(still, from_scratch=True), tmp_path)
    drawn = read_params(tmp_path)
    assert drawn.keys() == beginning.keys()
    same = beginning.keys() - other_leaves(drawn, beginning)
    # The seed is the same, so is the head.
    assert {n for n in same if not constant(n)} == {"classifier/dense/kernel"}


def test_top_layers_are_reinitialised(still, beginning, tmp_path):
    finetune(dataclasses.replace(still, reinitialise_layers=1), tmp_path)
    changed = other_leaves(read_params(tmp_path), beginning)
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
    return read_params(workdir)


@pytest.mark.slow
def test_frozen_layers_stay_and_the_rest_learns(frozen, given):
    assert not other_leaves(frozen, given), "encoder and embeddings, bit by bit"
    assert frozen["classifier/dense/bias"].any(), "which began with zeros"


def test_without_pooler_where_the_mean_is_seen(frozen):
    assert not any(name.startswith("pooler") for name in frozen)


def held_out(num_examples: int, fraction: float) -> Splits:
    """The splits of examples that are numbered from 0."""
    task = ClassTask(ExamplesConfig(validation_fraction=fraction))
    return hold_out(task, numbered(num_examples))


def numbered(num_examples: int) -> list[TextExample]:
    return [TextExample((str(i),), "ab"[i % 2]) for i in range(num_examples)]


@pytest.mark.parametrize("fraction", [0.01, 0.1, 0.5])
def test_the_examples_held_out_are_fixed_and_disjoint(fraction):
    splits = held_out(50, fraction)
    assert len(splits.validation) == max(1, round(50 * fraction))
    both = [*splits.train, *splits.validation]
    assert sorted(both, key=str) == sorted(numbered(50), key=str)
    assert held_out(50, fraction) == splits


def test_the_examples_held_out_are_spread_over_the_file():
    """Files are often sorted by class."""
    examples = held_out(100, 0.2).validation
    tens = {int(example.texts[0]) // 10 for example in examples}
    assert len(tens) >= 6


def test_nothing_is_left_to_hold_out():
    for number, fraction in ((1, 0.5), (5, 0.0), (5, 0.99)):
        with pytest.raises(ValueError, match=f"data.validation_fraction={fraction} le"):
            held_out(number, fraction)

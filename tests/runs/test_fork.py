"""Forks: as the source up to a step, and then with the same rows and keys."""

import csv
import dataclasses
import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from etils import epath
from run_helpers import (
    assert_same_run,
    classifier_config,
    is_verified,
    logged_lines,
    steps,
)
from small_world import SUBJECTS

from bert_jax.checkpoints.restore import read_base_key
from bert_jax.cli.main import main
from bert_jax.config import (
    DataConfig,
    FinetuneConfig,
    MaskingConfig,
    PrepareConfig,
    PretrainConfig,
)
from bert_jax.config.serialization import differences, from_dict, to_dict, with_changes
from bert_jax.data.prepare import prepare
from bert_jax.data.records import open_dataset
from bert_jax.inference.predictor import load
from bert_jax.runs.finetuning import finetune
from bert_jax.runs.fork import FIXED, fork, is_changeable, read_run_config
from bert_jax.runs.init_from import open_source
from bert_jax.runs.pretraining import pretrain
from bert_jax.training.resume import find_resume


@pytest.fixture(scope="module")
def source(small_config: PretrainConfig, tmp_path_factory) -> Path:
    """A run of ten steps with all of its checkpoints: 4, 8 and 10."""
    workdir = tmp_path_factory.mktemp("forks") / "source"
    pretrain(dataclasses.replace(small_config, keep_checkpoints=9), workdir)
    assert steps(workdir) == [4, 8, 10]
    return workdir


@pytest.fixture(scope="module")
def classifier(encoder_checkpoint: Path, tmp_path_factory) -> Path:
    """A fine-tuning run of twelve steps, with checkpoints at 4, 8 and 12."""
    folder = tmp_path_factory.mktemp("classifier")
    with open(folder / "train.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["review", "who"])
        for i in range(40):
            who = SUBJECTS[i % 2]
            table.writerow([f"The {who} reads letter {i} in the garden.", who])
    config = classifier_config(
        folder / "train.csv",
        encoder_checkpoint,
        num_steps=12,
        log_every=1,
        eval_every=4,
        checkpoint_every=4,
        keep_checkpoints=9,
        log_examples=True,
    )
    finetune(config, folder / "run")
    return folder / "run"


def fork_and_train(capsys, source: Path, at: int, output: Path, *options: str) -> None:
    """Fork by the command line, and train on by the command that it prints."""
    arguments = ["--at", str(at), "--output", str(output), *options]
    assert main(["fork", str(source), *arguments]) == 0
    printed = capsys.readouterr().out.splitlines()[-1]
    name, *command = shlex.split(printed.partition("To train it on: ")[2])
    assert name == "bert-jax"
    assert main(command) == 0


def losses(workdir: Path) -> dict[int, float]:
    return {line["step"]: line["loss"] for line in logged_lines(workdir, "train")}


def test_a_fork_without_options_is_the_same_run(source, tmp_path, capsys):
    fork_and_train(capsys, source, 4, tmp_path / "new", "--keep-checkpoints", "9")
    assert_same_run(tmp_path / "new", source)


def test_a_fork_begins_as_the_source_was(source, tmp_path):
    before = {p: p.read_bytes() for p in source.rglob("*") if p.is_file()}
    config = read_run_config(source, 4)
    rate = dataclasses.replace(config.optimizer, peak_learning_rate=5e-3)
    changed = fork(
        source, 4, tmp_path / "new", dataclasses.replace(config, optimizer=rate)
    )
    change = {"before": 1e-2, "now": 5e-3}
    assert changed == [{"field": "optimizer.peak_learning_rate", **change}]
    for name in ("metrics.jsonl", "examples.jsonl"):
        lines = [x for x in logged_lines(source, name=name) if x["step"] <= 4]
        assert logged_lines(tmp_path / "new", name=name) == lines
        assert {line["step"] for line in lines} == {1, 2, 3, 4}
    assert steps(tmp_path / "new") == [4] and is_verified(
        tmp_path / "new" / "checkpoints" / "4"
    )
    values = json.loads((tmp_path / "new" / "config.json").read_text())
    first, last = values.pop("history")
    assert first == json.loads((source / "config.json").read_text())["history"][0]
    origin = {"workdir": str(source), "step": 4}
    own = {"step": 4, "forked_from": origin, "changed": changed}
    assert last == first | own  # and the machine of the source
    assert [d[0] for d in differences(to_dict(config), values)] == [
        "optimizer.peak_learning_rate"
    ]
    assert before == {p: p.read_bytes() for p in source.rglob("*") if p.is_file()}


@pytest.mark.slow
def test_another_masking_rate_sees_the_same_rows(source, tmp_path, capsys):
    new = tmp_path / "new"
    fork_and_train(
        capsys, source, 4, new, "--masking.rate", "0.3", "--masking.max-predictions=9"
    )
    assert logged_lines(new, name="examples.jsonl") == logged_lines(
        source, name="examples.jsonl"
    )
    ours, theirs = losses(new), losses(source)
    assert ours.keys() == theirs.keys()
    equal = [step for step in ours if ours[step] == theirs[step]]
    assert equal == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("option", "field"),
    [
        ("--no-pair-loss", "pair_loss"),
        ("--eval-rows=8", "eval_rows"),
        ("--masking.unit=span --eval-rows=8", "eval_rows, masking.unit"),
        ("--optimizer.peak-learning-rate=0.002 --model.attention-kernel=plain", ""),
    ],
)
def test_only_scores_of_the_same_loss_and_rows_are_compared(
    option, field, source, tmp_path, capsys
):
    new = tmp_path / "new"
    where = ["--at", "8", "--output", str(new)]
    assert main(["fork", str(source), *where, *option.split()]) == 0
    line = f"after step 8 are not comparable with earlier ones ({field})"
    assert (line in capsys.readouterr().out) == bool(field)
    manifest = json.loads((new / "checkpoints" / "8" / "manifest.json").read_text())
    resume = find_resume(epath.Path(new))
    assert ("selection_score" in manifest) == (not field)
    assert resume.incomparable_until == (8 if field else -1)


@pytest.mark.slow
def test_another_learning_rate_has_the_same_keys(source, tmp_path, capsys):
    """The loss of step 5 is computed before its update: rows, masks and dropout."""
    fork_and_train(
        capsys, source, 4, tmp_path / "new", "--optimizer.peak-learning-rate", "0.002"
    )
    ours, theirs = losses(tmp_path / "new"), losses(source)
    assert [s for s in ours if ours[s] == theirs[s]] == [1, 2, 3, 4, 5]


@pytest.mark.slow
def test_a_fork_may_be_longer_and_forked_again(source, tmp_path, capsys):
    fork_and_train(capsys, source, 8, tmp_path / "b", "--num-steps", "12")
    assert max(losses(tmp_path / "b")) == 12
    fork_and_train(capsys, tmp_path / "b", 12, tmp_path / "c", "--num-steps", "13")
    assert max(losses(tmp_path / "c")) == 13
    history = json.loads((tmp_path / "c" / "config.json").read_text())["history"]
    assert [entry["step"] for entry in history] == [0, 8, 12]
    assert history[1]["forked_from"] == {"workdir": str(source), "step": 8}


def test_a_fork_is_forked_at_its_first_step(source, tmp_path):
    """Its checkpoint is the source's, and its options are its own."""
    config = with_changes(read_run_config(source, 8), [("masking.rate", 0.4)])
    fork(source, 8, tmp_path / "b", config)
    assert read_run_config(tmp_path / "b", 8) == config
    assert fork(tmp_path / "b", 8, tmp_path / "c", config) == []
    assert read_run_config(tmp_path / "c", 8) == config
    other = with_changes(config, [("optimizer.peak_learning_rate", 0.5)])
    (change,) = fork(tmp_path / "c", 8, tmp_path / "d", other)
    assert change["field"] == "optimizer.peak_learning_rate"
    assert read_run_config(tmp_path / "d", 8) == other
    assert read_run_config(source, 8).masking.rate == 0.15


@pytest.mark.slow
def test_a_later_extension_of_the_source_does_not_count(source, tmp_path):
    workdir = tmp_path / "extended"
    shutil.copytree(source, workdir)
    config = read_run_config(workdir, 10)
    pretrain(dataclasses.replace(config, num_steps=12), workdir, extend=True)
    assert read_run_config(workdir, 12).num_steps == 12
    assert read_run_config(workdir, 8) == config
    fork(workdir, 8, tmp_path / "new", config)
    values = json.loads((tmp_path / "new" / "config.json").read_text())
    assert [entry["step"] for entry in values["history"]] == [0, 8]
    assert values["num_steps"] == 10


@pytest.mark.slow
def test_a_fork_of_a_fine_tuning_run(classifier, tmp_path, capsys):
    fork_and_train(capsys, classifier, 4, tmp_path / "same", "--keep-checkpoints", "9")
    assert_same_run(tmp_path / "same", classifier)
    new = tmp_path / "new"
    fork_and_train(capsys, classifier, 4, new, "--model.hidden-dropout-prob", "0.0")
    assert logged_lines(new, name="examples.jsonl") == logged_lines(
        classifier, name="examples.jsonl"
    )
    ours, theirs = losses(new), losses(classifier)
    assert [s for s in ours if ours[s] == theirs[s]] == [1, 2, 3, 4]


@pytest.fixture
def refused_fork(refused):
    """The one line that a refused fork prints; nothing is written."""

    def fork(source: Path, output: Path, *options: str) -> str:
        place = ("--output", output)
        return refused("fork", source, *place, *options, unchanged=output.parent)

    return fork


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("", "fork needs --at"),
        ("--at x", "--at=x must be a whole number"),
        ("--at 5", "no complete checkpoint of step 5; it has those of 4, 8, 10."),
        ("--at 11", "no complete checkpoint of step 11; it has those of 4, 8, 10."),
        ("--at -4", "no complete checkpoint of step -4"),
        ("--at 4 --at 8", "each option once"),
        ("--at 10", "num_steps=10 leaves nothing to train after step 10"),
        ("--at 8 --num-steps 7", "num_steps=7 leaves nothing to train after step 8"),
        ("--at 4 --masking.rat 0.3", "did you mean --masking.rate?"),
        ("--at 4 --masking.rate 2", "rate=2.0 must be between 0 and 1"),
        ("--at 4 --seed 1", "seed=1 but "),
        ("--at 4 --batch-size 16", "batch_size=16 but "),
        ("--at 4 --model.hidden-size 32", "model.hidden_size=32 but "),
        ("--at 4 --model.hidden-act relu", "model.hidden_act=relu but "),
        ("--at 4 --init-from x", "init_from=x but "),
        ("--at 4 --data.sequence-length 16", "data.sequence_length=16 but "),
        ("--at 4 --optimizer.algorithm lamb", "optimizer.algorithm=lamb but "),
        ("--at 4 --optimizer.frozen-layers 2", "frozen_layers=2 but the model has 1"),
        ("--at 4 --task text-regression", "fork does not take --task"),
        ("--at 4 --data.path gone", "are gone: gone/manifest.json is missing"),
    ],
)
def test_refused_options(options, message, source, tmp_path, refused_fork):
    assert message in refused_fork(source, tmp_path / "new", *options.split())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--num-steps 20", "in fine-tuning, the order of the last rows"),
        ("--num-epochs 9", "num_epochs=9.0 but "),
        ("--task question-answering", "task=question-answering but "),
        ("--data.max-length 16", "data.max_length=16 but "),
        ("--data.train gone.csv", "gone"),
    ],
)
def test_refused_options_of_fine_tuning(
    options, message, classifier, tmp_path, refused_fork
):
    arguments = ["--at", "4", *options.split()]
    assert message in refused_fork(classifier, tmp_path / "new", *arguments)


def test_refused_directories(source, tmp_path, dataset, refused_fork, refused):
    at = ("--at", "4")
    for name in (tmp_path / "none", dataset.path):
        error = refused_fork(name, tmp_path / "new", *at)
        assert f"{name} is not the workdir of a run" in error
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("mine")
    error = refused_fork(source, tmp_path / "taken", *at)
    assert "exists and is not an empty directory" in error
    assert (tmp_path / "taken" / "file").read_text() == "mine"
    assert "gs://bucket/new is not a local directory" in refused(
        "fork", str(source), *at, "--output", "gs://bucket/new"
    )


def test_a_damaged_checkpoint_is_not_forked(source, tmp_path, refused_fork):
    workdir = tmp_path / "run"
    shutil.copytree(source, workdir)
    vocabulary = workdir / "checkpoints" / "4" / "tokenizer" / "vocab.txt"
    vocabulary.write_text(vocabulary.read_text() + "x\n")
    error = refused_fork(workdir, tmp_path / "new", "--at", "4")
    assert f"{vocabulary} has" in error
    path = workdir / "checkpoints" / "8" / "config.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps({"model": values["model"]}))
    error = refused_fork(workdir, tmp_path / "new", "--at", "8")
    assert "is not of a run of `bert-jax pretrain` or `finetune`" in error


@pytest.mark.slow
def test_a_finished_run_without_its_optimizer(
    source, small_config, tmp_path, refused_fork, refused, capsys
):
    """The same command drops it, and again does nothing; what needs it is refused."""
    workdir = tmp_path / "run"
    shutil.copytree(source, workdir)
    last = workdir / "checkpoints" / "10"
    key, before = read_base_key(epath.Path(last)), directory_bytes(last)
    config = dataclasses.replace(
        small_config, keep_checkpoints=9, keep_optimizer_states="none"
    )
    scores = pretrain(config, workdir)
    assert (
        "Removed the optimizer's state from 3 checkpoints:" in capsys.readouterr().out
    )
    assert directory_bytes(last) < 0.4 * before
    assert [is_verified(last.with_name(str(n))) for n in (4, 8, 10)] == [True] * 3
    np.testing.assert_array_equal(read_base_key(epath.Path(last)), key)
    np.testing.assert_array_equal(*(load(p).embed(["a"]) for p in (source, workdir)))
    assert pretrain(small_config, workdir) == scores
    longer = dataclasses.replace(config, num_steps=12)
    with pytest.raises(ValueError, match="without its optimizer's state"):
        pretrain(longer, workdir, extend=True)
    kept = dataclasses.replace(longer, init_from=str(workdir), keep_optimizer=True)
    with pytest.raises(ValueError, match="has no optimizer's state; leave the option"):
        pretrain(kept, tmp_path / "second")
    error = refused_fork(workdir, tmp_path / "new", "--at", "4")
    assert "has no optimizer's state" in error


def directory_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


@pytest.mark.slow
def test_data_that_are_gone_moved_or_others(
    source, tmp_path, corpus, tokenizer_directory, small_config, refused_fork, capsys
):
    """A dataset is known by its content, at any place."""
    data, moved = tmp_path / "data", tmp_path / "moved"
    shutil.copytree(small_config.data.path, data)
    config = dataclasses.replace(
        small_config, data=DataConfig(path=str(data)), num_steps=4, checkpoint_every=2
    )
    pretrain(config, tmp_path / "run")
    data.rename(moved)
    at = ("--at", "2")
    error = refused_fork(tmp_path / "run", tmp_path / "new", *at)
    assert "are gone" in error and "pass --data.path with the place" in error
    inputs = (str(corpus / "a.txt"), str(corpus / "b.txt"))
    other = PrepareConfig(
        input=inputs,
        tokenizer=str(tokenizer_directory),
        output=str(tmp_path / "other"),
        sequence_length=32,
        workers=1,
    )
    prepare(other)
    place = ("--data.path", str(tmp_path / "other"))
    error = refused_fork(tmp_path / "run", tmp_path / "new", *at, *place)
    assert "does not hold the data of" in error
    place = ("--data.path", str(moved))
    fork_and_train(capsys, tmp_path / "run", 2, tmp_path / "new", *place)
    assert_same_run(tmp_path / "new", tmp_path / "run")


@pytest.mark.parametrize("config", [PretrainConfig(), FinetuneConfig()])
def test_every_field_may_change_or_has_a_reason(config):
    for name in dotted_names(to_dict(config)):
        section = f"{name.partition('.')[0]}."
        assert is_changeable(name, config) or FIXED.get(name) or FIXED.get(section)
    for name in FIXED:
        assert name == "num_steps" or not is_changeable(name, config)


def dotted_names(values: dict[str, object], prefix: str = "") -> list[str]:
    """The names of all fields of a configuration, such as optimizer.beta1."""
    names = []
    for name, value in values.items():
        is_section = isinstance(value, dict)
        inner = dotted_names(value, f"{prefix}{name}.") if is_section else None
        names += [prefix + name] if inner is None else inner
    return names


def test_the_config_of_a_run_is_a_configuration_file(source, tmp_path, capsys):
    arguments = ["--workdir", str(tmp_path / "run"), "--print-config"]
    assert main(["pretrain", str(source / "config.json"), *arguments]) == 0
    values = json.loads((source / "config.json").read_text())
    del values["history"]
    assert json.loads(capsys.readouterr().out) == values
    other = from_dict(PretrainConfig, values | {"seed": 1})
    with pytest.raises(ValueError, match=r"or give \S+/config.json first, which has"):
        pretrain(other, source)


def test_a_start_says_that_pairs_are_of_another_kind(source, small_config, capsys):
    dataset = open_dataset(small_config.data.path)
    data = dataclasses.replace(small_config.data, pairs="sop")
    run = dataclasses.replace(small_config, init_from=str(source), data=data)
    open_source(run, dataset, None)
    line = f"{source}/checkpoints/10 was trained with pairs=nsp; this run has sop.\n"
    assert capsys.readouterr().out.endswith(line)


def test_what_a_run_filled_in_goes_with_its_data_its_teacher_and_its_rate(
    source, tmp_path, capsys
):
    """Those that are named take its place; the record does not refuse or cap them."""
    command = ["pretrain", str(source / "config.json"), "--print-config"]

    def printed(*options: str) -> dict[str, Any]:
        assert main([*command, *options]) == 0
        return json.loads(capsys.readouterr().out)

    other = printed("--data.path", "other")
    assert other["data"] == vars(DataConfig(path="other"))
    assert other["masking"] == vars(MaskingConfig())
    assert other["model"]["vocab_size"] == 0
    assert printed("--masking.rate", "0.4")["masking"]["max_predictions"] is None
    assert printed("--masking.unit", "span")["masking"]["max_predictions"] == 5
    taught = json.loads((source / "config.json").read_text()) | {"teacher": "a"}
    taught["distillation"]["fingerprint"] = "0"
    command[1] = str(tmp_path / "config.json")
    Path(command[1]).write_text(json.dumps(taught))
    assert printed("--teacher", "")["distillation"]["fingerprint"] == ""
    fork = ["fork", str(source), "--at", "8", "--output", str(tmp_path / "new")]
    fork += ["--masking.rate", "0.4", "--optimizer.warmup-share", "0.5"]
    assert main(fork) == 0
    out = capsys.readouterr().out
    assert "masking.max_predictions was 5 and is 13." in out
    assert "optimizer.warmup_steps was 2 and is 0." in out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1]", "it holds [1], not a JSON object. Name the config.json"),
        ("{", "holds no PretrainConfig: Expecting property name"),
        ('{"num_step": 3}', "has no field num_step; did you mean 'num_steps'? Name"),
        ('{"num_steps": 0}', "num_steps=0 must be"),
        ('{"seed": 1, "seed": 2}', "the key 'seed' occurs twice in an object. Name"),
        ('{"model": [1]}', "BertConfig must be a JSON object"),
    ],
)
def test_refused_json_configurations(content, message, tmp_path, refused):
    path = tmp_path / "c.json"
    path.write_text(content)
    error = refused("pretrain", str(path), "--workdir", str(tmp_path / "run"))
    assert message in error
    assert not (tmp_path / "run").exists()

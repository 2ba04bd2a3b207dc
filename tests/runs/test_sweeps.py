"""Several fine-tuning runs: the grid, the best, and going on."""

import csv
import dataclasses
import json
import shutil

import pytest
from etils import epath
from run_helpers import classifier_config

import bert_jax
from bert_jax.cli.main import main
from bert_jax.config import ExamplesConfig, FinetuneConfig, MeshConfig, OptimizerConfig
from bert_jax.runs import sweeps
from bert_jax.runs.finetuning_examples import each_line_once, say_on_primary
from bert_jax.runs.sweeps import (
    BATCH_SIZES,
    LEARNING_RATES,
    finetune_runs,
    grid,
)
from bert_jax.training.lock import run_lock
from bert_jax.training.metrics_table import MetricsTable
from bert_jax.training.score_table import runs_json, runs_lines, score_lines

SCORES = {0: 0.5, 1: 0.75, 2: 0.25}


def config_of(**options) -> FinetuneConfig:
    optimizer = OptimizerConfig(peak_learning_rate=1e-2, warmup_steps=0)
    return FinetuneConfig(optimizer=optimizer, **options)


def test_the_grid_is_the_papers():
    runs = list(grid(config_of(seed=5), 2, sweep=True))
    assert len(runs) == len({run.name for run in runs}) == 3 * 2 * 3 * 2
    assert len({run.setting for run in runs}) == 18
    assert {run.config.seed for run in runs} == {5, 6}
    rates = {run.config.optimizer.peak_learning_rate for run in runs}
    assert rates == {5e-5, 3e-5, 2e-5}
    assert {run.config.batch_size for run in runs} == {16, 32}
    assert {run.config.num_epochs for run in runs} == {2.0, 3.0, 4.0}


def test_without_a_sweep_only_the_seed_changes():
    config = config_of()
    runs = list(grid(config, 3, sweep=False))
    assert [dataclasses.replace(run.config, seed=0) for run in runs] == [config] * 3
    assert [run.config.seed for run in runs] == [0, 1, 2]


@pytest.fixture
def fake_runs(monkeypatch):
    """Stands for `finetune`: scores by the seed, and a checkpoint in the workdir."""
    calls = []

    def finetune(config, workdir, cache):
        calls.append(config.seed)
        (workdir / "checkpoints" / "7").mkdir(parents=True)
        accuracy = SCORES[config.seed]
        test = {"test_accuracy": accuracy / 2}
        return {"loss": 1.0, "accuracy": accuracy, **test, "baseline: chance": 0.4}

    monkeypatch.setattr(sweeps, "finetune", finetune)
    return calls


def test_no_run_begins_where_another_process_has_an_error(
    fake_runs, tmp_path, another_fails
):
    """Such as the model that one of two hosts lacks: all say so, and end."""
    with pytest.raises(ValueError, match="^Process 1 of 2: nothere is gone"):
        finetune_runs(config_of(), tmp_path / "runs", 2)
    assert not fake_runs and not (tmp_path / "runs").exists()


def test_no_other_runs_begin_in_a_directory_that_is_in_use(fake_runs, tmp_path):
    """Each would write its own `runs.json`, and the runs of the other were lost."""
    in_use = pytest.raises(ValueError, match=r"is in use by process \d+ on .* Wait")
    with run_lock(epath.Path(tmp_path)), in_use:
        finetune_runs(config_of(), tmp_path, 2)
    assert not fake_runs and not list(tmp_path.iterdir())


def test_only_the_best_keeps_its_checkpoints(fake_runs, tmp_path):
    runs = finetune_runs(config_of(), tmp_path, 3)
    assert [run["scores"]["accuracy"] for run in runs] == [0.5, 0.75, 0.25]
    written = json.loads((tmp_path / "runs.json").read_text())
    best = written["best"]
    assert best == runs[1]["name"]
    assert [path.parent.name for path in tmp_path.glob("*/checkpoints")] == [best]
    lines = list(runs_lines(runs))
    assert [line.split() for line in lines if line.startswith("accuracy")] == [
        "accuracy 0.5000 ± 0.2500 0.2500 ± 0.1250".split()
    ]
    assert "baseline: chance  0.4000 ± 0.0000" in lines and max(map(len, lines)) < 80
    (setting,) = runs_json(runs)["settings"]
    assert written["settings"] == [setting] and setting["seeds"] == [0, 1, 2]
    assert setting["scores"]["accuracy"] == {
        "mean": 0.5,
        "deviation": 0.25,
        "test_mean": 0.25,
        "test_deviation": 0.125,
    }


def test_lines_that_runs_share_are_printed_once(capsys):
    with each_line_once():
        say_on_primary(["a"])
        say_on_primary(["a", "b"])
    say_on_primary(["a"])
    assert capsys.readouterr().out == "a\nb\na\n"


def test_the_scores_of_one_run_are_a_table():
    scores = {"loss": 1.0, "accuracy": 0.5, "macro_f1": 0.5, "f1": 0.75, "f1_b": 0.75}
    whole = {f"{part}{k}": v for part in ("", "test_") for k, v in scores.items()}
    assert score_lines({"before_accuracy": 0.25} | whole | {"baseline: a": 0.125}) == [
        "score        before  validation    test",
        "accuracy     0.2500      0.5000  0.5000",
        "loss                     1.0000  1.0000",
        "macro_f1                 0.5000  0.5000",
        "f1_b                     0.7500  0.7500",
        "baseline: a              0.1250",
    ]


def test_a_threshold_is_printed_as_it_is():
    """It is the value of one example: rounded, it would leave that out."""
    lines = score_lines({"f1": 0.123456789, "best_f1_threshold": -0.051967307925224304})
    assert "best_f1_threshold  -0.051967307925224304" in lines
    [_, row] = MetricsTable(9).lines(9, "validation", {"mean_squared_error": 1.5e-7})
    assert row.endswith("1.5e-07")
    assert "f1                                0.1235" in lines


def test_the_settings_of_a_sweep_are_ordered(fake_runs, tmp_path):
    lines = list(runs_lines(finetune_runs(config_of(num_steps=1), tmp_path, 2, True)))
    assert (
        lines[0].startswith("accuracy of each setting, mean ±")
        and max(map(len, lines)) < 80
    )
    assert sum(line.startswith("rate") and "0.6250 ±" in line for line in lines) == 6


def test_runs_of_an_older_version_go_on(fake_runs, tmp_path):
    """Without the fields and the scores that were added since."""
    finetune_runs(config_of(), tmp_path, 1)
    summary = json.loads((tmp_path / "runs.json").read_text())
    for name in ("patience", "report", "class_weights", "compute_metrics"):
        del summary["config"][name]
    for name in ("test", "balance"):
        del summary["config"]["data"][name]
    summary["config"]["data"]["max_length"] = 128  # the default of that time
    del summary["runs"][0]["scores"]["loss"]
    (tmp_path / "runs.json").write_text(json.dumps(summary))
    runs = finetune_runs(config_of(report=("csv",)), tmp_path, 2)
    assert fake_runs == [0, 1]
    record = json.loads((tmp_path / "runs.json").read_text())["config"]
    assert record["data"]["max_length"] == 128
    assert [set(run["scores"]) for run in runs] == [
        {"accuracy", "test_accuracy", "baseline: chance"}
    ] * 2
    with pytest.raises(ValueError, match="lists runs with another patience"):
        finetune_runs(config_of(patience=2), tmp_path, 3)


def test_what_was_finished_is_not_done_again(fake_runs, tmp_path):
    finetune_runs(config_of(), tmp_path, 1)
    finetune_runs(config_of(), tmp_path, 3)
    assert fake_runs == [0, 1, 2]
    with pytest.raises(ValueError, match=r"runs\.json lists runs with another "):
        finetune_runs(config_of(batch_size=16), tmp_path, 3)


def test_a_rate_by_size_and_a_rate_do_not_mix(fake_runs, tmp_path):
    """Both may be the paper's, until the model's width is known."""
    finetune_runs(config_of(rate_by_size=True), tmp_path, 1)
    with pytest.raises(ValueError, match="with another optimizer.peak_learning_rate"):
        finetune_runs(config_of(), tmp_path, 1)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Who reads, and who writes: one word tells."""
    path = tmp_path_factory.mktemp("table") / "train.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        for i in range(24):
            subject, verb = ("clerk", "reads") if i % 2 else ("baker", "writes")
            writer.writerow([f"The {subject} {verb} a letter.", verb])
    return path


@pytest.mark.slow
def test_a_directory_of_runs_loads_the_best(table, pretrained, tmp_path, capsys):
    code = main(
        f"finetune text-classification --init-from {pretrained} --data.train {table} "
        f"--workdir {tmp_path / 'runs'} --seeds 2 --num-steps 4 --batch-size 4 "
        "--data.max-length 32 --mesh.data 1".split()
    )
    printed = capsys.readouterr().out
    assert code == 0, printed
    assert "± standard deviation" in printed
    (values,) = (json.loads(x) for x in printed.splitlines() if x.startswith("{"))
    assert values["settings"][0]["scores"]["accuracy"].keys() == {"mean", "deviation"}
    table_of_scores = printed[printed.index("Best checkpoint") : printed.index("{")]
    assert main(["inspect", str(tmp_path / "runs")]) == 0
    shown = capsys.readouterr().out
    assert table_of_scores in shown and shown.count("\nrun ") == 1
    bert = bert_jax.load(tmp_path / "runs")
    (said,) = bert.classify(["The clerk reads a letter."])
    assert said["label"] in ("reads", "writes")
    assert sum(said["probabilities"].values()) == pytest.approx(1, abs=1e-6)


@pytest.mark.slow
def test_a_config_keeps_its_data(table, pretrained, tmp_path):
    """What the runs share lies beside them, and each has its own seed."""
    config = FinetuneConfig(
        data=ExamplesConfig(train=str(table), max_length=32),
        mesh=MeshConfig(data=1),
        init_from=str(pretrained),
        num_steps=2,
        batch_size=4,
    )
    runs = finetune_runs(config, tmp_path / "two", 2)
    assert len(list((tmp_path / "two" / "examples").iterdir())) == 2
    seeds = [
        json.loads((tmp_path / "two" / run["name"] / "config.json").read_text())["seed"]
        for run in runs
    ]
    assert seeds == [0, 1]


def test_a_sweep_of_steps_trains_each_setting_once():
    config = FinetuneConfig(num_steps=100)
    runs = list(grid(config, seeds=1, sweep=True))
    assert len(runs) == len(LEARNING_RATES) * len(BATCH_SIZES)
    assert {run.config.num_epochs for run in runs} == {config.num_epochs}


def test_a_setting_with_too_few_steps_is_refused_before_any_run(
    fake_runs, reviews, encoder_checkpoint, tmp_path
):
    """The first setting of the grid has enough steps for the warm-up, others do not."""
    config = classifier_config(reviews, encoder_checkpoint)
    num_texts = len(reviews.read_text().splitlines())
    steps = num_texts * 2 // 32 + 1
    optimizer = dataclasses.replace(config.optimizer, warmup_steps=steps)
    config = dataclasses.replace(config, optimizer=optimizer)
    with pytest.raises(ValueError, match=f"warmup_steps={steps} is more than"):
        finetune_runs(config, tmp_path / "runs", 1, sweep=True)
    assert not fake_runs


def test_runs_share_their_examples_and_their_source(
    reviews, encoder_checkpoint, tmp_path
):
    source, train, validation = (
        tmp_path / name for name in ("source", "a.csv", "b.csv")
    )
    shutil.copytree(encoder_checkpoint, source)
    for path in (train, validation):
        path.write_bytes(reviews.read_bytes())
    config = classifier_config(train, source, num_steps=1)
    data = dataclasses.replace(config.data, validation=str(validation))
    config = dataclasses.replace(config, data=data)
    runs = finetune_runs(config, tmp_path / "runs", 1)
    assert finetune_runs(config, tmp_path / "runs", 1) == runs
    for path in (validation, train):
        path.write_text(path.read_text().replace("letter 7", "letters"))
        with pytest.raises(ValueError, match="other examples of data.") as error:
            finetune_runs(config, tmp_path / "runs", 2)
        assert ("data.validation;" in str(error.value)) == (path == validation)
        path.write_bytes(reviews.read_bytes())
    shutil.rmtree(source)
    shutil.copytree(tmp_path / "runs" / runs[0]["name"], source)
    with pytest.raises(ValueError, match=f"runs from other files of {source};"):
        finetune_runs(config, tmp_path / "runs", 2)

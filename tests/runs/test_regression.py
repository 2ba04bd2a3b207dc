"""Numbers of 50,000 ± 10,000: learned, predicted, exported and read again."""

import dataclasses
import json

import numpy as np
import pytest
from etils import epath
from run_helpers import classifier_config
from small_world import SUBJECTS

import bert_jax
from bert_jax.apps.convert.export import export_huggingface
from bert_jax.config import BertConfig
from bert_jax.inference.evaluation import evaluate
from bert_jax.runs.finetuning import finetune
from bert_jax.runs.finetuning_examples import fingerprint
from bert_jax.tasks.kinds import finetuning_task
from bert_jax.tasks.splits import read_splits

TEXTS = [f"The {name} sells {i}." for i in range(20) for name in SUBJECTS[:4]]


@pytest.fixture(scope="module")
def run(encoder_checkpoint, tmp_path_factory):
    folder = tmp_path_factory.mktemp("numbers")
    table = folder / "train.csv"
    prices = [40_000 + 7_000 * (i % 4) + i for i in range(len(TEXTS))]
    rows = [f"{text},{price}" for text, price in zip(TEXTS, prices, strict=True)]
    table.write_text("\n".join(["review,who", *rows]) + "\n")
    config = classifier_config(
        table,
        encoder_checkpoint,
        task="text-regression",
        model=BertConfig(pooling="cls"),
        num_epochs=12.0,
    )
    return config, folder / "run", finetune(config, folder / "run")


@pytest.mark.slow
def test_large_numbers_are_learned(run):
    _, workdir, scores = run
    baseline = scores["baseline: mean_squared_error of the mean"]
    assert scores["mean_squared_error"] < 0.2 * baseline
    assert scores["r2"] > 0.8
    again, _ = evaluate(workdir)  # on the texts that were held out
    assert again["r2"] == pytest.approx(scores["r2"], abs=1e-4)
    values = bert_jax.load(workdir).classify(TEXTS[:8])
    assert 40_000 < np.mean([value["value"] for value in values]) < 62_000


@pytest.mark.slow
def test_an_export_gives_the_numbers(run, tmp_path):
    _, workdir, _ = run
    export_huggingface(str(workdir), epath.Path(tmp_path / "exported"))
    receipt = json.loads((tmp_path / "exported" / "conversion.json").read_text())
    assert receipt["targets_in_classifier"]["mean"] == pytest.approx(50_000, rel=0.1)
    models = [bert_jax.load(path) for path in (workdir, tmp_path / "exported")]
    values = [[v["value"] for v in model.classify(TEXTS[:8])] for model in models]
    assert values[0] == pytest.approx(values[1], rel=1e-6)
    assert models[1].config.target_deviation == 1


@pytest.mark.slow
def test_a_run_keeps_the_rule_by_which_it_held_rows_out(run, tmp_path):
    """The examples of the run are those that its fingerprint is of."""
    config, workdir, _ = run

    def rule(directory):
        return json.loads((directory / "config.json").read_text())["data"]["split"]

    assert rule(workdir) == "stratified"
    examples = read_splits(finetuning_task(config.task, config.data)).train
    assert config.data.split == "rows", "what older versions knew"
    data = dataclasses.replace(config.data, fingerprint=fingerprint(examples))
    short = dataclasses.replace(config, num_steps=2)
    finetune(dataclasses.replace(short, data=data), tmp_path / "before")
    assert rule(tmp_path / "before") == "rows"
    finetune(short, tmp_path / "before")  # the same run again
    finetune(dataclasses.replace(short, num_steps=4), tmp_path / "before", extend=True)
    assert rule(tmp_path / "before") == "rows"

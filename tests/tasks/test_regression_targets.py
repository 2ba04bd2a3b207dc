"""Numbers of any size are learned in deviations from their mean, and given back."""

import numpy as np
import pytest

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.model.classifiers import with_targets
from bert_jax.tasks.kinds import finetuning_task
from bert_jax.tasks.pairs.examples import PairExample, write_scores
from bert_jax.tasks.predictions import Predictions, Split, SplitOutputs, Splits
from bert_jax.tasks.texts.examples import TextExample
from bert_jax.tokenization import SPECIAL_TOKENS, Tokenizer

TOKENIZER = Tokenizer(
    {"kind": "wordpiece", "cased": False}, "\n".join([*SPECIAL_TOKENS, "a"]).encode()
)


def examples(*labels):
    return [TextExample(("a",), float(label)) for label in labels]


def task(mean=0.0, deviation=1.0, **data):
    model = BertConfig.tiny(
        head="sequence_classification",
        labels=("price",),
        problem_type="regression",
        target_mean=mean,
        target_deviation=deviation,
    )
    return finetuning_task("text-regression", ExamplesConfig(**data), model)


@pytest.mark.parametrize(
    "labels",
    [
        (40_000, 50_000, 60_000),
        (1e-6, 2e-6, 4e-6),
        (-1e30, 1e30, 3e30),
        (1_700_000_000, 1_700_000_001, 1_700_000_002),
        (1.5, 2.5),
        (-1, 1),
    ],
)
def test_numbers_are_learned_in_deviations_and_given_back(labels):
    mean, deviation = task().targets(examples(*labels))
    assert (mean, deviation) == pytest.approx((np.mean(labels), np.std(labels)))
    own = task(mean, deviation)
    tokenized = own.tokenize(examples(*labels), TOKENIZER)
    learned = tokenized.by_example["label"]
    assert learned.mean() == pytest.approx(0, abs=1e-5)
    assert learned.std() == pytest.approx(1, rel=1e-5)
    rows = [{"values": np.array([value])} for value in learned]
    split = Split(examples(*labels), tokenized)
    predicted = own.predict(SplitOutputs(split, rows))
    assert [p["value"] for p in predicted] == pytest.approx(
        list(labels), rel=1e-6, abs=1e-6 * deviation
    )
    scores = own.official_scores(Predictions(split.examples, predicted))
    assert next(iter(scores)) == "r2" and scores["r2"] == pytest.approx(1)


def test_numbers_that_stay_as_they_are():
    assert task().targets(examples(3.0)) == (3.0, 1.0), "one number has no deviation"
    assert task(path="GLUE", glue="stsb").targets(examples(0, 5)) == (0.0, 1.0)
    # A model of before predicts as before, and its first score is the same.
    own = task()
    scores = own.official_scores(
        Predictions(examples(1, 2), [{"value": 1.0}, {"value": 3.0}])
    )
    assert list(scores) == ["pearson", "spearman", "mean_squared_error"]


def test_a_constant_does_not_win():
    own, gold = task(50_000.0, 10_000.0), examples(40_000, 50_000, 60_000)
    constant = own.official_scores(Predictions(gold, [{"value": 50_000.0}] * 3))
    assert constant["r2"] == constant["pearson"] == 0
    equal = task(1.0, 2.0).official_scores(
        Predictions(examples(0.1, 0.1, 0.1), [{"value": 2.5}] * 3)
    )
    assert equal["r2"] == 0.0, "their variance is rounding"
    better = [{"value": v} for v in (45_000.0, 50_000.0, 55_000.0)]
    assert own.official_scores(Predictions(gold, better))["r2"] > constant["r2"]
    name, error = own.baseline(Splits(gold, examples(40_000, 70_000)))
    assert (name, error) == ("mean_squared_error of the mean", 2.25e8)


def test_scores_in_other_units_stand_for_the_same_numbers():
    generator = np.random.default_rng(0)
    shapes = {"kernel": (8, 1), "bias": (1,)}
    dense = {k: np.float32(generator.normal(size=v)) for k, v in shapes.items()}
    params = {"classifier": {"dense": dense}, "encoder": {}}
    config = task(50_000.0, 10_000.0).model
    inputs = generator.normal(size=(5, 8))

    def numbers(config, params):
        head = params["classifier"]["dense"]
        scores = inputs @ head["kernel"] + head["bias"]
        return config.target_mean + config.target_deviation * scores

    expected = numbers(config, params)
    for targets in ((), (7.0, 3.0)):
        config, params = with_targets(config, params, *targets)
        assert (config.target_mean, config.target_deviation) == (targets or (0, 1))
        assert numbers(config, params) == pytest.approx(expected, rel=1e-6)
    assert params["classifier"]["dense"]["kernel"].dtype == np.float32


def test_scores_of_pairs_that_lie_close_together_are_written_apart(tmp_path):
    """Those of a small dot product were 0.000000."""
    values = [{"score": 1.25e-8}, {"score": 0.99999994}]
    write_scores(Predictions([PairExample(("a", "b"))] * 2, values), tmp_path)
    _, *lines = (tmp_path / "predictions.tsv").read_text().splitlines()
    assert [line.split("\t")[1] for line in lines] == ["1.25e-08", "0.99999994"]


def test_numbers_that_lie_close_together_are_written_apart(tmp_path):
    """In `predictions.tsv`; with four decimals both were 5.0000."""
    values = [{"value": 5.00001}, {"value": 5.00002}]
    predictions = Predictions(examples(5, 5.00001), values)
    task(5.0, 1e-5).write(predictions, tmp_path)
    _, *lines = (tmp_path / "predictions.tsv").read_text().splitlines()
    assert [line.split("\t")[1] for line in lines] == ["5.00001", "5.00002"]


def test_large_numbers_are_written_in_full(tmp_path):
    predictions = Predictions(examples(5), [{"value": 1234567891.0}])
    task(0.0, 3e9).write(predictions, tmp_path)
    _, line = (tmp_path / "predictions.tsv").read_text().splitlines()
    assert line.split("\t")[1] == "1234567891"

"""Options of fine-tuning: rare classes, scores of a user's own, a test file."""

import collections
import dataclasses
import json
import random

import numpy as np
import pytest
from etils import epath
from run_helpers import classifier_config, logged_lines

from bert_jax.cli.main import main
from bert_jax.config import BertConfig, ExamplesConfig, FinetuneConfig
from bert_jax.config.model import ANSWERABLE_LABELS
from bert_jax.inference.evaluation import evaluate
from bert_jax.runs.finetuning import finetune
from bert_jax.runs.finetuning_setup import finetuning_model, without_head
from bert_jax.tasks.kinds import finetuning_task
from bert_jax.tasks.own_metrics import own_scores
from bert_jax.tasks.pairs.ranking import RELEVANCE
from bert_jax.tasks.predictions import Predictions
from bert_jax.tasks.texts.examples import TextExample
from bert_jax.training.resume import Resume

WORDS = {"rare": "moon", "often": "sun"}


def write_table(path, counts, seed=0):
    generator = random.Random(seed)
    rows = [
        f"the {WORDS[label]} is {generator.choice('big small red old'.split())},{label}"
        for label, count in counts.items()
        for _ in range(count)
    ]
    generator.shuffle(rows)
    path.write_text("\n".join(["review,who", *rows]) + "\n")
    return path


@pytest.fixture(scope="module")
def config(encoder_checkpoint, tmp_path_factory):
    """Seven of eight texts are of one class."""
    folder = tmp_path_factory.mktemp("rare")
    config = classifier_config(
        write_table(folder / "train.csv", {"often": 56, "rare": 8}),
        encoder_checkpoint,
        num_epochs=1.0,
        log_every=1,
    )
    validation = write_table(folder / "dev.csv", {"often": 8, "rare": 8}, 1)
    data = dataclasses.replace(config.data, validation=str(validation))
    return dataclasses.replace(config, data=data)


@pytest.mark.slow
def test_balanced_classes_are_seen_equally_often(config, tmp_path, capsys):
    data = dataclasses.replace(config.data, balance=True)
    balanced = dataclasses.replace(config, data=data, log_examples=True)
    finetune(balanced, tmp_path / "run")
    assert "Balanced classes: 64 texts are repeated to 112." in capsys.readouterr().out
    lines = (tmp_path / "run" / "examples.jsonl").read_text().splitlines()
    rows = [row for line in lines for row in json.loads(line)["rows"]]
    assert len(rows) == 112  # each rare text seven times, the others once
    assert sorted(collections.Counter(rows).values()) == [1] * 56 + [7] * 8
    # The tokenized examples are those of a run without, also on disk.
    finetune(config, tmp_path / "plain", tmp_path / "run" / "examples")
    assert len(list((tmp_path / "run" / "examples").iterdir())) == 2


@pytest.mark.slow
def test_class_weights_count_rare_texts_more(config, tmp_path):
    weighted = dataclasses.replace(config, class_weights="balanced", num_steps=1)
    plain = dataclasses.replace(config, num_steps=1)
    losses = []
    for name, own in (("weighted", weighted), ("plain", plain)):
        finetune(own, tmp_path / name)
        losses.append(logged_lines(tmp_path / name, "train")[0]["loss"])
    assert losses[0] != losses[1]
    assert finetune(weighted, tmp_path / "weighted")  # a resumed run has its weights
    with pytest.raises(ValueError, match="class_weights was 'balanced'"):
        finetune(plain, tmp_path / "weighted")


SCORES = """
def recall_of_rare(examples, predictions):
    found = [
        prediction["label"] == "rare"
        for example, prediction in zip(examples, predictions)
        if example.label == "rare"
    ]
    return {"recall_of_rare": sum(found) / len(found), "accuracy": 7}

def broken(examples, predictions):
    raise KeyError("nothing\\nhere")

def no_numbers(examples, predictions):
    return {"recall": "high"}

def not_finite(examples, predictions):
    return {"mine": float("nan")}

def taken(examples, predictions):
    return {"step": 0.5}

NUMBER = 3
CALLS = []

def falling(examples, predictions):
    CALLS.append(1)
    return {"falling": -len(CALLS)}
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module `scores_<random>` in the current directory, as a user writes it."""
    name = f"scores_{random.getrandbits(32)}"
    (tmp_path / f"{name}.py").write_text(SCORES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(__import__("sys").path))
    return name


@pytest.mark.parametrize("name", ["step", "test_f1", "before_f1", "baseline: f1"])
def test_scores_of_ones_own_have_names_of_their_own(name):
    with pytest.raises(RuntimeError, match="choose .* begin with test_, before_, base"):
        own_scores(lambda *_: {name: 1.0}, Predictions([], []))


@pytest.mark.slow
def test_a_score_of_ones_own_selects_the_checkpoint(
    config, tmp_path, module, capsys, refused
):
    own = dataclasses.replace(config, compute_metrics=f"{module}:recall_of_rare")
    test = write_table(tmp_path / "test.csv", {"often": 2, "rare": 6}, 2)
    own = dataclasses.replace(own, data=dataclasses.replace(own.data, test=str(test)))
    scores = finetune(own, tmp_path / "run")
    assert [name for name in scores if ":" not in name][:3] == [
        "loss",
        "recall_of_rare",
        "accuracy",
    ]
    assert scores["accuracy"] == scores["test_accuracy"] == 7
    manifest = json.loads(
        next((tmp_path / "run" / "checkpoints").glob("*/manifest.json")).read_text()
    )
    line = logged_lines(tmp_path / "run", "validation")[-1]
    assert manifest["selection_score"] == line["recall_of_rare"]
    # The file that was named for the end is scored as the verb scores it.
    capsys.readouterr()
    arguments = ["evaluate", "--model", str(tmp_path / "run"), "--part", "test"]
    main([*arguments, "--compute-metrics", f"{module}:recall_of_rare"])
    output, errors = capsys.readouterr()
    learned, scored = errors.splitlines()
    assert learned.startswith(f"{test}: The model learned from all 8 examples;")
    assert scored == f"Scored: {test}."
    printed = json.loads(output)
    tested = {name.removeprefix("test_"): scores[name] for name in sorted(scores)}
    assert printed == pytest.approx({name: tested[name] for name in printed})
    plain, _ = evaluate(tmp_path / "run", part="test")
    with pytest.raises(ValueError, match="part='dev' must be validation or test"):
        evaluate(tmp_path / "run", part="dev")
    # One file is named, and is the one that is scored.
    for options, message in (
        (
            ["--input", "x.csv"],
            "x.csv",
        ),
        (
            ["--input=x", "--data.test=y"],
            "--data.test and --input each name",
        ),
    ):
        assert message in refused(*arguments, *options)
    assert "is scored by --part test; " in refused(
        *arguments[:3], "--data.test", str(test)
    )
    assert 0 <= plain["accuracy"] <= 1


@pytest.mark.parametrize(
    "function",
    [
        "broken",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("no_numbers", "not_finite", "taken")
        ),
    ],
)
def test_a_function_that_fails_ends_the_run(config, tmp_path, module, function):
    own = dataclasses.replace(config, compute_metrics=f"{module}:{function}")
    with pytest.raises(RuntimeError, match=f"compute_metrics: {function} "):
        finetune(own, tmp_path / "run")


def test_the_best_evaluation_has_a_checkpoint(config, tmp_path, module, capsys):
    own = {"compute_metrics": f"{module}:falling", "checkpoint_every": 3}
    own = dataclasses.replace(config, **own, eval_every=1, num_steps=3)
    assert finetune(own, tmp_path / "run")["falling"] == -1
    assert "The best checkpoint is that of step 1." in capsys.readouterr().out
    steps = {path.name for path in (tmp_path / "run" / "checkpoints").iterdir()}
    assert steps == {"1", "3"}


def test_a_test_file_is_read_before_training(config, tmp_path):
    test = tmp_path / "test.csv"
    test.write_text("review,who\nthe sun,seldom\n")
    data = dataclasses.replace(config.data, test=str(test))
    with pytest.raises(ValueError, match="seldom"):
        finetune(dataclasses.replace(config, data=data), tmp_path / "run")
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_what_to_type_next_is_said(config, tmp_path, capsys):
    data = config.data
    workdir = tmp_path / "a run"
    main(
        [
            "finetune",
            "text-classification",
            *("--init-from", config.init_from, "--workdir", str(workdir)),
            *("--data.train", data.train, "--data.validation", data.validation),
            *("--text-column", "review", "--label-column", "who"),
            *("--data.max-length", "32", "--num-steps", "1", "--mesh.data", "1"),
        ]
    )
    lines = capsys.readouterr().out.splitlines()
    after = lines[lines.index("Next:") + 1 :]
    [command] = [line.split() for line in after if " predict " in line]
    assert command[:2] == ["bert-jax", "predict"]
    assert any(f"'{workdir}'" in line for line in after)
    assert np.array([len(line) for line in after]).max() < 400


@pytest.mark.parametrize("names", [("judge", "clerk"), ("judge", "baker")])
def test_new_names_of_classes_are_given_once(names, reviews, classifier, tmp_path):
    """Also where the new name of one class is the old name of another."""
    first, second = names
    new_names = (f"clerk={first}", f"judge={second}")
    table = tmp_path / "train.csv"
    rows = reviews.read_text().replace("clerk", "\0").replace("judge", second)
    table.write_text(rows.replace("\0", first))
    config = classifier_config(table, classifier, num_steps=1, rate_by_size=False)
    data = dataclasses.replace(config.data, label_names=new_names, test=str(table))
    config = dataclasses.replace(config, data=data)
    scores = finetune(config, tmp_path / "run")
    again, _ = evaluate(tmp_path / "run", str(table))
    assert again == {name: scores[f"test_{name}"] for name in again}
    assert scores["f1_" + names[0]] != scores["f1_" + names[1]]
    assert again["f1_" + names[0]] == pytest.approx(scores["f1_" + names[0]], abs=0.1)
    assert finetune(config, tmp_path / "run") == scores
    # Those of a file to score are given to the names that the model has now.
    options = [
        f"{new}={old}" for old, new in zip(("clerk", "judge"), names, strict=True)
    ]
    arguments = ["evaluate", str(tmp_path / "run"), "--input", str(reviews)]
    assert main([*arguments, "--data.label-names", *options]) == 0


@pytest.mark.parametrize(("labels", "order"), [((), "ba"), (("a", "b"), "ab")])
def test_a_model_keeps_the_order_of_its_classes(labels, order):
    """So that its classifier is trained on."""
    source = BertConfig.tiny(head="sequence_classification", labels=("b", "a"))
    config = FinetuneConfig(data=ExamplesConfig(labels=labels))
    task = finetuning_task(config.task, config.data)
    examples = [TextExample(("x",), label) for label in "ab"]
    model = finetuning_model(config, task, source, examples, epath.Path("run"))
    assert model.labels == tuple(order)


@pytest.mark.parametrize(("pooling", "is_said"), [("cls", True), ("mean", False)])
def test_another_pooling_than_that_of_the_classifier_is_said(pooling, is_said, caplog):
    names = {"head": "sequence_classification", "labels": ("a", "b")}
    source = BertConfig.tiny(**names, pooling="mean")
    config = FinetuneConfig(model=BertConfig(pooling=pooling), init_from="old")
    examples = [TextExample(("x",), label) for label in "ab"]
    task = finetuning_task(config.task, config.data)
    with caplog.at_level("INFO", "bert_jax"):
        finetuning_model(config, task, source, examples, epath.Path("run"))
    assert ("old has model.pooling=mean" in caplog.text) == is_said


@pytest.mark.parametrize(
    ("names", "options", "resume"),
    [
        (("a", "c"), {}, None),
        (("a", "b"), {"from_scratch": True}, None),
        (("a", "b"), {}, Resume(7, {}, [], [])),
    ],
    ids=["other classes", "from scratch", "resumed"],
)
def test_the_pooling_is_said_only_of_a_head_that_is_trained_on(
    names, options, resume, caplog
):
    source = BertConfig.tiny(
        head="sequence_classification", labels=names, pooling="mean"
    )
    config = FinetuneConfig(init_from="old", **options)
    examples = [TextExample(("x",), label) for label in "ab"]
    task = finetuning_task(config.task, config.data)
    with caplog.at_level("INFO", "bert_jax"):
        finetuning_model(config, task, source, examples, epath.Path("run"), resume)
    assert "model.pooling" not in caplog.text


@pytest.mark.parametrize("labels", [("1", "0"), ("1.0", "0"), ("true", "False")])
def test_a_model_keeps_its_names_of_the_same_classes(labels):
    """As a table of floats or of truth values writes them: a head is trained on."""
    own = ("True", "False") if labels[0] == "true" else ("1", "0.0")
    source = BertConfig.tiny(head="sequence_classification", labels=own)
    config = FinetuneConfig()
    task = finetuning_task(config.task, config.data)
    examples = [TextExample(("x",), label) for label in labels]
    model = finetuning_model(config, task, source, examples, epath.Path("run"))
    assert model.labels == own


@pytest.mark.parametrize(
    ("head", "before", "now", "outputs"),
    [
        ("question_answering", (), ANSWERABLE_LABELS, [0, 1]),
        ("question_answering", ANSWERABLE_LABELS, (), [0, 1]),
        ("sequence_classification", ("LABEL_0",), (RELEVANCE,), [0]),
        ("sequence_classification", ("a", "b"), (RELEVANCE,), None),
        ("sequence_classification", ("price",), ("stars",), None),
        ("sequence_classification", ("a", "b", "c"), ("b", "c", "a"), [1, 2, 0]),
        ("token_classification", ("O", "B-PER"), ("B-PER", "O"), [1, 0]),
        ("token_classification", ("O", "B-PER"), ("O", "I-PER"), None),
    ],
)
def test_a_trained_head_is_kept_if_its_outputs_mean_the_same(
    head, before, now, outputs
):
    source, model = (
        BertConfig.tiny(head=head, labels=names) for names in (before, now)
    )
    numbers = np.arange(len(before) or 2)
    dense = {"kernel": np.stack([numbers, numbers]), "bias": numbers}
    params = {"encoder": {}, "classifier": {"dense": dense}}
    kept = without_head(params, source, model).get("classifier")
    assert (kept is None) == (outputs is None)
    if kept is not None:
        assert kept["dense"]["kernel"].tolist() == [outputs, outputs]
        assert kept["dense"]["bias"].tolist() == outputs

"""Entities, questions, choices, pairs: from their files to a served answer."""

import dataclasses
import functools
import io
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from etils import epath
from float64 import AGREEMENT, in_float64, widened
from small_world import OBJECTS, PLACES, SUBJECTS, VERBS

import bert_jax
from bert_jax.cli.finetuning import default_config
from bert_jax.cli.main import main
from bert_jax.config import ExamplesConfig, FinetuneConfig, MeshConfig
from bert_jax.config.embedding import Embedding
from bert_jax.distributed.mesh import make_mesh
from bert_jax.distributed.sharding import tree_shardings
from bert_jax.model.bert import init_params
from bert_jax.runs.finetuning import finetuning_of
from bert_jax.runs.finetuning_setup import prepare_finetuning
from bert_jax.runs.init_from import has_all
from bert_jax.training.optimizer import Optimizer
from bert_jax.training.step import TrainState, evaluate, initial_state, make_eval_step

NUMBER = 24


def draw_words(number: int) -> tuple[str, str, str, str]:
    generator = random.Random(number)
    subject, verb = generator.choice(SUBJECTS), generator.choice(VERBS)
    return subject, verb, generator.choice(OBJECTS), generator.choice(PLACES)


def write_entities(folder: Path) -> Path:
    """One person or place a sentence, and now and then more words than a row takes."""
    sentences = []
    for i in range(NUMBER):
        subject, verb, thing, place = draw_words(i)
        words = ["The", subject, verb, "the", thing, "in", "the", place, "."]
        tags = ["O", "B-PER", "O", "O", "O", "O", "B-LOC", "I-LOC", "O"]
        times = 5 if i % 6 == 0 else 1
        lines = [f"{word}\t{tag}" for word, tag in zip(words, tags, strict=True)]
        sentences.append("\n".join(lines * times))
    path = folder / "all.txt"
    path.write_text("\n\n".join(sentences) + "\n")
    return path


def write_questions(folder: Path) -> Path:
    """Each second one without an answer; some documents take two windows."""
    paragraphs = []
    for i in range(NUMBER):
        subject, verb, thing, place = draw_words(i)
        context = f"The {subject} {verb} the {thing} in the {place}."
        if i % 4 == 0:
            context += " Rain falls on the old road by the river and on the hill."
        question = {"id": f"q{i}", "question": f"Who {verb} the {thing}?"}
        if i % 2:
            question |= {"is_impossible": True, "answers": []}
        else:
            question |= {"answers": [{"text": subject, "answer_start": 4}]}
        paragraphs.append({"context": context, "qas": [question]})
    articles = [{"title": f"t{i}", "paragraphs": [p]} for i, p in enumerate(paragraphs)]
    path = folder / "all.json"
    path.write_text(json.dumps({"version": "v2.0", "data": articles}))
    return path


def write_choices(folder: Path) -> Path:
    """Three, four or five choices; the last one may be right."""
    lines = []
    for i in range(NUMBER):
        subject, verb, thing, place = draw_words(i)
        choices = [f"in the {place}.", f"the {thing}.", f"the {subject} {verb}."]
        choices += [f"{verb} the {place}.", "."][: i % 3]
        line = {"context": f"The {subject} {verb} the {thing}", "choices": choices}
        lines.append(json.dumps(line | {"label": i % len(choices)}))
    path = folder / "all.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def write_pairs(folder: Path) -> Path:
    """Some first texts have two second texts, and some second texts two first ones."""
    lines = ["anchor,positive"]
    for i in range(NUMBER):
        subject, verb, thing, place = draw_words(i)
        lines.append(f"{subject} {thing},The {subject} {verb} in the {place}.")
    path = folder / "all.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def entities_to_predict() -> list[dict[str, Any]]:
    texts = ("The {} {} the {}.".format(*draw_words(i)) for i in range(9))
    return [{"id": i, "text": text} for i, text in enumerate(texts)]


def questions_to_predict() -> list[dict[str, Any]]:
    rows = []
    for i in range(9):
        subject, verb, thing, _ = draw_words(i)
        context = f"The {subject} {verb} the {thing}. " * (1 + i % 3)
        rows.append({"id": f"a{i}", "question": f"Who {verb}?", "context": context})
    return rows


def choices_to_predict() -> list[dict[str, Any]]:
    """Two to five choices, in turn."""
    rows = []
    for i in range(9):
        subject, verb, thing, _ = draw_words(i)
        choices = [f"the {thing}.", "in the " + " in the ".join(PLACES[: 1 + i % 3])]
        choices += [f"{verb}.", f"the {thing} {verb} the {subject}.", "."][: i % 4]
        rows.append({"id": i, "context": f"The {subject} {verb}", "choices": choices})
    return rows


def pairs_to_predict() -> list[dict[str, Any]]:
    rows = []
    for i in range(9):
        subject, verb, thing, place = draw_words(i)
        text = f"The {subject} {verb} the {thing}. " * (1 + i % 3)
        rows.append({"id": i, "anchor": f"{subject} {place}", "positive": text})
    return rows


@dataclasses.dataclass(frozen=True)
class Kind:
    """A task and its files."""

    task: str
    write: Callable[[Path], Path]
    """Writes the examples to train on and to score."""
    rows: Callable[[], list[dict[str, Any]]]
    """Returns JSON rows to predict."""
    predict: Callable[[Any, dict[str, Any]], dict[str, Any]]
    """Predicts a row by the method of Python."""
    files: tuple[str, ...]
    """The official prediction files."""
    options: tuple[str, ...] = ()


KINDS = [
    Kind(
        "token-classification",
        write_entities,
        entities_to_predict,
        lambda bert, row: bert.tag(row["text"]),
        ("predictions.txt",),
    ),
    Kind(
        "question-answering",
        write_questions,
        questions_to_predict,
        lambda bert, row: bert.answer([row["question"]] * 2, row["context"])[1],
        ("nbest_predictions.json", "null_odds.json", "predictions.json"),
        ("--data.max-query-length", "12", "--data.document-stride", "8"),
    ),
    Kind(
        "multiple-choice",
        write_choices,
        choices_to_predict,
        lambda bert, row: bert.choose(row["context"], row["choices"]),
        ("predictions.csv",),
    ),
    Kind(
        "sentence-pairs",
        write_pairs,
        pairs_to_predict,
        lambda bert, row: {
            "score": float(bert.similarity([row["anchor"]], [row["positive"]])[0, 0])
        },
        ("predictions.tsv",),
    ),
]
SMALL = "--data.max-length 32 --data.num-buckets 1 --batch-size 8 --num-epochs 2 "
SMALL += "--mesh.data 1 --log-every 1 --optimizer.peak-learning-rate 0.01"


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.task)
def tuned(request, tmp_path_factory, encoder_checkpoint) -> tuple[Kind, Path, Path]:
    """A kind, the file that a model was trained on, and the run's workdir."""
    kind = request.param
    folder = tmp_path_factory.mktemp(kind.task)
    file, workdir = kind.write(folder), folder / "run"
    assert main(command_of(kind, file, encoder_checkpoint, workdir)) == 0
    return kind, file, workdir


def command_of(kind: Kind, file: Path, source: Path, workdir: Path) -> list[str]:
    where = ["--workdir", str(workdir), "--init-from", str(source)]
    data = ["--data.train", str(file), "--data.validation", str(file)]
    return ["finetune", kind.task, *where, *data, *SMALL.split(), *kind.options]


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    code = main(list(arguments))
    output, error = capsys.readouterr()
    assert code == 0, error
    return output.splitlines()


def close(one: Any, other: Any) -> bool:
    """Equal but for `id`, and for the last digits of numbers."""
    if isinstance(one, dict):
        one.pop("id", None), other.pop("id", None)
        return one.keys() == other.keys() and all(
            close(one[name], other[name]) for name in one
        )
    if isinstance(one, list):
        pairs = zip(one, other, strict=True)
        return len(one) == len(other) and all(close(a, b) for a, b in pairs)
    if isinstance(one, float):
        return bool(one == pytest.approx(other, rel=1e-3, abs=1e-4))
    return bool(one == other)


def test_scores_and_official_files(tuned, tmp_path, capsys):
    kind, _, workdir = tuned
    where = ("--model", str(workdir), "--output", str(tmp_path / "out"))
    first, *files = printed(capsys, "evaluate", *where)
    lines = map(json.loads, (workdir / "metrics.jsonl").read_text().splitlines())
    validation = [line for line in lines if line["split"] == "validation"]
    name = next(iter(json.loads(first)))
    best = max((one for one in validation if one["step"]), key=lambda one: one[name])
    scores = {k: v for k, v in json.loads(first).items() if "baseline" not in k}
    for key, value in scores.items():
        assert value == pytest.approx(best[key], abs=1e-4)
    assert sorted(Path(file).name for file in files) == sorted(kind.files)


def assert_a_loss_is_said(
    workdir: Path, start: dict[str, Any], command: list[str], capsys: Any
) -> None:
    """As if the start had been perfect: the command says it, with the remedy."""
    metrics = workdir / "metrics.jsonl"
    text = metrics.read_text()
    first = json.dumps(start)
    assert first in text
    metrics.write_text(text.replace(first, json.dumps(start | {"ndcg@10": 1.5})))
    lines = printed(capsys, *command)
    metrics.write_text(text)
    (said,) = (line for line in lines if line.startswith("ndcg@10 before training"))
    assert said.startswith("ndcg@10 before training 1.5000 → 0.")
    assert any(
        line.startswith("The model became worse: use ") and "fewer epochs" in line
        for line in lines
    )


def test_the_start_is_scored_where_nothing_is_random(tuned, encoder_checkpoint, capsys):
    """Sentence pairs add no head; a model that was fine-tuned has its own."""
    kind, file, workdir = tuned
    lines = printed(capsys, *command_of(kind, file, encoder_checkpoint, workdir))
    (scores,) = (json.loads(line) for line in lines if line.startswith("{"))
    lines = map(json.loads, (workdir / "metrics.jsonl").read_text().splitlines())
    start, *_ = (line for line in lines if line["split"] == "validation")
    before = {k: v for k, v in scores.items() if k.startswith("before_")}
    if kind.task == "sentence-pairs":
        assert start["step"] == 0
        assert before == {"before_ndcg@10": round(start["ndcg@10"], 4)}
        assert_a_loss_is_said(
            workdir, start, command_of(kind, file, encoder_checkpoint, workdir), capsys
        )
    else:
        assert start["step"] > 0 and not before
    setup = prepare_finetuning(
        config_of(kind, file, workdir),
        epath.Path(workdir.parent / "none"),
        epath.Path(workdir / "examples"),
    )
    draw = functools.partial(init_params, setup.config.model)
    assert has_all(setup.initial_params, draw)


def test_predictions_in_the_order_of_the_rows(tuned, capsys, monkeypatch):
    """From a file, from standard input and from Python, whatever the batches."""
    kind, file, workdir = tuned
    rows = kind.rows()
    text = "".join(json.dumps(row) + "\n" for row in rows)
    source = file.parent / "rows.jsonl"
    source.write_text(text)
    where = ("--model", str(workdir))
    lines = printed(capsys, "predict", *where, "--input", str(source))
    predictions = [json.loads(line) for line in lines]
    assert [prediction["id"] for prediction in predictions] == [
        row["id"] for row in rows
    ]
    for size in ("1", "4"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        again = printed(capsys, "predict", *where, "--batch-size", size)
        assert close([json.loads(line) for line in again], predictions)
    bert = bert_jax.load(workdir)
    for row, prediction in zip(rows, predictions, strict=True):
        assert close(kind.predict(bert, row), prediction)
    if bert.config.head == "token_classification":  # in whose columns stand the tags
        for suffix, lines in (".conll", "In O\n"), (".txt", "In O\n\nOslo NNP B-LOC\n"):
            columns = source.with_suffix(suffix)
            columns.write_text(lines)
            assert main(["predict", *where, "--input", str(columns)]) == 2
            error = capsys.readouterr().err
            assert "is a file of columns, which `bert-jax eval" in error


def test_a_saved_checkpoint_predicts_the_same(tuned, tmp_path, capsys):
    """In Python and by the verb, as the workdir that it was saved from."""
    kind, file, workdir = tuned
    saved = bert_jax.load(workdir).save(tmp_path / "saved", to="checkpoint")
    one, other = bert_jax.load(workdir), bert_jax.load(saved)
    for row in kind.rows():
        assert kind.predict(other, row) == kind.predict(one, row)
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in kind.rows()))
    expected, found = (
        printed(capsys, "predict", str(model), "--input", str(source))
        for model in (workdir, saved)
    )
    assert found == expected and len(found) == len(kind.rows())
    scores, again = (
        printed(capsys, "evaluate", str(model), "--input", str(file))[0]
        for model in (workdir, saved)
    )
    assert again == scores


def test_the_methods_of_another_task_are_refused(tuned):
    kind, _, workdir = tuned
    bert = bert_jax.load(workdir)
    with pytest.raises(ValueError, match=f"fine-tuned on {kind.task}, but classify is"):
        bert.classify(["a"])
    # Any model has vectors, and so similarities.
    others = [other for other in KINDS[:3] if other is not kind]
    for other in others:
        with pytest.raises(ValueError, match=f"fine-tuned on {kind.task}, but"):
            other.predict(bert, other.rows()[0])


def test_vectors_are_those_of_the_training(tuned):
    kind, _, workdir = tuned
    bert = bert_jax.load(workdir)
    is_trained = kind.task == "sentence-pairs"
    assert bert.embedding == Embedding(
        normalize=is_trained, max_tokens=32 if is_trained else None
    )


def config_of(kind: Kind, file: Path, encoder: Path, **options: Any) -> FinetuneConfig:
    data = ExamplesConfig(
        train=str(file),
        validation=str(file),
        max_length=32,
        num_buckets=2,
        max_query_length=12,
        document_stride=8,
    )
    default = dataclasses.replace(default_config(kind.task), data=data)
    return dataclasses.replace(default, init_from=str(encoder), **options)


@functools.cache
def state_of(model: Any, optimizer_config: Any) -> TrainState:
    """The state drawn by seed 0, tripled so that examples differ more."""
    draw = functools.partial(init_params, model)
    optimizer = Optimizer(optimizer_config, 10)
    state = jax.jit(lambda: initial_state(draw, optimizer, 0))()
    params = jax.tree.map(lambda leaf: 3 * np.asarray(leaf), state.params)
    return dataclasses.replace(jax.device_get(state), params=params)


def scores(config: FinetuneConfig, folder: Path) -> dict[str, float]:
    """The scores of the validation examples with random parameters, in float64."""
    root = epath.Path(folder)
    setup = prepare_finetuning(config, root / "none", root / "examples")
    inner = dataclasses.replace(setup.task, model=in_float64(setup.task.model))
    task = finetuning_of(dataclasses.replace(setup, task=inner))
    mesh = make_mesh(config.mesh, config.batch_size)
    state = state_of(setup.config.model, config.optimizer)
    shardings = tree_shardings(mesh, state)
    with jax.enable_x64(True):
        params = jax.device_put(widened(state.params), shardings.params)
        values = evaluate(task, make_eval_step(task, mesh, shardings), params, mesh)
    assert values is not None
    return values


@pytest.mark.parametrize(
    "kind",
    [
        kind
        if kind.task == "sentence-pairs"
        else pytest.param(kind, marks=pytest.mark.slow)
        for kind in KINDS
    ],
    ids=lambda kind: kind.task,
)
def test_scores_do_not_depend_on_batch_size_or_devices(
    kind, encoder_checkpoint, tmp_path
):
    file = kind.write(tmp_path)
    one = MeshConfig(data=1)
    runs = [{"batch_size": size, "mesh": one} for size in (2, 5, 17)]
    meshes = MeshConfig(data=2), MeshConfig(data=2, fsdp=4)
    runs += [{"batch_size": 16, "mesh": mesh} for mesh in meshes]
    first, *others = (
        scores(config_of(kind, file, encoder_checkpoint, **options), tmp_path)
        for options in runs
    )
    assert any(0 < value < 100 for name, value in first.items() if name != "loss")
    for other in others:
        assert other["loss"] == pytest.approx(first["loss"], rel=AGREEMENT)
        # A threshold is a score of the model.
        for name, value in first.items():
            if name.endswith("_threshold"):
                assert other[name] == pytest.approx(value, rel=AGREEMENT)
            elif name != "loss":
                assert other[name] == value, name


@pytest.mark.slow
def test_the_reported_threshold_gives_the_best_score(
    tmp_path, encoder_checkpoint, capsys
):
    kind = KINDS[1]
    file, workdir = kind.write(tmp_path), tmp_path / "run"
    assert main(command_of(kind, file, encoder_checkpoint, workdir)) == 0
    capsys.readouterr()
    command = ("evaluate", "--model", str(workdir), "--data.null-threshold")
    # Every question is answered, so that all thresholds are compared.
    all_answered = json.loads(printed(capsys, *command, "1000")[0])
    threshold = str(all_answered["best_f1_threshold"])
    at_best = json.loads(printed(capsys, *command, threshold)[0])
    # An answer that normalises to nothing is right where there is none, but counts as
    # wrong where the official script looks for a threshold.
    best_f1 = all_answered["best_f1"]
    assert at_best["f1"] >= best_f1 - 1e-3 >= all_answered["f1"] - 2e-3
    bert = bert_jax.load(workdir)
    row = kind.rows()[0]
    answer = functools.partial(bert.answer, row["question"], row["context"])
    assert answer(null_threshold=-1000.0)["answer"] == ""
    assert answer(null_threshold=1000.0)["answer"] != ""

"""Entities, questions and choices, from their files to a served answer."""

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
from small_world import OBJECTS, PLACES, SUBJECTS, VERBS

import bert_jax
from bert_jax.cli.finetuning import default_config
from bert_jax.cli.main import main
from bert_jax.config import ExamplesConfig, FinetuneConfig, MeshConfig
from bert_jax.distributed.mesh import make_mesh, tree_shardings
from bert_jax.runs.finetuning_setup import prepare_finetuning
from bert_jax.tasks.finetuning import finetuning_task, initial_params
from bert_jax.training.evaluation import evaluate
from bert_jax.training.optimizer import make_optimizer
from bert_jax.training.state import TrainState, initial_state
from bert_jax.training.step import make_eval_step

NUMBER = 24


def parts(number: int) -> tuple[str, str, str, str]:
    draw = random.Random(number)
    return tuple(draw.choice(words) for words in (SUBJECTS, VERBS, OBJECTS, PLACES))  # type: ignore[return-value]


def write_entities(folder: Path) -> Path:
    """One person or place a sentence, and now and then more words than a row takes."""
    sentences = []
    for i in range(NUMBER):
        subject, verb, thing, place = parts(i)
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
        subject, verb, thing, place = parts(i)
        context = f"The {subject} {verb} the {thing} in the {place}."
        if i % 4 == 0:
            context += " Rain falls on the old road by the river and on the hill."
        asked = {"id": f"q{i}", "question": f"Who {verb} the {thing}?"}
        if i % 2:
            asked |= {"is_impossible": True, "answers": []}
        else:
            asked |= {"answers": [{"text": subject, "answer_start": 4}]}
        paragraphs.append({"context": context, "qas": [asked]})
    articles = [{"title": f"t{i}", "paragraphs": [p]} for i, p in enumerate(paragraphs)]
    path = folder / "all.json"
    path.write_text(json.dumps({"version": "v2.0", "data": articles}))
    return path


def write_choices(folder: Path) -> Path:
    lines = []
    for i in range(NUMBER):
        subject, verb, thing, place = parts(i)
        choices = [f"in the {place}.", f"the {thing}.", f"the {subject} {verb}."]
        line = {"context": f"The {subject} {verb} the {thing}", "choices": choices}
        lines.append(json.dumps(line | {"label": i % 3}))
    path = folder / "all.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def asked_of_entities() -> list[dict[str, Any]]:
    return [{"id": i, "text": "The {} {} the {}.".format(*parts(i))} for i in range(9)]


def asked_of_questions() -> list[dict[str, Any]]:
    rows = []
    for i in range(9):
        subject, verb, thing, place = parts(i)
        context = f"The {subject} {verb} the {thing}. " * (1 + i % 3)
        rows.append({"id": f"a{i}", "question": f"Who {verb}?", "context": context})
    return rows


def asked_of_choices() -> list[dict[str, Any]]:
    rows = []
    for i in range(9):
        subject, verb, thing, _ = parts(i)
        choices = [f"the {thing}.", "in the " + " in the ".join(PLACES[: 1 + i % 3])]
        rows.append({"id": i, "context": f"The {subject} {verb}", "choices": choices})
    return rows


@dataclasses.dataclass(frozen=True)
class Kind:
    """A task, its files, and how Python asks what a row of JSON asks."""

    task: str
    write: Callable[[Path], Path]
    asked: Callable[[], list[dict[str, Any]]]
    ask: Callable[[Any, dict[str, Any]], dict[str, Any]]
    files: tuple[str, ...]
    options: tuple[str, ...] = ()


KINDS = [
    Kind(
        "token-classification",
        write_entities,
        asked_of_entities,
        lambda bert, row: bert.tag([row["text"]])[0],
        ("predictions.txt",),
    ),
    Kind(
        "question-answering",
        write_questions,
        asked_of_questions,
        lambda bert, row: bert.answer(row["question"], row["context"]),
        ("nbest_predictions.json", "null_odds.json", "predictions.json"),
        ("--data.max-query-length", "12", "--data.document-stride", "8"),
    ),
    Kind(
        "multiple-choice",
        write_choices,
        asked_of_choices,
        lambda bert, row: bert.choose(row["context"], row["choices"]),
        ("predictions.csv",),
    ),
]
SMALL = "--data.max-length 32 --data.num-buckets 2 --batch-size 8 --num-epochs 2 "
SMALL += "--mesh.data 1 --log-every 1 --optimizer.peak-learning-rate 0.01"


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.task)
def tuned(request, tmp_path_factory, encoder_checkpoint) -> tuple[Kind, Path, Path]:
    """A kind, the file that a model learned from, and the run's workdir."""
    kind = request.param
    folder = tmp_path_factory.mktemp(kind.task)
    file, workdir = kind.write(folder), folder / "run"
    where = ["--workdir", str(workdir), "--init-from", str(encoder_checkpoint)]
    data = ["--data.train", str(file), "--data.validation", str(file)]
    options = [*where, *data, *SMALL.split(), *kind.options]
    assert main(["finetune", kind.task, *options]) == 0
    return kind, file, workdir


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    code = main(list(arguments))
    output, error = capsys.readouterr()
    assert code == 0, error
    return output.splitlines()


def close(found: Any, other: Any) -> bool:
    """Equal, but for the last digits of numbers."""
    if isinstance(found, dict):
        found.pop("id", None), other.pop("id", None)
        return found.keys() == other.keys() and all(
            close(found[name], other[name]) for name in found
        )
    if isinstance(found, list):
        pairs = zip(found, other, strict=True)
        return len(found) == len(other) and all(close(a, b) for a, b in pairs)
    if isinstance(found, float):
        return bool(found == pytest.approx(other, rel=1e-3, abs=1e-4))
    return bool(found == other)


def test_scores_and_official_files(tuned, tmp_path, capsys):
    kind, file, workdir = tuned
    where = ("--checkpoint", str(workdir), "--output", str(tmp_path / "out"))
    first, *files = printed(capsys, "evaluate", *where)
    lines = map(json.loads, (workdir / "metrics.jsonl").read_text().splitlines())
    told = [line for line in lines if line["split"] == "validation"]
    name = next(iter(json.loads(first)))
    best = max(told, key=lambda line: line[name])
    for key, value in json.loads(first).items():
        assert value == pytest.approx(best[key], abs=1e-4)
    assert sorted(Path(each).name for each in files) == sorted(kind.files)


def test_answers_in_the_order_of_what_is_asked(tuned, capsys, monkeypatch):
    """From a file, from standard input and from Python, whatever the batches."""
    kind, file, workdir = tuned
    rows = kind.asked()
    typed = "".join(json.dumps(row) + "\n" for row in rows)
    source = file.parent / "asked.jsonl"
    source.write_text(typed)
    where = ("--checkpoint", str(workdir))
    found = [
        json.loads(x)
        for x in printed(capsys, "predict", *where, "--input", str(source))
    ]
    assert [each["id"] for each in found] == [row["id"] for row in rows]
    for size in ("1", "4"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed.encode())))
        again = printed(capsys, "predict", *where, "--batch-size", size)
        assert close([json.loads(line) for line in again], found)
    bert = bert_jax.load(workdir)
    for row, each in zip(rows, found, strict=True):
        assert close(kind.ask(bert, row), each)


def test_the_methods_of_another_task_are_refused(tuned):
    kind, _, workdir = tuned
    bert = bert_jax.load(workdir)
    with pytest.raises(ValueError, match=f"fine-tuned on {kind.task}, and classify is"):
        bert.classify(["a"])
    others = [other for other in KINDS if other is not kind]
    for other in others:
        with pytest.raises(ValueError, match=f"fine-tuned on {kind.task}, and"):
            other.ask(bert, other.asked()[0])


def config_of(kind: Kind, file: Path, encoder: Path, **options: Any) -> FinetuneConfig:
    data = ExamplesConfig(
        train=str(file),
        validation=str(file),
        max_length=32,
        num_buckets=2,
        max_query_length=12,
        document_stride=8,
    )
    usual = dataclasses.replace(default_config(kind.task), data=data)
    return dataclasses.replace(usual, init_from=str(encoder), **options)


@functools.cache
def state_of(config: Any, optimizer_config: Any) -> TrainState:
    """What seed 0 draws, tripled so that examples differ more."""
    initialise = functools.partial(initial_params, config)
    optimizer = make_optimizer(optimizer_config, 10)
    state = jax.jit(lambda: initial_state(initialise, optimizer, 0))()
    params = jax.tree.map(lambda leaf: 3 * np.asarray(leaf), state.params)
    return dataclasses.replace(jax.device_get(state), params=params)


def scores(config: FinetuneConfig, folder: Path) -> dict[str, float]:
    """Of the validation examples, by parameters drawn at random."""
    root = epath.Path(folder)
    setup = prepare_finetuning(config, root / "none", root / "examples")
    task = finetuning_task(setup.problem, setup.config, setup.train, setup.validation)
    mesh = make_mesh(config.mesh, config.batch_size)
    state = state_of(setup.config.model, config.optimizer)
    shardings = tree_shardings(mesh, state)
    params = jax.device_put(state.params, shardings.params)
    found = evaluate(task, make_eval_step(task, mesh, shardings), params, mesh)
    assert found is not None
    return found


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.task)
def test_scores_do_not_depend_on_batch_size_or_devices(
    kind, encoder_checkpoint, tmp_path
):
    file = kind.write(tmp_path)
    one = MeshConfig(data=1)
    runs = [{"batch_size": size, "mesh": one} for size in (1, 5, 17)]
    runs += [{"batch_size": 16, "mesh": MeshConfig(data=n)} for n in (2, 8)]
    found = []
    for options in runs:
        config = config_of(kind, file, encoder_checkpoint, **options)
        found.append(scores(config, tmp_path))
    assert any(0 < value < 100 for name, value in found[0].items() if name != "loss")
    for other in found[1:]:
        assert other["loss"] == pytest.approx(found[0]["loss"], abs=1e-5)
        # A threshold is a score of the model's, and rounded as such.
        for name, value in found[0].items():
            if name.endswith("_threshold"):
                assert other[name] == pytest.approx(value, abs=1e-5)
            elif name != "loss":
                assert other[name] == value, name


def test_where_no_answer_is_said_is_chosen(tmp_path, encoder_checkpoint, capsys):
    """What the scores call the best threshold gives, taken, the best score."""
    kind = KINDS[1]
    file, workdir = kind.write(tmp_path), tmp_path / "run"
    where = ["--workdir", str(workdir), "--init-from", str(encoder_checkpoint)]
    data = ["--data.train", str(file), "--data.validation", str(file)]
    assert (
        main(["finetune", kind.task, *where, *data, *SMALL.split(), *kind.options]) == 0
    )
    capsys.readouterr()
    scored = ("evaluate", "--checkpoint", str(workdir), "--data.null-threshold")
    # Every question is answered, so that all thresholds are compared.
    told = json.loads(printed(capsys, *scored, "1000")[0])
    taken = json.loads(printed(capsys, *scored, str(told["best_f1_threshold"]))[0])
    # An answer that normalises to nothing is right where there is none, but counts as
    # wrong where the official script looks for a threshold.
    assert taken["f1"] >= told["best_f1"] - 1e-3 >= told["f1"] - 2e-3
    bert = bert_jax.load(workdir)
    row = kind.asked()[0]
    answer = functools.partial(bert.answer, row["question"], row["context"])
    assert answer(null_threshold=-1000.0)["answer"] == ""
    assert answer(null_threshold=1000.0)["answer"] != ""

"""Fine-tuning as a task: batches, shapes, and each example counted once."""

import dataclasses
import functools
import random
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from float64 import AGREEMENT, in_float64, widened
from small_world import OBJECTS, SUBJECTS, VERBS, VOCAB_SIZE

from bert_jax.config import BertConfig, ExamplesConfig, FinetuneConfig, MeshConfig
from bert_jax.distributed.mesh import make_mesh
from bert_jax.distributed.sharding import tree_shardings
from bert_jax.model.bert import init_params
from bert_jax.tasks.finetuning import FinetuningTask, Training
from bert_jax.tasks.kinds import finetuning_task
from bert_jax.tasks.predictions import Split, without_repeats
from bert_jax.tasks.texts.examples import TextExample
from bert_jax.tokenization import Tokenizer
from bert_jax.training.optimizer import Optimizer
from bert_jax.training.step import TrainState, evaluate, initial_state, make_eval_step

TRAIN, VALIDATION = 40, 23
LABELS = tuple(sorted(SUBJECTS[:3]))


@pytest.fixture(scope="module")
def tokenizer(tokenizer_directory: Path) -> Tokenizer:
    return Tokenizer.load(tokenizer_directory)


def config_of(regression: bool = False, **options: Any) -> FinetuneConfig:
    kind = "regression" if regression else "single_label_classification"
    model = BertConfig.miniature(
        1,
        16,
        vocab_size=VOCAB_SIZE,
        max_position_embeddings=64,
        head="sequence_classification",
        labels=("number",) if regression else LABELS,
        problem_type=kind,
    )
    defaults: dict[str, Any] = {
        "num_steps": 12,
        "batch_size": 8,
        "mesh": MeshConfig(data=1),
        "data": ExamplesConfig(num_buckets=2),
    }
    name = "text-regression" if regression else "text-classification"
    return FinetuneConfig(model=model, task=name, **defaults | options)


def split_of(tokenizer: Tokenizer, task: FinetuningTask, num_examples: int) -> Split:
    """Texts of one to four clauses; a label is the subject, or how many clauses."""
    generator = random.Random(num_examples)
    examples = []
    for _ in range(num_examples):
        subject, clauses = generator.choice(LABELS), generator.choice([1, 1, 2, 4])
        text = " and ".join(
            f"{generator.choice(VERBS)} the {generator.choice(OBJECTS)}"
            for _ in range(clauses)
        )
        label = float(clauses) if task.model.problem_type == "regression" else subject
        examples.append(TextExample((f"The {subject} {text}.",), label))
    return Split(examples, task.tokenize(examples, tokenizer))


def task_of(tokenizer: Tokenizer, config: FinetuneConfig, *host: int) -> FinetuningTask:
    task = finetuning_task(config.task, config.data, config.model)
    splits = (split_of(tokenizer, task, number) for number in (TRAIN, VALIDATION))
    training = Training(config, *splits, *host)
    return dataclasses.replace(task, training=training)


@functools.cache
def state_of(regression: bool) -> TrainState:
    """The state drawn by seed 0, tripled so that texts differ more."""
    config = config_of(regression)
    draw = functools.partial(init_params, config.model)
    state = jax.jit(lambda: initial_state(draw, Optimizer.of(config), 0))()
    params = jax.tree.map(lambda leaf: 3 * np.asarray(leaf), state.params)
    return dataclasses.replace(jax.device_get(state), params=params)


def scores(tokenizer: Tokenizer, config: FinetuneConfig) -> dict[str, float]:
    """In float64."""
    config = dataclasses.replace(config, model=in_float64(config.model))
    state = state_of(config.task == "text-regression")
    task, mesh = task_of(tokenizer, config), make_mesh(config.mesh, config.batch_size)
    shardings = tree_shardings(mesh, state)
    with jax.enable_x64(True):
        step = make_eval_step(task, mesh, shardings)
        params = jax.device_put(widened(state.params), shardings.params)
        values = evaluate(task, step, params, mesh)
    assert values is not None
    return values


@pytest.fixture(scope="module")
def by_ones(tokenizer: Tokenizer) -> dict[str, float]:
    return scores(tokenizer, config_of(batch_size=1))


def assert_same_scores(one: dict[str, float], other: dict[str, float]) -> None:
    """The loss within the rounding of sums, the scores to the last bit."""
    assert one["loss"] == pytest.approx(other["loss"], rel=AGREEMENT)
    assert {**one, "loss": 0} == {**other, "loss": 0}


@pytest.mark.parametrize(
    "batch_size",
    [
        size
        if size in (2, 3, 7, 8, 16, 17)
        else pytest.param(size, marks=pytest.mark.slow)
        for size in range(2, 18)
    ],
)
def test_scores_do_not_depend_on_the_batch_size(batch_size, tokenizer, by_ones):
    # One bucket or two: nor do they depend on the padding.
    data = ExamplesConfig(num_buckets=1 if batch_size % 4 else 2)
    config = config_of(batch_size=batch_size, data=data)
    assert_same_scores(scores(tokenizer, config), by_ones)


@pytest.mark.parametrize("devices", [2, 8])
def test_scores_do_not_depend_on_the_devices(devices, tokenizer, by_ones):
    config = config_of(batch_size=16, mesh=MeshConfig(data=devices))
    assert_same_scores(scores(tokenizer, config), by_ones)


def test_the_scores_are_neither_0_nor_1(by_ones):
    """Otherwise it would prove little that they agree."""
    assert 0 < by_ones["accuracy"] < 1 and by_ones["macro_f1"] > 0.2
    assert list(by_ones) == ["loss", "accuracy", "macro_f1", "mcc"]


def test_scores_of_numbers_do_not_depend_on_batch_size_or_devices(tokenizer):
    one, other = (
        scores(tokenizer, config_of(regression=True, **options))
        for options in ({"batch_size": 5}, {"mesh": MeshConfig(data=2)})
    )
    assert one == pytest.approx(other, rel=AGREEMENT)
    assert list(one) == ["loss", "pearson", "spearman", "mean_squared_error"]
    assert one["loss"] == pytest.approx(one["mean_squared_error"], rel=1e-5)


def test_the_best_checkpoint_is_that_of_the_first_score(tokenizer):
    task = task_of(tokenizer, config_of())
    assert task.selection_score({"loss": 9.0, "f1": 0.5, "accuracy": 0.75}) == 0.5


@pytest.mark.parametrize(
    ("scores", "repeated"),
    [
        (
            {"accuracy": 1.0, "macro_f1": 0.5, "f1": 0.75, "f1_a": 0.25, "f1_b": 0.75},
            ["f1"],
        ),
        ({"f1": 0.5, "accuracy": 1.0, "f1_PER": 0.5}, ["f1_PER"]),
        ({"f1": 0.5, "f1_LOC": 0.5, "f1_PER": 0.5}, []),
        ({"f1": 0.5, "accuracy": 1.0}, []),
        ({"f1": 0.5, "f1_mine": 0.25}, []),
    ],
    ids=["two classes", "one type", "two types", "GLUE", "of the user's"],
)
def test_a_score_of_two_names_is_shown_once(scores, repeated):
    scores |= {
        f"{part}{k}": v for part in ("before_", "test_") for k, v in scores.items()
    }
    hidden = scores.keys() - without_repeats(scores)
    assert hidden == {
        f"{part}{k}" for part in ("before_", "", "test_") for k in repeated
    }


@pytest.mark.parametrize("batch_size", [1, 7, 16])
def test_every_example_is_evaluated_once(batch_size, tokenizer):
    task = task_of(tokenizer, config_of(batch_size=batch_size))
    batches = list(task.evaluation_batches())
    rows = np.concatenate([batch["row"] for batch in batches])
    assert sorted(rows[rows >= 0]) == list(range(VALIDATION))
    assert {len(batch["row"]) for batch in batches} == {batch_size}
    assert len({batch["tokens"].shape for batch in batches}) == 2
    is_padding = np.concatenate([batch["end"] for batch in batches]) == 0
    np.testing.assert_array_equal(is_padding, rows < 0)


def test_microbatches_are_evaluated_one_by_one(tokenizer):
    """Accumulation is for what does not fit into memory at once."""
    task = task_of(tokenizer, config_of(batch_size=16, microbatches=4))
    assert {len(batch["row"]) for batch in task.evaluation_batches()} == {4}
    assert len(task.batch(0)["row"]) == 16


def test_a_batch_is_made_of_the_examples_that_are_logged(tokenizer):
    task = task_of(tokenizer, config_of())
    for step in range(12):
        batch = task.batch(step)
        np.testing.assert_array_equal(batch["row"], task.row_numbers(step))
        assert batch["end"].max() <= batch["tokens"].shape[1]
        assert task.num_tokens(batch) == batch["end"].sum()


def test_hosts_share_each_batch(tokenizer):
    """The batches of two hosts, concatenated, are those of one host alone."""
    config = config_of()
    alone = task_of(tokenizer, config)
    hosts = [task_of(tokenizer, config, host, 2) for host in range(2)]
    for step in range(4):
        parts = [host.batch(step)["tokens"] for host in hosts]
        np.testing.assert_array_equal(
            np.concatenate(parts), alone.batch(step)["tokens"]
        )
    both = zip(*(host.evaluation_batches() for host in hosts), strict=True)
    for batch, parts in zip(alone.evaluation_batches(), both, strict=True):
        rows = np.concatenate([part["row"] for part in parts])
        np.testing.assert_array_equal(rows, batch["row"])
    assert hosts[0].flops(hosts[0].batch(0)) == alone.flops(alone.batch(0))


def test_count_is_that_of_the_loss_whatever_is_corrupted(tokenizer):
    """Fine-tuning corrupts nothing; `count` needs no scores."""
    task = task_of(tokenizer, config_of())
    batch = jax.tree.map(jax.numpy.asarray, task.batch(0))
    assert task.corrupt(batch, jax.random.key(0)) is batch
    params = state_of(False).params
    sums = jax.jit(task.loss)(params, batch, jax.random.key(1))
    assert {name: float(count) for name, (_, count) in sums.items()} == {"loss": 8.0}
    assert {name: float(count) for name, count in task.count(batch).items()} == {
        "loss": 8.0
    }

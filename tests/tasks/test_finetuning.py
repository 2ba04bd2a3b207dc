"""Fine-tuning as a task: batches, shapes, and each example counted once."""

import dataclasses
import functools
import random
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from small_world import OBJECTS, SUBJECTS, VERBS, VOCAB_SIZE

from bert_jax.config import BertConfig, ExamplesConfig, FinetuneConfig, MeshConfig
from bert_jax.distributed.mesh import make_mesh, tree_shardings
from bert_jax.tasks.finetuning import Part, finetuning_task, initial_params
from bert_jax.tasks.problem import Problem
from bert_jax.tasks.task import Task
from bert_jax.tasks.text_classification import TEXT_CLASSIFICATION, TEXT_REGRESSION
from bert_jax.tasks.texts import TextRecord
from bert_jax.tokenization import Tokenizer
from bert_jax.training.loop import evaluate
from bert_jax.training.optimizer import make_optimizer
from bert_jax.training.state import TrainState, initial_state
from bert_jax.training.step import make_eval_step

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
    usual: dict[str, Any] = {
        "num_steps": 12,
        "batch_size": 8,
        "mesh": MeshConfig(data=1),
    }
    usual["data"] = ExamplesConfig(num_buckets=2)
    task = "text-regression" if regression else "text-classification"
    return FinetuneConfig(model=model, task=task, **usual | options)


def part(
    tokenizer: Tokenizer, problem: Problem, config: FinetuneConfig, number: int
) -> Part:
    """Texts of one to four clauses, and who they are of, or how many clauses."""
    generator = random.Random(number)
    records = []
    for _ in range(number):
        subject, clauses = generator.choice(LABELS), generator.choice([1, 1, 2, 4])
        text = " and ".join(
            f"{generator.choice(VERBS)} the {generator.choice(OBJECTS)}"
            for _ in range(clauses)
        )
        label = float(clauses) if config.task == "text-regression" else subject
        records.append(TextRecord((f"The {subject} {text}.",), label))
    examples = problem.encode(records, tokenizer, config.model, config.data)
    return Part(records, examples)


def task_of(tokenizer: Tokenizer, config: FinetuneConfig, *host: int) -> Task:
    regression = config.task == "text-regression"
    problem = TEXT_REGRESSION if regression else TEXT_CLASSIFICATION
    parts = (part(tokenizer, problem, config, n) for n in (TRAIN, VALIDATION))
    return finetuning_task(problem, config, *parts, *host)


@functools.cache
def state_of(regression: bool) -> TrainState:
    """What seed 0 draws, tripled so that texts differ more."""
    config = config_of(regression)
    initialise = functools.partial(initial_params, config.model)
    optimizer = make_optimizer(config.optimizer, config.num_steps)
    state = jax.jit(lambda: initial_state(initialise, optimizer, 0))()
    params = jax.tree.map(lambda leaf: 3 * np.asarray(leaf), state.params)
    return dataclasses.replace(jax.device_get(state), params=params)


def scores(tokenizer: Tokenizer, config: FinetuneConfig) -> dict[str, float]:
    state = state_of(config.task == "text-regression")
    task, mesh = task_of(tokenizer, config), make_mesh(config.mesh, config.batch_size)
    shardings = tree_shardings(mesh, state)
    step = make_eval_step(task, mesh, shardings)
    params = jax.device_put(state.params, shardings.params)
    found = evaluate(task, step, params, mesh)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def by_ones(tokenizer: Tokenizer) -> dict[str, float]:
    return scores(tokenizer, config_of(batch_size=1))


def assert_same_scores(found: dict[str, float], other: dict[str, float]) -> None:
    """The loss within float32's rounding of sums, the scores to the last bit."""
    assert found["loss"] == pytest.approx(other["loss"], abs=1e-6)
    assert {**found, "loss": 0} == {**other, "loss": 0}


@pytest.mark.parametrize("batch_size", range(2, 18))
def test_scores_do_not_depend_on_the_batch_size(batch_size, tokenizer, by_ones):
    # Of one bucket or two: how texts are padded is of no consequence either.
    data = ExamplesConfig(num_buckets=1 if batch_size % 4 else 2)
    found = scores(tokenizer, config_of(batch_size=batch_size, data=data))
    assert_same_scores(found, by_ones)


@pytest.mark.parametrize("devices", [2, 8])
def test_scores_do_not_depend_on_the_devices(devices, tokenizer, by_ones):
    config = config_of(batch_size=16, mesh=MeshConfig(data=devices))
    assert_same_scores(scores(tokenizer, config), by_ones)


def test_the_scores_tell_parameters_apart(by_ones):
    """Else it would prove little that they agree."""
    assert 0 < by_ones["accuracy"] < 1 and by_ones["macro_f1"] > 0.2
    assert list(by_ones) == ["loss", "accuracy", "macro_f1", "mcc"]


def test_numbers_are_scored_alike_too(tokenizer):
    """Correlations are of float32 values, so they agree as closely as those."""
    found = []
    for options in ({"batch_size": 5}, {"mesh": MeshConfig(data=2)}):
        config = config_of(regression=True, **options)
        found.append(scores(tokenizer, config))
    assert found[0] == pytest.approx(found[1], abs=1e-6)
    assert list(found[0]) == ["loss", "pearson", "spearman", "mean_squared_error"]
    assert found[0]["loss"] == pytest.approx(found[0]["mean_squared_error"], rel=1e-5)


def test_the_best_checkpoint_is_that_of_the_first_score(tokenizer):
    merit = task_of(tokenizer, config_of()).merit
    assert merit({"loss": 9.0, "f1": 0.5, "accuracy": 0.75}) == 0.5


@pytest.mark.parametrize("batch_size", [1, 7, 16])
def test_every_example_is_evaluated_once(batch_size, tokenizer):
    task = task_of(tokenizer, config_of(batch_size=batch_size))
    batches = list(task.evaluation_batches())
    rows = np.concatenate([batch["row"] for batch in batches])
    assert sorted(rows[rows >= 0]) == list(range(VALIDATION))
    assert {len(batch["row"]) for batch in batches} == {batch_size}
    assert len({batch["tokens"].shape for batch in batches}) == 2
    nobody = np.concatenate([batch["end"] for batch in batches]) == 0
    np.testing.assert_array_equal(nobody, rows < 0)


def test_microbatches_are_evaluated_one_by_one(tokenizer):
    """Accumulation is for what does not fit into memory at once."""
    task = task_of(tokenizer, config_of(batch_size=16, microbatches=4))
    assert {len(batch["row"]) for batch in task.evaluation_batches()} == {4}
    assert len(task.batch(0)["row"]) == 16


def test_a_batch_is_made_of_the_examples_that_are_logged(tokenizer):
    task = task_of(tokenizer, config_of())
    for step in range(12):
        batch = task.batch(step)
        np.testing.assert_array_equal(batch["row"], task.examples(step))
        assert batch["end"].max() <= batch["tokens"].shape[1]
        assert task.tokens(batch) == batch["end"].sum()


def test_hosts_share_each_batch(tokenizer):
    """What two hosts read, side by side, is what one would read."""
    config = config_of()
    alone = task_of(tokenizer, config)
    hosts = [task_of(tokenizer, config, host, 2) for host in range(2)]
    for step in range(4):
        shares = [host.batch(step)["tokens"] for host in hosts]
        np.testing.assert_array_equal(
            np.concatenate(shares), alone.batch(step)["tokens"]
        )
    both = zip(*(host.evaluation_batches() for host in hosts), strict=True)
    for batch, shares in zip(alone.evaluation_batches(), both, strict=True):
        rows = np.concatenate([share["row"] for share in shares])
        np.testing.assert_array_equal(rows, batch["row"])
    assert hosts[0].flops(hosts[0].batch(0)) == alone.flops(alone.batch(0))

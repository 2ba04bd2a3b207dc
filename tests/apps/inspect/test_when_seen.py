"""When a run sees a row, and its masks: compared with what training really did."""

import dataclasses
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

import jax
import numpy as np
import pytest
from etils import epath
from jaxtyping import Array, Int, Key
from run_helpers import logged_lines

from bert_jax.apps.inspect.when_seen import when_seen
from bert_jax.cli.main import main
from bert_jax.config import MeshConfig, PretrainConfig
from bert_jax.config.model import Params
from bert_jax.config.serialization import to_dict
from bert_jax.data.pipeline import Batch
from bert_jax.data.records import Dataset
from bert_jax.masking.batch import MaskedBatch
from bert_jax.runs.fitting import fit
from bert_jax.runs.fork import fork
from bert_jax.runs.pretraining import pretrain, resolve
from bert_jax.runs.pretraining_run import config_at_step, open_run
from bert_jax.tasks.pretraining.task import PretrainingBatch, PretrainingTask
from bert_jax.tasks.task import Counts, DeviceBatch, Sums, Task
from bert_jax.training.step import split_seed

NUM_STEPS, BATCH_SIZE = 12, 64
Masked = tuple[list[int], dict[int, int]]
"""What the model sees of a row, and the label of each position to predict."""


@final
class RecordingTask(Task):
    """Pretraining that records the masks as the training step computes them."""

    def __init__(self, task: PretrainingTask) -> None:
        self.task = task
        self.batches = task.batches
        self.recorded: dict[tuple[int, int], Masked] = {}
        """By the number of steps done before, and the row's place in the batch."""

    @property
    def objective(self) -> tuple[str, ...]:
        return self.task.objective

    def init_params(self, key: Key[Array, ""]) -> Params:
        return self.task.init_params(key)

    def corrupt_at_step(
        self, batch: DeviceBatch, key: Key[Array, ""], step: Int[Array, ""]
    ) -> PretrainingBatch:
        corrupted = self.task.corrupt_at_step(batch, key, step)
        arrays = arrays_of(corrupted.masked)
        jax.debug.callback(self.record, step, batch["row"], *arrays)
        return corrupted

    def record(self, step: Any, places: Any, *arrays: Any) -> None:
        rows = zip(*map(np.asarray, arrays), strict=True)
        for place, row in zip(np.asarray(places).tolist(), rows, strict=True):
            self.recorded[int(step), place] = seen_and_labels(*row)

    def count(self, batch: PretrainingBatch) -> Counts:
        return self.task.count(batch)

    def loss(
        self, params: Params, batch: PretrainingBatch, key: Key[Array, ""]
    ) -> Sums:
        return self.task.loss(params, batch, key)

    def evaluate(
        self, params: Params, batch: DeviceBatch
    ) -> tuple[Sums, dict[str, jax.Array]]:
        return self.task.evaluate(params, batch)

    def evaluation_batches(self) -> Iterator[Batch]:
        return iter(())  # so that no evaluation is compiled


def arrays_of(masked: MaskedBatch) -> tuple[Any, ...]:
    return masked.inputs.input_ids, masked.predicted, masked.labels, masked.weights


def seen_and_labels(ids: Any, positions: Any, labels: Any, weights: Any) -> Masked:
    used = weights > 0
    pairs = zip(positions[used].tolist(), labels[used].tolist(), strict=True)
    return ids.tolist(), dict(pairs)


def trained(config: PretrainConfig, dataset: Dataset, workdir: Path) -> RecordingTask:
    """Train in `workdir`, and return the task with what it recorded."""
    task = RecordingTask(PretrainingTask(config, dataset))
    fit(task, config, workdir, dataset.tokenizer)
    jax.effects_barrier()
    return task


@pytest.fixture(scope="module")
def config(small_config: PretrainConfig, dataset: Dataset) -> PretrainConfig:
    """Several epochs in batches of microbatches on two devices."""
    masking = dataclasses.replace(small_config.masking, unit="whole_word")
    config = dataclasses.replace(
        small_config,
        masking=masking,
        mesh=MeshConfig(data=1),
        microbatches=2,
        num_steps=NUM_STEPS,
        batch_size=BATCH_SIZE,
        eval_every=NUM_STEPS,
        checkpoint_every=4,
        keep_checkpoints=9,
    )
    return resolve(config, dataset)


@pytest.fixture(scope="module")
def source(config, dataset, tmp_path_factory) -> tuple[Path, RecordingTask]:
    workdir = tmp_path_factory.mktemp("when") / "run"
    return workdir, trained(config, dataset, workdir)


def rows_of_steps(workdir: Path) -> dict[int, list[int]]:
    """The rows of each step in examples.jsonl, by the number of steps before."""
    lines = logged_lines(workdir, name="examples.jsonl")
    return {line["step"] - 1: line["rows"] for line in lines}


def check_steps(workdir: Path, dataset: Dataset, first_step: int = 0) -> None:
    """Each row is in the steps and at the places that the run has written down."""
    logged = rows_of_steps(workdir)
    batches = open_run(str(workdir)).task.batches
    end = max(logged) + 1
    assert min(logged) == first_step
    for row in range(len(dataset.train)):
        epochs = range(int(batches.num_epochs_of_rows(np.array([row]), end)[0]))
        actual = [batches.place_of_row(row, epoch) for epoch in epochs]
        expected = [
            (step, place)
            for step, rows in logged.items()
            for place, number in enumerate(rows)
            if number == row
        ]
        assert actual == expected, row


def check_masks(workdir: Path, recorded: dict[tuple[int, int], Masked]) -> None:
    """The masks of each row that training recorded are computed again, bit by bit."""
    run, logged = open_run(str(workdir)), rows_of_steps(workdir)
    # A part of the rows, in each step at other places.
    for (step, place), expected in list(recorded.items())[::11]:
        masked = run.masked_row(logged[step][place], step, place).masked
        assert masked is not None
        arrays = (np.asarray(values)[0] for values in arrays_of(masked))
        assert seen_and_labels(*arrays) == expected, (step, place)


def test_steps_and_masks_are_those_of_training(source, dataset):
    workdir, task = source
    assert 2 * len(dataset.train) < NUM_STEPS * BATCH_SIZE, "more than two epochs"
    assert len(task.recorded) == NUM_STEPS * BATCH_SIZE
    check_steps(workdir, dataset)
    check_masks(workdir, task.recorded)


@pytest.mark.slow
def test_a_fork_has_its_own_masks_after_the_step(source, config, dataset, tmp_path):
    """The steps before were masked as the source's configuration says."""
    masking = dataclasses.replace(config.masking, rate=0.3, max_predictions=10)
    masking = dataclasses.replace(masking, unit="token", final_rate=0.1)
    changed = dataclasses.replace(config, masking=masking, num_steps=NUM_STEPS + 2)
    workdir, task = source
    fork(workdir, 8, tmp_path / "fork", changed)
    recorded = trained(changed, dataset, tmp_path / "fork").recorded
    assert {step for step, _ in recorded} == set(range(8, NUM_STEPS + 2))
    assert all(recorded[place] != task.recorded[place] for place in [(8, 0), (9, 1)])
    before = {key: value for key, value in task.recorded.items() if key[0] < 8}
    check_steps(tmp_path / "fork", dataset)
    check_masks(tmp_path / "fork", before | recorded)


def times(count: int) -> str:
    return "1 time" if count == 1 else f"{count} times"


def row_texts(lines: list[str]) -> dict[int, list[str]]:
    """The lines of each row that is shown."""
    texts: dict[int, list[str]] = {}
    for line in lines:
        if match := re.fullmatch(r"training row (\d+):", line):
            texts[int(match[1])] = []
        elif line.startswith("  "):
            texts[list(texts)[-1]].append(line)
    return texts


def test_the_lines(source, config, dataset, capsys):
    """The words of each row and each mask in its place, as training recorded them."""
    workdir, task = source
    assert main(["inspect", str(workdir), "--when", "The JUDGE reads the"]) == 0
    lines = capsys.readouterr().out.splitlines()
    every = dataset.train.gather(np.arange(len(dataset.train)))["tokens"].tolist()
    texts = [f" {' '.join(dataset.tokenizer.tokens(ids))} " for ids in every]
    containing = [i for i, t in enumerate(texts) if " the judge reads the " in t]
    assert "12 of 12 steps are in its newest checkpoint; 64 of 343" in lines[0]
    assert lines[1] == "text: the judge reads the (4 tokens)"
    assert lines[2].startswith(f"in {len(containing)} training rows, and in ")
    logged = rows_of_steps(workdir)
    order = [row for rows in logged.values() for row in rows if row in containing]
    assert lines[3] == (
        f"in all these rows seen {len(order)} times until step 12, and 0 times in the "
        "steps to come"
    )
    assert lines[4].startswith("[MASK→cat]: cat is predicted")
    shown = row_texts(lines)
    # Those of the earliest steps, which are not those of the lowest numbers.
    assert list(shown) == list(dict.fromkeys(order))[:5] != containing[:5]
    more = f"{len(containing) - 5} more training rows of later steps are not shown"
    assert lines[-1] == more
    for row, (first, *masks) in shown.items():
        steps = [s + 1 for s, rows in logged.items() for r in rows if r == row]
        listed = ", ".join(map(str, steps))
        assert first == f"  seen {times(len(steps))} from step 1 to 12, at {listed}"
        assert len(masks) == min(3, len(steps))
        for step, line in zip(steps, masks, strict=False):
            head, _, text = line.partition(" tokens predicted: ")
            place = int(head.split()[3]) - 1
            assert logged[step - 1][place] == row
            assert head.startswith(f"  step {step}, row {place + 1} of the batch, ")
            seen, labels = task.recorded[step - 1, place]
            assert f", {len(labels)} of " in head
            assert text == rendered(dataset, seen, labels)


def rendered(dataset: Dataset, seen: list[int], labels: dict[int, int]) -> str:
    words = dataset.tokenizer.tokens(seen)
    for position, label in labels.items():
        name = words[position].replace("[MASK]", "MASK")
        words[position] = f"[{name}→{dataset.tokenizer.token(label)}]"
    return " ".join(words).replace(" [PAD]", "")


def test_steps_to_come(source, config, dataset, tmp_path):
    """A run that has done 4 of 200 steps, and a text in most of the rows."""
    fork_path = tmp_path / "fork"
    fork(source[0], 4, fork_path, dataclasses.replace(config, num_steps=200))
    lines = list(when_seen(str(fork_path), ["in the"]))
    assert "4 of 200 steps are in its newest checkpoint" in lines[0]
    batches = open_run(str(fork_path)).task.batches
    logged = {step: batches.row_numbers(step).tolist() for step in range(200)}
    every = dataset.train.gather(np.arange(len(dataset.train)))["tokens"].tolist()
    texts = [f" {' '.join(dataset.tokenizer.tokens(ids))} " for ids in every]
    steps = [s for s, rows in logged.items() for r in rows if " in the " in texts[r]]
    seen = sum(step < 4 for step in steps)
    assert lines[3] == (
        f"in all these rows seen {seen} times until step 4, and "
        f"{len(steps) - seen:,} times in the steps to come"
    )
    for row, texts in row_texts(lines).items():
        steps = [s + 1 for s, rows in logged.items() for r in rows if r == row]
        seen, ahead = ([s for s in steps if (s <= 4) == kept] for kept in (True, False))
        at = f", at {', '.join(map(str, seen))}" if seen else ""
        assert texts[0] == f"  seen {times(len(seen))} from step 1 to 4{at}"
        at = ", ".join(map(str, ahead[:10]))
        head = f"  will be seen {times(len(ahead))} from step 5 to 200, at {at}, …"
        assert texts[1 + len(seen)] == head
        assert len(texts) == 2 + len(seen) + 3


def test_one_token_in_one_place(source, capsys):
    assert main(["inspect", str(source[0]), "--when", "judge"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "text: judge (1 token)"


def test_several_texts_by_the_path_of_the_dataset(source, dataset, tmp_path, capsys):
    moved = tmp_path / "moved"
    shutil.copytree(dataset.path, moved)
    texts = ["The judge reads the", "the judge hides the"]
    options = [word for text in texts for word in ("--when", text)]
    assert main(["inspect", str(moved), *options, "--run", str(source[0])]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == list(when_seen(str(source[0]), texts))
    assert [line.split(" (")[0] for line in lines if line.startswith("text: ")] == [
        f"text: {text.lower()}" for text in texts
    ]


def test_a_damaged_newest_checkpoint_does_not_count(source, tmp_path):
    workdir = tmp_path / "run"
    shutil.copytree(source[0], workdir)
    (workdir / "checkpoints" / "12" / "config.json").write_text("{}")
    with pytest.warns(UserWarning, match="Skipped a newer checkpoint: .*config.json"):
        assert open_run(str(workdir)).num_done == 8


@pytest.mark.slow
def test_a_second_phase_begins_its_rows_again(source, config, dataset, tmp_path):
    """With keep_optimizer the masks are those of the first run's seed."""
    second = dataclasses.replace(
        config,
        init_from=str(source[0]),
        keep_optimizer=True,
        num_steps=20,
        seed=5,
    )
    pretrain(second, tmp_path / "second")
    check_steps(tmp_path / "second", dataset, first_step=12)
    run = open_run(str(tmp_path / "second"))
    expected, other = (jax.random.key_data(split_seed(s)[1]) for s in (0, 5))
    np.testing.assert_array_equal(run.base_key, expected)
    assert not np.array_equal(expected, other)
    lines = list(when_seen(str(tmp_path / "second"), ["in the"]))
    assert lines[1] == (
        f"its rows begin with step 13; the steps before are those of {source[0]}"
    )
    assert all(" from step 13 to 20" in t[0] for t in row_texts(lines).values())


def test_an_extension_counts_from_its_step(config, tmp_path):
    """Until then the masking rate fell towards the last step of the shorter run."""
    changed = [{"field": "num_steps", "before": 12, "now": 20}]
    history = [{"step": 0}, {"step": 6, "changed": changed}]
    later = dataclasses.replace(config, num_steps=20)
    values = to_dict(later) | {"history": history}
    workdir = epath.Path(tmp_path)
    steps = [config_at_step(workdir, values, step).num_steps for step in (0, 5, 6, 19)]
    assert steps == [12, 12, 20, 20]

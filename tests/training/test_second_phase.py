"""A run that goes on from another run's parameters, optimizer and step count."""

import dataclasses
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from etils import epath
from run_helpers import assert_same_run, logged_lines, read_params

from bert_jax.checkpoints.manager import Checkpoints
from bert_jax.checkpoints.restore import read_params as read_tree
from bert_jax.checkpoints.steps import find_checkpoint
from bert_jax.config import DataConfig, PrepareConfig, PretrainConfig
from bert_jax.config.files import load_config
from bert_jax.data.prepare import prepare
from bert_jax.distributed.mesh import make_mesh
from bert_jax.runs.fitting import Workdir
from bert_jax.runs.pretraining import open_for, pretrain, resolve_run, rows_line
from bert_jax.runs.workdir import started_from
from bert_jax.tasks.pretraining.task import PretrainingTask
from bert_jax.training.loop import fit
from bert_jax.training.run import Run
from bert_jax.training.start import starting_state


@pytest.fixture(scope="module")
def second_phase(
    small_config: PretrainConfig,
    pretrained: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[PretrainConfig, Path]:
    """The second phase of a copy of the small run, and its workdir at the end."""
    folder = tmp_path_factory.mktemp("second_phase")
    shutil.copytree(pretrained, folder / "first")
    config = dataclasses.replace(
        small_config,
        init_from=str(folder / "first"),
        keep_optimizer=True,
        optimizer=dataclasses.replace(small_config.optimizer, decay_steps=14),
        num_steps=14,
        checkpoint_every=2,
    )
    pretrain(config, folder / "second")
    return config, folder / "second"


def test_step_and_schedule_go_on_and_the_rows_start_again(second_phase, pretrained):
    _, workdir = second_phase
    train = logged_lines(workdir, "train")
    assert [line["step"] for line in train] == [11, 12, 13, 14]
    rates = [line["learning_rate"] for line in train]
    np.testing.assert_allclose(rates, np.array([4, 3, 2, 1]) / 12 * 1e-2, rtol=1e-5)
    first, second = (
        logged_lines(run, name="examples.jsonl")[0] for run in (pretrained, workdir)
    )
    assert first["rows"] == second["rows"]


def test_its_rows_are_those_of_its_own_steps(small_config, dataset):
    """As the dry run counts them: four steps of eight rows."""
    data = dataclasses.replace(small_config.data, first_step=10)
    line = rows_line(
        dataclasses.replace(small_config, data=data, num_steps=14), dataset
    )
    assert f"; 4 steps of 8 rows are {32 / len(dataset.train):.2f} epochs" in line


@pytest.mark.slow
def test_a_run_with_its_own_checkpoint_does_not_need_its_source(second_phase, tmp_path):
    config, uninterrupted = second_phase
    workdir, source = tmp_path / "run", Path(config.init_from)
    shutil.copytree(uninterrupted, workdir)
    shutil.rmtree(workdir / "checkpoints" / "14")
    moved = source.rename(tmp_path / "moved")
    try:
        pretrain(config, workdir)
    finally:
        moved.rename(source)
    assert_same_run(workdir, uninterrupted)


@pytest.mark.slow
def test_a_run_killed_in_its_first_save_starts_from_its_source(second_phase, tmp_path):
    """Not from random parameters at step 0: its only step was never finished."""
    config, uninterrupted = second_phase
    workdir = tmp_path / "run"
    shutil.copytree(uninterrupted, workdir)
    for step in (workdir / "checkpoints").iterdir():
        if step.name != "14":
            shutil.rmtree(step)
    (workdir / "checkpoints" / "14" / "manifest.json").unlink()
    pretrain(config, workdir)
    assert_same_run(workdir, uninterrupted)


@pytest.mark.slow
def test_a_phase_of_rows_of_another_length_begins_with_the_whole_state(
    second_phase, pretrained, corpus, tokenizer_directory, tmp_path
):
    """As from 128 tokens to 512: parameters, moments, schedule, step and key."""
    prepare(
        PrepareConfig(
            input=(str(corpus / "*.txt"),),
            tokenizer=str(tokenizer_directory),
            output=str(tmp_path / "rows"),
            sequence_length=16,
            workers=1,
        )
    )
    data = DataConfig(path=str(tmp_path / "rows"), sequence_length=16)
    config = dataclasses.replace(second_phase[0], data=data)
    source, _ = find_checkpoint(epath.Path(pretrained))
    dataset, resolved = open_for(config)
    task = PretrainingTask(resolved, dataset)
    mesh = make_mesh(config.mesh, config.batch_size)
    no_checkpoints = Checkpoints(
        epath.Path(tmp_path / "none"), 1, {}, dataset.path / "tokenizer"
    )
    run = Run(task=task, config=config, mesh=mesh, source=source)
    state = starting_state(run, no_checkpoints)
    no_checkpoints.close()
    assert int(state.step) == int(state.opt_state[-1].count) == 10
    moments = state.opt_state[0]
    assert int(moments.count) == 10
    written = read_params(pretrained).values()
    for leaf, saved in zip(jax.tree.leaves(state.params), written, strict=True):
        np.testing.assert_array_equal(leaf, saved)
    for moment in (moments.mu, moments.nu):
        assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(moment))
    pretrain(config, tmp_path / "run")
    assert [x["step"] for x in logged_lines(tmp_path / "run", "train")] == [
        11,
        12,
        13,
        14,
    ]


def test_its_configuration_starts_a_run_that_counts_from_0(second_phase, tmp_path):
    config, workdir = second_phase
    written = load_config(str(workdir / "config.json"), PretrainConfig)
    assert written.data.first_step == 10
    for source in (config.init_from, ""):
        new = dataclasses.replace(written, init_from=source, keep_optimizer=False)
        dataset, new = open_for(new)
        run, _ = resolve_run(new, dataset, Workdir(epath.Path(tmp_path), None))
        assert run.config.data.first_step == 0


def test_a_run_with_a_source_begins_with_nothing_else(second_phase, dataset, tmp_path):
    """What is loaded and what is configured are compared before the first step."""
    _, config = open_for(second_phase[0])
    task = PretrainingTask(config, dataset)
    mesh = make_mesh(config.mesh, config.batch_size)
    with pytest.raises(RuntimeError, match="was not loaded, and the run has no check"):
        fit(Run(task=task, config=config, mesh=mesh, workdir=epath.Path(tmp_path)))


def test_processes_compare_what_they_start_from(
    small_config, dataset, pretrained, monkeypatch
):
    """Each reads files of its own, or the newest step of a run that still trains."""
    _, config = open_for(small_config)
    task, mesh = PretrainingTask(config, dataset), make_mesh(config.mesh, 8)
    source, _ = find_checkpoint(epath.Path(pretrained))
    params = read_tree(source)
    others = jax.tree.map(lambda values: values + 1, params)
    runs = [
        Run(task=task, config=config, mesh=mesh, source=one)
        for one in (None, source, params, others, read_tree(source))
    ]
    assert started_from(runs[2]) == {}, "one process has nothing to compare"
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    *different, same = [started_from(run)["the content of init_from"] for run in runs]
    assert len(set(different)) == 4 and same == different[2]

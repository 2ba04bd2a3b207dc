"""A run with --init-from that is killed in its first save starts from there again."""

import dataclasses
import random
from collections.abc import Callable
from pathlib import Path

import moments
import pytest
from run_helpers import (
    assert_same_run,
    classifier_config,
    latest_verified_step,
    write_config,
)
from runs import run, saves_often, started

from bert_jax.config import PretrainConfig, RunConfig

MOMENTS = (moments.unfinished, moments.first_saving, moments.writing_the_manifest)


def second_phase(config: PretrainConfig, source: Path, _: Path) -> RunConfig:
    return dataclasses.replace(saves_often(config, 6), init_from=str(source))


def with_optimizer(config: PretrainConfig, source: Path, _: Path) -> RunConfig:
    config = saves_often(config, 16)
    return dataclasses.replace(config, init_from=str(source), keep_optimizer=True)


def tuning(_: PretrainConfig, source: Path, table: Path) -> RunConfig:
    return classifier_config(
        table,
        source,
        num_steps=6,
        log_every=1,
        eval_every=3,
        checkpoint_every=2,
        log_examples=True,
    )


def killed_in_its_first_save(
    arguments: list[str], folder: Path, moment: moments.Moment, dice: random.Random
) -> tuple[Path, str]:
    """A workdir whose only checkpoint was never finished, and what the kill hit."""
    for attempt in range(20):
        workdir = folder / f"run_{attempt}"
        with started([*arguments, str(workdir)], folder / f"{attempt}") as process:
            assert moment(moments.Watch(process, workdir, dice))
            process.kill()
            assert process.code() == 137
        hit = moments.state_of(workdir)
        wanted = ("saving",) if moment is moments.first_saving else moments.UNFINISHED
        if latest_verified_step(workdir) == 0 and hit in wanted:
            return workdir, hit
    raise AssertionError("no kill came before the first checkpoint was complete")


@pytest.mark.reliability
@pytest.mark.parametrize(
    ("case", "kills"), [(second_phase, 6), (with_optimizer, 7), (tuning, 7)]
)
def test_A1_killed_in_its_first_save(
    case: Callable[..., RunConfig],
    kills: int,
    small_config: PretrainConfig,
    pretrained: Path,
    reviews: Path,
    tmp_path: Path,
    record_row: Callable[..., None],
):
    config = case(small_config, pretrained, reviews)
    verb = "pretrain" if isinstance(config, PretrainConfig) else "finetune"
    file = write_config(config, tmp_path / "config.py")
    arguments = [verb, str(file), "--workdir"]
    never_stopped = tmp_path / "never_stopped"
    run([*arguments, str(never_stopped)], tmp_path / "never")
    dice = random.Random(kills)
    hits = []
    for number in range(kills):
        folder = tmp_path / str(number)
        folder.mkdir()
        moment = MOMENTS[number % len(MOMENTS)]
        workdir, hit = killed_in_its_first_save(arguments, folder, moment, dice)
        run([*arguments, str(workdir)], folder / "end")
        assert_same_run(workdir, never_stopped)
        hits.append(hit)
    result = ", ".join(f"{hits.count(hit)} {hit}" for hit in sorted(set(hits)))
    record_row("SIGKILL in the first save, --init-from", kills, "bit-identical", result)

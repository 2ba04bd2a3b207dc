"""SIGTERM and SIGINT at any moment: their exit codes, and a whole checkpoint."""

import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import moments
import pytest
from run_helpers import assert_same_run, latest_verified_step, write_config
from runs import logged_steps, run, saves_often, started

from bert_jax.config import PretrainConfig

CODES = {signal.SIGTERM: 143, signal.SIGINT: 130}
MOMENTS = (
    moments.evaluating,
    moments.starting,
    moments.between_steps,
    moments.restoring,
    moments.saving,
)


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """Children that heed SIGINT, though tests may run in the background of a script,
    where it is ignored.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt(
    arguments: list[str],
    workdir: Path,
    number: signal.Signals,
    moment: moments.Moment,
    dice: random.Random,
) -> bool:
    """Send a run a signal at some moment, and check how it ends.

    Returns:
        Whether it was stopped; False where it reached its end before.
    """
    whole = latest_verified_step(workdir)
    log = workdir.with_name(f"{workdir.name}_{dice.randrange(10**9)}")
    with started([*arguments, str(workdir)], log) as process:
        moment(moments.Watch(process, workdir, dice))
        process.kill(number)
        code = process.code()
    error = process.stderr()
    if code == 0:
        return False
    assert code == CODES[number], (moment, error[-2000:])
    assert error.count("\n") <= 1 and "Traceback" not in error, (moment, error)
    if "Resuming" not in process.stdout() and "step " not in process.stdout():
        assert latest_verified_step(workdir) == whole
    elif f"Stopped by {number.name} at step" in error:
        # Every step that was done is in the checkpoint.
        step = int(error.partition("at step ")[2].partition(",")[0])
        assert latest_verified_step(workdir) == step == logged_steps(workdir), error
    else:
        # No step was done, or all were and the process was ending.
        saved = latest_verified_step(workdir)
        assert logged_steps(workdir) == saved, f"steps were done and lost: {error}"
    return True


@pytest.mark.reliability
@pytest.mark.parametrize(
    ("seed", "number"),
    [(0, 2), (1, 15), (2, 15)],
)
def test_signals_at_random_moments(
    seed: int,
    number: int,
    small_config: PretrainConfig,
    tmp_path: Path,
    record_row: Callable[..., None],
):
    quick = number < 15
    file = write_config(
        saves_often(small_config, 12 if quick else 60), tmp_path / "config.py"
    )
    arguments = ["pretrain", str(file), "--workdir"]
    dice = random.Random(seed)
    stopped: list[str] = []
    begun = 0
    never_stopped = tmp_path / "never_stopped"
    if not quick:
        run([*arguments, str(never_stopped)], tmp_path / "never")
    while len(stopped) < number:
        workdir = tmp_path / f"run_{begun}"
        sent = list(CODES)[(len(stopped) + seed) % 2]
        moment = MOMENTS[len(stopped) % len(MOMENTS)]
        if interrupt(arguments, workdir, sent, moment, dice):
            stopped.append(moment.__name__)
            continue
        begun += 1
        if not quick:
            assert_same_run(workdir, never_stopped)
    told = f"all so; {stopped.count('evaluating')} while evaluating"
    bar = "143 / 130, and a whole checkpoint"
    record_row("SIGTERM and SIGINT", number, bar, told)

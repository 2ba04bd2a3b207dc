"""launch/slurm.sbatch against fakes of sbatch, srun and scontrol."""

import os
import re
import shlex
import signal
from typing import Any

import pytest

JOB = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_CPUS_PER_TASK": "12",
    "DATA_128": "/shared/data128",
    "DATA_512": "/shared/data512",
    "WORKDIR": "/shared/a run",
}


@pytest.fixture
def job(world: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A world whose WORKDIR can be written."""
    monkeypatch.setitem(JOB, "WORKDIR", str(world.folder / "a run"))
    return world


def called(world: Any) -> list[str]:
    """The programs, in order; of the trainer its phase."""
    return [call.get("phase", call["program"]) for call in world.calls()]


def test_outside_of_a_job_it_submits_itself(world):
    code, _, errors = world.launch("slurm.sbatch")
    assert code == 0, errors
    (call,) = world.calls()
    assert call["program"] == "sbatch"
    assert call["arguments"][0].endswith("/launch/slurm.sbatch")


def test_both_phases(world):
    code, _, errors = world.launch("slurm.sbatch", **JOB)
    assert code == 0, errors
    assert called(world) == ["srun", "128", "srun", "512"]
    step = world.calls("srun")[0]["arguments"]
    # With --kill-on-bad-exit the first to end would cut off the others' checkpoint.
    assert step[:2] == ["--kill-on-bad-exit=0", "--wait=300"]
    first, second = world.calls("bert-jax")
    assert first["environment"]["BERT_JAX_DISTRIBUTED"] == "1"
    assert "BERT_JAX_COORDINATOR" not in first["environment"]
    # What srun reads since 22.05.
    assert first["environment"]["SRUN_CPUS_PER_TASK"] == "12"
    assert second["arguments"][2:] == [
        *("--workdir", "/shared/a run/512", "--data.path", "/shared/data512"),
        *("--init-from", "/shared/a run/128"),
        *("--initialization-timeout", "600", "--hang-timeout-minutes", "30"),
    ]
    assert first["environment"]["XLA_FLAGS"].endswith("timeout_seconds=1800")


def test_the_datasets_go_to_a_local_disk_of_each_node(world):
    code, _, errors = world.launch("slurm.sbatch", **JOB, NODE_DATA="/local/my data")
    assert code == 0, errors
    copies = [call["arguments"] for call in world.calls("srun")][:3]
    each = ["--nodes=2", "--ntasks=2", "--ntasks-per-node=1"]
    assert [copy[:3] for copy in copies] == [each] * 3
    assert copies[1][3:] == ["rsync", "-a", "/shared/data128/", "/local/my data/128/"]
    first = world.calls("bert-jax")[0]["arguments"]
    assert first[first.index("--data.path") + 1] == "/local/my data/128"


def test_143_goes_back_to_the_queue_and_the_next_start_resumes(world):
    world.tell("plan", {"128": [0], "512": [143, 0]})
    code, _, errors = world.launch("slurm.sbatch", **JOB)
    assert code == 143 and "requeued" in errors
    assert called(world) == ["srun", "128", "srun", "512", "squeue", "scontrol"]
    assert world.calls("scontrol")[0]["arguments"] == ["requeue", "7"]
    # Slurm starts the same script again.
    code, _, errors = world.launch("slurm.sbatch", **JOB, SLURM_RESTART_COUNT="1")
    assert code == 0, errors
    assert called(world)[6:] == ["srun", "128", "srun", "512"]
    stopped, resumed = [c for c in world.calls("bert-jax") if c["phase"] == "512"]
    assert stopped["arguments"] == resumed["arguments"]


@pytest.mark.parametrize("state", ["CANCELLED", "COMPLETING"])
def test_a_cancelled_job_does_not_come_back(world, state):
    world.tell("plan", {"128": [143]})
    world.tell("job_state", state)
    assert world.launch("slurm.sbatch", **JOB)[0] == 143
    assert called(world) == ["srun", "128", "squeue"]


@pytest.mark.parametrize("code", [1, 134, 137])
def test_a_crash_goes_back_to_the_queue(job, code):
    """A6."""
    job.tell("plan", {"128": [code]})
    assert job.launch("slurm.sbatch", **JOB)[0] == code
    assert called(job) == ["srun", "128", "squeue", "scontrol"]


@pytest.mark.parametrize("code", [2, 127])
def test_other_codes_do_not(job, code):
    job.tell("plan", {"128": [code]})
    assert job.launch("slurm.sbatch", **JOB)[0] == code
    assert called(job) == ["srun", "128"]


def test_a_new_whole_checkpoint_begins_the_count_of_requeues_anew(job):
    """A6: the count outlives the job's starts, but not a new submission."""
    plan = [143, "4 1", 1, "8 134", 1, 1, 1]
    job.tell("plan", {"128": plan})
    tries = []
    for count, entry in enumerate(plan):
        given = {"SLURM_RESTART_COUNT": str(count), "MAX_RESTARTS": "2"}
        code, _, errors = job.launch("slurm.sbatch", **JOB, **given)
        assert code == (entry if isinstance(entry, int) else int(entry.split()[1]))
        tries += re.findall(r"requeued, try (\d) of 2", errors)
    assert tries == ["1", "1", "2", "1", "2"]
    assert len(job.calls("scontrol")) == 5
    assert "no new checkpoint in MAX_RESTARTS=2 tries" in errors
    _, _, errors = job.launch("slurm.sbatch", **JOB, MAX_RESTARTS="2")
    assert "try 1 of 2" in errors


def test_on_gs_slurms_own_count_bounds_the_requeues(world):
    world.tell("plan", {"128": [143]})
    given = JOB | {"WORKDIR": "gs://bucket/run", "SLURM_RESTART_COUNT": "3"}
    code, _, errors = world.launch("slurm.sbatch", **given, MAX_RESTARTS="3")
    assert code == 143 and "MAX_RESTARTS=3" in errors
    assert called(world)[:2] == ["srun", "128"] and not world.calls("scontrol")


def test_a_signal_to_the_whole_job_reaches_the_trainer_once_and_requeues(world):
    world.tell("plan", {"128": ["term"]})
    world.program(
        "bin/srun", 'while [ "$1" != bash ]; do shift; done; trap : TERM; "$@"'
    )
    job = world.start("slurm.sbatch", **JOB)
    world.wait_for("ready-128-0-0.json")
    os.killpg(job.pid, signal.SIGTERM)
    _, errors = job.communicate(timeout=60)
    assert job.returncode == 143, errors
    assert [call["signals"] for call in world.calls("checkpoint")] == [1]
    assert called(world)[-1] == "scontrol"


def test_a_dry_run_prints_every_command_and_calls_none(world):
    variables = {name: value for name, value in JOB.items() if "SLURM" not in name}
    code, output, errors = world.launch(
        "slurm.sbatch", "--dry-run", **variables, NODE_DATA="/local/my data"
    )
    assert code == 0, errors
    assert world.calls() == []
    lines = [shlex.split(line, comments=True) for line in output.splitlines()]
    assert [line[0] for line in lines if line] == [
        *("sbatch", "srun", "srun", "srun", "env", "env", "squeue", "scontrol")
    ]
    trainers = re.findall(r"^# which calls: bert-jax pretrain (.*)$", output, re.M)
    assert ["/local/my\\ data/128" in line for line in trainers] == [True, False]


def test_a_mistake_in_the_call(world):
    assert world.launch("slurm.sbatch", "--fast")[0] == 2
    code, _, errors = world.launch("slurm.sbatch", **JOB | {"WORKDIR": ""})
    assert code == 2 and "WORKDIR is not set" in errors

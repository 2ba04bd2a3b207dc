"""launch/local.sh and launch/phases.sh, with a fake trainer."""

import os
import re
import shlex
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest


def trained(world: Any) -> list[tuple[str, str]]:
    """Phase and process of every start."""
    return [(call["phase"], call["process"]) for call in world.calls("bert-jax")]


def test_every_process_is_told_who_it_is(world):
    code, _, errors = world.launch("local.sh", PROCESSES="3", PORT="1234")
    assert code == 0, errors
    calls = world.calls("bert-jax")
    assert [call["phase"] for call in calls] == ["128"] * 3 + ["512"] * 3
    for phase in ("128", "512"):
        one = sorted(
            (call["environment"] for call in calls if call["phase"] == phase),
            key=lambda environment: environment["BERT_JAX_PROCESS_ID"],
        )
        assert one == [
            {
                "BERT_JAX_COORDINATOR": "127.0.0.1:1234",
                "BERT_JAX_NUM_PROCESSES": "3",
                "BERT_JAX_PROCESS_ID": str(process),
                "JAX_PLATFORMS": "cpu",
                "JAX_NUM_CPU_DEVICES": "1",
            }
            for process in range(3)
        ]
    assert calls[-1]["arguments"][2:] == [
        *("--workdir", "gs://bucket/run/512", "--data.path", "gs://bucket/data512"),
        *("--init-from", "gs://bucket/run/128"),
        *("--initialization-timeout", "300", "--hang-timeout-minutes", "30"),
    ]


@pytest.mark.parametrize(
    ("given", "caches"),
    [
        ({}, ["gs://bucket/run/128", "gs://bucket/run/512"]),
        ({"JAX_COMPILATION_CACHE_DIR": ""}, []),
        ({"JAX_COMPILATION_CACHE_DIR": "/own"}, ["/own", "/own"]),
        ({"BERT_JAX_DISTRIBUTED": "1"}, []),  # these choose it themselves
        ({"BERT_JAX_COORDINATOR": "host:1"}, []),
    ],
)
def test_a_process_alone_keeps_its_programs_beside_its_checkpoints(
    world, given, caches
):
    code, _, errors = world.launch("phases.sh", **given)
    assert code == 0, errors
    environments = [call["environment"] for call in world.calls("bert-jax")]
    chosen = [e.get("JAX_COMPILATION_CACHE_DIR") for e in environments]
    expected = [c if c == "/own" else f"{c}/compilation_cache" for c in caches]
    assert [path for path in chosen if path] == expected


def test_the_time_outs_of_a_phase_can_be_set(world):
    given = {"INITIALIZATION_TIMEOUT": "60", "HANG_TIMEOUT_MINUTES": "90"}
    flags = {"NCCL_TIMEOUT_SECONDS": "7", "XLA_FLAGS": "--xla_dump_to=/there"}
    code, _, errors = world.launch(
        "phases.sh", **given, **flags, TRAIN_OPTIONS="--hang-timeout-minutes 5"
    )
    assert code == 0, errors
    for call in world.calls("bert-jax"):
        assert call["arguments"][-6:] == [
            *("--initialization-timeout", "60", "--hang-timeout-minutes", "90"),
            *("--hang-timeout-minutes", "5"),  # the last one counts
        ]
        assert call["environment"]["XLA_FLAGS"] == (
            "--xla_gpu_nccl_termination_timeout_seconds=7 --xla_dump_to=/there"
        )


def test_each_process_has_a_gpu_of_its_own(world):
    code, _, errors = world.launch("local.sh", DEVICES="gpu")
    assert code == 0, errors
    for call in world.calls("bert-jax"):
        assert call["environment"]["XLA_FLAGS"].endswith("timeout_seconds=1800")
    for call in world.calls("bert-jax"):
        assert call["environment"]["CUDA_VISIBLE_DEVICES"] == call["process"]
        assert "JAX_PLATFORMS" not in call["environment"]


def test_the_gpus_are_those_that_were_given(world):
    given = {"DEVICES": "gpu", "CUDA_VISIBLE_DEVICES": "4,GPU-8a5d"}
    assert world.launch("local.sh", **given)[0] == 0
    found = {
        (call["process"], call["environment"]["CUDA_VISIBLE_DEVICES"])
        for call in world.calls("bert-jax")
    }
    assert found == {("0", "4"), ("1", "GPU-8a5d")}
    code, _, errors = world.launch("local.sh", PROCESSES="3", **given)
    assert code == 2 and "CUDA_VISIBLE_DEVICES=4,GPU-8a5d for 3 PROCESSES" in errors


def test_143_starts_all_processes_of_the_phase_again(world):
    world.tell("plan", {"512": [{"0": 143, "1": "hang"}, 0]})
    code, _, errors = world.launch("local.sh", GRACE_SECONDS="0")
    assert code == 0, errors
    assert Counter(trained(world)) == {
        ("128", "0"): 1,
        ("128", "1"): 1,
        ("512", "0"): 2,
        ("512", "1"): 2,
    }
    assert "phase 512 ended with 143; try 1 of 3" in errors
    assert not world.calls("outlived")  # the hanging one was killed, not waited for


def test_the_number_of_restarts_is_bounded(world):
    world.tell("plan", {"128": [143]})
    code, _, errors = world.launch("local.sh", MAX_RESTARTS="1")
    assert code == 143 and "no new checkpoint in MAX_RESTARTS=1 tries" in errors
    assert len(trained(world)) == 4


@pytest.mark.parametrize("code", [1, 134, 137, 139])
def test_a_crash_gets_another_try(world, code):
    """A6: 1, a lost peer's 134, and what a signal leaves."""
    world.tell("plan", {"128": [{"0": code, "1": "hang"}, 0]})
    done, _, errors = world.launch("local.sh", GRACE_SECONDS="0")
    assert done == 0, errors
    assert f"phase 128 ended with {code}; try 1 of 3" in errors
    assert Counter(trained(world))["128", "0"] == 2


def test_options_on_several_lines_all_reach_the_trainer(world):
    given = {"TRAIN_OPTIONS": "--mesh.fsdp 4\n--seed 3\n", "PHASES": "128\n512"}
    assert world.launch("phases.sh", **given)[0] == 0
    calls = world.calls("bert-jax")
    assert [call["phase"] for call in calls] == ["128", "512"]
    assert all(
        call["arguments"][-4:] == ["--mesh.fsdp", "4", "--seed", "3"] for call in calls
    )


@pytest.mark.parametrize("workdir", ["here", "gs://bucket/run"])
def test_a_new_whole_checkpoint_begins_the_count_of_tries_anew(world, workdir):
    """A6: and the second phase's steps count as well as the first's."""
    if workdir == "here":
        workdir = str(world.folder / "a run")
    plan = {"128": ["4 1", 1, "8 134", 1, "12 0"], "512": [1, "2 137", 1, 0]}
    world.tell("plan", plan)
    given = {"MAX_RESTARTS": "2", "PROCESSES": "1", "WORKDIR": workdir}
    code, _, errors = world.launch("local.sh", **given)
    assert code == 0, errors
    tries = re.findall(r"ended with (\d+); try (\d) of 2", errors)
    first = [("1", "1"), ("1", "2"), ("134", "1"), ("1", "2")]
    # The checkpoint that ended the first phase is new, too.
    assert tries == [*first, ("1", "1"), ("137", "1"), ("1", "2")]


def test_a_slash_at_the_end_of_a_bucket_is_no_other_place(world):
    """The trainer writes to gs://b/run; to gcloud gs://b/run//128 is another place."""
    world.program("bin/gcloud", 'printf "%s\\n" "$3" >>"$FAKE_WORLD/listed"')
    world.tell("plan", {"128": [1]})
    given = {"MAX_RESTARTS": "0", "PROCESSES": "1", "WORKDIR": "gs://b/run/"}
    assert world.launch("local.sh", **given)[0] == 1
    listed = (world.folder / "listed").read_text().split()
    assert listed == [f"gs://b/run/{n}/checkpoints/*/manifest.json" for n in (128, 512)]


def test_an_unfinished_checkpoint_is_no_progress(world):
    """A6: what has no manifest is not whole."""
    run = world.folder / "run"
    (run / "128/checkpoints/4").mkdir(parents=True)
    world.program(
        "bin/bert-jax", f'mkdir "{run}/128/checkpoints/$$"; echo start; exit 1'
    )
    given = {"MAX_RESTARTS": "2", "PROCESSES": "1", "WORKDIR": str(run)}
    code, output, errors = world.launch("local.sh", **given)
    assert code == 1 and "no new checkpoint in MAX_RESTARTS=2 tries" in errors
    assert output.count("start") == 3


@pytest.mark.parametrize(
    ("ends", "code"),
    [({"0": 143, "1": 2}, 2), ({"0": 2, "1": 134}, 2), ({"0": 0, "1": 127}, 127)],
)
def test_mistakes_get_no_other_try(world, ends, code):
    world.tell("plan", {"128": [ends]})
    assert world.launch("local.sh")[0] == code
    assert len(trained(world)) == 2


@pytest.mark.parametrize(
    ("number", "code", "to_group"),
    [
        (signal.SIGTERM, 143, False),
        (signal.SIGTERM, 143, True),
        (signal.SIGINT, 130, True),
    ],
)
def test_each_trainer_gets_one_signal_however_it_comes(world, number, code, to_group):
    world.tell("plan", {"128": ["term"]})
    launcher = world.start("local.sh")
    for process in "01":
        world.wait_for(f"ready-128-{process}-0.json")
    (os.killpg if to_group else os.kill)(launcher.pid, number)
    # One who is impatient makes no difference.
    os.kill(launcher.pid, number)
    _, errors = launcher.communicate(timeout=60)
    assert launcher.returncode == code, errors
    assert [call["signals"] for call in world.calls("checkpoint")] == [1, 1]
    assert len(trained(world)) == 2


def test_a_dry_run_prints_every_command_and_calls_none(world):
    code, output, _ = world.launch("local.sh", "--dry-run")
    assert code == 0
    assert world.calls() == []
    lines = output.splitlines()
    calls = [shlex.split(line) for line in lines if not line.startswith("#")]
    assert [line[:2] for line in calls] == [
        *[["env", "PHASES=128"]] * 2,
        *[["env", "PHASES=512"]] * 2,
    ]
    trainers = [line.split()[3:] for line in lines if line.startswith("# which calls:")]
    assert [line[:2] for line in trainers] == [["bert-jax", "pretrain"]] * 4
    phases = [Path(line[2]).stem for line in trainers]
    assert phases == ["bert_base_128"] * 2 + ["bert_base_512"] * 2
    assert "--init-from" in trainers[-1]


def test_phases_take_no_other_argument(world):
    code, _, errors = world.launch("phases.sh", "--dryrun")
    assert code == 2 and errors.startswith("usage: ")
    assert trained(world) == []


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"DATA_128": ""}, "DATA_128 is not set"),
        ({"BERT_JAX": "no-such-program"}, "no command no-such-program"),
        ({"PHASES": "128 256"}, "phases are 128 and 512"),
    ],
)
def test_a_mistake_in_the_variables_ends_with_2(world, variables, message):
    code, _, errors = world.launch("phases.sh", **variables)
    assert code == 2 and message in errors
    assert "512" not in [phase for phase, _ in trained(world)]


def test_a_second_signal_is_not_passed_on(world):
    world.tell("plan", {"128": ["term"]})
    process = world.start("phases.sh", FORWARD_TERM="1")
    world.wait_for("ready-128-0-0.json")
    for _ in range(2):
        os.kill(process.pid, signal.SIGTERM)
        time.sleep(0.05)
    process.communicate(timeout=60)
    assert process.returncode == 143
    assert [call["signals"] for call in world.calls("checkpoint")] == [1]


@pytest.mark.parametrize("to_group", [False, True])
def test_the_trainer_of_a_lone_phase_is_the_process_itself(world, to_group):
    """As under Slurm, whose proctrack/cgroup signals tasks, not their children."""
    world.tell("plan", {"128": ["term"]})
    process = world.start("phases.sh", PHASES="128")
    world.wait_for("ready-128-0-0.json")
    (os.killpg if to_group else os.kill)(process.pid, signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 143
    assert [call["signals"] for call in world.calls("checkpoint")] == [1]


def test_a_stop_between_the_phases_begins_no_other(world):
    # SIGTERM that this shell alone gets, and that it is told to keep to itself.
    world.tell("plan", {"128": ["go"]})
    process = world.start("phases.sh")
    world.wait_for("ready-128-0-0.json")
    for _ in range(2):
        os.kill(process.pid, signal.SIGTERM)
    (world.folder / "go").touch()
    process.communicate(timeout=60)
    assert process.returncode == 143
    assert trained(world) == [("128", "0")]

"""launch/tpu_pod.sh against a fake gcloud, whose workers run the real tpu_worker.sh."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(
    not (shutil.which("flock") and shutil.which("setsid")), reason="a worker is Linux"
)
ROOT = Path(__file__).parents[2]
SETUP = ["scp", "unpack", "install", "data", "start"]
BEGIN = ["describe", "status", *SETUP, "status"]


def launched(world: Any) -> list[dict[str, Any]]:
    """The launcher's own calls of gcloud; its workers call it too."""
    return [call for call in world.calls("gcloud") if "verb" in call]


def names(world: Any) -> list[str]:
    """The calls of gcloud in short; a repeated one once."""
    short = []
    for call in launched(world):
        command = call["arguments"][-3 if "--zone" in call["arguments"] else -1]
        name = call["verb"].split()[-1]
        if name == "ssh":
            name = "unpack" if "tar -xzf" in command else shlex.split(command)[-1]
        short.append(name)
    return [name for name, _ in groupby(short)]


def states(world: Any) -> list[str]:
    """What the queued resource was each time that the launcher asked; repeats once."""
    calls = launched(world)
    seen = [c["state"] for c in calls if c["verb"].endswith("describe")]
    return [state for state, _ in groupby(seen)]


def trained(world: Any, process: str = "0") -> list[str]:
    """The phases that a worker's trainer was started for."""
    return [c["phase"] for c in world.calls("bert-jax") if c["process"] == process]


def test_from_the_queue_through_a_preemption_to_the_deletion(world):
    queue = ["ACCEPTED", "WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE"]
    world.tell("lives", [queue, queue])
    world.tell("plan", {"128": [0], "512": ["preempt", 0]})
    code, _, errors = world.launch("tpu_pod.sh", "all")
    assert code == 0, errors
    once = ["describe", "create", *BEGIN]
    end = ["describe", "delete", "describe"]
    # The preemption: no answer; what has become of it; delete what is left of it.
    assert names(world) == [*once, *end, "create", *BEGIN, *end]
    assert states(world) == [
        "NONE",
        *queue,
        "SUSPENDING",
        "SUSPENDED",
        "NONE",
        *queue,
        "NONE",
    ]
    for process in "01":
        assert trained(world, process) == ["128", "512", "128", "512"]


def test_what_a_worker_is_told(world):
    lamb = "bert_jax/configs/lamb_large_512.py"
    code, _, errors = world.launch(
        "tpu_pod.sh", "pretrain", TRAIN_OPTIONS="--seed 3", CONFIG_512=lamb
    )
    assert code == 0, errors
    home = world.folder / "worker 1"
    first, second = (c for c in world.calls("bert-jax") if c["process"] == "1")
    assert first["arguments"] == [
        "pretrain",
        f"{home}/bert_jax/configs/bert_base_128.py",
        *("--workdir", "gs://bucket/run/128"),
        *("--data.path", f"{home}/bert_jax_data/128"),
        *("--initialization-timeout", "900", "--hang-timeout-minutes", "30"),
        *("--seed", "3"),
    ]
    assert second["arguments"] == [
        "pretrain",
        lamb,
        *("--workdir", "gs://bucket/run/512"),
        *("--data.path", f"{home}/bert_jax_data/512"),
        *("--init-from", "gs://bucket/run/128"),
        *("--initialization-timeout", "900", "--hang-timeout-minutes", "30"),
        *("--seed", "3"),
    ]
    assert first["environment"]["BERT_JAX_DISTRIBUTED"] == "1"
    gcloud = [c for c in world.calls("gcloud") if "worker" in c]
    assert [c["arguments"] for c in gcloud if c["worker"] == "1"] == [
        ["gs://bucket/data128", f"{home}/bert_jax_data/128"],
        ["gs://bucket/data512", f"{home}/bert_jax_data/512"],
    ]
    installs = [c["arguments"] for c in world.calls("python3") if c["worker"] == "1"]
    assert installs[-1][-1] == f"{home}/bert_jax[tpu,gcs]"
    create = next(c for c in launched(world) if c["verb"].endswith("create"))
    assert create["arguments"] == shlex.split(
        "compute tpus queued-resources create bert-jax --accelerator-type "
        "v5litepod-16 --runtime-version v2-alpha-tpuv5-lite --node-id bert-jax --spot "
        "--zone us-west4-a"
    )


@pytest.mark.parametrize(
    ("accelerator", "version"),
    [
        ("v6e-16", "v2-alpha-tpuv6e"),
        ("v5p-32", "v2-alpha-tpuv5"),
        ("v5litepod-256", "v2-alpha-tpuv5-lite"),
        ("v4-16", "tpu-ubuntu2204-base"),
    ],
)
def test_the_image_is_that_of_the_accelerator(world, accelerator, version):
    code, output, _ = world.launch(
        "tpu_pod.sh", "up", "--dry-run", ACCELERATOR_TYPE=accelerator
    )
    assert code == 0 and f" --runtime-version {version} " in output
    code, output, _ = world.launch(
        *("tpu_pod.sh", "up", "--dry-run"),
        ACCELERATOR_TYPE=accelerator,
        RUNTIME_VERSION="own",
    )
    assert code == 0 and " --runtime-version own " in output


def test_an_accelerator_without_an_image_is_a_mistake(world):
    code, _, errors = world.launch("tpu_pod.sh", "up", ACCELERATOR_TYPE="tpu7x-16")
    assert code == 2 and "ACCELERATOR_TYPE=tpu7x-16" in errors
    code, _, errors = world.launch("tpu_pod.sh", "up", SLICES="two")
    assert code == 2 and "SLICES=two" in errors
    assert world.calls() == []


@pytest.mark.slow
def test_the_workers_of_every_slice_are_set_up_started_and_watched(world):
    """The fake's nodes of a multislice resource have a worker each."""
    world.tell("plan", {"128": [0], "512": [{"0": 143, "1": "hang"}, 0]})
    code, _, errors = world.launch("tpu_pod.sh", "all", SLICES="2", STOP_SECONDS="1")
    assert code == 0, errors
    create = next(c for c in launched(world) if c["verb"].endswith("create"))
    nodes = create["arguments"].index("--node-count")
    assert create["arguments"][nodes : nodes + 4] == [
        *("--node-count", "2", "--node-prefix", "bert-jax")
    ]
    called = [call for call in launched(world) if call["verb"].startswith("tpu-vm")]
    reached = {call["arguments"][4].partition(":")[0] for call in called}
    reached |= {call["arguments"][5].partition(":")[0] for call in called}
    assert {"bert-jax-0", "bert-jax-1"} <= reached and "bert-jax" not in reached
    for process in "01":
        assert trained(world, process) == ["128", "512", "128", "512"]


@pytest.mark.slow
def test_a_slice_that_does_not_answer_is_no_success(world):
    world.tell("lost_node", "bert-jax-1")
    code, _, errors = world.launch(
        "tpu_pod.sh", "pretrain", SLICES="2", MAX_SSH_FAILURES="2"
    )
    assert code == 1 and "cannot be set up" in errors
    assert trained(world) == []


def test_one_who_asks_is_not_taken_for_a_trainer(world, tmp_path):
    """Another `status` at the same moment, which holds the lock as long as it looks."""
    asking = subprocess.Popen(
        ["flock", "--shared", tmp_path / "lock", "sleep", "1"], text=True
    )
    worker = ["bash", ROOT / "launch" / "tpu_worker.sh"]
    environment = world.environment | {
        "STATE": str(tmp_path),
        "BERT_JAX": "true",
        "DATA_128": "/data",
        "DATA_512": "/data",
    }
    while not (tmp_path / "lock").exists():
        time.sleep(0.02)
    told = subprocess.run([*worker, "status"], env=environment, capture_output=True)
    assert told.stdout.split()[-1] == b"idle"
    started = subprocess.run([*worker, "start"], env=environment, capture_output=True)
    assert started.returncode == 0 and b"already" not in started.stdout
    assert asking.wait() == 0


def test_a_trainer_that_was_stopped_is_started_again_on_the_same_pod(world):
    world.tell("plan", {"128": [143, 0]})
    code, _, errors = world.launch("tpu_pod.sh", "pretrain")
    assert code == 0, errors
    assert names(world) == ["describe", "create", *BEGIN, *BEGIN]
    assert trained(world) == ["128", "128", "512"]


@pytest.mark.slow
def test_a_hanging_peer_is_ended_before_the_next_start(world):
    world.tell("plan", {"128": [{"0": 143, "1": "hang"}, 0]})
    code, _, errors = world.launch("tpu_pod.sh", "pretrain", STOP_SECONDS="1")
    assert code == 0, errors
    again = ["describe", "status", "stop", *SETUP, "status"]
    assert names(world) == ["describe", "create", *BEGIN, *again]
    assert not world.calls("outlived")
    assert trained(world, "1") == ["128", "128", "512"]


def test_a_mistake_gets_no_other_try(world):
    world.tell("plan", {"128": [{"0": 2, "1": "term"}]})
    code, _, errors = world.launch("tpu_pod.sh", "all", KEEP="1")
    assert code == 2 and "exit code 2" in errors
    assert trained(world) == ["128"] and trained(world, "1") == ["128"]
    assert names(world).count("create") == 1
    assert names(world)[-2:] == ["stop", "log"] and "COSTS until" in errors
    # The other worker was asked to stop, once, and wrote its checkpoint.
    assert [c["signals"] for c in world.calls("checkpoint")] == [1]


@pytest.mark.slow
def test_a_run_that_fails_everywhere_is_tried_again_so_often(world):
    world.tell("plan", {"512": [1]})
    code, _, errors = world.launch("tpu_pod.sh", "all", MAX_RESTARTS="1")
    assert code == 1 and "no new checkpoint in MAX_RESTARTS=1 tries" in errors
    assert trained(world) == ["128", "512"] * 2
    assert names(world)[-4:] == ["log", "describe", "delete", "describe"]


@pytest.mark.slow
def test_those_who_only_lost_their_peer_are_started_again(world):
    world.tell("plan", {"128": [{"0": 143, "1": 1}, 0]})
    code, _, errors = world.launch("tpu_pod.sh", "pretrain")
    assert code == 0, errors
    assert trained(world, "1") == ["128", "128", "512"]


@pytest.mark.slow
def test_a_new_whole_checkpoint_begins_the_count_of_tries_anew(world):
    """A6."""
    plan = {"128": ["4 1", "4 134", "8 1", 143, 0], "512": ["2 137", 0]}
    world.tell("plan", plan)
    code, _, errors = world.launch("tpu_pod.sh", "pretrain", MAX_RESTARTS="2")
    assert code == 0, errors
    assert re.findall(r"; try (\d) of 2", errors) == ["1", "2", "1", "2", "1"]


@pytest.mark.slow
def test_the_number_of_recreations_is_bounded(world):
    world.tell("plan", {"128": ["preempt"]})
    code, _, errors = world.launch("tpu_pod.sh", "all", MAX_RESTARTS="1")
    assert code == 1 and "no new checkpoint in MAX_RESTARTS=1 tries" in errors
    assert [name for name in names(world) if name in ("create", "delete")] == [
        *("create", "delete"),
        *("create", "delete"),
    ]
    assert launched(world)[-1]["state"] == "NONE"


def test_a_launcher_that_was_killed_finds_its_trainer_at_work(world):
    world.tell("plan", {"128": ["go"]})
    launcher = world.start("tpu_pod.sh", "all")
    world.wait_for("ready-128-1-0.json")
    os.killpg(launcher.pid, signal.SIGKILL)
    launcher.communicate()
    before = len(launched(world))
    second = world.start("tpu_pod.sh", "all")
    while len(launched(world)) < before + 3 and second.poll() is None:
        time.sleep(0.02)
    (world.folder / "go").touch()
    _, errors = second.communicate(timeout=60)
    assert second.returncode == 0, errors
    assert names(world).count("create") == names(world).count("start") == 1
    assert launched(world)[before]["state"] == "ACTIVE"
    assert trained(world) == trained(world, "1") == ["128", "512"]


@pytest.mark.slow
def test_a_launcher_that_is_killed_alone_leaves_nothing_behind_but_the_pod(world):
    world.tell("plan", {"128": ["go"]})
    launcher = world.start("tpu_pod.sh", "all")
    world.wait_for("ready-128-1-0.json")
    os.kill(launcher.pid, signal.SIGKILL)
    launcher.wait()
    launcher.communicate(timeout=60)  # nobody has its output any more
    assert names(world)[-1] in ("start", "status") and "delete" not in names(world)
    before = len(launched(world))
    time.sleep(0.3)
    assert len(launched(world)) == before


def test_what_somebody_deleted_is_not_created_again(world):
    world.tell("plan", {"128": ["preempt"]})
    world.tell("when_preempted", ["DELETING"])
    code, _, errors = world.launch("tpu_pod.sh", "pretrain")
    assert code == 1 and "somebody deleted" in errors
    assert names(world).count("create") == 1


@pytest.mark.slow
def test_an_active_pod_that_does_not_answer_is_replaced(world):
    world.tell("plan", {"128": ["preempt", 0]})
    world.tell("when_preempted", ["ACTIVE"])
    # The disks are gone, so that the scripts are not there: every call fails.
    code, _, errors = world.launch("tpu_pod.sh", "pretrain", MAX_SSH_FAILURES="2")
    assert code == 0, errors
    assert "does not answer; try 1 of 10" in errors
    assert [n for n in names(world) if n in ("create", "delete")] == [
        *("create", "delete", "create")
    ]


def test_what_cannot_be_asked_for_is_neither_created_nor_deleted(world):
    world.tell("offline", True)
    code, _, errors = world.launch("tpu_pod.sh", "all", MAX_SSH_FAILURES="2")
    assert code == 75 and "auth tokens" in errors
    assert names(world) == ["describe"]


def test_a_failed_request_is_deleted_and_made_again(world):
    world.tell("lives", [["PROVISIONING", "FAILED"], ["ACTIVE"]])
    code, _, errors = world.launch(
        "tpu_pod.sh", "up", SPOT="0", VALID_UNTIL_DURATION="6h", PROJECT="p"
    )
    assert code == 0, errors
    assert states(world) == ["NONE", "PROVISIONING", "FAILED", "NONE", "ACTIVE"]
    create = next(c for c in launched(world) if c["verb"].endswith("create"))
    assert "--spot" not in create["arguments"]
    assert create["arguments"][-6:] == [
        *("--valid-until-duration", "6h", "--zone", "us-west4-a", "--project", "p")
    ]


@pytest.mark.slow
def test_a_short_silence_changes_nothing_and_status_logs_and_delete(world):
    assert world.launch("tpu_pod.sh", "delete")[0] == 0
    assert names(world) == ["describe"]  # there is nothing
    world.tell("ssh_failures", 2)
    code, _, errors = world.launch("tpu_pod.sh", "pretrain")
    assert code == 0, errors
    assert names(world).count("create") == 1 and "delete" not in names(world)
    assert trained(world) == ["128", "512"]
    code, output, _ = world.launch("tpu_pod.sh", "status")
    assert code == 0
    lines = output.splitlines()
    assert lines[0] == "ACTIVE" and len(lines) == 3
    assert all(line.endswith(" exit 0") for line in lines[1:])
    assert world.launch("tpu_pod.sh", "logs")[0] == 0
    assert "--worker=0" in launched(world)[-1]["arguments"]
    assert world.launch("tpu_pod.sh", "delete")[0] == 0
    assert launched(world)[-1]["state"] == "NONE"


def plain(lines: list[list[str]]) -> list[list[str]]:
    """Calls without the archive's passing name, and polls of the same thing once."""
    same = [["ARCHIVE" if w.startswith("/") else w for w in line] for line in lines]
    return [line for line, _ in groupby(same)]


def test_a_dry_run_prints_what_a_run_calls_and_odd_names_arrive_whole(world):
    odd = {"DATA_128": "/mnt/it's $HOME & more", "WORKDIR": 'gs://b/a  "run"; x'}
    code, output, _ = world.launch("tpu_pod.sh", "all", "--dry-run", **odd)
    assert code == 0
    assert world.calls() == []
    printed = [shlex.split(line) for line in output.splitlines()]
    archives = [line[2] for line in printed if line[0] == "tar"]
    assert len(archives) == 1 and archives[0].endswith("bert_jax.tar.gz")
    code, _, errors = world.launch("tpu_pod.sh", "all", **odd)
    assert code == 0, errors
    called = [["gcloud", *call["arguments"]] for call in launched(world)]
    assert plain([line for line in printed if line[0] != "tar"]) == plain(called)
    for call in world.calls("bert-jax"):
        workdir = call["arguments"][call["arguments"].index("--workdir") + 1]
        assert workdir == f"{odd['WORKDIR']}/{call['phase']}"
    first = world.calls("bert-jax")[0]["arguments"]
    assert first[first.index("--data.path") + 1] == odd["DATA_128"]


@pytest.mark.parametrize("arguments", [[], ["fly"], ["up", "install"]])
def test_an_unknown_verb(world, arguments):
    code, _, errors = world.launch("tpu_pod.sh", *arguments)
    assert code == 2 and errors.startswith("usage: ")


def test_a_missing_variable(world):
    code, _, errors = world.launch("tpu_pod.sh", "all", WORKDIR="")
    assert code == 2 and "WORKDIR is not set" in errors
    assert world.calls() == []

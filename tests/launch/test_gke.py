"""launch/gke.sh and its JobSet, against a schema of the fields used."""

import copy
import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from bert_jax.distributed.startup import initialize_arguments

HERE = Path(__file__).parent
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
GIVEN = {"IMAGE": "region-docker.pkg.dev/p/r/bert_jax:1", "NAME": "bert-base"}


@pytest.fixture
def schema() -> dict[str, Any]:
    """The schema, itself checked."""
    schema = json.loads((HERE / "jobset.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return schema


def render(world: Any, **variables: str) -> dict[str, Any]:
    """The JobSet as the cluster would read it."""
    code, output, errors = world.launch("gke.sh", "render", **GIVEN | variables)
    assert code == 0, errors
    return yaml.safe_load(output)


def job(jobset: dict[str, Any]) -> dict[str, Any]:
    """The one Job of it."""
    (replicated,) = jobset["spec"]["replicatedJobs"]
    return replicated["template"]["spec"]


def containers(jobset: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """The containers of a pod, and those that run before."""
    pod = job(jobset)["template"]["spec"]
    return pod["containers"], pod["initContainers"]


def variables(container: dict[str, Any]) -> dict[str, str]:
    """Those with a value; the others come from the pod's labels and annotations."""
    return {e["name"]: e["value"] for e in container["env"] if "value" in e}


def fields(container: dict[str, Any]) -> dict[str, str]:
    """The variables that come from the pod's labels and annotations."""
    given = [entry for entry in container["env"] if "valueFrom" in entry]
    return {e["name"]: e["valueFrom"]["fieldRef"]["fieldPath"] for e in given}


def test_the_jobset_fits_the_schema_and_holds_what_was_set(world, schema):
    odd = 'gs://a "bucket"/x & y\\z'
    lamb = "configs/lamb_large_128.py"
    jobset = render(
        world,
        SLICES="2",
        TPU_TOPOLOGY="8x8",
        WORKDIR=odd,
        CONFIG_128=lamb,
        TRAIN_OPTIONS="--seed 3",
    )
    jsonschema.validate(jobset, schema)
    (trainer,), (counter, copier) = containers(jobset)
    shared = (HERE.parents[1] / "launch" / "progress.sh").read_text()
    assert variables(counter) == {
        "WORKDIR": odd,
        "MAX_RESTARTS": "10",
        "PROGRESS": shared.rstrip("\n"),
    }
    assert fields(counter) == {
        "SLICE": "metadata.labels['jobset.sigs.k8s.io/job-index']"
    }
    counter["env"] = []
    assert "${" not in json.dumps(jobset)
    assert jobset["metadata"] == {
        "name": "bert-base",
        "annotations": {EXCLUSIVE: "cloud.google.com/gke-nodepool"},
    }
    assert jobset["spec"]["replicatedJobs"][0]["replicas"] == 2
    pods = job(jobset)
    assert pods["parallelism"] == pods["completions"] == 16
    pod = pods["template"]["spec"]
    assert pod["nodeSelector"] == {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
        "cloud.google.com/gke-tpu-topology": "8x8",
    }
    assert trainer["image"] == GIVEN["IMAGE"]
    assert trainer["resources"]["limits"] == {"google.com/tpu": 4}
    assert variables(trainer) == {
        "BERT_JAX_DISTRIBUTED": "1",
        "FORWARD_TERM": "1",
        "DATA_128": "/data/128",
        "DATA_512": "/data/512",
        "WORKDIR": odd,
        "CONFIG_128": lamb,
        "CONFIG_512": "",  # phases.sh has its own
        "TRAIN_OPTIONS": "--seed 3",
        "INITIALIZATION_TIMEOUT": "1800",
        "HANG_TIMEOUT_MINUTES": "30",
    }
    assert not fields(trainer)  # of several slices, GKE tells the pods itself
    assert variables(copier) == {
        "SOURCE_128": "gs://bucket/data128",
        "SOURCE_512": "gs://bucket/data512",
    }
    assert trainer["volumeMounts"] == copier["volumeMounts"]


def test_a_jobset_for_gpus(world, schema):
    jobset = render(world, DEVICES="gpu", HOSTS="3", GPUS_PER_HOST="4")
    jsonschema.validate(jobset, schema)
    assert "tpu" not in json.dumps(containers(jobset)[0])
    assert jobset["metadata"] == {"name": "bert-base"}
    assert jobset["spec"]["replicatedJobs"][0]["replicas"] == 1
    pods = job(jobset)
    assert pods["parallelism"] == pods["completions"] == 3
    pod = pods["template"]["spec"]
    assert pod["nodeSelector"] == {
        "cloud.google.com/gke-accelerator": "nvidia-h100-80gb"
    }
    assert {
        "key": "nvidia.com/gpu",
        "operator": "Exists",
        "effect": "NoSchedule",
    } in pod["tolerations"]
    assert {"name": "shared-memory", "emptyDir": {"medium": "Memory"}} in pod["volumes"]
    (trainer,), _ = containers(jobset)
    assert trainer["resources"]["limits"] == {"nvidia.com/gpu": 4}
    assert {"name": "shared-memory", "mountPath": "/dev/shm"} in trainer["volumeMounts"]
    given = variables(trainer)
    assert {name: value for name, value in given.items() if "BERT_JAX" in name} == {
        "BERT_JAX_COORDINATOR": "bert-base-workers-0-0.bert-base:8476",
        "BERT_JAX_NUM_PROCESSES": "3",
    }
    assert given["NCCL_TIMEOUT_SECONDS"] == "1800"
    assert fields(trainer) == {
        "BERT_JAX_PROCESS_ID": (
            "metadata.annotations['batch.kubernetes.io/job-completion-index']"
        )
    }
    # What the package makes of it.
    arguments = initialize_arguments(given | {"BERT_JAX_PROCESS_ID": "2"})
    assert arguments is not None and arguments["process_id"] == 2


@pytest.mark.parametrize(
    ("given", "hosts"),
    [
        ({"TPU_TOPOLOGY": "4x4"}, 4),
        ({"TPU_TOPOLOGY": "2x2x4"}, 4),
        ({"TPU_TOPOLOGY": "2x4", "CHIPS_PER_HOST": "8"}, 1),
        ({"DEVICES": "gpu"}, 2),
    ],
)
def test_the_number_of_hosts(world, given, hosts):
    assert job(render(world, **given))["parallelism"] == hosts


@pytest.mark.parametrize(
    "path",
    [
        "spec.maxRestarts",
        "spec.replicatedJobs.0.template.spec.backofLimit",
        "spec.replicatedJobs.0.template.spec.template.spec.containers.0.resource",
        "spec.replicatedJobs.0.template.spec.podFailurePolicy.rules.0.onExitCode",
    ],
)
def test_the_schema_refuses_a_field_that_there_is_not(world, schema, path):
    jobset = copy.deepcopy(render(world))
    *parents, name = path.split(".")
    place: Any = jobset
    for parent in parents:
        place = place[int(parent) if parent.isdigit() else parent]
    place[name] = 1
    with pytest.raises(jsonschema.ValidationError, match=name):
        jsonschema.validate(jobset, schema)


def what_becomes_of(
    jobset: dict[str, Any], exit_code: int, container: str = "trainer"
) -> str:
    """What Kubernetes and JobSet document to do when a container ends with a code."""
    pods = job(jobset)
    action = "Count"
    for rule in pods["podFailurePolicy"]["rules"]:
        name = rule["onExitCodes"]["containerName"]
        assert name in [one["name"] for group in containers(jobset) for one in group]
        assert rule["onExitCodes"]["operator"] == "In"
        if name == container and exit_code in rule["onExitCodes"]["values"]:
            action = rule["action"]
            break
    assert pods["backoffLimit"] == 0
    reason = {"Count": "BackoffLimitExceeded", "FailJob": "PodFailurePolicy"}[action]
    for rule in jobset["spec"]["failurePolicy"]["rules"]:
        if reason in rule["onJobFailureReasons"]:
            return rule["action"]
    return "RestartJobSet"


@pytest.mark.parametrize(
    ("exit_code", "outcome"),
    [
        (143, "RestartJobSet"),
        (134, "RestartJobSet"),
        (137, "RestartJobSet"),
        (1, "RestartJobSet"),
        (2, "FailJobSet"),
    ],
)
def test_what_becomes_of_an_exit_code(world, exit_code, outcome):
    assert what_becomes_of(render(world), exit_code) == outcome


def start_of_a_pod(
    world: Any, index: int, again: bool = True, slice_index: str = "0"
) -> subprocess.CompletedProcess[str]:
    """Run a pod's first container, as a kubelet does: with its own variables alone."""
    jobset = render(world, MAX_RESTARTS="2")
    _, (counter, _) = containers(jobset)
    own = {name: world.environment[name] for name in ("FAKE_WORLD", "PATH")}
    done = subprocess.run(
        [*counter["command"], *counter["args"]],
        env=own
        | variables(counter)
        | {"JOB_COMPLETION_INDEX": str(index), "SLICE": slice_index},
        capture_output=True,
        text=True,
    )
    outcome = what_becomes_of(jobset, done.returncode, "progress")
    assert outcome == ("RestartJobSet" if again else "FailJobSet")
    return done


def test_a_new_whole_checkpoint_begins_the_count_of_restarts_anew(world):
    """A6: counted by one pod of each start, in a file of the workdir."""
    memory = world.folder / "gs/bucket/run/launch_tries"
    steps = world.folder / "gs/bucket/run/128/checkpoints"
    for tries in (0, 1, 2):
        assert start_of_a_pod(world, 0).returncode == 0
        # The other pods do not count.
        assert start_of_a_pod(world, 1).returncode == 0
        assert start_of_a_pod(world, 0, slice_index="1").returncode == 0
        assert memory.read_text() == f"{tries} 0 0\n"
    (steps / "4").mkdir(parents=True)
    (steps / "4/manifest.json").touch()
    for tries in (1, 2):
        assert start_of_a_pod(world, 0).returncode == 0
        assert memory.read_text() == f"{tries} 4 0\n"
    done = start_of_a_pod(world, 0, again=False)
    assert done.returncode == 3
    assert "no new checkpoint in MAX_RESTARTS=2 tries" in done.stderr
    assert not memory.exists()  # whoever applies it again begins anew
    assert start_of_a_pod(world, 0).returncode == 0


def test_apply_wait_status_logs_delete(world, schema):
    world.tell("states", ["", "", "Completed"])
    for verb in ("up", "wait", "status", "logs", "delete"):
        code, _, errors = world.launch("gke.sh", verb, **GIVEN, NAMESPACE="ml")
        assert code == 0, errors
    calls = [call["arguments"] for call in world.calls()]
    assert all(call[:2] == ["--namespace", "ml"] for call in calls)
    assert [call[2] for call in calls] == [
        *("apply", "get", "get", "get", "get", "get", "logs", "delete")
    ]
    applied = yaml.safe_load((world.folder / "applied.yaml").read_text())
    jsonschema.validate(applied, schema)
    assert applied == render(world)


def test_wait_tells_of_a_failure(world):
    world.tell("states", ["", "Failed"])
    code, _, errors = world.launch("gke.sh", "wait")
    assert code == 1 and "bert-jax failed" in errors


def test_waiting_outlives_a_short_silence_and_not_a_long_one(world):
    world.tell("states", ["", "silence", "silence", "", "silence", "Completed"])
    assert world.launch("gke.sh", "wait", MAX_FAILURES="3")[0] == 0
    world.tell("states", ["silence"])
    code, _, errors = world.launch("gke.sh", "wait", MAX_FAILURES="3")
    assert code == 75 and "handshake" in errors and "no answer" in errors


def test_a_dry_run_prints_the_commands_and_calls_none(world):
    for verb in ("up", "wait", "status", "logs", "delete"):
        code, output, errors = world.launch("gke.sh", verb, "--dry-run", **GIVEN)
        assert code == 0, errors
        called = [line for line in output.splitlines() if not line.startswith("#")]
        lines = [shlex.split(line) for line in called if line]
        assert lines and all(line[0] == "kubectl" for line in lines)
        assert ("# kind: JobSet" in output.splitlines()) == (verb == "up")
    assert world.calls() == []


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"IMAGE": ""}, "IMAGE is not set"),
        ({"HOSTS": "four"}, "HOSTS=four is not a"),
        ({"CHIPS_PER_HOST": "four"}, "CHIPS_PER_HOST=four is not a number from 1"),
        ({"SLICES": "0"}, "SLICES=0 is not a number from 1"),
        ({"HOSTS": "3"}, "HOSTS=3 x CHIPS_PER_HOST=4 is not the 16 chips"),
        ({"TPU_TOPOLOGY": "4"}, "TPU_TOPOLOGY=4 is not like 4x4"),
        ({"DEVICES": "cpu"}, "DEVICES=cpu: tpu or gpu"),
        ({"DEVICES": "gpu", "SLICES": "2"}, "SLICES=2: GPUs have none"),
    ],
)
def test_a_mistake_in_the_variables(world, variables, message):
    code, _, errors = world.launch("gke.sh", "up", **GIVEN | variables)
    assert code == 2 and message in errors
    assert world.calls() == []

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

HERE = Path(__file__).parent
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
    assert replicated["replicas"] == 1
    return replicated["template"]["spec"]


def containers(jobset: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """The containers of a pod, and those that run before."""
    pod = job(jobset)["template"]["spec"]
    return pod["containers"], pod["initContainers"]


def variables(container: dict[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in container["env"]}


def test_the_jobset_fits_the_schema_and_holds_what_was_set(world, schema):
    odd = 'gs://a "bucket"/x & y\\z'
    lamb = "configs/lamb_large_128.py"
    jobset = render(
        world,
        HOSTS="16",
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
    counter["env"] = []
    assert "${" not in json.dumps(jobset)
    assert jobset["metadata"]["name"] == "bert-base"
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
    }
    assert variables(copier) == {
        "SOURCE_128": "gs://bucket/data128",
        "SOURCE_512": "gs://bucket/data512",
    }
    assert trainer["volumeMounts"] == copier["volumeMounts"]


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
    world: Any, index: int, again: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a pod's first container, as a kubelet does: with its own variables alone."""
    jobset = render(world, MAX_RESTARTS="2")
    _, (counter, _) = containers(jobset)
    own = {name: world.environment[name] for name in ("FAKE_WORLD", "PATH")}
    done = subprocess.run(
        [*counter["command"], *counter["args"]],
        env=own | variables(counter) | {"JOB_COMPLETION_INDEX": str(index)},
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
        assert start_of_a_pod(world, 1).returncode == 0  # the other pods do not count
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
    [({"IMAGE": ""}, "IMAGE is not set"), ({"HOSTS": "four"}, "HOSTS=four is not a")],
)
def test_a_mistake_in_the_variables(world, variables, message):
    code, _, errors = world.launch("gke.sh", "up", **GIVEN | variables)
    assert code == 2 and message in errors
    assert world.calls() == []

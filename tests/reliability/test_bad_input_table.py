"""The table of bad inputs: each one line, its exit code, and nothing half-written.

The rows are in `bad_input/`, a file for each area, as lists named CASES.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from advice import unknown_advice
from bad_case import Case, World, environment, files_in, run_here

from bert_jax.cli.verbs import VERBS

FOLDER = Path(__file__).with_name("bad_input")


def cases() -> list[Case]:
    """The rows of every file of the table."""
    found: list[Case] = []
    for path in sorted(FOLDER.glob("*.py")):
        spec = importlib.util.spec_from_file_location(f"bad_input_{path.stem}", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found += module.CASES
    return found


CASES = cases()


def test_the_table_names_each_case_once():
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)


@pytest.mark.usefixtures("unchecked_types")
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=[pytest.mark.slow] * case.slow)
        for case in CASES
    ],
)
def test_refused(case: Case, world: World):
    arguments = case.command(world)
    before = files_in(world.folder)
    if case.process:
        done = subprocess.run(
            [sys.executable, "-m", "bert_jax", *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            env=os.environ | case.environment,
            stdin=subprocess.DEVNULL,
            timeout=300,
        )
        code, error = done.returncode, done.stderr
    else:
        with environment(case.environment):
            code, error = run_here(arguments)
    assert code == case.code, error
    assert error.startswith("bert-jax: ") and error.count("\n") == 1, error
    assert "Traceback" not in error
    verb = [v for v in VERBS if " ".join(arguments).startswith(f"{v} ")]
    advice = unknown_advice(error.partition("does not take")[0], verb)
    assert not {*advice} - {part.partition("=")[0] for part in arguments}, error
    assert all(character.isprintable() for character in error.rstrip("\n")), error
    for part in case.says:
        assert part in error
    allowed = case.leaves(world) if case.leaves else set()
    after = files_in(world.folder)
    added = {name for name in after if name not in before} - allowed
    assert not added, f"left behind: {sorted(added)}"
    assert {k: v for k, v in after.items() if k in before} == before

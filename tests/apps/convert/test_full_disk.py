"""A disk that takes no more: one line, exit code 2, nothing left behind."""

import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_files import stored

LIMITED = """
import resource, sys
sys.dont_write_bytecode = True  # Python would keep half of a compiled module
from bert_jax.cli.main import main
limit = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
sys.exit(main(sys.argv[2:]))
"""


def run(arguments: list[str], limit: int) -> subprocess.CompletedProcess[str]:
    """The command, none of whose files may be larger than `limit` bytes."""
    return subprocess.run(
        [sys.executable, "-c", LIMITED, str(limit), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["import", "--from", "huggingface"], id="import"),
        pytest.param(
            ["export", "--to", "huggingface"], marks=pytest.mark.slow, id="export"
        ),
    ],
)
def test_a_full_disk_is_one_line(command: list[str], tmp_path: Path):
    folder = stored("BertForMaskedLM").write(tmp_path / "model")
    before = sorted(tmp_path.rglob("*"))
    verb, *options = command
    output = tmp_path / "output"
    arguments = ["convert", verb, str(folder), *options, "--output", str(output)]
    done = run(arguments, 20_000)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("bert-jax: ") and done.stderr.count("\n") == 1
    assert f"{output}" in done.stderr and "cannot be written: File too" in done.stderr
    assert "free space there" in done.stderr
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["fork", "--at", "8"], id="fork"),
        pytest.param(
            ["convert", "average", "--steps", "8", "10"],
            marks=pytest.mark.slow,
            id="average",
        ),
    ],
)
def test_a_full_disk_leaves_nothing_made_of_a_run(
    command: list[str], pretrained: Path, tmp_path: Path
):
    at = next(i for i, word in enumerate(command) if word.startswith("--"))
    arguments = [*command[:at], str(pretrained), *command[at:]]
    done = run([*arguments, "--output", str(tmp_path / "output")], 3000)
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert f"{tmp_path / 'output'} cannot be written: File too large; free" in line
    assert not list(tmp_path.iterdir())

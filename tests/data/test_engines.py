"""Apache Beam writes what local processes write."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bert_jax.config import PrepareConfig
from bert_jax.data import engines
from bert_jax.data.records import open_dataset


@pytest.fixture(scope="module")
def by_beam(corpus, tokenizer_directory, tmp_path_factory) -> Path:
    """The dataset of all tests once more, by the command line and Beam's own runner.

    In a process of its own: Beam warns of much, and here warnings are errors.
    """
    output = tmp_path_factory.mktemp("beam") / "rows"
    options = {
        "input": str(corpus / "*.txt"),
        "tokenizer": str(tokenizer_directory),
        "output": str(output),
        "sequence-length": "32",
        "validation-fraction": "0.1",
        "engine": "beam",
    }
    arguments = [
        word for name, value in options.items() for word in (f"--{name}", value)
    ]
    runner = ["--", "--runner=BundleBasedDirectRunner"]
    subprocess.run(
        [sys.executable, "-m", "bert_jax", "prepare", *arguments, *runner], check=True
    )
    return output


def test_the_bytes_are_those_of_the_local_engine(by_beam, dataset):
    local = json.loads((dataset.path / "manifest.json").read_text())
    found = json.loads((by_beam / "manifest.json").read_text())
    assert found == local
    for shard in local["shards"]:
        name = shard["path"]
        assert (by_beam / name).read_bytes() == (dataset.path / name).read_bytes()
    assert open_dataset(by_beam, verify=True).fingerprint == dataset.fingerprint


def test_nothing_is_left_beside_the_dataset(by_beam):
    assert not (by_beam / "unfinished").exists()


def test_without_beam_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    config = PrepareConfig(input=(), output="o", tokenizer="t", engine="beam")
    with pytest.raises(ValueError, match=r"pip install 'bert_jax\[beam\]'"):
        engines.write_by_beam(config, [], [])


def test_workers_find_the_files_from_other_directories(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    config = PrepareConfig(input=("a",), output="o", tokenizer="t", engine="beam")
    config, files = engines.with_absolute_paths(config, ["a.txt", "o/b.txt"])
    assert [config.output, *files] == [
        str(tmp_path / name) for name in ("o", "a.txt", "o/b.txt")
    ]


def test_a_script_prepares_text_once(corpus, tokenizer_directory, tmp_path):
    """Its workers do not run it again, though it asks for no `__main__`."""
    script, output = tmp_path / "script.py", tmp_path / "rows"
    names = f"input=({str(corpus / '*.txt')!r},), output={str(output)!r}"
    script.write_text(
        "import bert_jax\nprint('begins')\nbert_jax.prepare(bert_jax.PrepareConfig("
        f"{names}, tokenizer={str(tokenizer_directory)!r}, workers=2))\n"
    )
    command = [sys.executable, str(script)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("begins") == 1
    assert json.loads((output / "manifest.json").read_text())["shards"]

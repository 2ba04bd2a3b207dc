"""Configurations compiled for accelerators, by the command line, onto a page."""

import dataclasses
import json
import re
from pathlib import Path

import compile_processes
import hardware
import pytest
from compile_processes import (
    MAX_COMPILATIONS,
    Compilations,
    fingerprint,
    next_microbatches,
    step_sources,
)
from compilers import needs_cuda_plugin, needs_libtpu
from hardware_page import HEADINGS, cells, page
from options import HardwareOptions
from targets import BenchmarkTarget, completed, open_target

from bert_jax.cli.main import main
from bert_jax.config import BertConfig, DataConfig, OptimizerConfig, PretrainConfig
from bert_jax.distributed.topologies import parse_topology

CONFIGS = Path(__file__).parents[2] / "configs"
PRETRAINING = [
    path
    for path in sorted(CONFIGS.glob("*.py"))
    if "PretrainConfig" in path.read_text()
]
SMALL = PretrainConfig(
    model=BertConfig.miniature(1, 16, vocab_size=0, dtype="bfloat16"),
    data=DataConfig(sequence_length=16),
    batch_size=8,
)


def written(path, **changes):
    """A configuration file of the small run with other values."""
    config = dataclasses.replace(SMALL, **changes)
    path.write_text(f"from bert_jax.config import *\nconfig = {config!r}\n")
    return str(path)


def table_rows(text):
    """The cells of each row of the page, by topology."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    return [
        dict(zip(HEADINGS, row, strict=True)) for row in rows if row[0] != HEADINGS[0]
    ]


def compiled(tmp_path, *words):
    """The exit code of the command, its figures and the rows of its page."""
    output, figures = tmp_path / "page.md", tmp_path / "figures.json"
    options = ["--output", str(output), "--results", str(tmp_path / "results")]
    options += ["--json", str(figures), *words]
    code = main(options, run=hardware.run)
    return code, json.loads(figures.read_text()), table_rows(output.read_text())


@pytest.mark.slow
@needs_libtpu
def test_a_page_and_what_is_kept_for_the_next_call(described, tmp_path):
    """A program that cannot be compiled has a row, and no result that is kept.

    After a change of the sources a program is lowered, and found to be the same.
    """
    small = written(tmp_path / "small.py")
    # Too few entries to draw the tokens of a row from.
    model = dataclasses.replace(SMALL.model, vocab_size=4)
    broken = written(tmp_path / "broken.py", model=model)
    words = ("--topologies", "v5e:2x2", "--jobs", "1", "--configs")
    code, figures, (failed, row) = compiled(tmp_path, *words, broken, small)
    assert code == 1
    assert (figures["compiled"], figures["kept"], figures["failed"]) == (2, 0, 1)
    assert failed["state"].startswith("failed: ValueError: ")
    assert (row["rows a device"], row["microbatches"]) == ("2", "1")
    assert row["in all"].endswith(" of 16.0") and row["fits"] == "yes"
    assert row["collectives"] == "2 all-reduce of 2.0 MiB"
    assert float(row["the compiler's estimate, ms"]) > 0 and row["MFU by it"]
    assert "## small" in (tmp_path / "page.md").read_text()
    result = tmp_path / "results" / "small-v5e-2x2-1.json"
    before = json.loads(result.read_text())
    result.write_text(json.dumps(before | {"fingerprint": "of other sources"}))
    code, figures, rows = compiled(tmp_path, *words, small)
    assert code == 0 and rows == [row]
    assert json.loads(result.read_text()) == before
    assert (figures["compiled"], figures["kept"], figures["failed"]) == (0, 1, 0)
    results = {path.name for path in result.parent.glob("*.json")}
    assert results == {"small-v5e-2x2-1.json"}


@needs_libtpu
@pytest.mark.parametrize("path", PRETRAINING, ids=lambda path: path.stem)
def test_every_configuration_is_completed(path, described):
    target = open_target(str(path), parse_topology("v5e:2x4"))
    pairs = "none" if path.stem.startswith("gpt") else "nsp"
    assert target.config.data.pairs == pairs and target.config.model.vocab_size


@pytest.mark.slow
@needs_cuda_plugin
def test_a_page_for_gpus(described, tmp_path):
    small = written(tmp_path / "small.py")
    code, _, (row,) = compiled(tmp_path, "--configs", small, "--topologies", "h100:8")
    assert code == 0
    assert row["in all"].endswith(" of 60.0") and row["fits"] == "yes"
    assert row["the compiler's estimate, ms"] == row["MFU by it"] == "—"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--topologies v6:2x2", "topology=v6:2x2 must begin with .* 'v6e'"),
        ("--topologies v5e:8", "topology=v5e:8 must give the chips along 2 axes"),
        ("--configs none.py", "none.py is not a file; name a configuration"),
        ("--output no/page.md", "output=no/page.md: no is not a directory"),
        ("--jobs 0", "jobs=0 must be at least 1"),
    ],
)
def test_mistakes_are_found_before_anything_is_compiled(
    words, message, described, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "small.py")
    words = ["--configs", "small.py", *words.split()]
    assert main(words, run=hardware.run) == 2
    assert_one_line(capsys, message)
    assert not (tmp_path / "build").exists()


@needs_libtpu
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 12}, "small.py for topology=v5e:2x4: batch_size=12 is not a"),
        ({"unit": "span"}, "small.py has masking.unit=span, which needs the tokenizer"),
    ],
)
def test_configurations_that_do_not_suit_are_refused(
    changes, message, described, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    if "unit" in changes:
        changes = {"masking": dataclasses.replace(SMALL.masking, **changes)}
    written(tmp_path / "small.py", **changes)
    words = "--configs small.py --topologies v5e:2x4".split()
    assert main(words, run=hardware.run) == 2
    assert_one_line(capsys, message)
    assert not (tmp_path / "build").exists()


def assert_one_line(capsys, message):
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(message, error), error


def figures_of(state, temporary, usable=16.0):
    """The figures of a program, from GiB."""
    sizes = {
        "parameters": state / 3,
        "optimizer": state * 2 / 3,
        "activations and gradients": temporary,
        "in all": state + temporary,
    }
    return {
        "memory_of_each_mib": {name: size * 1024 for name, size in sizes.items()},
        "fits": state + temporary <= usable,
        "collectives": {},
        "collectives_mib": {},
        "compile_cpu_seconds": 1.0,
        "compiler": "libtpu 1",
    }


@pytest.mark.parametrize(
    ("state", "temporary", "microbatches", "shard_rows", "expected"),
    [
        (4.0, 20.0, 1, 32, 2),  # 4 + 10
        (4.0, 40.0, 1, 32, 4),  # 4 + 20 is too much, 4 + 10 is not
        (4.0, 20.0, 2, 32, 4),
        (4.0, 24.0, 3, 24, 6),
        (4.0, 500.0, 1, 8, 8),  # nothing fits by this rule: the most
        (4.0, 20.0, 1, 3, None),  # three rows have no halves
        (16.0, 1.0, 1, 32, None),  # the state alone is too much
    ],
)
def test_the_next_number_of_microbatches_by_hand(
    state, temporary, microbatches, shard_rows, expected
):
    figures = figures_of(state, temporary)
    memory = 16 * 2.0**30
    assert next_microbatches(figures, microbatches, shard_rows, memory) == expected


class Fake(Compilations):
    """Its programs take 4 GiB, and a part that microbatches divide."""

    temporary = 0.0
    fixed = 0.0

    def compile(self, target, microbatches):
        self.num_compiled += 1
        temporary = self.fixed + self.temporary / microbatches
        return figures_of(4.0, temporary) | {"microbatches": microbatches}


@pytest.mark.parametrize(
    ("temporary", "fixed", "compilations", "microbatches", "fits"),
    [
        (8.0, 0.0, 1, 1, True),
        (40.0, 0.0, 2, 4, True),
        # The part that stays is not known at first: 4 + 9 + 20 / 4, then 20 / 8.
        (20.0, 9.0, MAX_COMPILATIONS, 8, True),
        (40.0, 13.0, MAX_COMPILATIONS, 16, False),
    ],
)
def test_microbatches_are_added_until_it_fits(
    temporary, fixed, compilations, microbatches, fits, tmp_path
):
    fake = Fake(tmp_path / "results")
    fake.temporary, fake.fixed = temporary, fixed
    config = dataclasses.replace(completed(SMALL), batch_size=256)
    target = BenchmarkTarget("small", config, parse_topology("v5e:2x4"), shard_rows=32)
    figures = fake.compile_until_it_fits(target)
    assert fake.num_compiled == compilations
    assert (figures["microbatches"], figures["fits"]) == (microbatches, fits)


@needs_libtpu
def test_a_result_is_kept_for_the_same_program_only(described):
    config, topology = completed(SMALL), parse_topology("v5e:2x4")
    key = fingerprint(config, topology)
    assert key == fingerprint(completed(SMALL), topology)
    faster = OptimizerConfig(peak_learning_rate=1.0)
    assert key != fingerprint(dataclasses.replace(config, optimizer=faster), topology)
    assert key != fingerprint(config, parse_topology("v5e:2x2"))
    assert len(compile_processes.sources_hash()) == 64


def test_the_sources_of_a_step_are_those_of_all_its_folders():
    root = compile_processes.ROOT
    names = {path.relative_to(root).as_posix() for path in step_sources()}
    assert {"tasks/pretraining/task.py", "training/step.py"} <= names


def test_what_a_dataset_would_define():
    config = completed(PretrainConfig())
    assert config.model.vocab_size == config.masking.vocab_size == 30522
    assert (config.data.sequence_length, config.data.pairs) == (128, "nsp")
    assert completed(SMALL).data.sequence_length == 16


def test_rows_of_the_page():
    config = dataclasses.replace(completed(SMALL), batch_size=256)
    target = BenchmarkTarget("small", config, parse_topology("v5e:2x4"), shard_rows=32)
    figures = figures_of(3.0, 1.5) | {
        "microbatches": 4,
        "collectives": {"all-gather": 33, "all-reduce": 2},
        "collectives_mib": {"all-gather": 1500.0, "all-reduce": 0.25},
    }
    gathers = "33 all-gather of 1,500.0 MiB, 2 all-reduce of 0.2 MiB"
    memory = ["3.00", "1.50", "4.50 of 16.0", "yes"]
    first = ["v5e:2x4", "32", "1 → 4"]
    assert cells(target, figures) == [*first, *memory, gathers, "—", "—", "1"]
    error = {"error": "ended by SIGSEGV | core", "microbatches": 1}
    failed = cells(target, error)
    assert failed[2:4] == ["1", "failed: ended by SIGSEGV / core"]
    assert len(failed) == len(HEADINGS)
    options = HardwareOptions(configs=("configs/small.py",), topologies=("v5e:2x4",))
    text = page(options, [(target, figures)], date="2026-01-31")
    assert "2026-01-31, libtpu 1, jax " in text
    assert (
        "--configs configs/small.py --topologies v5e:2x4 --output hardware.md" in text
    )

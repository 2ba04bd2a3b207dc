"""Runs for tests: their configurations, and what they left on disk.

The files are read here without bert_jax's own readers of checkpoints, so that a test of
a run does not depend on what it tests.
"""

import dataclasses
import hashlib
import io
import json
import os
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from bert_jax.cli.main import main
from bert_jax.config import (
    ExamplesConfig,
    FinetuneConfig,
    MeshConfig,
    OptimizerConfig,
    RunConfig,
)
from bert_jax.config.serialization import to_dict

RATES = ("tokens_per_second", "data_wait", "mfu")
"""Measured by a clock: two equal runs may differ in them."""
CONFIG_FILE = """\
import json
from bert_jax.config import {kind}
from bert_jax.config.serialization import from_dict
config = from_dict({kind}, json.loads({text!r}))
"""


NO_TENSORFLOW = Path(__file__).parent / "reliability" / "without_tensorflow"
"""On PYTHONPATH, a process finds no TensorFlow, whose import takes seconds."""


def flags_for_one_device() -> str:
    """XLA_FLAGS of these tests for a child process: without their eight devices."""
    flags = os.environ["XLA_FLAGS"].split()
    return " ".join(flag for flag in flags if "device_count" not in flag)


def write_config(config: RunConfig, path: Path) -> Path:
    """Write a configuration file that binds `config`."""
    kind, text = type(config).__name__, json.dumps(to_dict(config))
    path.write_text(CONFIG_FILE.format(kind=kind, text=text))
    return path


def classifier_config(table: Path, source: Path, **changes: Any) -> FinetuneConfig:
    """A text classifier of the columns `review` and `who`, on one device."""
    config = FinetuneConfig(
        data=ExamplesConfig(
            train=str(table),
            text_columns=("review",),
            label_column="who",
            max_length=32,
            num_buckets=1,
        ),
        optimizer=OptimizerConfig(peak_learning_rate=2e-2, warmup_steps=1),
        mesh=MeshConfig(data=1),
        batch_size=8,
        init_from=str(source),
    )
    return dataclasses.replace(config, **changes)


def answered_at_once(
    patch: pytest.MonkeyPatch, arguments: list[str], lines: list[str]
) -> list[str]:
    """What a verb prints for lines, each sent after the answer to the one before."""
    flushed = threading.Event()

    class Output(io.StringIO):
        def flush(self) -> None:
            flushed.set()

    reading, writing = os.pipe()
    is_answered = []

    def send() -> None:
        with os.fdopen(writing, "w") as pipe:
            for line in lines:
                flushed.clear()
                print(line, file=pipe, flush=True)
                is_answered.append(flushed.wait(60))

    output, sender = Output(), threading.Thread(target=send)
    with os.fdopen(reading) as pipe:
        patch.setattr(sys, "stdin", pipe)
        patch.setattr(sys, "stdout", output)
        sender.start()
        assert main(arguments) == 0
        sender.join()
    assert is_answered == [True] * len(lines)
    return output.getvalue().splitlines()


def names_in(directory: Path) -> list[str]:
    """The names in a directory; none if it does not exist."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return os.listdir(directory)
    return []


def logged_lines(
    workdir: Path, split: str | None = None, name: str = "metrics.jsonl"
) -> list[dict[str, Any]]:
    """The complete lines of a log without RATES; those of one split, or of all."""
    lines = []
    with suppress(FileNotFoundError):
        for text in (workdir / name).read_text().split("\n")[:-1]:
            line = {k: v for k, v in json.loads(text).items() if k not in RATES}
            if split is None or line["split"] == split:
                lines.append(line)
    return lines


def steps(workdir: Path) -> list[int]:
    """The steps that have a directory, complete or not, in order."""
    return sorted(int(n) for n in names_in(workdir / "checkpoints") if n.isdigit())


def is_verified(step: Path) -> bool:
    """Whether a checkpoint has a manifest that all of its files agree with."""
    try:
        files = json.loads((step / "manifest.json").read_text())["files"]
    except FileNotFoundError:
        return False
    for file in files:
        content = (step / file["path"]).read_bytes()
        if hashlib.sha256(content).hexdigest() != file["sha256"]:
            return False
    return bool(files)


def latest_verified_step(workdir: Path) -> int:
    """The newest complete step; 0 if there is none."""
    folder = workdir / "checkpoints"
    return max((n for n in steps(workdir) if is_verified(folder / str(n))), default=0)


def read_arrays(checkpoint: Path, *items: str) -> dict[str, np.ndarray]:
    """The arrays of these parts of a checkpoint, as {"state/pooler/…": values}."""
    arrays = {}
    for item in items:
        folder = (checkpoint / item).absolute()
        handler = ocp.PyTreeCheckpointHandler()
        wanted = jax.tree.map(
            lambda _: ocp.RestoreArgs(restore_type=np.ndarray),
            handler.metadata(folder).tree,
        )
        tree = handler.restore(folder, args=ocp.args.PyTreeRestore(restore_args=wanted))
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            arrays[f"{item}/{name}"] = np.asarray(leaf)
    return arrays


def read_params(workdir: Path, step: int | None = None) -> dict[str, np.ndarray]:
    """The parameters by name, of the newest checkpoint or of that of `step`."""
    step = latest_verified_step(workdir) if step is None else step
    arrays = read_arrays(workdir / "checkpoints" / str(step), "state")
    return {name.removeprefix("state/"): leaf for name, leaf in arrays.items()}


def assert_same_arrays(one: Path, other: Path, *items: str) -> None:
    """These parts of two checkpoints are equal bit by bit."""
    ours, theirs = read_arrays(one, *items), read_arrays(other, *items)
    assert ours.keys() == theirs.keys()
    differing = [n for n in ours if ours[n].tobytes() != theirs[n].tobytes()]
    assert not differing, differing


def assert_same_run(run: Path, uninterrupted: Path) -> None:
    """All logged losses, row numbers and the last arrays are equal bit by bit."""
    for name in ("metrics.jsonl", "examples.jsonl"):
        ours, theirs = (logged_lines(w, name=name) for w in (run, uninterrupted))
        assert theirs or name == "examples.jsonl"
        assert [x["step"] for x in ours] == [x["step"] for x in theirs], name
        for line, other in zip(ours, theirs, strict=True):
            assert line == other, name
    last = steps(uninterrupted)[-1]
    assert latest_verified_step(run) == latest_verified_step(uninterrupted) == last
    ends = (workdir / "checkpoints" / str(last) for workdir in (run, uninterrupted))
    assert_same_arrays(*ends, "state", "optimizer")

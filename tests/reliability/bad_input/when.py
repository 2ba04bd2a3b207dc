"""Bad inputs: when a run sees a text."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from bad_case import Case, World


def when(*options: str, text: str = "judge") -> Callable[[World], list[str]]:
    """`inspect RUN --when` of the good run, with more options."""
    return lambda world: ["inspect", str(world.run), "--when", text, *options]


def copied(change: Callable[[Path, World], None]) -> Callable[[World], list[str]]:
    """`inspect RUN --when` of a copy of the good run, changed."""

    def command(world: World) -> list[str]:
        copy = world.folder / "copy"
        shutil.copytree(world.run, copy)
        change(copy, world)
        return ["inspect", str(copy), "--when", "judge"]

    return command


def with_data(path: Callable[[World], object]) -> Callable[[Path, World], None]:
    """Another data.path in the configuration of a run."""

    def change(run: Path, world: World) -> None:
        file = run / "config.json"
        values = json.loads(file.read_text())
        values["data"]["path"] = str(path(world))
        file.write_text(json.dumps(values))

    return change


def with_history(entry: object) -> Callable[[Path, World], None]:
    """A damaged history in the configuration of a run."""

    def change(run: Path, world: World) -> None:
        file = run / "config.json"
        values = json.loads(file.read_text())
        file.write_text(json.dumps(values | {"history": [entry]}))

    return change


def other_dataset(world: World) -> list[str]:
    """A dataset whose manifest names other bytes than the run's."""
    copy = world.folder / "copy"
    shutil.copytree(world.dataset, copy)
    file = copy / "manifest.json"
    values = json.loads(file.read_text())
    for name in ("checksum", "text"):
        del values[name]
    values["shards"][0]["sha256"] = "0" * 64
    file.write_text(json.dumps(values))
    return ["inspect", str(copy), "--when", "judge", "--run", str(world.run)]


CASES = [
    Case("when-empty", when(text=""), ("when='' has no tokens", "give some words")),
    Case("when-blank", when(text=" \t"), ("has no tokens", "give some words")),
    Case("when-without-a-text", when("--when"), ("--when needs a value",)),
    Case(
        "when-in-no-row",
        when(text="judge judge judge"),
        (
            "contains 'judge judge judge', as the tokens",
            "343 training rows and 75 validation rows were searched",
            "Give whole words, and fewer",
        ),
    ),
    Case(
        "when-the-second-in-no-row",
        when("--when", "letter letter"),
        ("contains 'letter letter'",),
    ),
    Case(
        "when-longer-than-a-row",
        when(text="judge reads " * 40),
        ("contains 'judge reads judge", "were searched"),
    ),
    Case("when-not-text", when(text="\udcff"), ("half of a surrogate pair",)),
    Case(
        "when-with-verify", when("--verify"), ("verify=True has no effect with when",)
    ),
    Case(
        "when-with-attention",
        when("--attention", "a", "--output", "a.html"),
        ("attention='a' has no effect with when",),
    ),
    Case("when-with-output", when("--output", "a.html"), ("output='a.html' has no",)),
    Case(
        "when-of-a-dataset-alone",
        lambda world: ["inspect", str(world.dataset), "--when", "judge"],
        ("is a dataset", "together with --run RUN"),
    ),
    Case(
        "when-of-two-runs",
        lambda world: when("--run", str(world.run))(world),
        ("is not a dataset", "the workdir of a run alone"),
    ),
    Case(
        "run-without-when",
        lambda world: ["inspect", str(world.dataset), "--run", str(world.run)],
        ("needs --when TEXT",),
    ),
    Case(
        "when-of-another-dataset",
        other_dataset,
        ("copy is not the dataset of", "its fingerprint is"),
    ),
    Case(
        "when-the-dataset-is-gone",
        copied(with_data(lambda world: world.folder / "gone")),
        ("The dataset of", "is gone", "inspect DATASET --when TEXT --run"),
    ),
    Case(
        "when-of-a-fine-tuning-run",
        lambda world: ["inspect", str(world.classifier), "--when", "judge"],
        ("is not a run of `bert-jax pretrain`", "pretraining run"),
    ),
    Case(
        "when-of-no-run",
        lambda world: ["inspect", str(world.corpus), "--when", "judge"],
        ("is not the workdir of a run with a complete checkpoint",),
    ),
    Case(
        "when-of-an-imported-model",
        lambda world: ["inspect", str(world.encoder), "--when", "judge"],
        ("is not the workdir of a run with a complete checkpoint",),
    ),
    Case(
        "when-of-a-damaged-history",
        copied(with_history({"changed": [{"field": "num_steps"}], "step": 99})),
        ("config.json is damaged: it, or an entry of its history, lacks 'before'",),
    ),
    Case(
        "when-of-a-history-without-steps",
        copied(with_history({"changed": [{"field": "num_steps", "before": 9}]})),
        ("an entry of its history, lacks 'step'; restore it",),
    ),
    Case(
        "when-of-a-history-of-others",
        copied(with_history("a")),
        ("config.json is damaged", "restore it"),
    ),
]

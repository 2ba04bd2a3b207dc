"""Bad inputs: experiments of the paper."""

from collections.abc import Callable

from bad_case import Case, World


def reproduced(name: str, *options: str, yes: bool = True) -> Callable[[World], list]:
    """An experiment at a budget of almost nothing, on the good text."""
    return lambda world: [
        *("reproduce", name, "--output", str(world.folder / "new"), "--flops", "1e6"),
        *("--input", str(world.corpus / "*.txt"), "--seeds", "1", *options),
        *(["--yes"] if yes else []),
    ]


def on_files(train: str, test: str, line: str = "") -> Callable[[World], list]:
    """An experiment on a task of two files, which have one line each."""

    def command(world: World) -> list:
        for name in {train, test} - {"missing.csv"}:
            (world.folder / name).write_text(line)
        task = f"own={world.folder / train},{world.folder / test}"
        return reproduced("pooling", "--tasks", task)(world)

    return command


def in_a_foreign_directory(world: World) -> list:
    (world.folder / "notes.txt").write_text("mine")
    return [*reproduced("pooling")(world), "--output", str(world.folder)]


def begun_with_other_options(world: World) -> list:
    (world.folder / "begun").mkdir()
    (world.folder / "begun" / "protocol.json").write_text(
        '{"options": {"tasks": []}, "inputs": {}}'
    )
    return [*reproduced("pooling")(world), "--output", str(world.folder / "begun")]


CASES = [
    Case(
        "reproduce-unknown",
        reproduced("poolin"),
        ("experiment=poolin ", "did you mean 'pooling'?"),
    ),
    Case("reproduce-size-at-toy", reproduced("size"), ("2e+15", "--budget small")),
    Case(
        "reproduce-budget",
        reproduced("pooling", "--budget", "huge"),
        ("--budget=huge", "toy, small, base"),
    ),
    Case(
        "reproduce-without-text",
        lambda world: [
            *("reproduce", "pooling", "--budget", "small", "--yes"),
            *("--output", str(world.folder / "new")),
        ],
        ("FLOPs a run need --input",),
    ),
    Case(
        "reproduce-no-such-text",
        reproduced("pooling", "--input", "/nonexistent/*.txt"),
        ("/nonexistent/*.txt",),
    ),
    Case(
        "reproduce-no-tokenizer",
        reproduced("pooling", "--tokenizer", "/nonexistent"),
        ("/nonexistent",),
    ),
    Case(
        "reproduce-microbatches",
        reproduced("pooling", "--microbatches", "3"),
        ("batch_size=32", "3 microbatches"),
    ),
    Case("reproduce-unasked", reproduced("pooling", yes=False), ("--yes",)),
    Case(
        "reproduce-task",
        reproduced("pooling", "--tasks", "own.csv"),
        ("tasks='own.csv'", "NAME=TRAIN,TEST"),
    ),
    Case(
        "reproduce-task-twice",
        reproduced("pooling", "--tasks", "libraries", "libraries"),
        ("libraries libraries", "give each its own"),
    ),
    Case(
        "reproduce-task-file",
        on_files("train.csv", "missing.csv", "text,label\n"),
        ("missing.csv is missing",),
    ),
    Case(
        "reproduce-task-columns",
        on_files("train.csv", "test.csv", "review,who\nGood,me\n"),
        ("train.csv", "text"),
    ),
    Case(
        "reproduce-features-of-tags",
        on_files("train.conll", "test.conll", "The O\njudge B-WHO\n"),
        ("no task of texts", "such as libraries"),
    ),
    Case("reproduce-foreign-directory", in_a_foreign_directory, ("not an empty",)),
    Case(
        "reproduce-other-options",
        begun_with_other_options,
        ("other options", "name another --output"),
    ),
]

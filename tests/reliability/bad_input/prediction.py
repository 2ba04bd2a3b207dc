"""Bad inputs: options of `predict`."""

from collections.abc import Callable

from bad_case import Case, World
from huggingface_files import stored
from option_commands import words
from task_commands import file


def predicted(*options: str, output: str = "") -> Callable[[World], list]:
    """Predictions of the good table by the good classifier."""
    return lambda world: [
        *("predict", "--model", str(world.classifier)),
        *("--input", str(world.table), *options),
        *(["--output", str(world.folder / output)] if output else []),
    ]


def over(*inputs: str, output: str) -> Callable[[World], list]:
    """Predictions of these files by the good classifier."""
    return lambda world: [
        *("predict", "--model", str(world.classifier), "--input", *inputs),
        *("--output", str(world.folder / output)),
    ]


CASES = [
    Case(
        "predict-output-of-another-kind",
        predicted(output="a.xlsx"),
        ("a.xlsx must end in .jsonl or .csv or .parquet",),
    ),
    Case(
        "predict-output-in-no-directory",
        predicted(output="none/a.csv"),
        ("none is not a directory; make it first",),
    ),
    Case(
        "predict-threshold-beyond-1",
        predicted("--threshold", "40"),
        ("threshold=40.0 must be from 0 to 1",),
    ),
    Case(
        "predict-threshold-of-three-classes",
        lambda world: [
            *("predict", "--model"),
            str(stored("BertForSequenceClassification").write(world.folder / "model")),
            *("--input", str(world.table), "--threshold", "0.4"),
        ],
        ("threshold=0.4 is for texts with two classes", "and 3 classes. Leave it out"),
    ),
    Case(
        "predict-columns",
        predicted("--columns", "revew", output="a.csv"),
        ("has no revew", "Did you mean review?"),
    ),
    *(
        Case(
            f"predict-{name}-without-directory",
            predicted(*option, output="a.csv"),
            (says, "needs a directory as output"),
        )
        for name, option, says in [
            ("beam", ("--engine", "beam"), "engine=beam"),
            ("format", ("--format", "csv"), "format=csv"),
        ]
    ),
    Case(
        "predict-several-files-into-one",
        over("a", "b", output="a.csv"),
        ("input names 2 files, and output=", "name a directory"),
    ),
    Case(
        "predict-damaged-shard",
        lambda world: [
            *("predict", "--model", str(world.classifier)),
            *("--input", file(world, "a.jsonl.gz", b"no gzip")),
            *("--output", str(world.folder / "out")),
        ],
        ("a.jsonl.gz is damaged or not gzip", "--skip-damaged"),
    ),
    Case(
        "predict-no-shard",
        over("absent-*.jsonl", output="out"),
        ("'absent-*.jsonl' matches no file",),
    ),
    *(
        Case(
            f"{verb}-delimiter",
            words(verb, "x", *options.split(), "--delimiter", ";;"),
            ("delimiter=';;' must be a character such as ; or |, or tab.",),
        )
        for verb, options in {
            "embed": "--input a.csv --output out",
            "search": "--query a --corpus a.csv",
        }.items()
    ),
    Case(
        "embed-text-column",
        lambda world: [
            *("embed", "--model", str(world.encoder), "--text-column", "txt"),
            *("--input", file(world, "a.jsonl", '{"text": "a"}\n')),
            *("--output", str(world.folder / "out")),
        ],
        ("a.jsonl, line 1 has no txt", "text? Name the column by --text-column."),
    ),
    Case(
        "embed-of-nothing",
        lambda world: ["embed", "--model", str(world.encoder)],
        ("embed needs", "--input", "--output"),
    ),
]

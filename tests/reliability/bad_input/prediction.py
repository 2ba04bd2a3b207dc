"""Bad inputs: options of `predict`."""

from collections.abc import Callable

from bad_case import Case, World


def predicted(*options: str, output: str = "") -> Callable[[World], list]:
    """Predictions of the good table by the good classifier."""
    return lambda world: [
        *("predict", "--checkpoint", str(world.classifier)),
        *("--input", str(world.table), *options),
        *(["--output", str(world.folder / output)] if output else []),
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
        "predict-columns",
        predicted("--columns", "revew", output="a.csv"),
        ("has no revew", "Did you mean review?"),
    ),
]

"""Bad inputs: the summary of a model."""

from collections.abc import Callable

from bad_case import Case, World


def summary(*options: str) -> Callable[[World], list[str]]:
    """`inspect RUN --summary` of the good run, with more options."""
    return lambda world: ["inspect", str(world.run), "--summary", *options]


CASES = [
    Case(
        "summary-of-rows-too-long",
        summary("--sequence-length", "9999"),
        ("sequence_length=9999 must be from 1 to the model's max_position_emb",),
    ),
    Case(
        "summary-of-rows-of-less-than-nothing",
        summary("--sequence-length", "-1"),
        ("sequence_length=-1 must be from 1 to",),
    ),
    Case(
        "summary-with-verify",
        summary("--verify"),
        ("verify=True has no effect with summary",),
    ),
    Case(
        "summary-with-report",
        summary("--output", "a.html"),
        ("output='a.html' has no effect with summary",),
    ),
    Case(
        "sequence-length-without-summary",
        lambda world: ["inspect", str(world.run), "--sequence-length", "8"],
        ("sequence_length=8 has no effect without summary; pass --summary too",),
    ),
    Case(
        "summary-of-a-dataset",
        lambda world: ["inspect", str(world.dataset), "--summary"],
        ("rows is a dataset; --summary describes a model",),
    ),
]

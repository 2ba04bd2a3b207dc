"""Bad inputs: forks of a run, and the mean of its checkpoints."""

from collections.abc import Callable

from bad_case import Case, World


def forked(*options: str) -> Callable[[World], list[str]]:
    """A fork of the good run, whose checkpoints are those of steps 8 and 10."""
    return lambda world: [
        *("fork", str(world.run), "--output", str(world.folder / "new"), *options)
    ]


def averaged(*steps: str) -> Callable[[World], list[str]]:
    """A mean of checkpoints of the good run."""
    return lambda world: [
        *("convert", "average", str(world.run), "--steps", *steps),
        *("--output", str(world.folder / "mean")),
    ]


CASES = [
    Case(
        "fork-without-a-checkpoint",
        forked("--at", "9"),
        ("no complete checkpoint of step 9", "8, 10"),
    ),
    Case("fork-past-the-end", forked("--at", "11"), ("of step 11", "8, 10")),
    Case("fork-at-the-end", forked("--at", "10"), ("num_steps=10", "--num-steps")),
    Case("fork-seed", forked("--at", "8", "--seed", "1"), ("seed=1", "random keys")),
    Case(
        "fork-batch-size",
        forked("--at", "8", "--batch-size", "16"),
        ("batch_size=16", "the rows of each step"),
    ),
    Case(
        "fork-unknown-option",
        forked("--at", "8", "--masking.rat", "0.3"),
        ("did you mean --masking.rate?",),
    ),
    Case(
        "fork-data-gone",
        forked("--at", "8", "--data.path", "/nonexistent"),
        ("The data of", "are gone", "--data.path"),
    ),
    Case(
        "fork-of-no-workdir",
        lambda world: [
            *("fork", str(world.table), "--at", "8"),
            *("--output", str(world.folder / "new")),
        ],
        ("is not the workdir of a run",),
    ),
    Case("average-of-one", averaged("8"), ("--steps has 8", "two or more")),
    Case("average-missing", averaged("8", "9"), ("of step 9", "8, 10")),
    Case("average-twice", averaged("8", "8"), ("a step twice", "give each once")),
]

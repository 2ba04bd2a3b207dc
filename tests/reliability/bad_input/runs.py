"""Bad inputs: lengths of rows, and the directories of several runs."""

import json
from collections.abc import Callable
from pathlib import Path

from bad_case import Case, World
from task_commands import GOOD, Command, answered, file, finetune, squad

LENGTHS = [
    Case(
        "F2-stride-of-a-short-model",
        lambda world: [*squad(answered())(world), "--data.document-stride", "31"],
        ("document_stride=31 must be at most 21", "pass --data.document-stride 10."),
        # What was read before is kept for the next try.
        leaves=lambda world: {"run", "run/examples"},
    ),
    Case(
        "F2-workdir-that-cannot-be-made",
        finetune(GOOD, "--workdir", "/proc/nothing/run"),
        ("/proc/nothing/run cannot be written: /proc: ", "choose another output"),
    ),
    Case(
        "F2-max-length-beyond-the-model",
        finetune(GOOD, "--data.max-length", "64"),
        ("data.max_length=64 but the model has 32 positions; pass at most that",),
    ),
]


def several_runs(world: World, name: str, best: str) -> str:
    """A directory of runs whose `runs.json` holds one of this name."""
    run = {"name": name, "setting": "s", "seed": 0, "scores": {"accuracy": 0.5}}
    values = {"config": {}, "best": best, "runs": [run]}
    return file(world, "runs.json", json.dumps(values))


def predict_of_runs(name: str, best: str) -> Command:
    """Ask the best of several runs."""

    def command(world: World) -> list[str]:
        several_runs(world, name, best)
        where = ("--model", str(world.folder))
        return ["predict", *where, "--input", file(world, "a.txt", "a\n")]

    return command


def tuned_again(world: World) -> list[str]:
    """Several runs in a directory whose `runs.json` names one outside of it."""
    several_runs(world, "../other", "../other")
    command = finetune(GOOD, "--seeds", "2")(world)
    command[command.index("--workdir") + 1] = str(world.folder)
    return command


RUNS = [
    Case(
        "C2-best-run-elsewhere",
        predict_of_runs("../other", "../other"),
        ("runs.json lists ", "../other", "restore it from a copy"),
    ),
    Case(
        "C2-best-run-is-none",
        predict_of_runs("rate_1", "rate_2"),
        ("runs.json calls 'rate_2' the best, which is none of its runs",),
    ),
    Case("C2-run-elsewhere-is-not-removed", tuned_again, ("runs.json lists ",)),
    Case(
        "C2-runs-that-are-no-json",
        lambda world: [
            *("predict", "--model", str(world.folder)),
            *("--input", file(world, "runs.json", "{")),
        ],
        ("runs.json is not JSON that can be read",),
    ),
]


def report_of(place: Callable[[World], Path], *options: str) -> Command:
    """The web page of what lies at a place, `WORLD` being the case's own folder."""
    return lambda world: [
        *("inspect", str(place(world))),
        *(option.replace("WORLD", str(world.folder)) for option in options),
    ]


PAGE = ("--output", "WORLD/page.html")
REPORTS = [
    Case(
        "report-of-another-suffix",
        report_of(lambda world: world.run, "--output", "WORLD/page.pdf"),
        ("page.pdf must end in .html",),
    ),
    Case(
        "report-in-a-bucket",
        report_of(lambda world: world.run, "--output", "gs://bucket/page.html"),
        ("bucket/page.html is an address", "only a local file", "copy it"),
    ),
    Case(
        "report-in-no-directory",
        report_of(lambda world: world.run, "--output", "WORLD/no/page.html"),
        ("no is not a directory; make it first",),
    ),
    Case(
        "report-and-verify",
        report_of(lambda world: world.run, *PAGE, "--verify"),
        ("verify=True has no effect with output=", "page.html", "one command for each"),
    ),
    *(
        Case(
            f"report-of-{name}",
            report_of(place, *PAGE),
            ("is not the workdir of a run", "`bert-jax pretrain` or `finetune`"),
        )
        for name, place in {
            "a-dataset": lambda world: world.dataset,
            "a-checkpoint": lambda world: world.run / "checkpoints" / "10",
            "an-imported-checkpoint": lambda world: world.encoder,
            "nothing": lambda world: world.folder / "absent",
        }.items()
    ),
    Case(
        "report-of-several-runs",
        lambda world: (
            several_runs(world, "rate_1", "rate_1")
            and ["inspect", str(world.folder), "--output", str(world.folder / "p.html")]
        ),
        ("rate_1 is not the workdir of a run", "`bert-jax pretrain` or `finetune`"),
    ),
]


def tokenized(world: World) -> set[str]:
    """The tokenized examples, which are kept for the next try, and nothing else."""
    files = (world.folder / "run" / "examples").glob("*.npz")
    return {"run", "run/examples", *(f"run/examples/{path.name}" for path in files)}


TEACHERS = [
    Case(
        "teacher-missing",
        finetune(GOOD, "--teacher", "/nonexistent/model"),
        ("/nonexistent/model does not exist; name a workdir",),
        leaves=tokenized,
    ),
    Case(
        "teacher-of-another-task",
        lambda world: finetune(GOOD, "--teacher", str(world.encoder))(world),
        ("has head=", "fine-tune the teacher on the same task and classes"),
        leaves=tokenized,
    ),
    Case(
        "distillation-without-teacher",
        finetune(GOOD, "--distillation.temperature", "3"),
        ("distillation.temperature=3.0 has no effect without a teacher", "--teacher"),
    ),
]

CASES = [*LENGTHS, *RUNS, *REPORTS, *TEACHERS]

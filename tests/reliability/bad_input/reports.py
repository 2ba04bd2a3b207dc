"""Bad inputs: where the report of `evaluate` is written, and what it is of."""

from bad_case import Case, World
from task_commands import Command, file


def report(name: str, content: str = "review,who\na,judge\n") -> Command:
    """Write the report of the small classifier for a file of this content."""

    def command(world: World) -> list[str]:
        data = ["--input", file(world, "new.csv", content)]
        path = name.replace("FOLDER", str(world.folder))
        where = ["evaluate", "--model", str(world.classifier), *data]
        return [*where, "--output", path]

    return command


def over_a_directory(world: World) -> list[str]:
    """The .json beside the page is a directory."""
    (world.folder / "report.json").mkdir()
    return report("FOLDER/report.html")(world)


CASES = [
    Case(
        "evaluate-report-suffix", report("FOLDER/r.pdf"), ("r.pdf must end in .html",)
    ),
    Case(
        "evaluate-report-in-no-directory",
        report("FOLDER/no/r.html"),
        ("no is not a directory; make it first",),
    ),
    Case(
        "evaluate-report-where-nothing-can-be-made",
        report("/proc/r.html"),
        ("/proc cannot be written", "choose another output"),
    ),
    Case(
        "evaluate-report-in-a-bucket",
        report("gs://bucket/r.html"),
        ("bucket/r.html is an address", "copy it to the bucket"),
    ),
    Case(
        "evaluate-report-over-a-directory",
        over_a_directory,
        ("report.json is a directory; name a file to write",),
    ),
    Case(
        "evaluate-report-without-labels",
        report("FOLDER/r.html", "review\na\n"),
        ("new.csv has no labels", "leave out the page of --output"),
    ),
    Case(
        "evaluate-report-of-an-unknown-class",
        report("FOLDER/r.html", "review,who\na,king\n"),
        ("new.csv, line 2: 'king' is none of the classes",),
    ),
]

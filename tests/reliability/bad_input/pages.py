"""Bad inputs: models, steps and outputs of a web page that fills masks."""

from collections.abc import Callable

from bad_case import Case, World


def page(
    *options: str, model: str = "run", output: str = "p.html"
) -> Callable[[World], list[str]]:
    """An export of one of the good models."""
    return lambda world: [
        *("convert", "export", "--to", "page", str(getattr(world, model))),
        *("--output", str(world.folder / output), *options),
    ]


CASES = [
    Case("page-of-a-classifier", page(model="classifier"), ("no masked_lm head",)),
    Case("page-of-an-encoder", page(model="encoder"), ("no masked_lm head",)),
    Case("page-of-a-table", page(model="table"), ("table",)),
    Case("page-suffix", page(output="page.txt"), ("page.txt must end in .html",)),
    Case(
        "page-in-a-bucket",
        lambda world: [
            *("convert", "export", "--to", "page", str(world.run)),
            *("--output", "gs://bucket/page.html"),
        ],
        ("bucket/page.html is an address", "copy it to the bucket"),
    ),
    Case("page-folder", page(output="no/p.html"), ("no is not a directory",)),
    Case("page-step", page("--steps", "8", "9"), ("step 9", "8, 10")),
    Case("page-step-twice", page("--steps", "8", "8"), ("a step twice", "once")),
    Case(
        "page-steps-of-no-workdir",
        page("--steps", "8", model="encoder"),
        ("is not the workdir of a run",),
    ),
    Case(
        "page-batch-size",
        page("--batch-size", "2"),
        ("batch_size=2 needs --to stablehlo",),
    ),
]

"""Bad inputs: configuration files and options."""

from bad_case import Case, World


def config_file(world: World, text: str) -> str:
    """A configuration file with these lines after its imports."""
    path = world.folder / "config.py"
    path.write_text("import dataclasses\nfrom bert_jax.config import *\n" + text + "\n")
    return str(path)


CASES = [
    Case(
        "B-masking-unit",
        lambda world: [
            "pretrain",
            config_file(
                world,
                "config = PretrainConfig(masking=MaskingConfig(unit='whole-word'))",
            ),
            "--workdir",
            str(world.folder / "run"),
            "--data.path",
            str(world.dataset),
        ],
        ("unit='whole-word'", "whole_word"),
    ),
]

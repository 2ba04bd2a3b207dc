"""`prepare` and `vocab` on the good corpus, for the rows of bad inputs."""

import shutil
from collections.abc import Callable
from pathlib import Path

from bad_case import World


def prepare(world: World, *more: str, **changes: str) -> list[str]:
    """`prepare`, with good options but for the changes."""
    options = {
        "input": str(world.corpus / "a.txt"),
        "tokenizer": str(world.tokenizer),
        "output": str(world.folder / "out"),
        "sequence-length": "32",
        "workers": "1",
    } | {name.replace("_", "-"): value for name, value in changes.items()}
    return ["prepare", *words(options), *more]


def vocab(world: World, **changes: str) -> list[str]:
    options = {
        "input": str(world.corpus / "a.txt"),
        "output": str(world.folder / "out"),
        "vocab-size": "100",
    } | {name.replace("_", "-"): value for name, value in changes.items()}
    return ["vocab", *words(options)]


def words(options: dict[str, str]) -> list[str]:
    return [word for name, value in options.items() for word in (f"--{name}", value)]


def with_vocabulary(damage: Callable[[Path], object]) -> Callable[[World], list[str]]:
    """`prepare` with a damaged copy of the vocabulary."""

    def command(world: World) -> list[str]:
        folder = world.folder / "vocabulary"
        shutil.copytree(world.tokenizer, folder)
        damage(folder)
        return prepare(world, tokenizer=str(folder))

    return command

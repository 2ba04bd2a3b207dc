"""One row of the table of bad inputs, and how it is run."""

import contextlib
import dataclasses
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from bert_jax.cli.main import main


@dataclasses.dataclass(frozen=True)
class World:
    """Good files that a case may name or copy; it never changes them.

    What a case changes, it first copies into `folder`, its own empty directory.
    """

    folder: Path
    corpus: Path
    """Three text files."""
    tokenizer: Path
    """A WordPiece vocabulary of `small_world.VOCAB_SIZE` tokens."""
    dataset: Path
    """Rows of 32 tokens."""
    run: Path
    """Workdir of a pretraining run of ten steps, its checkpoints at 8 and 10."""
    classifier: Path
    """Workdir of a fine-tuned text classifier, column `review`, label `who`."""
    table: Path
    """A CSV file with columns `review` and `who`."""
    encoder: Path
    """An imported checkpoint: an encoder and pooler, no optimizer."""


@dataclasses.dataclass(frozen=True)
class Case:
    """A command that must end with one line, `code`, and nothing half-written."""

    name: str
    """Of the test: begins with the line of the issue it proves, as `D-vocab-size`."""
    command: Callable[[World], list[str]]
    """Makes the bad files in `world.folder`, and returns the command line."""
    says: tuple[str, ...]
    """What the line on standard error holds: what, where, the rule or the remedy."""
    code: int = 2
    leaves: Callable[[World], set[str]] | None = None
    """Paths below `folder` that the command may add; None: it must add none."""
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    process: bool = False
    """Run as a process of its own: where the environment or the start matters."""
    slow: bool = False
    """Left out by `make test`: seconds for what another case shows of another verb."""


def files_in(folder: Path) -> dict[str, bytes | None]:
    """Every path below `folder`, with the bytes of the regular files."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def run_here(arguments: list[str]) -> tuple[int, str]:
    """Exit code and standard error of the command line, in this process."""
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        code = main(arguments)
    return code, errors.getvalue()


@contextlib.contextmanager
def environment(changes: dict[str, str]) -> Iterator[None]:
    """`os.environ` with `changes`, put back at the end."""
    before = dict(os.environ)
    os.environ.update(changes)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)

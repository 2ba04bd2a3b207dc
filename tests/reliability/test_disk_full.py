"""A full disk: one line that names a path, nothing that reads as whole, and recovery.

Once there is space again, the same command gives what it would have given at first.
"""

import dataclasses
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet
from run_helpers import (
    assert_same_arrays,
    assert_same_run,
    is_verified,
    steps,
    write_config,
)
from runs import Process, run, saves_often, started, wait_until
from small_disk import Disk, small_disk
from test_first_save import tuning

from bert_jax.config import PretrainConfig, RunConfig

KIB = 1 << 10


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with small_disk(tmp_path / "disk") as disk:
        yield disk


def check_refused(process: Process, disk: Disk, codes: tuple[int, ...]) -> None:
    """It ended with one line, which names a path on the disk.

    Before it a logger, whose file is on the disk too, may have said that it stops.
    """
    code, error = process.code(), process.stderr()
    assert code in codes, error[-3000:]
    error = re.sub(
        r"\Areport=tensorboard stops here: .* The run goes on\.\n", "", error
    )
    assert error.startswith("bert-jax: ") and error.count("\n") == 1, error[-3000:]
    assert str(disk.folder) in error, error


def content(folder: Path) -> dict[str, bytes]:
    """The bytes of every file."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def assert_same_content(ours: Path, theirs: Path) -> None:
    """The same files; of a checkpoint, whose files are named at random, the arrays."""
    if not (theirs / "state").exists():
        assert content(ours) == content(theirs)
        return
    assert is_verified(ours) and is_verified(theirs)
    assert_same_arrays(ours, theirs, "state")
    for name in ("config.json", "tokenizer/vocab.txt"):
        assert (ours / name).read_bytes() == (theirs / name).read_bytes()


@dataclasses.dataclass(frozen=True)
class Made:
    """A command that makes a directory whole or not at all."""

    arguments: tuple[str, ...]
    """Without --output."""

    def check(self, disk: Disk, free: int, logs: Path) -> None:
        """Run it on a full disk, and again with space; compare with a disk never full.

        Args:
            free: bytes left on the full one.
        """
        wanted = logs / "wanted"
        run([*self.arguments, "--output", str(wanted)], logs / "first")
        command = [*self.arguments, "--output", str(disk.folder / "out")]
        disk.fill(free)
        with started(command, logs / "full", disk.prefix) as process:
            check_refused(process, disk, (2,))
        disk.release()
        # `prepare` goes on with what it left, which opens as nothing.
        left = content(disk.seen)
        assert not left or "prepare" in command, sorted(left)
        assert "out/manifest.json" not in left
        with started(command, logs / "again", disk.prefix) as process:
            assert process.code() == 0, process.stderr()
        shutil.copytree(disk.seen / "out", logs / "copy")
        assert_same_content(logs / "copy", wanted)


QUICK = [("prepare", 16)]
MORE = [
    ("vocab", 4),
    ("vocab", 0),
    ("prepare", 0),
    ("prepare", 36),
    ("import", 0),
    ("import", 64),
    ("export", 8),
]


def whole(points: Iterable[tuple[object, ...]]) -> list[ParameterSet]:
    """The points of the whole count."""
    return [pytest.param(*point, marks=pytest.mark.reliability) for point in points]


@pytest.mark.parametrize(("verb", "free"), [*QUICK, *whole(QUICK + MORE)])
def test_D_a_directory_is_made_whole_or_not_at_all(
    verb: str,
    free: int,
    corpus: Path,
    tokenizer_directory: Path,
    pretrained: Path,
    disk: Disk,
    tmp_path: Path,
    record_row: Callable[..., None],
):
    text = ("--input", f"{corpus}/*.txt")
    arguments: tuple[str, ...]
    if verb == "vocab":
        arguments = ("vocab", *text, "--vocab-size", "160")
    elif verb == "prepare":
        sizes = ("--sequence-length", "32", "--workers", "1")
        tokenizer = ("--tokenizer", str(tokenizer_directory))
        arguments = ("prepare", *text, *tokenizer, *sizes)
    else:
        exported = ("convert", "export", str(pretrained), "--to", "huggingface")
        arguments = exported
        if verb == "import":
            source = str(tmp_path / "exported")
            run([*exported, "--output", source], tmp_path / "export")
            arguments = ("convert", "import", source, "--from", "huggingface")
    Made(arguments).check(disk, free * KIB, tmp_path)
    record_row("disk full", 1, "one line, then the same", "all so")


def check_nothing_half_written(workdir: Path) -> None:
    """Every checkpoint with a manifest agrees with it."""
    for step in steps(workdir):
        folder = workdir / "checkpoints" / str(step)
        assert is_verified(folder) or not (folder / "manifest.json").exists()


def fill_during(process: Process, disk: Disk, workdir: Path, free: int) -> None:
    """Fill the disk when the run has its first whole checkpoint."""
    manifest = workdir / "checkpoints" / "3" / "manifest.json"
    assert wait_until(manifest.exists, process)
    disk.fill(free)


BEFORE = [0, 8, 16, 40, 96, 256, 400, 550]
DURING = [0, 64]
RUNS = [
    *[("pretrain", free, False) for free in BEFORE],
    *[("pretrain", free, True) for free in DURING],
    *[("finetune", free, False) for free in (24, 400)],
]


@pytest.mark.parametrize(("verb", "free", "during"), whole(RUNS))
def test_E_a_run_ends_with_a_path_and_goes_on(
    verb: str,
    free: int,
    during: bool,
    small_config: PretrainConfig,
    pretrained: Path,
    reviews: Path,
    disk: Disk,
    tmp_path: Path,
    record_row: Callable[..., None],
):
    config: RunConfig = saves_often(small_config, 12)
    if verb == "finetune":
        config = tuning(small_config, pretrained, reviews)
    file = write_config(config, tmp_path / "config.py")
    arguments = [verb, str(file), "--workdir"]
    never_full = tmp_path / "never_full"
    run([*arguments, str(never_full)], tmp_path / "never")
    command = [*arguments, str(disk.folder / "run")]
    workdir = disk.seen / "run"
    if not during:
        disk.fill(free * KIB)
    with started(command, tmp_path / "full", disk.prefix) as process:
        if during:
            fill_during(process, disk, workdir, free * KIB)
        process.code()
        check_refused(process, disk, (1,) if steps(workdir) else (1, 2))
    check_nothing_half_written(workdir)
    disk.release()
    with started(command, tmp_path / "again", disk.prefix) as process:
        assert process.code() == 0, process.stderr()
    shutil.copytree(workdir, tmp_path / "copy")
    assert_same_run(tmp_path / "copy", never_full)
    record_row("disk full", 1, "one line, then the same", "all so")

"""What can happen to a file on a disk, and to what lies around it."""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from mutations import flip

Damage = Callable[[Path, Path, random.Random], None]
"""Takes the file, another one of the same directory, and what draws."""


def _replace(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def empty(path: Path, other: Path, dice: random.Random) -> None:
    path.write_bytes(b"")


def halve(path: Path, other: Path, dice: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def shorten(path: Path, other: Path, dice: random.Random) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def append(path: Path, other: Path, dice: random.Random) -> None:
    path.write_bytes(path.read_bytes() + dice.choice((b"\0", b"\n", b" ", b"{}")))


def zero(path: Path, other: Path, dice: random.Random) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def remove(path: Path, other: Path, dice: random.Random) -> None:
    path.unlink()


def swap(path: Path, other: Path, dice: random.Random) -> None:
    ours, theirs = path.read_bytes(), other.read_bytes()
    path.write_bytes(theirs)
    other.write_bytes(ours)


def overwrite(path: Path, other: Path, dice: random.Random) -> None:
    path.write_bytes(other.read_bytes())


def directory(path: Path, other: Path, dice: random.Random) -> None:
    path.unlink()
    path.mkdir()


def dangling_link(path: Path, other: Path, dice: random.Random) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def link_to_device(path: Path, other: Path, dice: random.Random) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def link_to_itself(path: Path, other: Path, dice: random.Random) -> None:
    path.unlink()
    path.symlink_to(path.name)


def fifo(path: Path, other: Path, dice: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


def rename(path: Path, other: Path, dice: random.Random) -> None:
    path.rename(path.with_name(path.name + ".bak"))


def add(path: Path, other: Path, dice: random.Random) -> None:
    path.with_name("extra").write_bytes(b"\0" * 9)


def remove_folder(path: Path, other: Path, dice: random.Random) -> None:
    for file in list(path.parent.iterdir()):
        _replace(file)
    path.parent.rmdir()


DAMAGES: tuple[Damage, ...] = (
    empty,
    halve,
    shorten,
    append,
    zero,
    remove,
    swap,
    overwrite,
    directory,
    dangling_link,
    link_to_device,
    link_to_itself,
    fifo,
    rename,
    add,
    remove_folder,
)


def flip_bit(path: Path, other: Path, dice: random.Random) -> None:
    path.write_bytes(flip(path.read_bytes(), dice))

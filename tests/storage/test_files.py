"""Files that are written completely or not at all, and locks of outputs."""

import resource
from pathlib import Path

import pytest

from bert_jax.storage.atomic import atomic_directory, local_output, require_new
from bert_jax.storage.file_lock import lock_file
from bert_jax.storage.files import (
    atomic_file,
    atomic_write,
    remove_temporaries,
    require_writable,
    temporary_beside,
    write_lines,
)
from bert_jax.storage.remote import open_directory
from bert_jax.tables.write import write_rows


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def write_half(path: Path) -> None:
    with atomic_file(path) as temporary:
        temporary.write_text("half of the new")
        assert path.read_text() == "old file"
        raise KeyError


def test_an_error_keeps_the_old_file(tmp_path):
    path = tmp_path / "a"
    atomic_write(path, b"old", memoryview(b" file"))
    with pytest.raises(KeyError):
        write_half(path)
    assert path.read_text() == "old file" and names(tmp_path) == ["a"]
    with atomic_file(path) as temporary:
        temporary.write_text("new")
    assert path.read_text() == "new" and names(tmp_path) == ["a"]


@pytest.fixture
def full_disk():
    """No file may be larger than a hundred bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.tsv"])
def test_a_full_disk_leaves_no_half_of_a_file_and_is_named(name, tmp_path, full_disk):
    path, rows = tmp_path / name, [{"text": "a row"}] * 99
    with pytest.raises(OSError, match=f"{name} cannot be written: File too large; fre"):
        write_rows([rows], path) if name != "a.tsv" else write_lines("ab" * 99, path)
    assert not names(tmp_path)


def test_what_killed_processes_left_is_removed(tmp_path):
    for name in ("a.0123abcd.tmp", "b.0123abcd.tmp", "a.tmp", "a.0123ABCD.tmp"):
        (tmp_path / name).touch()
    with temporary_beside(tmp_path / "a") as temporary:
        temporary.touch()
        remove_temporaries(tmp_path, "a")
        assert not temporary.exists()
    assert names(tmp_path) == ["a.0123ABCD.tmp", "a.tmp", "b.0123abcd.tmp"]
    remove_temporaries(tmp_path)
    assert names(tmp_path) == ["a.0123ABCD.tmp", "a.tmp"]


def test_one_process_holds_a_lock(tmp_path):
    path, message = tmp_path / "lock", "output=out is being written by another process"
    with path.open("w") as first, path.open("w") as second:
        lock_file(first, "out")
        with pytest.raises(FileExistsError, match=message):
            lock_file(second, "out")
        first.close()
        lock_file(second, "out")
    with path.open("w") as late:
        path.unlink()  # by the process that held it
        with pytest.raises(FileExistsError, match=message):
            lock_file(late, "out")


@pytest.mark.parametrize(
    "opened", [local_output, open_directory, require_writable], ids=lambda f: f.__name__
)
def test_no_directory_is_named_as_the_home(opened, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ValueError, match=f"~/a begins .* in full: {tmp_path}/a"):
        opened("~/a")


def test_a_directory_that_cannot_be_replaced_is_refused(tmp_path, monkeypatch):
    """Before any work; a link to an empty one stays, and that is filled."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileExistsError, match="is the current directory, and cannot"):
        require_new(local_output("."))
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with atomic_directory(local_output(tmp_path / "link")) as directory:
        (directory / "a").write_text("a")
    assert (tmp_path / "link").is_symlink()
    assert names(tmp_path / "real") == ["a"] and names(tmp_path) == ["link", "real"]
    monkeypatch.setattr("os.path.ismount", lambda path: path.name == "volume")
    with pytest.raises(FileExistsError, match="is where a volume is mounted"):
        require_new(local_output(tmp_path / "volume"))

"""The time-out with which a run opens its devices, and errors of one process."""

import os
import re
import subprocess
import sys
import time

import jax
import numpy as np
import pytest
from etils import epath
from jax.experimental import multihost_utils

from bert_jax.distributed.collectives import raise_on_all_processes
from bert_jax.distributed.startup import exit_after, open_workdir
from bert_jax.runs.workdir import start_scores
from bert_jax.terminal.messages import explain

PROGRAM = """
import time
from bert_jax.distributed.startup import exit_after

def open_devices():
    time.sleep(60)

with exit_after(0.2, "the devices were not opened"):
    open_devices()
"""


@pytest.mark.filterwarnings("error")
def test_what_takes_too_long_ends_with_its_message_and_its_stack():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    message, stack = done.stderr.split("\n", 1)
    assert message == "the devices were not opened" and "open_devices" in stack


def test_what_is_over_in_time_goes_on(capfd):
    with exit_after(0.1, "too late"):
        pass
    time.sleep(0.2)
    assert capfd.readouterr().err == ""


def test_a_workdir_whose_name_is_not_utf_8_is_refused(tmp_path):
    """Orbax ended the run at its first checkpoint, by an error without the cause."""
    path = tmp_path / os.fsdecode(b"\xff")
    with pytest.raises(ValueError, match="has a name that is not UTF-8, .* choose an"):
        open_workdir(path)
    assert not path.exists()
    with pytest.raises(ValueError, match="workdir is empty; name a directory"):
        open_workdir("")  # the run's files stood in the current directory


def test_the_others_print_the_message_of_the_process_that_fails(monkeypatch, tmp_path):
    """A name that is not UTF-8 ended that process before its barrier: they waited."""
    gathered = []

    def gather(own):
        gathered.append(own)
        return np.stack([own, own])

    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(multihost_utils, "process_allgather", gather)
    path = tmp_path / os.fsdecode(b"\xff.csv")
    with pytest.raises(FileNotFoundError) as caught, raise_on_all_processes():
        path.read_bytes()
    printed, code = explain(caught.value)
    with pytest.raises(ModuleNotFoundError), raise_on_all_processes():
        raise ModuleNotFoundError("No module named 'pyarrow'")
    monkeypatch.setattr(multihost_utils, "process_allgather", lambda _: gathered[:1])
    other = re.escape(f"Process 0 of 2: {printed}")
    with pytest.raises(ValueError, match=f"^{other}$"), raise_on_all_processes():
        pass
    assert "\\udcff.csv: No such file" in printed and code == 2
    assert [row[0] for row in gathered] == [1, 1], "a user's error, as its exit code"


def test_an_end_that_fails_on_one_process_is_told_the_others(monkeypatch, tmp_path):
    """They waited for the scores, and all ended by an abort of JAX's runtime."""
    gathered = []
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(
        multihost_utils, "process_allgather", lambda own: gathered.append(own) or [own]
    )
    with pytest.raises(FileNotFoundError, match=r"config.json is missing"):
        start_scores(epath.Path(tmp_path))
    assert [row[0] for row in gathered] == [1]

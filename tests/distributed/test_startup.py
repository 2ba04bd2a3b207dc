"""The time-out with which a run opens its devices."""

import subprocess
import sys
import time

import pytest

from bert_jax.distributed.startup import exit_after

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

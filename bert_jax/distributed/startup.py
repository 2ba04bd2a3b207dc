"""Connect the processes of a run (usually one per host) and check their set-up."""

import collections
import contextlib
import faulthandler
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
from etils import epath

from bert_jax.config.checks import require
from bert_jax.config.serialization import differences
from bert_jax.distributed.collectives import (
    broadcast_from_primary,
    is_primary,
    raise_on_all_processes,
)
from bert_jax.distributed.environment import COORDINATOR, DETECT
from bert_jax.distributed.peer_monitor import start_peer_monitor
from bert_jax.storage.atomic import absolute
from bert_jax.storage.files import JsonObject
from bert_jax.storage.remote import open_directory
from bert_jax.terminal.messages import warn

NUM_PROCESSES = "BERT_JAX_NUM_PROCESSES"
PROCESS_ID = "BERT_JAX_PROCESS_ID"

HEARTBEAT_TIMEOUT = 100
"""Seconds without a heartbeat after which JAX's runtime counts a process as lost."""
SHUTDOWN_TIMEOUT = 30
"""Seconds that a process waits for the others at its end. A run ends on all processes
at once; if one has failed, the others hang in a collective, and this ends them."""

INITIALIZATION_TIMEOUT = 300
"""Default number of seconds within which all processes must connect, and then within
which this process must open its devices."""
_FIRST_MESSAGE_AFTER, _MESSAGE_INTERVAL = 3, 30
"""Seconds of waiting before the first "Waiting for…" line, and between further ones."""
_MAX_INITIALIZATION_TIMEOUT = 7 * 24 * 3600

MAY_DIFFER = ("data.path", "data.test", "data.train", "data.validation")
"""Config fields that may differ between hosts, each with its own copy of the data."""


def initialize_arguments(environment: Mapping[str, str]) -> dict[str, Any] | None:
    """The arguments of `jax.distributed.initialize`; None for a run of one process.

    Raise ValueError if a variable is missing or has an invalid value.
    """
    names = (COORDINATOR, NUM_PROCESSES, PROCESS_ID)
    given = {name: environment[name] for name in names if environment.get(name)}
    detect = environment.get(DETECT, "") or "0"
    if detect not in ("0", "1"):
        raise ValueError(
            f"{DETECT}={detect} must be 1, for JAX to find the other processes by "
            "itself, or 0."
        )
    if not given:
        return {} if detect == "1" else None
    if missing := [name for name in names if name not in given]:
        raise ValueError(
            f"{' and '.join(given)} without {' and '.join(missing)}: set all three, or "
            f"{DETECT}=1 where JAX can find them by itself."
        )
    check_address(given[COORDINATOR])
    num_processes = _parse_number(given[NUM_PROCESSES])
    process = _parse_number(given[PROCESS_ID])
    if num_processes is None or process is None or process >= num_processes:
        raise ValueError(
            f"{PROCESS_ID}={given[PROCESS_ID][:40]} and "
            f"{NUM_PROCESSES}={given[NUM_PROCESSES][:40]}: the first must be a number "
            "from 0, less than the second."
        )
    return {
        "coordinator_address": given[COORDINATOR],
        "num_processes": num_processes,
        "process_id": process,
        # Do not let JAX mix in Slurm's numbers, if there are any.
        "cluster_detection_method": "deactivate",
    }


def _parse_number(text: str) -> int | None:
    """The number that at most nine ASCII digits give; None for any other text."""
    valid = text.isascii() and text.isdecimal() and len(text) < 10
    return int(text) if valid else None


def check_address(address: str) -> None:
    """Raise ValueError unless the address of process 0 is HOST:PORT."""
    host, _, port = address.rpartition(":")
    name = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    invalid_name = not name or any(c.isspace() or c in "/@[]" for c in name)
    bare_ipv6 = ":" in name and name == host
    if invalid_name or bare_ipv6 or not 0 < (_parse_number(port) or 0) < 2**16:
        raise ValueError(
            f"{COORDINATOR}={address[:200]} must be HOST:PORT of process 0, as in "
            "10.0.0.1:8476 or [fd00::1]:8476, with a port from 1 to 65535."
        )


def start(
    environment: Mapping[str, str], initialization_timeout: int = INITIALIZATION_TIMEOUT
) -> bool:
    """Connect to the other processes of the run, if `environment` names any.

    Call it before any device is used; a second call is a no-op. On CPUs, collectives
    use gloo, JAX's default. All processes must connect within the timeout, in seconds.
    If the devices are then not opened within the same time, the process ends with exit
    code 1. Return whether this is the primary process.

    Raise ValueError if the variables or the timeout are invalid, or processes have
    different numbers of devices, RuntimeError if the others cannot be reached.
    """
    if not 1 <= initialization_timeout <= _MAX_INITIALIZATION_TIMEOUT:
        raise ValueError(
            f"--initialization-timeout={initialization_timeout} must be from 1 to "
            f"{_MAX_INITIALIZATION_TIMEOUT} seconds."
        )
    arguments = initialize_arguments(environment)
    if arguments is not None and not jax.distributed.is_initialized():
        # Otherwise JAX would catch SIGTERM for its own preemption protocol.
        jax.config.update("jax_enable_preemption_service", False)
        _connect(arguments, initialization_timeout)
        start_peer_monitor()
    with exit_after(
        float(initialization_timeout),
        f"bert-jax: the devices were not opened within {initialization_timeout} s "
        "(--initialization-timeout): a driver hangs, or another host of the TPU slice "
        "has not started. The stack of each thread follows; start all processes again.",
    ):
        check_device_counts(jax.devices())
        return is_primary()


def check_device_counts(devices: Sequence[jax.Device]) -> None:
    """Raise ValueError unless all processes have the same number of devices."""
    counts = collections.Counter(device.process_index for device in devices)
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"process {p} has {n}" for p, n in sorted(counts.items()))
        raise ValueError(
            f"The processes have different numbers of devices: {listed:.200}. Give "
            "each the same, as by CUDA_VISIBLE_DEVICES or JAX_NUM_CPU_DEVICES."
        )


@contextlib.contextmanager
def exit_after(seconds: float, message: str) -> Iterator[None]:
    """End the process with exit code 1 if the block takes longer than `seconds`.

    It prints `message` and the stack of each thread. A driver that hangs may hold
    Python's lock: faulthandler's thread does not need it, the message's does.
    """
    timer = threading.Timer(seconds, os.write, (2, f"{message}\n".encode()))
    timer.daemon = True
    timer.start()
    faulthandler.dump_traceback_later(seconds + 1, exit=True, file=2)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        timer.cancel()


def _connect(arguments: dict[str, Any], timeout: int) -> None:
    """Call `jax.distributed.initialize`, and print what it waits for.

    It runs in another thread: in the main thread it would ignore Ctrl-C, and end the
    process with a stack trace at its own timeout.
    """
    errors: list[Exception] = []

    def initialize() -> None:
        try:
            jax.distributed.initialize(
                **arguments,
                initialization_timeout=timeout + SHUTDOWN_TIMEOUT,
                heartbeat_timeout_seconds=HEARTBEAT_TIMEOUT,
                shutdown_timeout_seconds=SHUTDOWN_TIMEOUT,
            )
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=initialize, name="connect", daemon=True)
    deadline = time.monotonic() + timeout
    thread.start()
    thread.join(min(_FIRST_MESSAGE_AFTER, timeout))
    while thread.is_alive():
        if (left := deadline - time.monotonic()) <= 0:
            raise RuntimeError(
                f"The other processes cannot be reached: {_waiting_for(arguments)} for "
                f"{timeout} s. Start all of them within --initialization-timeout, each "
                "with the address and a port of process 0 that its host can reach."
            )
        warn(f"W{_waiting_for(arguments)[1:]}, up to {left:.0f} s more.")
        thread.join(min(_MESSAGE_INTERVAL, deadline - time.monotonic()))
    for error in errors:
        if isinstance(error, ValueError):
            raise ValueError(
                f"{DETECT}=1 but JAX finds no cluster here ({error}); set "
                f"{COORDINATOR}, {NUM_PROCESSES} and {PROCESS_ID}."
            )
        raise RuntimeError(f"The other processes cannot be reached: {error}")


def _waiting_for(arguments: dict[str, Any]) -> str:
    if not arguments:
        return "waiting for the other processes that JAX finds by itself"
    address, process = arguments["coordinator_address"], arguments["process_id"]
    own = f"process {process} of {arguments['num_processes']}"
    if process == 0:
        return f"waiting at {address} for the others ({own})"
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=2):
            return f"waiting for the others at the coordinator {address} ({own})"
    except OSError as error:
        reason = error.strerror or error
        return f"waiting for the coordinator at {address} ({own}; {reason})"


def open_workdir(path: str | os.PathLike[str]) -> epath.Path:
    """Open the workdir; raise ValueError if processes see different directories.

    Or if its path is empty or not UTF-8, before a step that no checkpoint could hold.
    """
    with raise_on_all_processes():
        require(os.fspath(path) != "", "workdir is empty; name a directory.")
        workdir = open_directory(path)
        absolute(workdir)
    if jax.process_count() == 1:
        return workdir
    token = workdir / broadcast_from_primary(f".shared-{secrets.token_hex(8)}")
    try:
        with raise_on_all_processes():
            if is_primary():
                workdir.mkdir(parents=True, exist_ok=True)
                token.touch()
        with raise_on_all_processes():
            if not token.exists():
                raise ValueError(
                    f"workdir={workdir} is not shared: what process 0 writes there is "
                    f"not seen by process {jax.process_index()}. Name a directory "
                    "that all hosts have, or gs://…"
                )
    finally:
        if is_primary():
            token.unlink(missing_ok=True)
    return workdir


def check_same_options(own: JsonObject) -> None:
    """Raise ValueError, with what differs, if processes have different options."""
    primary = broadcast_from_primary(own)
    with raise_on_all_processes():
        changed = [
            f"{name} is {expected!r} and {value!r}"
            for name, expected, value in differences(primary, own)
            if name not in MAY_DIFFER
        ]
        if changed:
            raise ValueError(
                f"Processes 0 and {jax.process_index()} were given different options: "
                f"{'; '.join(changed)}. Start all with the same."
            )

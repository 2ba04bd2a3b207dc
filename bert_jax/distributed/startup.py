"""Several processes, usually one a host, in one run: how they find each other."""

import itertools
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

import jax
from etils import epath

from bert_jax.config import RunConfig
from bert_jax.config.serialization import differences, to_dict
from bert_jax.distributed.collectives import (
    broadcast_from_primary,
    is_primary,
    raise_on_all_processes,
)
from bert_jax.distributed.environment import COORDINATOR, DETECT
from bert_jax.distributed.neighbours import watch
from bert_jax.storage.remote import open_directory

NUM_PROCESSES = "BERT_JAX_NUM_PROCESSES"
PROCESS_ID = "BERT_JAX_PROCESS_ID"

LOST_AFTER = 100
"""Seconds without a sign of life after which a process counts as lost."""
LEAVE_WITHIN = 30
"""Seconds that a process waits for the others at its end: they come together, or one
has failed and the others hang in a collective, which this then ends."""

INITIALIZATION_TIMEOUT = 300
"""Seconds within which all processes must have come, where nothing else is said."""
FIRST_WORD_AFTER, WORD_EVERY = 3, 30
"""Seconds after which the first and each further line tells who is awaited."""
_LONGEST_TIMEOUT = 7 * 24 * 3600

MAY_DIFFER = ("data.path", "data.train", "data.validation")
"""Fields that hosts may give other values: where each has its copy of the same data."""


def addresses(environment: Mapping[str, str]) -> dict[str, Any] | None:
    """What jax.distributed is to be told; None where a run has one process.

    Raises:
        ValueError: some variables are missing, or hold what they cannot.
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
    number, process = _number(given[NUM_PROCESSES]), _number(given[PROCESS_ID])
    if number is None or process is None or process >= number:
        raise ValueError(
            f"{PROCESS_ID}={given[PROCESS_ID][:40]} and "
            f"{NUM_PROCESSES}={given[NUM_PROCESSES][:40]}: the first must be a number "
            "from 0, less than the second."
        )
    return {
        "coordinator_address": given[COORDINATOR],
        "num_processes": number,
        "process_id": process,
        # Slurm's own numbers, where there are any, must not be mixed in.
        "cluster_detection_method": "deactivate",
    }


def _number(text: str) -> int | None:
    """A number in plain digits, or None."""
    plain = text.isascii() and text.isdecimal() and len(text) < 10
    return int(text) if plain else None


def check_address(address: str) -> None:
    """Refuse what is not the address of process 0.

    Raises:
        ValueError: it is not HOST:PORT.
    """
    host, _, port = address.rpartition(":")
    name = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    odd = not name or any(c.isspace() or c in "/@[]" for c in name)
    if odd or (":" in name and name == host) or not 0 < (_number(port) or 0) < 2**16:
        raise ValueError(
            f"{COORDINATOR}={address[:200]} must be HOST:PORT of process 0, as in "
            "10.0.0.1:8476 or [fd00::1]:8476, with a port from 1 to 65535."
        )


def start(
    environment: Mapping[str, str],
    initialization_timeout: int = INITIALIZATION_TIMEOUT,
) -> bool:
    """Join the other processes of the run, if `environment` says that there are some.

    To be called before any device is touched; a second call joins nobody again. CPUs
    then talk by gloo, which is JAX's default.

    Args:
        initialization_timeout: seconds within which all processes must have come.

    Returns:
        Whether this is the process that writes files and prints.

    Raises:
        ValueError: the variables, or the timeout, are not what they should be.
        RuntimeError: the other processes cannot be reached.
    """
    if not 1 <= initialization_timeout <= _LONGEST_TIMEOUT:
        raise ValueError(
            f"--initialization-timeout={initialization_timeout} must be from 1 to "
            f"{_LONGEST_TIMEOUT} seconds."
        )
    told = addresses(environment)
    if told is not None and not jax.distributed.is_initialized():
        # JAX would catch SIGTERM, from here on, for a protocol of its own.
        jax.config.update("jax_enable_preemption_service", False)
        _join(told, initialization_timeout)
        watch()
    return is_primary()


def _join(told: Mapping[str, Any], timeout: int) -> None:
    """Meet the other processes, with a word now and then while they are awaited.

    In another thread, since JAX hears neither Ctrl-C nor its own timeout, but ends the
    process with a stack trace.
    """
    errors: list[Exception] = []

    def connect() -> None:
        try:
            jax.distributed.initialize(
                **told,
                initialization_timeout=timeout + LEAVE_WITHIN,
                heartbeat_timeout_seconds=LOST_AFTER,
                shutdown_timeout_seconds=LEAVE_WITHIN,
            )
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=connect, name="connect", daemon=True)
    start = time.monotonic()
    thread.start()
    for silence in itertools.chain([FIRST_WORD_AFTER], itertools.repeat(WORD_EVERY)):
        thread.join(min(silence, timeout - (time.monotonic() - start)))
        if not thread.is_alive():
            break
        left = timeout - (time.monotonic() - start)
        if left <= 0:
            raise RuntimeError(
                f"The other processes cannot be reached: {_awaited(told)} for "
                f"{timeout} s. Start all of them within --initialization-timeout, each "
                "with the address and a port of process 0 that its host can reach."
            )
        print(
            f"W{_awaited(told)[1:]}, up to {left:.0f} s more.",
            file=sys.stderr,
            flush=True,
        )
    if errors:
        raise _explained(errors[0])


def _awaited(told: Mapping[str, Any]) -> str:
    """What this process is waiting for."""
    if not told:
        return "waiting for the other processes that JAX finds by itself"
    address, number = told["coordinator_address"], told["num_processes"]
    own = f"process {told['process_id']} of {number}"
    if told["process_id"] == 0:
        return f"waiting at {address} for the others ({own})"
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=2):
            return f"waiting for the others at the coordinator {address} ({own})"
    except OSError as error:
        why = error.strerror or error
        return f"waiting for the coordinator at {address} ({own}; {why})"


def _explained(error: Exception) -> Exception:
    """What JAX's complaint means to a user."""
    if isinstance(error, ValueError):
        return ValueError(
            f"{DETECT}=1 but JAX finds no cluster here ({error}); set "
            f"{COORDINATOR}, {NUM_PROCESSES} and {PROCESS_ID}."
        )
    return RuntimeError(f"The other processes cannot be reached: {error}")


def open_workdir(path: str | os.PathLike[str]) -> epath.Path:
    """The workdir, which is the same directory for all processes.

    Raises:
        ValueError: one of them does not see what the first writes there, or it is an
            address that cannot be reached.
    """
    with raise_on_all_processes():
        workdir = open_directory(path)
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


def check_same(config: RunConfig) -> None:
    """Refuse processes that were given different configurations.

    Raises:
        ValueError: says in what one of them differs from the first.
    """
    own = to_dict(config)
    firsts = broadcast_from_primary(own)
    with raise_on_all_processes():
        changed = [
            f"{name} is {first!r} and {ours!r}"
            for name, first, ours in differences(firsts, own)
            if name not in MAY_DIFFER
        ]
        if changed:
            raise ValueError(
                f"Processes 0 and {jax.process_index()} were given different options: "
                f"{'; '.join(changed)}. Start all with the same."
            )

"""Several processes, usually one a host, in one run: how they find each other."""

import os
import secrets
from collections.abc import Mapping
from typing import Any

import jax
from etils import epath

from bert_jax.backend import COORDINATOR, DETECT
from bert_jax.config import RunConfig
from bert_jax.config_json import differences, to_dict
from bert_jax.processes import from_first, is_first, together
from bert_jax.remote import open_directory

NUM_PROCESSES = "BERT_JAX_NUM_PROCESSES"
PROCESS_ID = "BERT_JAX_PROCESS_ID"

LOST_AFTER = 100
"""Seconds without a sign of life after which a process counts as lost."""
LEAVE_WITHIN = 30
"""Seconds that a process waits for the others at its end: they come together, or one
has failed and the others hang in a collective, which this then ends."""

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
    host, _, port = given[COORDINATOR].rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(
            f"{COORDINATOR}={given[COORDINATOR]} must be HOST:PORT, of process 0."
        )
    number, process = given[NUM_PROCESSES], given[PROCESS_ID]
    if not (number.isdecimal() and process.isdecimal() and int(process) < int(number)):
        raise ValueError(
            f"{PROCESS_ID}={process} and {NUM_PROCESSES}={number}: the first must be a "
            "number from 0, less than the second."
        )
    return {
        "coordinator_address": given[COORDINATOR],
        "num_processes": int(number),
        "process_id": int(process),
        # Slurm's own numbers, where there are any, must not be mixed in.
        "cluster_detection_method": "deactivate",
    }


def start(environment: Mapping[str, str]) -> bool:
    """Join the other processes of the run, if `environment` says that there are some.

    To be called before any device is touched; a second call joins nobody again. CPUs
    then talk by gloo, which is JAX's default.

    Returns:
        Whether this is the process that writes files and prints.

    Raises:
        ValueError: the variables are not what they should be.
        RuntimeError: the other processes cannot be reached.
    """
    told = addresses(environment)
    if told is not None and not jax.distributed.is_initialized():
        # JAX would catch SIGTERM, from here on, for a protocol of its own.
        jax.config.update("jax_enable_preemption_service", False)
        try:
            jax.distributed.initialize(
                **told,
                heartbeat_timeout_seconds=LOST_AFTER,
                shutdown_timeout_seconds=LEAVE_WITHIN,
            )
        except ValueError as error:
            raise ValueError(
                f"{DETECT}=1 but JAX finds no cluster here ({error}); set "
                f"{COORDINATOR}, {NUM_PROCESSES} and {PROCESS_ID}."
            ) from error
        except jax.errors.JaxRuntimeError as error:
            raise RuntimeError(
                f"The other processes cannot be reached: {error}"
            ) from error
    return is_first()


def open_workdir(path: str | os.PathLike[str]) -> epath.Path:
    """The workdir, which is the same directory for all processes.

    Raises:
        ValueError: one of them does not see what the first writes there, or it is an
            address that cannot be reached.
    """
    with together():
        workdir = open_directory(path)
    if jax.process_count() == 1:
        return workdir
    token = workdir / from_first(f".shared-{secrets.token_hex(8)}")
    try:
        with together():
            if is_first():
                workdir.mkdir(parents=True, exist_ok=True)
                token.touch()
        with together():
            if not token.exists():
                raise ValueError(
                    f"workdir={workdir} is not shared: what process 0 writes there is "
                    f"not seen by process {jax.process_index()}. Name a directory "
                    "that all hosts have, or gs://…"
                )
    finally:
        if is_first():
            token.unlink(missing_ok=True)
    return workdir


def check_same(config: RunConfig) -> None:
    """Refuse processes that were given different configurations.

    Raises:
        ValueError: says in what one of them differs from the first.
    """
    own = to_dict(config)
    firsts = from_first(own)
    with together():
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

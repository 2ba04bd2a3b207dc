"""How many cycles a TPU's compiler schedules for the kernels of attention.

A program's text has no estimate for kernels of our own. The compiler writes the
schedule of each only to files, for a whole process; so a process of its own compiles
the kernels alone. Started as `python -m bert_jax.runs.kernel_schedule`.
"""

import dataclasses
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

_TIMEOUT_SECONDS = 300
_VARIABLE = "LIBTPU_INIT_ARGS"
_FLAGS = "--xla_jf_dump_to={} --xla_jf_dump_llo_text=true"
_SCHEDULE = r"total scheduled bundles:\s+(\d+)"


@dataclasses.dataclass(frozen=True)
class KernelSchedule:
    """The kernels of a step on one device."""

    topology: str
    rows: int
    length: int
    """Tokens of a row."""
    hidden_size: int
    num_heads: int
    rate: float
    """Of dropout."""
    dtype: str
    causal: bool
    has_pairs: bool
    """Whether rows hold several pairs."""


def kernel_cycles(kernels: KernelSchedule) -> dict[str, int]:
    """Return the cycles of the forward and the backward kernel, for one layer.

    Each cycle issues one bundle of instructions; waiting for memory is not counted.
    Empty if the topology has no name, or the compiler wrote no schedule.
    """
    if not kernels.topology:
        return {}
    with tempfile.TemporaryDirectory() as directory:
        flags = f"{os.environ.get(_VARIABLE, '')} {_FLAGS.format(directory)}"
        command = [sys.executable, "-m", __name__, json.dumps(vars(kernels)), directory]
        with subprocess.Popen(
            command,
            env={**os.environ, _VARIABLE: flags.strip()},
            stdin=subprocess.PIPE,  # it ends when this process does
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as child:
            try:
                child.wait(_TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()
                return {}
            assert child.stdout
            blocks = int(child.stdout.read()) if child.returncode == 0 else 0
        return {
            name: blocks * bundles
            for name in ("forward", "backward")
            if (bundles := _bundles(Path(directory), f"attention_{name}")) and blocks
        }


def _bundles(directory: Path, name: str) -> int:
    """Return the scheduled instructions of a kernel for one block; 0: not written."""
    for path in directory.glob(f"*{name}*schedule-analysis_final_bundles.txt"):
        if match := re.search(_SCHEDULE, path.read_text()):
            return int(match[1])
    return 0


def compile_kernels(kernels: KernelSchedule) -> int:
    """Compile the kernels for a device of the topology; return the blocks of a core."""
    import jax
    import jax.numpy as jnp

    from bert_jax.distributed.topologies import Tpu, devices_of, parse_topology
    from bert_jax.model.attention_blocks import BlockPlan
    from bert_jax.model.tpu_attention import tpu_attention

    topology = parse_topology(kernels.topology)
    device = devices_of(topology)[0]
    sharding = jax.sharding.SingleDeviceSharding(device)

    def shaped(*shape: int, dtype: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

    def loss(arrays: list[Any], mask: Any, pair_ids: Any, seeds: Any) -> Any:
        query, key, value = arrays
        output = tpu_attention(
            query,
            key,
            value,
            mask,
            pair_ids if kernels.has_pairs else None,
            seeds,
            num_heads=kernels.num_heads,
            causal=kernels.causal,
            rate=kernels.rate,
        )
        return output.astype(jnp.float32).sum()

    rows, length = kernels.rows, kernels.length
    heads = shaped(rows, length, kernels.hidden_size, dtype=kernels.dtype)
    mask, pair_ids = (shaped(rows, length, dtype=kind) for kind in (bool, jnp.int32))
    seeds = shaped(2, dtype=jnp.int32)
    with jax.default_device(device):
        jax.jit(jax.grad(loss)).lower([heads] * 3, mask, pair_ids, seeds).compile()
    plan = BlockPlan(heads.shape, kernels.num_heads, rate=kernels.rate)
    assert isinstance(topology.accelerator, Tpu)
    return -(-math.prod(plan.grid) // topology.accelerator.cores)


def end_with_input(*directories: str) -> None:
    """Wait for the end of standard input, remove directories, end this process at once.

    In a thread of a process that must not outlive the one that started it.
    """
    # Not by sys.stdin: a thread that waits there is in the way of a normal end.
    while os.read(sys.stdin.fileno(), 1 << 10):
        pass
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)
    os._exit(1)


if __name__ == "__main__":
    from bert_jax.distributed.environment import configure_topology

    configure_topology(os.environ)
    threading.Thread(target=end_with_input, args=sys.argv[2:], daemon=True).start()
    print(compile_kernels(KernelSchedule(**json.loads(sys.argv[1]))))

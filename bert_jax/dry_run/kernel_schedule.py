"""How many cycles a TPU's compiler schedules for the kernels of attention.

A program's text has no estimate for kernels of our own. The compiler writes the
schedule of each only to files, for a whole process; so a process of its own compiles
the kernels alone. Started as `python -m bert_jax.dry_run.kernel_schedule`.
"""

import dataclasses
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bert_jax.config.model import BertConfig

_TIMEOUT_SECONDS = 300
_FLAGS = "--xla_jf_dump_to={} --xla_jf_dump_llo_text=true"
_SCHEDULE = r"total scheduled bundles:\s+(\d+)"


@dataclasses.dataclass(frozen=True)
class Kernels:
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

    @classmethod
    def of(cls, config: BertConfig, topology: str, rows: int, length: int) -> "Kernels":
        """Return the kernels of a model, for `rows` rows of `length` tokens."""
        return cls(
            topology=topology,
            rows=rows,
            length=length,
            hidden_size=config.hidden_size,
            num_heads=config.num_attention_heads,
            rate=config.attention_probs_dropout_prob,
            dtype=config.dtype,
        )


def kernel_cycles(kernels: Kernels) -> dict[str, int]:
    """Return the cycles of the forward and the backward kernel, for one layer.

    Each cycle issues one bundle of instructions; waiting for memory is not counted.
    Empty if the topology has no name, or the compiler wrote no schedule.
    """
    if not kernels.topology:
        return {}
    with tempfile.TemporaryDirectory() as directory:
        environment = {**os.environ, "LIBTPU_INIT_ARGS": _FLAGS.format(directory)}
        command = [sys.executable, "-m", __name__, json.dumps(vars(kernels))]
        try:
            done = subprocess.run(
                command,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=_TIMEOUT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {}
        if done.returncode:
            return {}
        blocks = int(done.stdout)
        return {
            name: blocks * bundles
            for name in ("forward", "backward")
            if (bundles := _bundles(Path(directory), f"attention_{name}"))
        }


def _bundles(directory: Path, name: str) -> int:
    """Return the scheduled instructions of a kernel for one block; 0: not written."""
    for path in directory.glob(f"*{name}*schedule-analysis_final_bundles.txt"):
        if match := re.search(_SCHEDULE, path.read_text()):
            return int(match[1])
    return 0


def compile_kernels(kernels: Kernels) -> int:
    """Compile the kernels for a device of the topology; return their blocks."""
    import jax
    import jax.numpy as jnp

    from bert_jax.dry_run.topologies import devices_of, parse_topology
    from bert_jax.model.tpu_attention import plan_of, tpu_attention

    device = devices_of(parse_topology(kernels.topology))[0]
    sharding = jax.sharding.SingleDeviceSharding(device)

    def shaped(*shape: int, dtype: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

    def loss(arrays: list[Any], mask: Any, seeds: Any) -> Any:
        query, key, value = arrays
        num_heads, rate = kernels.num_heads, kernels.rate
        output = tpu_attention(
            query, key, value, mask, None, seeds, num_heads=num_heads, rate=rate
        )
        return output.astype(jnp.float32).sum()

    rows, length = kernels.rows, kernels.length
    heads = shaped(rows, length, kernels.hidden_size, dtype=kernels.dtype)
    mask, seeds = shaped(rows, length, dtype=bool), shaped(2, dtype=jnp.int32)
    with jax.default_device(device):
        jax.jit(jax.grad(loss)).lower([heads] * 3, mask, seeds).compile()
    plan = plan_of(heads.shape, num_heads=kernels.num_heads, rate=kernels.rate)
    batch_blocks, head_blocks, query_blocks = plan.grid
    return batch_blocks * head_blocks * query_blocks


if __name__ == "__main__":
    from bert_jax.distributed.environment import configure_topology

    configure_topology(os.environ)
    print(compile_kernels(Kernels(**json.loads(sys.argv[1]))))

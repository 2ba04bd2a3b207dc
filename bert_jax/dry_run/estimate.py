"""What a training step takes, by compiling it for devices before it is ever run.

Nothing is allocated: the compiler is given shapes. What it says is of one device, and
all do the same.
"""

import collections
import dataclasses
import functools
import math
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax

from bert_jax.config import RunConfig
from bert_jax.data.pipeline import Batch
from bert_jax.distributed.mesh import batch_sharding, make_mesh, tree_shardings
from bert_jax.tasks.task import Task
from bert_jax.training.optimizer import Optimizer
from bert_jax.training.state import initial_state
from bert_jax.training.step import make_train_step

GIB = 1 << 30
_UNOPTIMISED = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
}
"""For the CPU, whose program is not run: the same memory and operations in half the
time."""
_COLLECTIVES = "all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute"


@dataclasses.dataclass(frozen=True)
class Estimate:
    """The compiler's estimate_lines of a step on one device; sizes are in bytes."""

    parameters: int
    optimizer: int
    """And the rest of the state."""
    total: int
    temporary: int
    """Activations, gradients, and all else between the first operation and the last."""
    flops: float
    """Every operation counted once, even inside a loop."""
    collectives: dict[str, int]
    """How many of each kind are in the program."""
    seconds: float
    """What compiling took."""


def choose_devices(number: int) -> list[jax.Device]:
    """So many of the machine's own devices, or, where they are fewer, of its CPU's.

    Raises:
        ValueError: JAX sees fewer of those too.
    """
    for devices in (jax.devices(), jax.devices("cpu")):
        if number <= len(devices):
            return devices[:number]
    raise ValueError(
        f"devices={number} but JAX has started with {len(devices)} in this process; "
        "call bert_jax.distributed.environment.split_cpu before anything else, or run "
        "`bert-jax pretrain --dry-run` in a process of its own."
    )


def shaped(tree: Any, shardings: Any) -> Any:
    """The shape, dtype and place of every array."""
    return jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(
            leaf.shape, leaf.dtype, sharding=sharding
        ),
        tree,
        shardings,
    )


def size_on_device(tree: Any) -> int:
    """Bytes of one device's parts of what `shaped` gave."""
    return sum(
        math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
        for leaf in jax.tree.leaves(tree)
    )


def count_collectives(program: str) -> dict[str, int]:
    """How many of each kind a compiled program has."""
    found = re.findall(rf"= .*? ({_COLLECTIVES})(?:-start)?\(", program)
    return dict(collections.Counter(found))


def estimate(
    task: Task, config: RunConfig, batch: Batch, devices: Sequence[jax.Device]
) -> Estimate:
    """Compile the training step of `config` for `devices`.

    Args:
        batch: any of all hosts' batches, for its shapes.

    Raises:
        ValueError: `config.mesh` and the devices do not go together.
    """
    mesh = make_mesh(config.mesh, config.batch_size, config.microbatches, devices)
    optimizer = Optimizer.of(config)
    shapes = jax.eval_shape(
        functools.partial(initial_state, task.init_params, optimizer, config.seed)
    )
    shardings = tree_shardings(mesh, shapes)
    state = shaped(shapes, shardings)
    rows = shaped(batch, dict.fromkeys(batch, batch_sharding(mesh)))
    start = time.monotonic()
    step: Any = make_train_step(task, optimizer, config.microbatches, mesh, shardings)
    on_cpu = devices[0].platform == "cpu"
    with jax.default_device(devices[0]):
        compiled = step.lower(state, rows).compile(
            compiler_options=_UNOPTIMISED if on_cpu else {}
        )
    seconds = time.monotonic() - start
    memory = compiled.memory_analysis()
    parameters = size_on_device(state.params)
    return Estimate(
        parameters=parameters,
        optimizer=size_on_device(state) - parameters,
        total=memory.argument_size_in_bytes
        + memory.output_size_in_bytes
        - memory.alias_size_in_bytes  # the next state lies where this one was
        + memory.temp_size_in_bytes
        + memory.generated_code_size_in_bytes,
        temporary=memory.temp_size_in_bytes,
        flops=compiled.cost_analysis()["flops"],
        collectives=count_collectives(compiled.as_text()),
        seconds=seconds,
    )


def gib(size: int | float) -> str:
    """A size as a person reads it."""
    return f"{size / GIB:.2f} GiB"


def estimate_lines(found: Estimate, devices: Sequence[jax.Device]) -> Iterator[str]:
    """Lines that tell an estimate."""
    number, device = len(devices), devices[0]
    on_cpu = device.platform == "cpu"
    kind = "virtual CPU devices" if on_cpu else device.device_kind
    yield f"compiled for {number} {kind} in {found.seconds:.0f} s"
    if on_cpu:
        yield (
            "  an estimate: a GPU's or TPU's compiler fuses other operations, and "
            "keeps in bfloat16 what a CPU computes in float32"
        )
    yield (
        f"memory a device: parameters {gib(found.parameters)}, optimizer "
        f"{gib(found.optimizer)}, activations and gradients {gib(found.temporary)}; "
        f"in all {gib(found.total)}"
    )
    yield (
        f"FLOPs a step by the compiler: {found.flops * number:.4g}"
        " (what a loop repeats is counted once)"
    )
    told = ", ".join(f"{count} {name}" for name, count in found.collectives.items())
    yield f"collectives in the program: {told or 'none'}"

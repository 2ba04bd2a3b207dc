"""Estimate the memory and FLOPs of a training step by compiling it ahead of time.

Nothing is allocated: the compiler is given shapes. Its figures are for one device;
all devices run the same program.
"""

import dataclasses
import functools
import hashlib
import math
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax
from jaxtyping import PyTree

from bert_jax.config import RunConfig
from bert_jax.data.pipeline import Batch
from bert_jax.distributed.peaks import peak_flops_per_second
from bert_jax.distributed.sharding import batch_sharding, tree_shardings
from bert_jax.distributed.topologies import GIB
from bert_jax.runs.kernel_schedule import KernelSchedule, kernel_cycles
from bert_jax.runs.program import attention_kernels, collectives, estimated_cycles
from bert_jax.training.run import Run
from bert_jax.training.step import with_shardings

_UNOPTIMIZED = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
}
"""CPU compiler options: the same memory and operations in half the compile time."""
_TOO_LARGE = r"(Used |HLO temporaries \()([\d.]+)([KMGT])\b"
"""The memory of a step that a TPU's compiler refuses: all of it, or the temporary."""


@dataclasses.dataclass(frozen=True)
class Estimate:
    """The compiler's figures of a step on one device; sizes are in bytes."""

    parameters: int
    optimizer: int
    """The optimizer and the rest of the state."""
    total: int
    temporary: int
    """Activations, gradients, and all else that lives only within the step."""
    seconds: float
    """The time that compiling took."""
    flops: float = 0.0
    """Operations; those inside a loop are counted once. 0: not known."""
    collectives: dict[str, tuple[int, int]] | None = None
    """The number of each kind of collective, and the bytes of their results. None: not
    known."""
    is_refused: bool = False
    """Whether the compiler made no program, because it takes too much memory."""
    cycles: dict[str, int] = dataclasses.field(default_factory=dict)
    """A TPU compiler's estimate of the time, by category; empty for other devices, and
    with several microbatches, which are a loop."""

    def fits(self, memory: float) -> bool:
        """Whether it fits in bytes of memory; a program that was not made does not.

        A TPU's compiler keeps some of the memory for itself.
        """
        return not self.is_refused and self.total <= memory


def choose_devices(num_devices: int) -> list[jax.Device]:
    """Return `num_devices` of the default devices or, if there are fewer, of the CPU's.

    Raise ValueError if that has fewer, too.
    """
    for devices in (jax.devices(), jax.devices("cpu")):
        if num_devices <= len(devices):
            return devices[:num_devices]
    raise ValueError(
        f"devices={num_devices} but JAX has started with {len(devices)} in this "
        "process; call bert_jax.distributed.environment.set_num_cpu_devices before "
        "anything else, or run `bert-jax pretrain --dry-run` in a process of its own."
    )


def size_on_device(tree: PyTree) -> int:
    """Return the bytes of one device's shards of a tree from `with_shardings`."""
    return sum(
        math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
        for leaf in jax.tree.leaves(tree)
    )


@dataclasses.dataclass(frozen=True)
class LoweredStep:
    """A training step for devices, before their compiler has it; sizes are in bytes."""

    run: Run[RunConfig]
    lowered: Any
    """A `jax.stages.Lowered`."""
    parameters: int
    state: int
    kernels: KernelSchedule
    """The kernels of attention that it would have."""
    seconds: float
    """The time that lowering took."""

    @property
    def fingerprint(self) -> str:
        """A hash of the program: a compiler makes the same of equal ones."""
        return hashlib.sha256(self.lowered.as_text().encode()).hexdigest()

    def compile(self, options: dict[str, Any]) -> tuple[Any, Estimate]:
        """Return the step, compiled with options, None if refused, and its figures."""
        start, compiled, total = time.monotonic(), None, 0
        is_loop = self.run.config.microbatches > 1
        try:
            compiled = self.lowered.compile(compiler_options=options)
        except jax.errors.JaxRuntimeError as error:
            match = re.search(_TOO_LARGE, str(error))
            if match is None:
                raise
            total = int(float(match[2]) * 1024 ** " KMGT".index(match[3]))
            total += 0 if match[1] == "Used " else self.state
        figures = functools.partial(
            Estimate,
            parameters=self.parameters,
            optimizer=self.state - self.parameters,
            seconds=self.seconds + time.monotonic() - start,
        )
        if compiled is None:
            temporary = total - self.state
            return None, figures(total=total, temporary=temporary, is_refused=True)
        memory, text = compiled.memory_analysis(), compiled.as_text()
        return compiled, figures(
            total=memory.argument_size_in_bytes
            + memory.output_size_in_bytes
            - memory.alias_size_in_bytes  # the state is donated
            + memory.temp_size_in_bytes
            + memory.generated_code_size_in_bytes,
            temporary=memory.temp_size_in_bytes,
            flops=(compiled.cost_analysis() or {}).get("flops", 0.0),
            collectives=collectives(text),
            # The body of a loop over microbatches is counted once, or not at all.
            cycles={} if is_loop else _cycles(text, self.kernels),
        )


def lower_step(run: Run[RunConfig], batch: Batch, topology: str = "") -> LoweredStep:
    """Lower the training step of a run for its devices."""
    mesh, state = run.mesh, run.state_shapes
    fixed = run.task.fixed_params
    fixed = with_shardings(fixed, tree_shardings(mesh, fixed))
    rows = with_shardings(batch, dict.fromkeys(batch, batch_sharding(mesh)))
    start = time.monotonic()
    step: Any = run.train_step()
    with jax.default_device(mesh.devices.flat[0]):
        lowered = step.lower(state, rows, fixed) if fixed else step.lower(state, rows)
    num_rows, *_, length = batch_sharding(mesh).shard_shape(batch["tokens"].shape)
    model = run.config.model
    return LoweredStep(
        run,
        lowered,
        parameters=size_on_device([state.params, fixed]),
        state=size_on_device([state, fixed]),
        kernels=KernelSchedule(
            topology=topology,
            rows=num_rows,
            length=length,
            hidden_size=model.hidden_size,
            num_heads=model.num_attention_heads,
            rate=model.attention_probs_dropout_prob,
            dtype=model.dtype,
            causal=model.attention == "causal",
            has_pairs="first" in batch and batch["first"].shape[1] > 1,
        ),
        seconds=time.monotonic() - start,
    )


def estimate(run: Run[RunConfig], batch: Batch, topology: str = "") -> Estimate:
    """Compile the training step of a run for its devices, which need not be present.

    The batch, of all hosts, gives the shapes. The name of a topology is needed for the
    time of a step with kernels of our own.
    """
    on_cpu = run.mesh.devices.flat[0].platform == "cpu"
    lowered = lower_step(run, batch, topology)
    return lowered.compile(_UNOPTIMIZED if on_cpu else {})[1]


def _cycles(program: str, kernels: KernelSchedule) -> dict[str, int]:
    """Return the cycles of a TPU's step by category; empty if a part is not known."""
    cycles, calls = estimated_cycles(program), attention_kernels(program)
    if not (cycles and calls):
        return cycles
    per_call = kernel_cycles(kernels)
    if not calls.keys() <= per_call.keys():
        return {}
    total = sum(number * per_call[name] for name, number in calls.items())
    return cycles | {"attention's kernels": total}


def gib(size: int | float) -> str:
    """Format a size in bytes."""
    return f"{size / GIB:.2f} GiB"


def format_size(size: int | float) -> str:
    """Format a size in bytes, in MiB if it is below one GiB."""
    return gib(size) if size >= GIB else f"{size / 2**20:.1f} MiB"


def estimate_lines(
    step: Estimate,
    devices: Sequence[jax.Device],
    clock: float = 0.0,
    model_flops: float = 0.0,
) -> Iterator[str]:
    """Yield the lines of an estimate.

    `clock` is in cycles a second, 0: unknown; `model_flops` are those of all devices.
    """
    num_devices, device = len(devices), devices[0]
    on_cpu = device.platform == "cpu"
    kind = "virtual CPU devices" if on_cpu else device.device_kind
    yield f"compiled for {num_devices} {kind} in {step.seconds:.0f} s"
    if on_cpu:
        yield (
            "  an estimate: a GPU's or TPU's compiler fuses other operations, and "
            "keeps in bfloat16 what a CPU computes in float32"
        )
    yield memory_line(step)
    yield from program_lines(step, num_devices)
    if step.cycles and clock:
        flops = model_flops / num_devices
        seconds, mfu = estimated_time(step, device.device_kind, clock, flops)
        line = f"the compiler's estimate: {sum(seconds.values()) * 1e3:.1f} ms a step"
        yield line if mfu is None else f"{line}, an MFU of {mfu:.0%}"
        yield "  in ms: " + " · ".join(
            f"{name} {part * 1e3:.1f}" for name, part in seconds.items()
        )


def memory_line(step: Estimate) -> str:
    """Return a line on what the memory of a device is needed for."""
    sizes = step.parameters, step.optimizer, step.temporary, step.total
    parameters, optimizer, temporary, total = map(format_size, sizes)
    return (
        f"memory a device: parameters {parameters}, optimizer {optimizer}, "
        f"activations and gradients {temporary}; in all {total}"
    )


def program_lines(step: Estimate, num_devices: int) -> Iterator[str]:
    """Yield the lines on the program: its FLOPs, and its collectives."""
    if step.flops:
        yield (
            f"FLOPs a step by the compiler: {step.flops * num_devices:.4g}"
            " (what a loop repeats is counted once)"
        )
    if step.collectives is not None:
        counts = ", ".join(
            f"{count} {name} of {size / 2**20:,.1f} MiB"
            for name, (count, size) in step.collectives.items()
        )
        yield f"collectives in the program: {counts or 'none'}"


def estimated_time(
    step: Estimate, device_kind: str, clock: float, model_flops: float
) -> tuple[dict[str, float], float | None]:
    """Return a TPU compiler's estimate of a step's seconds by category, and the MFU.

    `clock` is in cycles a second; `model_flops` are of a step on one device, 0:
    unknown, and so is the MFU.
    """
    seconds = {name: cycles / clock for name, cycles in step.cycles.items()}
    peak = peak_flops_per_second(device_kind)
    if not (model_flops and peak):
        return seconds, None
    return seconds, model_flops / sum(seconds.values()) / peak

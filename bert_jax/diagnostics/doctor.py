"""What is wrong with this machine, as far as training on it goes."""

import dataclasses
import functools
import importlib.metadata
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config import BertConfig
from bert_jax.distributed.environment import CACHE, distrust
from bert_jax.model.pretraining import BertForPretraining
from bert_jax.storage.caches import cache_directory
from bert_jax.tasks.pretraining import initial_params

PACKAGES = (
    "bert_jax jax jaxlib flax optax orbax-checkpoint numpy tokenizers sentencepiece "
    "tensorflow tensorflow-cpu tensorflow-datasets"
).split()
TOLERANCES = {"float32": 2e-3, "bfloat16": 0.1}
"""Largest difference from float32 on the CPU that rounding explains: float32 products
may be made in pieces of fewer bits on an accelerator."""
LEAST_FREE_GIB = 5
LEAST_FILES = 1024
"""Open at once: shards of a dataset, checkpoints being written, sockets."""
PYTHONS = ((3, 11), (3, 12), (3, 13))
"""Those that the tests ran with."""


@dataclasses.dataclass(frozen=True)
class Check:
    """One thing looked at."""

    good: bool
    what: str


def diagnose(environment: Mapping[str, str], directory: Path) -> Iterator[Check]:
    """Versions, devices, arithmetic, disk, and common mistakes, one after another.

    Args:
        environment: variables of the process.
        directory: where runs will be written.
    """
    yield Check(True, f"Python {platform.python_version()} on {platform.platform()}")
    yield from versions()
    yield from check_devices()
    for device in jax.local_devices():
        for dtype in TOLERANCES:
            yield self_test(device, dtype)
    yield from check_disk(directory)
    yield from check_open_files()
    yield from check_cache(environment)
    yield from mistakes(environment)


def versions() -> Iterator[Check]:
    """What is installed of what we use."""
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue  # of TensorFlow's two packages one is enough, and none is needed
    yield Check(True, ", ".join(found))
    yield from check_python(sys.version_info[:2])


def check_python(version: tuple[int, int]) -> Iterator[Check]:
    """Whether this Python, as (3, 11), is one that the tests ran with."""
    if version not in PYTHONS:
        names = ", ".join(f"{major}.{minor}" for major, minor in PYTHONS)
        yield Check(
            False,
            f"Python {version[0]}.{version[1]} has not been tested with this version; "
            f"{names} have.",
        )


def check_devices() -> Iterator[Check]:
    """The devices that JAX sees, and one that it should."""
    for device in jax.devices():
        yield Check(True, f"device {device.id}: {device.device_kind}")
    if jax.default_backend() == "cpu" and Path("/proc/driver/nvidia/version").exists():
        yield Check(
            False,
            "There is an NVIDIA driver, but JAX sees no GPU; pip install "
            "'bert_jax[cuda12]' or '[cuda13]', as the driver's version asks.",
        )


@functools.cache
def _model(dtype: str) -> BertForPretraining:
    shape = {"vocab_size": 512, "max_position_embeddings": 64}
    return BertForPretraining(BertConfig.tiny(dtype=dtype, **shape))


def _gradient(device: jax.Device, dtype: str) -> np.ndarray:
    """The gradient of a small model's loss by all of its parameters, in one vector."""
    model = _model(dtype)
    ids = jnp.arange(64, dtype=jnp.int32)[None] + 5
    places = jnp.arange(8, dtype=jnp.int32)[None]

    def loss(params: Any) -> Any:
        scores: Any = model.apply(
            {"params": params}, ids, ids * 0, ids > 0, places, places[:, :1]
        )
        tokens, pairs = scores
        return jnp.mean(tokens**2) + jnp.mean(pairs**2)

    with jax.default_device(device):
        params = initial_params(_model("float32"), jax.random.key(0))
        grads = jax.jit(jax.grad(loss))(params)
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(grads)])


def self_test(device: jax.Device, dtype: str) -> Check:
    """A small model's gradient on a device beside float32 on the CPU."""
    reference = _gradient(jax.local_devices(backend="cpu")[0], "float32")
    found = _gradient(device, dtype)
    apart = np.linalg.norm(found - reference) / np.linalg.norm(reference)
    good = bool(apart <= TOLERANCES[dtype])
    told = f"device {device.id}: a gradient in {dtype} is {apart:.1e} from the CPU's"
    limit = f"; {TOLERANCES[dtype]} at most is rounding. Do not train on it."
    return Check(good, told if good else told + limit)


def check_disk(directory: Path) -> Iterator[Check]:
    """Whether runs can be written, and how much."""
    try:
        with tempfile.NamedTemporaryFile(dir=directory):
            pass
        yield Check(True, f"{directory} can be written to")
    except OSError as error:
        yield Check(False, f"{directory} cannot be written to: {error.strerror}.")
        return
    free = shutil.disk_usage(directory).free / 2**30
    enough = free >= LEAST_FREE_GIB
    told = f"{free:.0f} GiB are free there"
    need = "; a checkpoint of BERT base with its optimizer takes 1.3, and three stay."
    yield Check(enough, told if enough else told + need)


def check_open_files(limits: tuple[int, int] | None = None) -> Iterator[Check]:
    """Whether enough files may be open at once.

    Args:
        limits: the soft and the hard one; None: this process's.
    """
    if limits is None:
        try:
            import resource
        except ImportError:  # not on Windows
            return
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = (2**63 if limit < 0 else limit for limit in limits)  # -1: no limit
    told = [
        f"{limit:,}" if limit < 2**63 else "any number of" for limit in (soft, hard)
    ]
    line = f"{told[0]} files may be open at once, {told[1]} where a program asks for it"
    need = f"; raise the hard limit (`ulimit -Hn`) to {LEAST_FILES:,} or more."
    yield Check(hard >= LEAST_FILES, line if hard >= LEAST_FILES else line + need)


def check_cache(environment: Mapping[str, str]) -> Iterator[Check]:
    """Where compiled programs are kept, and whether others could put theirs there."""
    chosen = environment.get(CACHE)
    if chosen == "":
        yield Check(True, f"compiled programs are not kept: {CACHE} is empty")
        return
    if chosen and "://" in chosen:
        yield Check(True, f"compiled programs are kept in {chosen}")
        return
    directory = Path(chosen or cache_directory(environment) / "programs")
    try:
        reason = distrust(directory)
    except FileNotFoundError:
        yield Check(True, f"compiled programs will be kept in {directory}")
        return
    except OSError as error:
        reason = f"{directory} cannot be looked at: {error.strerror}"
    if reason:
        yield Check(False, f"Compiled programs: {reason}.")
    else:
        yield Check(True, f"compiled programs are kept in {directory}")


def mistakes(environment: Mapping[str, str]) -> Iterator[Check]:
    """Settings that are known to hurt."""
    flags = environment.get("XLA_FLAGS", "")
    if "onednn" in flags:
        yield Check(
            False,
            "XLA_FLAGS asks for oneDNN, which has corrupted memory at 512 tokens; "
            "take it out.",
        )
    if "xla_force_host_platform_device_count" in flags:
        yield Check(False, "XLA_FLAGS splits the CPU into devices, as tests do.")
    if environment.get("JAX_ENABLE_X64", "").lower() in ("1", "true"):
        yield Check(False, "JAX_ENABLE_X64 doubles memory for nothing; unset it.")
    if environment.get("JAX_DISABLE_JIT", "").lower() in ("1", "true"):
        yield Check(False, "JAX_DISABLE_JIT makes every step slow; unset it.")
    if environment.get("JAX_PLATFORMS") == "cpu" and Path("/dev/nvidia0").exists():
        yield Check(False, "JAX_PLATFORMS=cpu hides the GPU; unset it.")


def main() -> int:
    """Print the findings; 1 where something is wrong."""
    bad = 0
    for finding in diagnose(os.environ, Path.cwd()):
        print(f"{'ok ' if finding.good else 'BAD'}  {finding.what}", flush=True)
        bad += not finding.good
    print(f"{bad} things to mend." if bad else "Nothing to mend.")
    return int(bad > 0)

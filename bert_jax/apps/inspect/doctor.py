"""Check that this machine can train: versions, devices, disk, settings."""

import dataclasses
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bert_jax.config import BertConfig
from bert_jax.config.model import Params
from bert_jax.distributed.environment import CACHE, permission_problem
from bert_jax.model.bert import compute, init_params
from bert_jax.model.inputs import Inputs
from bert_jax.storage.caches import cache_directory

PACKAGES = (
    "bert_jax jax jaxlib flax optax orbax-checkpoint numpy tokenizers sentencepiece "
    "tensorflow tensorflow-cpu tensorflow-datasets"
).split()
TOLERANCES = {"float32": 2e-3, "bfloat16": 0.1}
"""Largest relative difference from float32 on the CPU that counts as rounding error.
Accelerators may compute float32 products in pieces of fewer bits."""
MIN_FREE_GIB = 5
MIN_OPEN_FILES = 1024
"""Files open at once: shards of a dataset, checkpoints being written, sockets."""
TESTED_PYTHONS = ((3, 11), (3, 12), (3, 13))


@dataclasses.dataclass(frozen=True)
class Check:
    """The result of one check."""

    passed: bool
    message: str


def diagnose(environment: Mapping[str, str], directory: Path) -> Iterator[Check]:
    """Check versions, devices, arithmetic, the disk of `directory`, and settings."""
    yield Check(True, f"Python {platform.python_version()} on {platform.platform()}")
    yield from check_versions()
    yield from check_devices()
    for device in jax.local_devices():
        for dtype in TOLERANCES:
            yield self_test(device, dtype)
    yield from check_disk(directory)
    yield from check_open_files()
    yield check_cache(environment)
    yield from check_settings(environment)


def check_versions() -> Iterator[Check]:
    """The versions of Python and of the installed packages that are used here."""
    installed = []
    for name in PACKAGES:
        try:
            installed.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue  # TensorFlow is optional, in either of its two packages
    yield Check(True, ", ".join(installed))
    yield Check(True, installation())
    yield from check_python(sys.version_info[:2])


def installation() -> str:
    """Say whether TensorFlow is there, and what works without it."""
    if importlib.util.find_spec("tensorflow") is not None:
        return "The whole installation: batches are read by tf.data."
    return (
        "The light installation, without TensorFlow: batches are read by a plain "
        "iterator. Only tfds: sources and checkpoints of TensorFlow 1 need the whole "
        "one: pip install bert_jax."
    )


def check_python(version: tuple[int, int]) -> Iterator[Check]:
    """Whether this Python, such as (3, 11), has been tested."""
    if version not in TESTED_PYTHONS:
        names = ", ".join(f"{major}.{minor}" for major, minor in TESTED_PYTHONS)
        yield Check(
            False,
            f"Python {version[0]}.{version[1]} has not been tested with this version; "
            f"{names} have.",
        )


def check_devices() -> Iterator[Check]:
    """The devices that JAX sees, and whether it misses a GPU."""
    for device in jax.devices():
        yield Check(True, f"device {device.id}: {device.device_kind}")
    if jax.default_backend() == "cpu" and Path("/proc/driver/nvidia/version").exists():
        yield Check(
            False,
            "There is an NVIDIA driver, but JAX sees no GPU; pip install "
            "'bert_jax[cuda12]' or '[cuda13]', depending on the driver's version.",
        )


def model_gradient(device: jax.Device, dtype: str) -> np.ndarray:
    """The gradient of a small model's loss, over all parameters, as one vector."""
    model = BertConfig.tiny(dtype=dtype, vocab_size=512, max_position_embeddings=64)
    ids = jnp.arange(64, dtype=jnp.int32)[None] + 5
    inputs = Inputs(ids, ids * 0, ids > 0)
    positions = jnp.arange(8, dtype=jnp.int32)[None]

    def loss(params: Params) -> Float[Array, ""]:
        token_logits, pair_logits = compute(
            model, params, "pretraining_scores", inputs, positions, positions[:, :1]
        )
        return jnp.mean(token_logits**2) + jnp.mean(pair_logits**2)

    with jax.default_device(device):
        params = init_params(model, jax.random.key(0))
        grads = jax.jit(jax.grad(loss))(params)
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(grads)])


def self_test(
    device: jax.Device,
    dtype: str,
    gradient: Callable[[jax.Device, str], np.ndarray] = model_gradient,
) -> Check:
    """Compare a small model's gradient on a device with that of float32 on the CPU."""
    reference = gradient(jax.local_devices(backend="cpu")[0], "float32")
    difference = gradient(device, dtype) - reference
    error = np.linalg.norm(difference) / np.linalg.norm(reference)
    passed = bool(error <= TOLERANCES[dtype])
    line = f"device {device.id}: a gradient in {dtype} is {error:.1e} from the CPU's"
    limit = f"; {TOLERANCES[dtype]} at most is rounding. Do not train on it."
    return Check(passed, line if passed else line + limit)


def check_disk(directory: Path) -> Iterator[Check]:
    """Whether `directory` is writable and has enough free space."""
    try:
        tempfile.TemporaryFile(dir=directory).close()
        yield Check(True, f"{directory} can be written to")
    except OSError as error:
        yield Check(False, f"{directory} cannot be written to: {error.strerror}.")
        return
    free = shutil.disk_usage(directory).free / 2**30
    passed = free >= MIN_FREE_GIB
    line = f"{free:.0f} GiB are free there"
    need = "; a checkpoint of BERT base with its optimizer takes 1.3, and three stay."
    yield Check(passed, line if passed else line + need)


def check_open_files(limits: tuple[int, int] | None = None) -> Iterator[Check]:
    """Whether enough files may be open, by the soft and the hard limit (-1: none)."""
    if limits is None:
        try:
            import resource
        except ImportError:  # not on Windows
            return
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = 2**63
    soft, hard = (limit if 0 <= limit < unlimited else unlimited for limit in limits)
    names = [f"{n:,}" if n < unlimited else "any number of" for n in (soft, hard)]
    passed = hard >= MIN_OPEN_FILES
    line = f"{names[0]} files may be open at once, {names[1]} if a program asks for it"
    need = f"; raise the hard limit (`ulimit -Hn`) to {MIN_OPEN_FILES:,} or more."
    yield Check(passed, line if passed else line + need)


def check_cache(environment: Mapping[str, str]) -> Check:
    """The compilation cache, and whether other users can write to it."""
    directory = environment.get(CACHE, str(cache_directory(environment) / "programs"))
    if not directory:
        return Check(True, f"compiled programs are not kept: {CACHE} is empty")
    problem = ""
    try:
        if "://" not in directory:
            problem = permission_problem(Path(directory))
    except FileNotFoundError:
        return Check(True, f"compiled programs will be kept in {directory}")
    except OSError as error:
        problem = f"{directory} cannot be read: {error.strerror}"
    if problem:
        return Check(False, f"Compiled programs: {problem}.")
    return Check(True, f"compiled programs are kept in {directory}")


def check_settings(environment: Mapping[str, str]) -> Iterator[Check]:
    """Variables of the environment that are known to cause errors or slow runs."""
    flags = environment.get("XLA_FLAGS", "")
    if "onednn" in flags:
        yield Check(
            False,
            "XLA_FLAGS enables oneDNN, which has corrupted memory at 512 tokens; "
            "remove it.",
        )
    if "xla_force_host_platform_device_count" in flags:
        yield Check(False, "XLA_FLAGS splits the CPU into devices, as tests do.")
    if environment.get("JAX_ENABLE_X64", "").lower() in ("1", "true"):
        yield Check(False, "JAX_ENABLE_X64 doubles memory without benefit; unset it.")
    if environment.get("JAX_DISABLE_JIT", "").lower() in ("1", "true"):
        yield Check(False, "JAX_DISABLE_JIT makes every step slow; unset it.")
    if environment.get("JAX_PLATFORMS") == "cpu" and Path("/dev/nvidia0").exists():
        yield Check(False, "JAX_PLATFORMS=cpu hides the GPU; unset it.")


def main() -> int:
    """Print the result of each check; return 1 if any failed, else 0."""
    num_failed = 0
    for check in diagnose(os.environ, Path.cwd()):
        print(f"{'ok ' if check.passed else 'BAD'}  {check.message}", flush=True)
        num_failed += not check.passed
    print(f"{num_failed} problems found." if num_failed else "No problems found.")
    return int(num_failed > 0)

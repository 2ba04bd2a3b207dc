"""The options of `python tools/hardware/hardware.py`."""

import dataclasses

from bert_jax.apps.benchmark.options import BenchmarkOptions

TOPOLOGIES = ("v5e:2x4", "v5p:2x2x2", "v6e:2x4", "a100:8", "h100:8", "h200:8")
"""Eight devices of each kind."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class HardwareOptions(BenchmarkOptions):
    """Compile pretraining for accelerators, and write a page of what it needs."""

    configs: tuple[str, ...]
    """Configuration files of `pretrain`. No dataset is read: a vocabulary of 30,522 and
    rows of 128 tokens where a configuration leaves them to the dataset."""
    topologies: tuple[str, ...] = TOPOLOGIES
    """Accelerators, as v5e:2x4 or h200:8."""
    output: str = "hardware.md"
    """Markdown page to write."""
    results: str = "build/hardware"
    """Directory of what is already compiled; the same call again goes on from there."""
    jobs: int = 2
    """Number of programs to compile at a time. One of a large model takes some GiB."""

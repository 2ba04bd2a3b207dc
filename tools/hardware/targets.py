"""Configurations and the accelerators to compile them for."""

import dataclasses
from pathlib import Path

from options import HardwareOptions

from bert_jax.config import PretrainConfig
from bert_jax.config.files import load_config
from bert_jax.distributed.mesh import make_mesh
from bert_jax.distributed.topologies import Topology, devices_of, parse_topology

VOCAB_SIZE = 30522
SEQUENCE_LENGTH = 128
"""What the vocabulary and the dataset of the paper's first phase would define."""


@dataclasses.dataclass(frozen=True)
class BenchmarkTarget:
    """A configuration to compile for a topology."""

    name: str
    config: PretrainConfig
    topology: Topology
    shard_rows: int
    """Rows of a step on a device; those of a `tensor` group are on all of its."""

    def with_microbatches(self, count: int) -> PretrainConfig:
        """Return the configuration with another number of microbatches."""
        return dataclasses.replace(self.config, microbatches=count)


def completed(config: PretrainConfig) -> PretrainConfig:
    """Return the configuration with values for what a dataset would define."""
    model, data = config.model, config.data
    vocab_size = model.vocab_size or VOCAB_SIZE
    is_causal = config.objective == "causal_lm"
    length = min(SEQUENCE_LENGTH, model.max_position_embeddings)
    return dataclasses.replace(
        config,
        model=dataclasses.replace(model, vocab_size=vocab_size),
        data=dataclasses.replace(
            data,
            sequence_length=data.sequence_length or length,
            pairs=data.pairs or ("none" if is_causal else "nsp"),
        ),
        masking=dataclasses.replace(
            config.masking, mask_token_id=4, vocab_size=vocab_size
        ),
    )


def open_target(path: str, topology: Topology) -> BenchmarkTarget:
    """Read a configuration, and check that the topology suits it.

    Raises:
        ValueError: it cannot be read, needs a tokenizer, or the devices do not divide
            its batch; or the compiler is missing or does not know the topology.
    """
    config = completed(load_config(path, PretrainConfig))
    if config.masking.unit != "token":
        raise ValueError(
            f"{path} has masking.unit={config.masking.unit}, which needs the tokenizer "
            "of a dataset; use `pretrain --dry-run --topology`."
        )
    devices = devices_of(topology)
    try:
        mesh = make_mesh(config.mesh, config.batch_size, config.microbatches, devices)
    except ValueError as error:
        raise ValueError(f"{path} for topology={topology.name}: {error}") from error
    num_shards = mesh.size // config.mesh.tensor
    return BenchmarkTarget(
        Path(path).stem, config, topology, config.batch_size // num_shards
    )


def open_targets(options: HardwareOptions) -> list[BenchmarkTarget]:
    """Read all configurations, before the first is compiled.

    Raises:
        ValueError: as `open_target`, or two files have one name.
    """
    topologies = [parse_topology(name) for name in options.topologies]
    names = [Path(path).stem for path in options.configs]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"configs has two files of the name {name}; rename one.")
    if not (folder := Path(options.output).parent).is_dir():
        raise ValueError(f"output={options.output}: {folder} is not a directory.")
    return [
        open_target(path, topology)
        for path in options.configs
        for topology in topologies
    ]

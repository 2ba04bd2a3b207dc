"""Accelerators by name: meshes on them, and steps compiled where there are none."""

import dataclasses
import functools
import importlib.metadata
import json
import re

import jax
import numpy as np
import pytest
from compilers import needs_cuda_plugin, needs_libtpu
from jax.experimental import topologies

from bert_jax.apps.benchmark.command import parse
from bert_jax.apps.benchmark.steps import synthetic_task
from bert_jax.cli.main import main
from bert_jax.config import MeshConfig, PretrainConfig
from bert_jax.distributed.mesh import make_mesh
from bert_jax.distributed.sharding import batch_sharding, tree_shardings
from bert_jax.distributed.topologies import (
    GIB,
    devices_of,
    parse_topology,
    target_config,
)
from bert_jax.runs.estimate import estimate, lower_step
from bert_jax.runs.pretraining import resolve
from bert_jax.runs.program import collectives, estimated_cycles
from bert_jax.tasks.pretraining.task import PretrainingTask
from bert_jax.tasks.task import Task
from bert_jax.training.optimizer import Optimizer
from bert_jax.training.run import Run
from bert_jax.training.step import initial_state, make_train_step, with_shardings


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a10:8", "must begin with v4, v5e, .*; did you mean 'a100'"),
        ("", "must begin with v4, .*, as in v5e:4x4 or h200:8"),
        ("v5e", "must give the chips along 2 axes, as v5e:2x2"),
        ("v5e:4", "must give the chips along 2 axes, as v5e:2x2"),
        ("v5p:4x4", "must give the chips along 3 axes, as v5p:2x2x2"),
        ("v5e:0x4", "must give the chips along 2 axes"),
        (
            "h200:2x2x2",
            "must give the GPUs, or hosts x GPUs of each, as h200:8 or h200:2x8",
        ),
        ("h200:eight", "must give the GPUs, or hosts x GPUs of each"),
    ],
)
def test_refused_names(name, message):
    with pytest.raises(ValueError, match=f"topology={name} {message}"):
        parse_topology(name)


def test_memory_and_shape_of_a_name():
    tpu, gpu = parse_topology("v5e:4x4"), parse_topology("a100:2x8")
    assert (tpu.shape, tpu.accelerator.memory) == ((4, 4), 16 * GIB)
    assert (gpu.shape, gpu.accelerator.memory) == ((2, 8), 80 * GIB)
    assert (tpu.usable_memory, gpu.usable_memory) == (16 * GIB, 60 * GIB)
    assert "core_count: 108" in target_config(gpu.accelerator)


@pytest.mark.parametrize(
    ("topology", "message"),
    [("v6:2x2", "did you mean 'v6e'"), ("v5e:9", "must give the chips along 2 axes")],
)
def test_the_benchmark_refuses_an_unknown_topology(
    topology, message, refused, described
):
    assert message in refused("benchmark", "compile", "--topology", topology)


def test_the_benchmark_needs_a_topology(refused, described):
    assert "--topology" in refused("benchmark", "compile")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--topology", "v5e:2x4"), "--topology and --memory-gib need --dry-run"),
        (("--dry-run", "--topology", "v5e:2x4", "--devices", "8"), "drop --devices"),
        (("--dry-run", "--memory-gib", "8"), "--memory-gib needs --devices"),
    ],
)
def test_refused_options(options, message, refused, described):
    assert message in refused("pretrain", *options)


def test_a_missing_compiler_is_named(monkeypatch, described):
    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", absent)
    for name, extra in (("v5e:2x4", "topologies"), ("h200:8", "cuda12")):
        message = rf"topology={name} needs .*; pip install 'bert_jax\[{extra}\]'"
        with pytest.raises(ValueError, match=message):
            devices_of(parse_topology(name))


@needs_libtpu
def test_a_slice_that_does_not_exist_is_refused(described):
    with pytest.raises(ValueError, match="topology=v5e:3x5 is not known to its comp"):
        devices_of(parse_topology("v5e:3x5"))


@needs_libtpu
@pytest.mark.parametrize(
    "name",
    "v4:2x2x1 v4:2x2x4 v5e:1x1 v5e:2x4 v5e:4x4 v5e:8x8 v5p:2x2x1 v5p:2x2x4 v6e:2x2 "
    "v6e:4x4 v6e:4x8 tpu7x:2x2x1 tpu7x:2x2x2".split(),
)
def test_every_shape_makes_a_mesh(name, described):
    """Axes of the torus are split where a mesh needs it."""
    devices = devices_of(parse_topology(name))
    number = len(devices)
    sizes = [size for size in range(1, number + 1) if number % size == 0]
    shapes = [(f, t) for f in sizes for t in sizes if number % (f * t) == 0]
    for fsdp, tensor in shapes:
        config = MeshConfig(data=-1, fsdp=fsdp, tensor=tensor)
        mesh = make_mesh(config, number, devices=devices)
        assert mesh.devices.shape == (number // (fsdp * tensor), fsdp, tensor)
        assert len({device.id for device in mesh.devices.flat}) == number


def two_slices():
    """The devices of two slices of four chips."""
    return topologies.get_topology_desc(
        platform="tpu", topology_name="v5e:2x2", num_slices=2
    ).devices


@needs_libtpu
def test_slices_are_joined_along_data(described):
    """No group of `fsdp` or `tensor` leaves its slice."""
    mesh = make_mesh(MeshConfig(data=2, fsdp=2, tensor=2), 8, devices=two_slices())
    for index, group in enumerate(mesh.devices):
        assert {device.slice_index for device in group.flat} == {index}


@pytest.fixture(scope="module")
def config(small_config, dataset):
    """The small run in bfloat16 on all devices."""
    model = dataclasses.replace(small_config.model, dtype="bfloat16")
    small = dataclasses.replace(small_config, model=model, mesh=MeshConfig())
    return resolve(small, dataset)


def compiled_step(config, task, devices):
    """The program of a step, and the shapes of its state."""
    mesh = make_mesh(config.mesh, config.batch_size, devices=devices)
    optimizer = Optimizer.of(config)
    shapes = jax.eval_shape(
        functools.partial(initial_state, task.init_params, optimizer, 0)
    )
    shardings = tree_shardings(mesh, shapes)
    batch = task.batch(0)
    rows = with_shardings(batch, dict.fromkeys(batch, batch_sharding(mesh)))
    step = make_train_step(task, optimizer, 1, mesh, shardings)
    return step.lower(with_shardings(shapes, shardings), rows).compile(), shapes


@needs_libtpu
@pytest.mark.parametrize(
    "topology", ["v5e:2x4", pytest.param("v6e:2x2", marks=pytest.mark.slow)]
)
def test_the_step_compiles_for_a_tpu(topology, config, dataset, described):
    devices = devices_of(parse_topology(topology))
    task = PretrainingTask(config, dataset)
    program, shapes = compiled_step(config, task, devices)
    text = program.as_text()
    # The counts that losses are divided by, then gradients and sums.
    counts = {kind: count for kind, (count, _) in collectives(text).items()}
    assert counts == {"all-reduce": 2}
    assert re.search(r"= bf16\[.* (convolution|dot)\(", text)
    assert "rng-bit-generator" in text, "dropout uses the hardware's generator"
    state = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))
    aliases = program.memory_analysis().alias_size_in_bytes
    assert aliases >= state, "the state is donated"
    assert sum(estimated_cycles(text).values()) > 0


def synthetic_tiny(mesh, num_layers=2):
    """Tiny in bfloat16 on rows of random tokens: its configuration and task."""
    sizes = "train --model tiny --dtype bfloat16 --batch-size 16 --sequence-length 16"
    config, task = synthetic_task(parse(sizes.split()))
    model = dataclasses.replace(config.model, num_hidden_layers=num_layers)
    config = dataclasses.replace(config, model=model, mesh=mesh)
    return config, PretrainingTask(config, task.dataset)


@pytest.mark.slow
@needs_libtpu
def test_asynchronous_gathers_of_a_tpu_are_counted_once(described):
    """A layer has six kernels, gathered for both passes, as are the two of the heads
    and the one of the pooler; three tables of embeddings are gathered once. The
    compiler may keep the pooler's for the backward pass.
    """
    config, task = synthetic_tiny(MeshConfig(fsdp=4), num_layers=1)
    program, _ = compiled_step(config, task, devices_of(parse_topology("v5e:2x2")))
    text = program.as_text()
    gathers = 2 * (6 + 2 + 1) + 3
    assert text.count(" all-gather(") > gathers, "in the fusions meanwhile, too"
    assert collectives(text)["all-gather"][0] in (gathers - 1, gathers)
    names = re.findall(r"= (\w+\[[\d,]*\]).* all-gather\(.*op_name=\"(.*?)\"", text)
    assert collectives(text)["all-gather"][0] == len(set(names)), "none is left out"


@pytest.mark.slow
@needs_libtpu
def test_slices_exchange_the_gradients_and_the_counts(described):
    """Within a slice kernels are gathered and gradients reduced; between the two slices
    of four chips only what has been reduced is, an array at a time.
    """
    config, task = synthetic_tiny(MeshConfig(data=2, fsdp=4))
    program, shapes = compiled_step(config, task, two_slices())
    text = program.as_text()
    kinds = collectives(text)
    between = [name for name in kinds if name.endswith("between slices")]
    assert between == ["all-reduce between slices"]
    count, size = kinds["all-reduce between slices"]
    assert count == 20
    # A quarter of the gradients, as `fsdp` shards them, and what is not sharded.
    gradients = 4 * sum(leaf.size for leaf in jax.tree.leaves(shapes.params))
    assert gradients / 4 < size < 1.05 * gradients / 4
    # All other groups are of the four chips of a slice.
    assert set(re.findall(r"replica_groups=(\{\{.*?\}\})", text)) == {"{{0,1,2,3}}"}


def run_on(topology: str, config: PretrainConfig, task: Task) -> Run[PretrainConfig]:
    devices = devices_of(parse_topology(topology))
    mesh = make_mesh(config.mesh, config.batch_size, config.microbatches, devices)
    return Run(task=task, config=config, mesh=mesh)


@pytest.mark.slow
@needs_libtpu
def test_too_little_memory_is_an_estimate(config, dataset, described):
    """The compiler refuses a batch of 2 M rows, and says what it would take."""
    rows = 1 << 21
    changed = dataclasses.replace(config, batch_size=rows)
    task = PretrainingTask(config, dataset)
    batch = {
        name: np.zeros((rows, *values.shape[1:]), values.dtype)
        for name, values in task.batch(0).items()
    }
    step = estimate(run_on("v5e:1x1", changed, task), batch)
    assert step.total > 16 * GIB and not step.cycles
    assert step.collectives is None, "there is no program to count them in"
    assert step.total == step.temporary + step.parameters + step.optimizer


@pytest.mark.slow
@needs_libtpu
def test_a_dry_run_for_a_tpu(config, dataset, described, capsys):
    options = f"--topology v6e:2x2 --data.path {dataset.path} --batch-size 8".split()
    sizes = (
        "--model.hidden-size 16 --model.num-hidden-layers 1 --model.dtype bfloat16 "
        "--model.num-attention-heads 1 --model.intermediate-size 64"
    ).split()
    assert main(["pretrain", "--dry-run", *options, *sizes]) == 0
    output = capsys.readouterr().out
    for part in (
        "compiled for 4 TPU v6 lite in",
        r"collectives in the program: 2 all-reduce of [\d.]+ MiB",
        r"the compiler's estimate: [\d.]+ ms a step, an MFU of \d+%",
        "LayerNorm [\\d.]+",
        "it fits in 32.00 GiB",
    ):
        assert re.search(part, output), output


@pytest.mark.slow
@needs_libtpu
def test_the_benchmark_of_compilation(described, capsys, tmp_path):
    path = tmp_path / "figures.json"
    words = (
        "--topology v5e:2x2 --model tiny --sequence-length 16 --batch-size 2".split()
    )
    assert main(["benchmark", "compile", *words, "--json", str(path)]) == 0
    output = capsys.readouterr().out
    figures = json.loads(path.read_text())
    assert figures["device"] == "TPU v5 lite" and figures["devices"] == 4
    assert figures["compiler"].startswith("libtpu 0.")
    assert figures["fits"] is True
    assert figures["collectives"] == {"all-reduce": 2}
    assert figures["collectives_mib"]["all-reduce"] == pytest.approx(16.9, abs=0.1)
    parts = figures["estimated_milliseconds"]
    assert sum(parts.values()) / 1e3 == pytest.approx(figures["estimated_step_seconds"])
    assert 0 < figures["estimated_mfu"] < 1
    assert re.search(r"^  dense products +[\d.]+$", output, re.MULTILINE)


@pytest.mark.slow
@needs_libtpu
def test_base_with_shared_parameters_fits_in_little_memory(described, tmp_path):
    """Gathered all at once, the kernels and what they keep alive took 1.54 GiB."""

    def temporary(*words):
        path = tmp_path / "figures.json"
        size = "--topology v5e:2x4 --batch-size 8 --fsdp 8 --json".split()
        assert main(["benchmark", "compile", *size, str(path), *words]) == 0
        figures = json.loads(path.read_text())
        # 12 layers of six kernels for two passes, three tables, three heads for two;
        # the backward pass may use the pooler's again. 415 if chains were not one.
        assert words or figures["collectives"]["all-gather"] in (152, 153)
        return figures["memory_of_each_mib"]["activations and gradients"]

    plain = temporary()
    assert plain < 900
    assert temporary("--remat", "layer") < 0.8 * plain


@pytest.mark.slow
@needs_libtpu
def test_half_of_a_tpus_peak_by_its_compilers_estimate(described, tmp_path):
    """For base with rows of 128 tokens; 29 % before the step was tuned for TPUs."""
    path = tmp_path / "figures.json"
    words = ["--topology", "v5e:2x4", "--json", str(path)]
    assert main(["benchmark", "compile", *words]) == 0
    assert json.loads(path.read_text())["estimated_mfu"] > 0.48


@pytest.mark.slow
@needs_libtpu
def test_overlapped_gradients_are_reduced_beside_products(described):
    """libtpu runs the parts of an all-reduce in fusions with other operations."""
    config, task = synthetic_tiny(MeshConfig(overlap=True), num_layers=1)
    step = lower_step(run_on("v5e:2x2", config, task), task.batch(0))
    text = step.lowered.compile().as_text()
    assert "async-collective-start" in text
    parameters = jax.eval_shape(task.init_params, jax.random.key(0))
    reductions = collectives(text)["all-reduce"][0]
    assert reductions >= len(jax.tree.leaves(parameters)), "one for each"


FUSED = (
    "--topology {} --model tiny --sequence-length 128 --batch-size 4 "
    "--attention-kernel fused"
)


@pytest.mark.slow
@needs_libtpu
def test_the_attention_kernels_of_a_tpu_have_a_schedule(described, capsys):
    """Both layers of tiny call both kernels, which have dropout of their own."""
    assert main(["benchmark", "compile", *FUSED.format("v5e:2x2").split()]) == 0
    output = capsys.readouterr().out
    assert float(re.search(r"attention's kernels +([\d.]+)", output)[1]) > 0
    assert not re.search("attention's products +0*[1-9]", output), output


@needs_cuda_plugin
def test_cudnn_attention_compiles_for_several_gpus(described, tmp_path, refused):
    """Custom calls cannot be split by the compiler, so all axes must be manual."""
    path = tmp_path / "figures.json"
    words = [*FUSED.format("h100:4").split(), "--no-attention-dropout"]
    assert main(["benchmark", "compile", *words, "--json", str(path)]) == 0
    assert json.loads(path.read_text())["devices"] == 4
    assert "attention_probs_dropout_prob=0.1 cannot" in refused(
        "benchmark", "compile", *FUSED.format("h100:4").split()
    )

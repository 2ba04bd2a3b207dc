"""Accelerators by name: meshes on them, and steps compiled where there are none."""

import dataclasses
import functools
import importlib.metadata
import importlib.util
import json
import re

import jax
import numpy as np
import pytest

from bert_jax.cli.main import main
from bert_jax.config import MeshConfig
from bert_jax.distributed.environment import configure_topology
from bert_jax.distributed.mesh import make_mesh
from bert_jax.distributed.sharding import batch_sharding, tree_shardings
from bert_jax.dry_run.estimate import estimate
from bert_jax.dry_run.program import estimated_cycles
from bert_jax.dry_run.topologies import GIB, devices_of, parse_topology, target_config
from bert_jax.runs.pretraining import resolve
from bert_jax.tasks.pretraining import PretrainingTask
from bert_jax.training.optimizer import Optimizer
from bert_jax.training.step import initial_state, make_train_step, with_shardings

needs_libtpu = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="needs the extra topologies"
)


needs_cuda = pytest.mark.skipif(
    not any(importlib.util.find_spec(f"jax_cuda{n}_plugin") for n in (12, 13)),
    reason="needs the extra cuda12",
)


@pytest.fixture
def described(monkeypatch):
    """The variables of a compiler without a device."""
    variables: dict[str, str] = {}
    configure_topology(variables)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


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
    topology, message, capsys, described
):
    assert main(["benchmark", "compile", "--topology", topology]) == 2
    assert message in capsys.readouterr().err


def test_the_benchmark_needs_a_topology(capsys, described):
    assert main(["benchmark", "compile"]) == 2
    assert "--topology" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--topology", "v5e:2x4"), "--topology and --memory-gib need --dry-run"),
        (("--dry-run", "--topology", "v5e:2x4", "--devices", "8"), "drop --devices"),
        (("--dry-run", "--memory-gib", "8"), "--memory-gib needs --devices"),
    ],
)
def test_refused_options(options, message, capsys, described):
    assert main(["pretrain", *options]) == 2
    assert message in capsys.readouterr().err


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


@needs_libtpu
def test_slices_are_joined_along_data(described):
    """Two slices of four chips, of which no group of `fsdp` or `tensor` leaves one."""
    from jax.experimental import topologies

    devices = topologies.get_topology_desc(
        platform="tpu", topology_name="v5e:2x2", num_slices=2
    ).devices
    mesh = make_mesh(MeshConfig(data=2, fsdp=2, tensor=2), 8, devices=devices)
    for index, group in enumerate(mesh.devices):
        assert {device.slice_index for device in group.flat} == {index}


@pytest.fixture(scope="module")
def config(small_config, dataset):
    """The small run in bfloat16 on all devices."""
    model = dataclasses.replace(small_config.model, dtype="bfloat16")
    small = dataclasses.replace(small_config, model=model, mesh=MeshConfig())
    return resolve(small, dataset)


@needs_libtpu
def test_the_step_compiles_for_a_tpu(config, dataset, described):
    devices = devices_of(parse_topology("v5e:2x4"))
    mesh = make_mesh(config.mesh, config.batch_size, devices=devices)
    task, optimizer = PretrainingTask(config, dataset), Optimizer.of(config)
    shapes = jax.eval_shape(
        functools.partial(initial_state, task.init_params, optimizer, 0)
    )
    shardings = tree_shardings(mesh, shapes)
    batch = task.batch(0)
    rows = with_shardings(batch, dict.fromkeys(batch, batch_sharding(mesh)))
    step = make_train_step(task, optimizer, 1, mesh, shardings)
    compiled = step.lower(with_shardings(shapes, shardings), rows).compile()
    text = compiled.as_text()
    # The counts that losses are divided by, then gradients and sums.
    assert len(re.findall(r" all-reduce(-start)?\(", text)) == 2
    assert re.search(r"= bf16\[.* (convolution|dot)\(", text)
    assert "rng-bit-generator" in text, "dropout uses the hardware's generator"
    memory = compiled.memory_analysis()
    state = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))
    assert memory.alias_size_in_bytes >= state, "the state is donated"
    assert sum(estimated_cycles(text).values()) > 0


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
    devices = devices_of(parse_topology("v5e:1x1"))
    step = estimate(task, changed, batch, devices)
    assert step.total > 16 * GIB and not step.cycles
    assert step.collectives is None, "there is no program to count them in"
    assert step.total == step.temporary + step.parameters + step.optimizer


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
        memory = json.loads(path.read_text())["memory_of_each_mib"]
        return memory["activations and gradients"]

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


FUSED = (
    "--topology {} --model tiny --sequence-length 128 --batch-size 4 "
    "--attention-kernel fused"
)


@needs_libtpu
def test_the_attention_kernels_of_a_tpu_have_a_schedule(described, capsys):
    """Both layers of tiny call both kernels, which have dropout of their own."""
    assert main(["benchmark", "compile", *FUSED.format("v5e:2x2").split()]) == 0
    output = capsys.readouterr().out
    assert float(re.search(r"attention's kernels +([\d.]+)", output)[1]) > 0
    assert not re.search("attention's products +0*[1-9]", output), output


@needs_cuda
def test_cudnn_attention_compiles_for_several_gpus(described, tmp_path, capsys):
    """Custom calls cannot be split by the compiler, so all axes must be manual."""
    path = tmp_path / "figures.json"
    words = [*FUSED.format("h100:4").split(), "--no-attention-dropout"]
    assert main(["benchmark", "compile", *words, "--json", str(path)]) == 0
    assert json.loads(path.read_text())["devices"] == 4
    assert main(["benchmark", "compile", *FUSED.format("h100:4").split()]) == 2
    assert "attention_probs_dropout_prob=0.1 cannot" in capsys.readouterr().err

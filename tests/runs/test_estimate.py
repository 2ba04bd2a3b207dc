"""What a step takes by the compiler's account, and which alternatives are tried."""

import dataclasses
import itertools
import re
import types

import jax
import pytest

from bert_jax.apps.dry_run import advise as saving_memory
from bert_jax.apps.dry_run.advise import advise, alternatives, attempts, changed_options
from bert_jax.apps.dry_run.measured import free_memory, measured_lines
from bert_jax.apps.dry_run.pretraining import dry_run
from bert_jax.cli.main import main
from bert_jax.config import BertConfig, DataConfig, MeshConfig, PretrainConfig
from bert_jax.distributed.mesh import make_mesh
from bert_jax.runs.estimate import (
    GIB,
    Estimate,
    choose_devices,
    estimate,
)
from bert_jax.runs.pretraining import resolve
from bert_jax.tasks.pretraining.task import PretrainingTask
from bert_jax.training.run import Run

SIZES = dataclasses.asdict(Estimate(0, 0, 0, 0, 0.0))


def of_total(total: float) -> Estimate:
    return Estimate(**SIZES | {"total": int(total)})


def config(**changes) -> PretrainConfig:
    """Rows of 512 tokens, of which two make a microbatch of MIN_TOKENS."""
    usual = {"model": BertConfig.miniature(1, 16)}
    return PretrainConfig(data=DataConfig(sequence_length=512), **usual | changes)


def told(number: int, state_fits: bool, before: PretrainConfig) -> list[list[str]]:
    ways = alternatives(before, number, state_fits)
    return [[changed_options(each, before) for each in way] for way in ways]


def test_a_fused_kernel_has_no_scores_to_compute_again(monkeypatch):
    """On a TPU. A CPU has no such kernel, so that its scores are in memory."""
    model = BertConfig.miniature(1, 16, attention_kernel="fused")

    def options() -> str:
        ways = told(8, True, config(batch_size=64, model=model))
        return " ".join(option for way in ways for option in way)

    assert "remat layer" in options() and "remat attention" in options()
    tpu = types.SimpleNamespace(platform="tpu", device_kind="TPU v5 lite")
    monkeypatch.setattr(jax, "devices", lambda: [tpu])
    assert "remat layer" in options() and "remat attention" not in options()


def test_what_costs_least_is_tried_first():
    found = told(8, True, config(batch_size=64))
    assert found == [
        ["--microbatches 2", "--microbatches 4"],
        [
            "--model.remat attention",
            "--microbatches 2 --model.remat attention",
            "--microbatches 4 --model.remat attention",
        ],
        [
            "--model.remat layer",
            "--microbatches 2 --model.remat layer",
            "--microbatches 4 --model.remat layer",
        ],
        ["--mesh.fsdp 2", "--mesh.fsdp 4", "--mesh.fsdp 8"],
        ["--microbatches 2 --mesh.fsdp 8", "--microbatches 4 --mesh.fsdp 8"],
        [
            "--model.remat layer --mesh.fsdp 8",
            "--microbatches 2 --model.remat layer --mesh.fsdp 8",
            "--microbatches 4 --model.remat layer --mesh.fsdp 8",
            "--microbatches 8 --model.remat layer --mesh.fsdp 8",
        ],
    ]


def test_only_fsdp_divides_what_is_there_all_the_time():
    for way in told(8, False, config(batch_size=64)):
        assert all("--mesh.fsdp" in each for each in way)


def test_fsdp_divides_the_width_of_the_teacher_too():
    ways = alternatives(config(batch_size=64), 8, False, width=12)
    assert {each.mesh.fsdp for way in ways for each in way} == {2, 4}


def test_what_is_on_already_is_kept():
    before = config(
        batch_size=64,
        microbatches=2,
        model=BertConfig.miniature(1, 16, remat="layer"),
        mesh=MeshConfig(data=2, fsdp=4),
    )
    assert told(8, True, before) == [
        ["--microbatches 4"],
        ["--mesh.data 1 --mesh.fsdp 8"],
        ["--microbatches 4 --mesh.data 1 --mesh.fsdp 8"],
        [
            "--mesh.data 1 --mesh.fsdp 8",
            "--microbatches 4 --mesh.data 1 --mesh.fsdp 8",
            "--microbatches 8 --mesh.data 1 --mesh.fsdp 8",
        ],
    ]
    for way in alternatives(before, 8, True):
        for each in way:
            shape = each.mesh.data * each.mesh.fsdp * each.mesh.tensor
            assert shape == 8 and each.batch_size % (8 * each.microbatches) == 0


def test_one_device_has_no_other_to_share_with():
    ways = told(1, True, config(batch_size=2))
    assert ways == [
        ["--model.remat attention"],
        ["--model.remat layer"],
        ["--model.remat layer", "--microbatches 2 --model.remat layer"],
    ]


@pytest.mark.parametrize("memory", range(0, 18))
def test_the_last_that_fits_is_the_first_that_does(memory):
    """Against all of them, measured one by one."""
    sizes = [[16, 12, 11, 9], [15, 10, 8], [5, 4, 4, 3, 2]]
    numbers = itertools.count()
    ways = [[config(seed=next(numbers)) for _ in way] for way in sizes]
    totals = dict(zip(itertools.chain(*ways), itertools.chain(*sizes), strict=True))
    tried = list(attempts(ways, lambda each: of_total(totals[each]), float(memory)))
    fitting = [each for each, found in tried if found.total <= memory]
    wanted = next((each for each in totals if totals[each] <= memory), None)
    # Of each way but the last the smallest alone, and of that at most three more.
    assert (fitting[-1] if fitting else None) == wanted
    assert len(tried) <= len(ways) + 3


@pytest.fixture(scope="module")
def resolved(small_config, dataset):
    """The small run on eight devices, 16 rows to each."""
    spread = dataclasses.replace(small_config, mesh=MeshConfig(), batch_size=128)
    return resolve(spread, dataset)


def run_of(changed: PretrainConfig, dataset) -> Run[PretrainConfig]:
    mesh = make_mesh(changed.mesh, changed.batch_size, changed.microbatches)
    return Run(task=PretrainingTask(changed, dataset), config=changed, mesh=mesh)


def measured(changed: PretrainConfig, dataset) -> Estimate:
    run = run_of(changed, dataset)
    return estimate(run, run.task.batch(0))


def advised(changed: PretrainConfig, dataset, memory: float) -> list[str]:
    run = run_of(changed, dataset)
    return list(advise(run, run.task.batch(0), memory))


@pytest.mark.slow
def test_the_account_is_that_of_the_state(resolved, dataset):
    """One hidden layer of 16: parameters, two moments, four numbers and a key."""
    task = PretrainingTask(resolved, dataset)
    params = jax.eval_shape(task.init_params, jax.random.key(0))
    size = 4 * sum(leaf.size for leaf in jax.tree.leaves(params))
    before = len(jax.live_arrays())
    found = measured(resolved, dataset)
    assert len(jax.live_arrays()) <= before, "nothing is allocated"
    assert found.parameters == size
    assert 0 <= found.optimizer - 2 * size < 64
    rows = sum(values.nbytes for values in task.batch(0).values()) // 8
    arguments = found.total - found.temporary
    assert found.parameters + found.optimizer + rows <= arguments < 4 * size
    assert found.collectives["all-reduce"][0] >= 1
    # The compiler counts the optimizer and activations too, but not what is padded.
    assert 0.8 < 8 * found.flops / task.flops(task.batch(0)) < 2
    wide = dataclasses.replace(resolved, mesh=MeshConfig(fsdp=8))
    shared = measured(wide, dataset)
    assert shared.parameters < size / 4
    assert "all-gather" in shared.collectives


@pytest.fixture
def fake(monkeypatch):
    """Stands for the compiler: a tenth of a GiB of state, and what else takes room."""

    def estimated(run, batch, topology=""):
        changed = run.config
        rows = changed.batch_size // run.mesh.size // changed.microbatches
        least = {"none": 0.0, "attention": 0.2, "layer": 0.4}[changed.model.remat]
        total = 0.1 / changed.mesh.fsdp + rows * (1 - least) / 16
        state = int(0.1 * GIB / changed.mesh.fsdp)
        return dataclasses.replace(of_total(total * GIB), parameters=state)

    monkeypatch.setattr(saving_memory, "estimate", estimated)


@pytest.mark.parametrize(
    ("memory", "last"),
    [
        (2.0, "it fits in 2.00 GiB"),
        (1.0, "turn on --model.remat attention (0.90 GiB a device)"),
        (0.75, "turn on --model.remat layer (0.70 GiB a device)"),
        (0.5, "turn on --microbatches 2 --model.remat layer --mesh.fsdp 8 (0.31 GiB"),
        (0.09, "turn on --microbatches 8 --model.remat layer --mesh.fsdp 8 (0.09 GiB"),
        (0.01, "none fits: lower batch_size, or use more devices"),
    ],
)
def test_advice_is_what_fits(memory, last, resolved, dataset, fake):
    """Rows of 32 tokens are too few for microbatches, but in the last resort."""
    lines = advised(resolved, dataset, memory * GIB)
    assert lines[-1].startswith(last)
    tried = [line for line in lines if line.startswith("  tried ")]
    assert bool(tried) == (memory < 1.1)
    alone = "  parameters and optimizer alone do not: only --mesh.fsdp can help"
    assert (alone in lines) == (memory < 0.1)


@pytest.mark.slow
def test_advice_by_the_compiler(resolved, dataset):
    """The memory named is what the way of last resort takes."""
    smallest = measured(alternatives(resolved, 8, False)[-1][-1], dataset).total
    lines = advised(resolved, dataset, float(smallest))
    assert f"it does not fit in {smallest / GIB:.2f} GiB; compiling alt" in lines[5]
    assert lines[-1].startswith("turn on --")


def test_the_dry_run_compiles_where_it_is_asked(capsys, small_config, tmp_path):
    file = tmp_path / "config.py"
    spread = dataclasses.replace(small_config, mesh=MeshConfig())
    file.write_text(f"from bert_jax.config import *\nconfig = {spread!r}\n")
    asked = ["--dry-run", "--devices", "8", "--memory-gib", "1", "--verbose"]
    assert main(["pretrain", str(file), *asked]) == 0
    output = capsys.readouterr().out
    assert "encoder/layer_0/attention/query/kernel  [16, 16] float32" in output
    assert "[MASK]" in output and "to predict: " in output
    assert "model FLOPs a step: " in output
    assert re.search(r"compiled for 8 virtual CPU devices in \d+ s\n  an est", output)
    assert re.search(r"memory a device: parameters 0\.0 MiB, optimizer ", output)
    assert "it fits in 1.00 GiB\n" in output


def test_more_devices_than_a_running_jax_has(small_config):
    assert len(choose_devices(8)) == 8
    with pytest.raises(ValueError, match="devices=9 but JAX has started with 8 in"):
        dry_run(small_config, "", devices=9)


def test_a_step_that_does_not_fit_is_not_taken(small_config, dataset):
    """A CPU's devices share its memory."""
    one, config = jax.devices()[0], resolve(small_config, dataset)
    run = run_of(config, dataset)
    (line,) = measured_lines(run, run.task.batch(0), num_steps=1, free=1e3)
    assert line.endswith("not fit; raise --microbatches, or lower --batch-size")
    assert free_memory(one, 8) == pytest.approx(free_memory(one, 1) / 8, rel=0.2)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("--devices 8", "--devices, --topology and --memory-gib need --dry-run"),
        ("--memory-gib 8 --dry-run", "--memory-gib needs --devices"),
        ("--dry-run --devices -1", "--devices=-1 and --memory-gib=0.0 must be greater"),
        ("--dry-run --devices 1 --memory-gib nan", "--memory-gib=nan must be greater"),
    ],
)
def test_refused_options(asked, message, refused):
    error = refused("pretrain", *asked.split())
    assert message in error

"""One gradient, however the devices and microbatches share the batch."""

import dataclasses
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from float64 import (
    AGREEMENT,
    in_float64,
    reduced_in_float64,
    widened,
)

from bert_jax.config import (
    BertConfig,
    DataConfig,
    MaskingConfig,
    MeshConfig,
    PretrainConfig,
)
from bert_jax.data.records import Dataset
from bert_jax.distributed.mesh import make_mesh
from bert_jax.distributed.sharding import to_global_arrays, tree_shardings
from bert_jax.model.bert import init_params
from bert_jax.runs.pretraining import resolve
from bert_jax.tasks.pretraining.task import PretrainingTask
from bert_jax.training.gradients import Collectives
from bert_jax.training.optimizer import Optimizer
from bert_jax.training.step import (
    TrainState,
    initial_state,
    make_eval_step,
    make_train_step,
    num_parameters,
)

MESHES = [(1, 8, 1), (2, 1, 4)]


@pytest.fixture(scope="module")
def config(small_config: PretrainConfig, dataset: Dataset) -> PretrainConfig:
    """Two layers that eight devices can share, without dropout."""
    model = BertConfig.miniature(
        2,
        16,
        vocab_size=small_config.model.vocab_size,
        num_attention_heads=4,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return resolve(
        dataclasses.replace(small_config, model=model, batch_size=16, num_steps=20),
        dataset,
    )


def train(
    config: PretrainConfig,
    dataset: Dataset,
    steps: int,
    kind: type[PretrainingTask] = PretrainingTask,
) -> tuple[list[dict[str, float]], Any]:
    """The scalars of the first steps, and the parameters after the third.

    In float64, unless the model is to compute in bfloat16.
    """
    if config.model.dtype == "float32":
        config = dataclasses.replace(config, model=in_float64(config.model))
    with jax.enable_x64(config.model.dtype == "float64"):
        return _train(config, kind(config, dataset), steps)


def _train(
    config: PretrainConfig, task: PretrainingTask, steps: int
) -> tuple[list[dict[str, float]], Any]:
    mesh = make_mesh(config.mesh, config.batch_size, config.microbatches)
    optimizer = Optimizer.of(config)
    state = jax.jit(lambda: initial_state(task.init_params, optimizer, config.seed))()
    collectives = Collectives.of(config)
    if config.model.dtype == "float64":
        state, collectives = widened(state), reduced_in_float64(collectives)
    shardings = tree_shardings(mesh, state)
    state = jax.device_put(state, shardings)
    step = make_train_step(
        task, optimizer, config.microbatches, mesh, shardings, collectives
    )
    lines, params = [], None
    for number in range(steps):
        state, scalars, _ = step(state, to_global_arrays(task.batch(number), mesh))
        lines.append({name: float(value) for name, value in scalars.items()})
        if number == 2:
            params = jax.device_get(state.params)
    return lines, params


@pytest.fixture(scope="module")
def on_one_device(
    config: PretrainConfig, dataset: Dataset
) -> tuple[list[dict[str, float]], Any]:
    """Twenty steps of whole batches."""
    lines, params = train(config, dataset, 20)
    assert lines[-1]["loss"] < lines[0]["loss"] - 0.1, "the model must be learning"
    return lines, params


@pytest.mark.parametrize(
    ("shape", "remat"),
    [
        ((2, 2, 2), "layer"),
        *(pytest.param(shape, "none", marks=pytest.mark.slow) for shape in MESHES),
    ],
)
def test_meshes_agree_with_one_device(shape, remat, config, dataset, on_one_device):
    """Ten steps."""
    model = dataclasses.replace(config.model, remat=remat)
    meshed = dataclasses.replace(config, model=model, mesh=MeshConfig(*shape))
    lines, _ = train(meshed, dataset, 10)
    for one, many in zip(on_one_device[0][:10], lines, strict=True):
        assert many["loss"] == pytest.approx(one["loss"], rel=AGREEMENT)


@pytest.mark.slow
def test_gradients_reduced_one_by_one_are_the_same(config, dataset, on_one_device):
    overlapped = dataclasses.replace(config, mesh=MeshConfig(4, 2, overlap=True))
    lines, params = train(overlapped, dataset, 3)
    for one, other in zip(on_one_device[0], lines, strict=False):
        assert other["loss"] == pytest.approx(one["loss"], rel=AGREEMENT)
    for a, b in zip(*map(jax.tree.leaves, (on_one_device[1], params)), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=AGREEMENT)


@pytest.mark.slow
def test_gradients_summed_in_bfloat16_are_rounded(config, dataset, on_one_device):
    rounded = dataclasses.replace(config, mesh=MeshConfig(8, reduce_dtype="bfloat16"))
    lines, _ = train(rounded, dataset, 2)
    exact, other = on_one_device[0][0]["grad_norm"], lines[0]["grad_norm"]
    assert 1e-6 < abs(other / exact - 1) < 2**-8
    assert lines[1]["loss"] == pytest.approx(on_one_device[0][1]["loss"], rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float32", AGREEMENT), ("bfloat16", 2**-9)]
)
def test_gathering_once_a_step_is_the_same_step(dtype, tolerance, config, dataset):
    """In bfloat16 too: kernels are cast before they are gathered, not after."""
    model = dataclasses.replace(config.model, dtype=dtype)
    # Steps in proportion to the gradient: without epsilon, the sign of what is rounding
    # alone would decide about a whole step of Adam.
    optimizer = dataclasses.replace(config.optimizer, epsilon=1.0)
    lines, params = [], []
    for gather in ("layer", "step"):
        changed = dataclasses.replace(
            config,
            model=model,
            optimizer=optimizer,
            mesh=MeshConfig(2, 4, gather=gather),
            microbatches=2,
        )
        own_lines, own_params = train(changed, dataset, 3)
        lines.append(own_lines)
        params.append(own_params)
    # A value of bfloat16 is rounded by up to 2^-9 of it; sums of many, by less.
    for one, other in zip(*lines, strict=True):
        for name in ("loss", "grad_norm"):
            assert other[name] == pytest.approx(one[name], rel=tolerance)
    steps = 3 * optimizer.peak_learning_rate
    for a, b in zip(*map(jax.tree.leaves, params), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * steps)


@pytest.mark.parametrize(
    ("microbatches", "data"),
    [
        (4, 2),
        pytest.param(2, 1, marks=pytest.mark.slow),
        pytest.param(16, 1, marks=pytest.mark.slow),
    ],
)
def test_microbatches_make_the_same_update(
    microbatches, data, config, dataset, on_one_device
):
    """The rows are of unequal length, so that a mean of means would be another."""
    batch = dataset.train.gather(np.arange(config.batch_size))
    assert len(set(batch["end"][:, 0].tolist())) > 2
    lines, params = on_one_device
    changed = dataclasses.replace(
        config, microbatches=microbatches, mesh=MeshConfig(data)
    )
    other_lines, other_params = train(changed, dataset, 3)
    for one, many in zip(lines[:3], other_lines, strict=True):
        for name, value in one.items():
            assert many[name] == pytest.approx(value, rel=AGREEMENT), name
    for a, b in zip(
        jax.tree.leaves(params), jax.tree.leaves(other_params), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=0, atol=AGREEMENT)


@pytest.fixture(scope="module")
def dropping(config: PretrainConfig) -> PretrainConfig:
    """One layer with much dropout."""
    model = dataclasses.replace(
        config.model,
        num_hidden_layers=1,
        hidden_dropout_prob=0.5,
        attention_probs_dropout_prob=0.1,
    )
    return dataclasses.replace(config, model=model)


@pytest.fixture(scope="module")
def with_dropout(dropping: PretrainConfig, dataset: Dataset) -> list[dict[str, float]]:
    lines, _ = train(dropping, dataset, 3)
    return lines


class Drawing(PretrainingTask):
    """Also returns a number drawn by the key of dropout, and its square."""

    def loss(self, params, batch, key):
        drawn, one = jax.random.uniform(key, dtype=jnp.float32), jnp.float32(1)
        moments = {"drawn": (drawn, one), "square": (drawn**2, one)}
        return super().loss(params, batch, key) | moments


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"microbatches": 4}, marks=pytest.mark.slow, id="parts"),
        pytest.param({"mesh": MeshConfig(4)}, id="devices"),
    ],
)
def test_dropout_differs_between_microbatches_and_devices(change, dropping, dataset):
    changed = dataclasses.replace(dropping, **change)
    ((line,), _) = train(changed, dataset, 1, Drawing)
    deviation = (line["square"] - line["drawn"] ** 2) ** 0.5
    assert deviation > 0.01, "all parts have drawn the same number"


@pytest.mark.slow
@pytest.mark.parametrize("remat", ["attention", "layer"])
def test_rematerialisation_changes_only_memory(remat, dropping, dataset, with_dropout):
    """Dropout is on: what is computed again must draw the same masks."""
    model = dataclasses.replace(dropping.model, remat=remat)
    lines, _ = train(dataclasses.replace(dropping, model=model), dataset, 3)
    for one, other in zip(with_dropout, lines, strict=True):
        assert other == pytest.approx(one, rel=AGREEMENT)


LAYERS = [1, pytest.param(12, marks=pytest.mark.slow)]
"""Of base; the collectives are those of one layer already."""


def batch_of(rows: int) -> dict[str, jax.ShapeDtypeStruct]:
    """The shapes of a batch of 128 tokens a row."""
    of_pairs = {
        "first": jnp.uint16,
        "second": jnp.uint16,
        "end": jnp.uint16,
        "next_sentence_label": jnp.int8,
    }
    return {
        "tokens": jax.ShapeDtypeStruct((rows, 128), jnp.uint16),
        "row": jax.ShapeDtypeStruct((rows,), jnp.int32),
    } | {
        name: jax.ShapeDtypeStruct((rows, 1), dtype) for name, dtype in of_pairs.items()
    }


# Only the collectives are compared: the machine code need not be fast.
NO_OPTIMIZATION = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
}


def lowered_step(
    model: BertConfig,
    shape: tuple[int, int, int],
    dataset: Dataset,
    rows: int = 8,
    task: type = PretrainingTask,
    gather: str = "layer",
    microbatches: int = 1,
) -> tuple[Any, TrainState]:
    """The training step on eight devices; the shardings of its state."""
    config = PretrainConfig(
        model=model,
        mesh=MeshConfig(*shape, gather=gather),
        data=DataConfig(pairs="nsp"),
        masking=MaskingConfig(mask_token_id=103, vocab_size=model.vocab_size),
        batch_size=rows,
    )
    mesh = make_mesh(config.mesh, config.batch_size)
    built = task(config, dataset)  # of which nothing is read
    optimizer = Optimizer.of(config)
    state = jax.eval_shape(lambda: initial_state(built.init_params, optimizer, 0))
    shardings = tree_shardings(mesh, state)
    step = make_train_step(
        built, optimizer, microbatches, mesh, shardings, Collectives.of(config)
    )
    return step.lower(state, batch_of(rows)), shardings


def compiled_base(
    layers: int, shape: tuple[int, int, int], dataset: Dataset
) -> tuple[str, int]:
    """BERT base's training step on eight devices as XLA leaves it; its parameters."""
    model = BertConfig.base(num_hidden_layers=layers)
    lowered, shardings = lowered_step(model, shape, dataset)
    compiled = lowered.compile(compiler_options=NO_OPTIMIZATION)
    for path, array in jax.tree_util.tree_leaves_with_path(
        compiled.output_shardings[0]
    ):
        assert array.spec == tree_sharding_at(shardings, path)
    params = jax.eval_shape(lambda: init_params(model, jax.random.key(0)))
    return compiled.as_text(), num_parameters(params)


def tree_sharding_at(shardings: Any, path: Any) -> Any:
    return dict(jax.tree_util.tree_leaves_with_path(shardings))[path].spec


def collectives(text: str) -> dict[str, list[int]]:
    """How many numbers each collective of a compiled program gives, by its kind."""
    sizes: dict[str, list[int]] = {}
    kinds = "all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute"
    for result, kind in re.findall(rf"= (\([^)]*\)|\S+) ({kinds})(?:-start)?\(", text):
        shapes = re.findall(r"\w+\[([\d,]*)\]", result)
        numbers = [int(np.prod([int(n) for n in s.split(",") if n])) for s in shapes]
        sizes.setdefault(kind, []).append(sum(numbers))
    return sizes


@pytest.mark.parametrize("layers", LAYERS)
def test_data_parallel_base_reduces_its_gradient_once(layers, dataset):
    text, parameters = compiled_base(layers, (8, 1, 1), dataset)
    sizes = collectives(text)
    assert sizes.keys() == {"all-reduce"}
    # Before it, the two counts that the losses are divided by.
    counts, reduction = sorted(sizes["all-reduce"])
    assert counts == 2
    # Beside the gradients only the sums of the losses and the accuracies.
    assert parameters <= reduction <= parameters + 16


@pytest.mark.slow
@pytest.mark.parametrize("layers", [1, 12])
def test_fsdp_base_gathers_parameters_and_scatters_gradients(layers, dataset):
    text, parameters = compiled_base(layers, (1, 8, 1), dataset)
    sizes = collectives(text)
    assert sum(sizes["all-gather"]) < 2.1 * parameters
    assert sum(sizes["reduce-scatter"]) == pytest.approx(parameters / 8, rel=0.02)
    # Without scattering, the whole gradient would be reduced everywhere.
    assert sum(sizes["all-reduce"]) < 0.2 * parameters


@pytest.mark.parametrize(("remat", "heads"), [("none", 6), ("layer", 3)])
def test_each_kernel_is_gathered_for_both_passes(remat, heads, dataset):
    """The pooler and the heads are outside of what a layer computes again; the tables
    of the embeddings are gathered once, for both ends of the model.
    """
    model = BertConfig.tiny(remat=remat)
    text = lowered_step(model, (1, 8, 1), dataset)[0].as_text()
    gathers = re.findall(r"stablehlo.all_gather", text)
    assert len(gathers) == 2 * 6 * model.num_hidden_layers + heads + 3


def test_parameters_can_be_gathered_once_for_all_microbatches(dataset):
    """Each sharded parameter once, kernels in bfloat16, outside of the loop."""
    model = BertConfig.tiny(dtype="bfloat16")
    options = {"rows": 32, "gather": "step", "microbatches": 4}
    text = lowered_step(model, (1, 8, 1), dataset, **options)[0].as_text()
    gathers = re.findall(r"stablehlo.all_gather.*-> tensor<[\dx]+x(\w+)>", text)
    kernels, tables = 6 * model.num_hidden_layers + 3, 3
    assert sorted(gathers) == ["bf16"] * kernels + ["f32"] * tables
    assert len(re.findall("stablehlo.reduce_scatter", text)) == kernels + tables
    loop = text[text.index("stablehlo.while") :]
    assert "stablehlo.all_gather" not in loop


def test_kernels_of_a_task_that_does_not_say_so_are_gathered_first(dataset):
    """Its loss may use a kernel in any way."""

    class Own(PretrainingTask):
        takes_sharded_kernels = False

        def loss(self, params, batch, key):
            kernel = params["encoder"]["layer_0"]["attention"]["query"]["kernel"]
            assert kernel.shape == (128, 128)
            return super().loss(params, batch, key)

    text = lowered_step(BertConfig.tiny(), (1, 8, 1), dataset, task=Own)[0].as_text()
    assert len(re.findall(r"stablehlo.all_gather", text)) == 6 * 2 + 3 + 3


@pytest.mark.slow
def test_rematerialisation_and_fsdp_both_save_memory(dataset):
    """Neither undoes the other: see what the forward pass keeps for the backward."""
    sizes = []

    class Measured(PretrainingTask):
        def loss(self, params, batch, key):
            def losses(params):
                return PretrainingTask.loss(self, params, batch, key)

            _, backward = jax.vjp(losses, params)
            sizes.append(sum(leaf.nbytes for leaf in jax.tree.leaves(backward)))
            return losses(params)

    def kept(remat, fsdp):
        model = BertConfig.miniature(2, 64, remat=remat, vocab_size=128)
        lowered_step(model, (8 // fsdp, fsdp, 1), dataset, task=Measured)
        return sizes[-1]

    assert kept("none", 8) < kept("none", 1)
    assert kept("layer", 8) < 0.5 * kept("none", 8)
    assert kept("attention", 8) < 0.9 * kept("none", 8)


@pytest.mark.slow
@pytest.mark.parametrize("layers", [1, 12])
def test_base_compiles_on_all_three_axes(layers, dataset):
    text, parameters = compiled_base(layers, (2, 2, 2), dataset)
    assert sum(collectives(text)["reduce-scatter"]) < 0.6 * parameters


def test_evaluation_gathers_nothing_and_adds_its_sums_up_once(dataset):
    """Masks are drawn where their rows lie."""
    config = PretrainConfig(
        model=BertConfig.tiny(),
        mesh=MeshConfig(8, 1, 1),
        data=DataConfig(pairs="nsp"),
        masking=MaskingConfig(mask_token_id=103, vocab_size=30522),
        batch_size=8,
    )
    mesh = make_mesh(config.mesh, config.batch_size)
    task = PretrainingTask(config, dataset)
    optimizer = Optimizer.of(config)
    state = jax.eval_shape(lambda: initial_state(task.init_params, optimizer, 0))
    step = make_eval_step(task, mesh, tree_shardings(mesh, state))
    lowered = step.lower(state.params, batch_of(config.batch_size))
    text = lowered.compile(compiler_options=NO_OPTIMIZATION).as_text()
    # Of masks and of pairs: the loss, the hits, and how many there were.
    assert collectives(text) == {"all-reduce": [6]}


def test_evaluation_agrees_with_one_device(config, dataset):
    """On a mesh of all three axes, of which two share the rows."""
    wide = dataclasses.replace(config, model=in_float64(config.model))
    task = PretrainingTask(wide, dataset)
    batch = next(iter(task.evaluation_batches()))
    totals = []
    with jax.enable_x64(True):
        optimizer = Optimizer.of(wide)
        state = jax.jit(lambda: initial_state(task.init_params, optimizer, 0))()
        state = widened(state)
        for shape in ((1, 1, 1), (2, 2, 2)):
            mesh = make_mesh(MeshConfig(*shape), config.batch_size)
            shardings = tree_shardings(mesh, state)
            params = jax.device_put(state.params, shardings.params)
            totals.append(make_eval_step(task, mesh, shardings)(params, batch)[0])
    one, many = totals
    for name, sums in one.items():
        np.testing.assert_allclose(many[name], sums, rtol=AGREEMENT)

"""The model's parts: what they hold, how they start, what they must not see."""

import dataclasses
import functools
import json
import types
from pathlib import Path

import chex
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from flax.errors import ScopeParamShapeError
from float64 import AGREEMENT, in_float64, widened
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from scipy.special import erf

from bert_jax.config import BertConfig
from bert_jax.config.serialization import from_dict, to_dict
from bert_jax.distributed.sharding import path_name
from bert_jax.model.attention import Visibility, attention_probabilities, chosen_kernel
from bert_jax.model.bert import compute, init_params
from bert_jax.model.encoder import (
    Encoder,
    select_rows,
)
from bert_jax.model.heads import gather_positions
from bert_jax.model.inputs import Inputs
from bert_jax.model.layers import (
    LayerNorm,
    activation,
    add_bias,
    bias_with_gradient_by_product,
    sharded_matmul,
)
from bert_jax.model.losses import accuracy, accuracy_with_ties

GOLDEN = Path(__file__).parent.parent / "golden" / "param_tree.json"
CONFIG = BertConfig.miniature(2, 32, vocab_size=64, num_attention_heads=4)
drawn = functools.partial(jax.jit(init_params, static_argnums=0), key=jax.random.key(0))


@pytest.fixture(scope="module")
def params():
    return drawn(CONFIG)


def inputs(rows: int = 2, length: int = 12):
    ids = jax.random.randint(jax.random.key(1), (rows, length), 5, 64)
    return ids, jnp.zeros_like(ids), jnp.ones_like(ids)


@functools.partial(jax.jit, static_argnames=("config", "deterministic"))
def encode(params, ids, segments, mask, config=CONFIG, **options):
    return Encoder(config).apply(
        {"params": params["encoder"]}, ids, segments, mask, **options
    )


@pytest.mark.parametrize("name", ["kernel", "bias"])
def test_a_parameter_of_another_shape_is_named(params, name):
    dense = params["encoder"]["layer_1"]["attention"]["query"]
    wrong = dense | {name: dense[name][..., :-1]}
    tree = jax.tree.map(lambda x: x, params)
    tree["encoder"]["layer_1"]["attention"]["query"] = wrong
    with pytest.raises(ScopeParamShapeError, match=f'"{name}" in "/layer_1/attention'):
        encode(tree, *inputs())


def test_the_parameter_tree_is_the_promised_one(params):
    """The names on disk and in `.params` are a promise to every other program.

    A change of this file breaks the checkpoints and programs of users.
    """
    tree = {
        path_name(path): list(leaf.shape)
        for path, leaf in jax.tree_util.tree_leaves_with_path(params)
    }
    assert tree == json.loads(GOLDEN.read_text())


def test_init_draws_parameters_alone():
    """A loop of Flax hands all else on, where each step would append to it."""
    ids = jnp.zeros((1, 8), jnp.int32)
    init = Encoder(BertConfig.tiny(vocab_size=40)).init
    drawn = jax.eval_shape(init, jax.random.key(0), ids, ids, ids == 0)
    assert drawn.keys() == {"params"}


def test_a_batch_of_no_rows(params):
    rows = jax.tree.map(lambda array: array[:0], inputs())
    assert jax.eval_shape(encode, params, *rows).shape == (0, 12, 32)


def test_how_parameters_start(params):
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        name = path_name(path)
        if name.endswith("bias"):
            assert not leaf.any(), name
        elif name.endswith("scale"):
            assert (leaf == 1).all(), name
        else:
            # Truncated at two standard deviations, and close to filling that range.
            assert np.abs(leaf).max() <= 0.04 + 1e-6, name
            if leaf.size > 500:
                assert leaf.std() == pytest.approx(0.02 * 0.8796, rel=0.1), name


def test_a_fine_tuning_head_starts_without_truncation():
    names = tuple(map(str, range(50)))
    config = dataclasses.replace(CONFIG, head="sequence_classification", labels=names)
    params = drawn(config)
    kernel = np.asarray(params["classifier"]["dense"]["kernel"])
    assert kernel.std() == pytest.approx(0.02, rel=0.05) and np.abs(kernel).max() > 0.05
    assert np.abs(params["pooler"]["dense"]["kernel"]).max() <= 0.04 + 1e-6


def test_padding_does_not_change_real_tokens(params):
    ids, segments, mask = inputs()
    mask = mask.at[:, 8:].set(0)
    one = encode(params, ids, segments, mask)
    other = encode(params, ids.at[:, 8:].set(7), segments, mask)
    np.testing.assert_array_equal(one[:, :8], other[:, :8])
    seen = encode(params, ids.at[:, 7].set(7), segments, mask)
    assert np.abs(one[:, 0] - seen[:, 0]).max() > 1e-6, "real tokens are attended to"


def test_a_row_of_padding_is_finite(params):
    ids, segments, _ = inputs()
    nothing = jnp.zeros_like(ids)
    assert jnp.isfinite(encode(params, ids, segments, nothing)).all()


def kernel(monkeypatch, platform, length=128, deterministic=False, **changes):
    """Return the attention kernel of a model on a device that is not here."""
    kinds = {"gpu": "NVIDIA H200", "tpu": "TPU v5 lite", "cpu": "cpu"}
    device = types.SimpleNamespace(platform=platform, device_kind=kinds[platform])
    monkeypatch.setattr(jax, "devices", lambda: [device])
    options = {"attention_kernel": "fused", "dtype": "bfloat16"} | changes
    return chosen_kernel(BertConfig.tiny(**options), length, deterministic)


def test_each_device_has_its_own_attention_kernel(monkeypatch):
    choose = functools.partial(kernel, monkeypatch)
    assert choose("tpu") == choose("tpu", dtype="float32") == "tpu"
    assert choose("tpu", length=96) == choose("cpu") == "plain"
    assert choose("tpu", attention_kernel="plain") == "plain"
    assert choose("gpu", attention_probs_dropout_prob=0.0) == "cudnn"
    assert choose("gpu", dtype="float32") == "plain"
    assert choose("gpu", deterministic=True) == "cudnn", "no dropout in inference"
    with pytest.raises(ValueError, match=r"attention_probs_dropout_prob=0.1 cannot"):
        choose("gpu")
    without = functools.partial(choose, "gpu", attention_probs_dropout_prob=0.0)
    with pytest.raises(ValueError, match="rows of 127 cannot .* needs an even number"):
        without(length=127)
    assert without(length=127, deterministic=True) == "cudnn"
    with pytest.raises(ValueError, match="heads of 4 cannot be used with"):
        without(num_attention_heads=32)


def test_a_cpu_beside_a_gpu_gets_no_kernel_of_cudnn(monkeypatch):
    gpu = types.SimpleNamespace(platform="gpu", device_kind="NVIDIA H200")
    cpu = jax.devices()[0]
    monkeypatch.setattr(jax, "devices", lambda: [gpu])
    config = BertConfig.tiny(
        vocab_size=40,
        attention_kernel="fused",
        dtype="bfloat16",
        attention_probs_dropout_prob=0.0,
    )
    ids = jnp.zeros((1, 8), jnp.int32)
    apply = functools.partial(Encoder(config).apply, deterministic=True)
    with jax.default_device(cpu):
        params = jax.jit(Encoder(config).init)(jax.random.key(0), ids, ids, ids == 0)
        program = jax.jit(apply).lower(params, ids, ids, ids == 0).as_text()
    assert "cudnn" not in program
    with pytest.raises(RuntimeError, match="cuDNN"):  # which is asked for, not there
        jax.eval_shape(apply, params, ids, ids, ids == 0)


def test_a_file_of_version_0_1_names_its_kernel_otherwise():
    old = to_dict(BertConfig.tiny())
    del old["attention_kernel"]
    assert from_dict(BertConfig, old | {"fused_attention": False}) == BertConfig.tiny()
    fused = from_dict(BertConfig, old | {"fused_attention": True})
    assert fused == BertConfig.tiny(attention_kernel="fused")


@pytest.mark.slow
def test_the_matrices_of_cpus_and_the_batches_of_tpus_are_the_same(monkeypatch):
    """A dense layer flattens its input on a CPU only."""
    config = BertConfig.tiny(vocab_size=40)
    ids = jnp.arange(24).reshape(2, 12)
    params = jax.device_get(drawn(config)["encoder"])
    config = in_float64(config)

    def states(params):
        return Encoder(config).apply({"params": params}, ids, ids % 2, ids >= 0)

    def program():
        value = jax.value_and_grad(lambda params: (states(params) ** 2).sum())
        with jax.enable_x64(True):
            wide = widened(params)
            return value(wide), jax.jit(states).lower(wide).as_text()

    (cpu, cpu_grads), cpu_text = program()
    tpu = types.SimpleNamespace(platform="tpu", device_kind="TPU v5 lite")
    monkeypatch.setattr(jax, "devices", lambda: [tpu])
    jax.clear_caches()
    (tpu, tpu_grads), tpu_text = program()
    np.testing.assert_allclose(cpu, tpu, rtol=AGREEMENT)
    chex.assert_trees_all_close(cpu_grads, tpu_grads, rtol=0, atol=1e-10)
    assert "24x128" in cpu_text.replace("tensor<", " ")
    assert "24x128" not in tpu_text


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_parameters_may_be_numpy_arrays(params, dtype):
    config = dataclasses.replace(CONFIG, dtype=dtype)
    encoder = params["encoder"]
    as_numpy = jax.tree.map(np.asarray, encoder)
    expected = Encoder(config).apply({"params": encoder}, *inputs())
    states = Encoder(config).apply({"params": as_numpy}, *inputs())
    np.testing.assert_array_equal(states, expected)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", [(16, 8), (4, 4, 8)])
def test_a_product_with_a_sharded_kernel(shape, axis, keep):
    """Rows and kernel are sharded alike over four devices."""
    shapes = shape, (8, 12), (*shape[:-1], 12)
    inputs, kernel, weights = map(np.random.default_rng(0).standard_normal, shapes)

    def sharded(inputs, kernel):
        return sharded_matmul(inputs, kernel, inputs, axis, keep)

    mesh = Mesh(np.array(jax.devices()[:4]), ("fsdp",))
    specs = P("fsdp"), P(*("fsdp" if axis == i else None for i in (0, 1)))
    mapped = jax.shard_map(
        sharded, mesh=mesh, in_specs=specs, out_specs=P("fsdp"), check_vma=False
    )

    def both(product):
        def loss(*arrays):
            return (jnp.sin(product(*arrays)) * weights).sum()

        with jax.enable_x64(True):
            return jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))(inputs, kernel)

    close = {"rtol": AGREEMENT, "atol": AGREEMENT}
    chex.assert_trees_all_close(both(mapped), both(jnp.matmul), **close)


def test_a_model_with_one_segment_takes_pairs():
    """Flax's table of one row has it for every index."""
    config = dataclasses.replace(CONFIG, type_vocab_size=1)
    params = drawn(config)["encoder"]
    ids, segments, mask = inputs()
    states = [
        Encoder(config).apply({"params": params}, ids, each, mask)
        for each in (segments, segments + 1)
    ]
    np.testing.assert_array_equal(*states)


def test_accuracy_of_ties():
    scores, labels = jnp.asarray([[1.0, 1.0], [0.0, 2.0]]), jnp.asarray([1, 1])
    weights = jnp.ones(2)
    assert float(accuracy(scores, labels, weights)[0]) == 1, "the first one is chosen"
    assert float(accuracy_with_ties(scores, labels, weights)[0]) == 2


def test_rows_of_a_small_table():
    table = jnp.asarray([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    indices = jnp.asarray([[0, 2, 1], [2, 2, 3]])
    rows = select_rows(table, indices)
    np.testing.assert_array_equal(rows[0], table[indices[0]])
    assert np.isnan(rows[1, 2]).all(), "there is no row 3"
    with pytest.raises(jaxtyping.TypeCheckError, match="table"):  # while tests run
        select_rows(table[0], indices)
    weights = jnp.arange(6.0).reshape(2, 3, 1)

    def total(choose):
        return jax.grad(lambda table: (choose(table) * weights)[:1].sum())(table)

    np.testing.assert_array_equal(
        total(lambda table: select_rows(table, indices)),
        total(lambda table: table[jnp.minimum(indices, 2)]),
    )


@pytest.mark.parametrize("mean", [0.0, 1.0, 100.0])
def test_layer_norm_of_bfloat16_values_in_one_pass(mean, monkeypatch):
    """As on a TPU; means of a hundred deviations are far beyond those of a model."""
    tpu = types.SimpleNamespace(platform="tpu", device_kind="TPU v5 lite")
    monkeypatch.setattr(jax, "devices", lambda: [tpu])
    noise = np.random.default_rng(0).normal(mean, 1, (64, 256))
    values = jnp.asarray(noise, jnp.bfloat16)
    layer = LayerNorm(BertConfig.tiny())
    one_pass, _ = layer.init_with_output(jax.random.key(0), values)
    exact, _ = layer.init_with_output(jax.random.key(0), values.astype(jnp.float32))
    # The rounding of the mean square is as large as some 1e-7 of it.
    np.testing.assert_allclose(one_pass, exact, atol=1e-4 + 5e-7 * mean**2)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_the_gradient_of_a_bias_by_a_product(dtype):
    """Of the products and of a bias, as TPUs compute it, and as a sum."""
    rng = np.random.default_rng(0)
    shape = (3, 5, 16)
    products = jnp.asarray(rng.normal(size=shape), dtype)
    weights = jnp.asarray(rng.normal(size=shape), dtype)
    bias = jnp.asarray(rng.normal(size=16), jnp.float32)

    def results(function):
        output, pull = jax.vjp(function, products, bias)
        return output, *pull(weights)

    expected = results(lambda products, bias: add_bias(products, bias, dtype))
    for actual, exact in zip(
        results(bias_with_gradient_by_product), expected, strict=True
    ):
        assert actual.dtype == exact.dtype
        np.testing.assert_allclose(
            actual.astype(jnp.float32), exact.astype(jnp.float32), rtol=1e-5, atol=1e-5
        )


@pytest.mark.parametrize("name", ["gelu", "gelu_new"])
def test_the_tail_of_gelu_in_bfloat16(name):
    config = BertConfig.tiny(hidden_act=name, dtype="bfloat16")
    values = jnp.linspace(-3, 3, 49).astype(jnp.bfloat16)
    found = jax.jit(activation(config.hidden_act))(values)
    assert found.dtype == jnp.bfloat16
    x = np.asarray(values, np.float64)
    inner = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    share = erf(x / np.sqrt(2)) if name == "gelu" else np.tanh(inner)
    # Half a bit of bfloat16 is 2^-9; 1 + erf in bfloat16 loses half of the tail.
    np.testing.assert_allclose(found.astype(float), x * (1 + share) / 2, rtol=2**-6)


def test_causal_attention_does_not_look_ahead(params):
    causal = BertConfig.miniature(
        2, 32, vocab_size=64, num_attention_heads=4, attention="causal"
    )
    ids, segments, mask = inputs()
    changed = ids.at[:, 6].set(9)
    one = encode(params, ids, segments, mask, causal)
    other = encode(params, changed, segments, mask, causal)
    np.testing.assert_array_equal(one[:, :6], other[:, :6])
    assert np.abs(one[:, 6:] - other[:, 6:]).max() > 1e-4
    both = encode(params, ids, segments, mask) - encode(params, changed, segments, mask)
    assert np.abs(both[:, :6]).max() > 1e-5, "the default does look ahead"


def test_attention_probabilities_by_hand():
    """One head of width 4: scores q·k / 2, softmax over the visible keys."""
    query = jnp.full((1, 1, 1, 4), 1.0)
    key = jnp.stack([jnp.zeros(4), jnp.full(4, 0.5), jnp.full(4, 9.0)])[None, :, None]
    visible = Visibility(jnp.array([[True, True, False]])).matrix()
    found = attention_probabilities(query, key, visible)[0, 0, 0]
    expected = np.exp([0.0, 1.0]) / np.exp([0.0, 1.0]).sum()
    np.testing.assert_allclose(found, [*expected, 0.0], atol=1e-7)


def test_dropout_acts_only_when_asked(params):
    ids, segments, mask = inputs()
    still = encode(params, ids, segments, mask)
    np.testing.assert_array_equal(still, encode(params, ids, segments, mask))
    one, other = (
        encode(
            params,
            ids,
            segments,
            mask,
            deterministic=False,
            rngs={"dropout": jax.random.key(seed)},
        )
        for seed in (0, 1)
    )
    assert np.abs(one - other).max() > 0.01 and np.abs(one - still).max() > 0.01


def test_bfloat16_computes_coarsely_and_keeps_float32_parameters():
    config = BertConfig.miniature(
        2, 32, vocab_size=64, num_attention_heads=4, dtype="bfloat16"
    )
    ids, segments, mask = inputs()
    first = jnp.zeros((2, 1), jnp.int32)
    params = drawn(config)
    kinds = {leaf.dtype for leaf in jax.tree.leaves(params)}
    assert kinds == {jnp.dtype("float32")}
    hidden = encode(params, ids, segments, mask, config)
    exact = encode(params, ids, segments, mask)
    assert hidden.dtype == jnp.bfloat16
    difference = np.abs(hidden.astype(jnp.float32) - exact).max()
    assert 1e-4 < difference < 0.1
    arrays = Inputs(ids, segments, mask > 0), ids[:, :2] % 12, first
    scores = compute(config, params, "pretraining_scores", *arrays)
    assert all(score.dtype == jnp.float32 for score in scores)


def test_gather_positions_takes_the_very_rows():
    hidden = jax.random.normal(jax.random.key(0), (2, 5, 3))
    found = gather_positions(hidden, jnp.array([[4, 0], [2, 2]]))
    np.testing.assert_array_equal(found[0], hidden[0, jnp.array([4, 0])])
    np.testing.assert_array_equal(found[1], hidden[1, jnp.array([2, 2])])

"""The table of a model's parameters, their memory, and its FLOPs."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from etils import epath

from bert_jax.apps.inspect.summary import (
    flops_line,
    groups_of,
    memory_lines,
    origins_of,
    summary,
)
from bert_jax.cli.main import main
from bert_jax.config import BertConfig, RunConfig
from bert_jax.model.bert import Bert, init_params
from bert_jax.model.flops import encoding_flops
from bert_jax.model.inputs import Inputs
from bert_jax.pretrained import Model, load_pretrained
from bert_jax.storage.files import write_json
from bert_jax.training.optimizer import Optimizer

CONFIG = BertConfig.miniature(12, 16, vocab_size=50, max_position_embeddings=8)


@pytest.fixture(scope="module")
def model(tokenizer_directory) -> Model:
    """A model of twelve layers, imported."""
    from bert_jax.tokenization import Tokenizer

    params = jax.tree.map(
        lambda leaf: np.zeros(leaf.shape, leaf.dtype),
        jax.eval_shape(lambda: init_params(CONFIG, jax.random.key(0))),
    )
    tokenizer = Tokenizer.load(tokenizer_directory)
    return Model(
        config=CONFIG,
        params=params,
        tokenizer=tokenizer,
        pairs="nsp",
        directory=epath.Path("m"),
        imported=True,
        embedding=None,
        sources=(),
    )


def test_layers_that_are_alike_are_one_group(model):
    groups = groups_of(model)
    assert [group.name for group in groups] == [
        "encoder/embeddings",
        "encoder/layer_0 … layer_11 ×12",
        "pooler",
        "masked_lm",
        "next_sentence",
    ]
    total = sum(leaf.size for leaf in jax.tree.leaves(model.params))
    assert sum(group.num_parameters for group in groups) == total
    layer = groups[1]
    assert layer.num_parameters == 12 * (12 * 16 * 16 + 13 * 16)
    assert [module.name for module in layer.modules] == [
        *(f"attention/{name}" for name in ("query", "key", "value", "output")),
        *("attention/layer_norm", "feed_forward/in", "feed_forward/out"),
        "feed_forward/layer_norm",
    ]
    assert layer.modules[5].shapes == ((16, 64), (64,)), "the kernel, then the bias"
    assert groups[3].modules[-1].name == "bias"
    assert {module.origin for group in groups for module in group.modules} == {
        "imported"
    }


def test_a_layer_of_another_shape_is_not_folded(model):
    params = jax.tree.map(lambda leaf: leaf, model.params)
    wide = np.zeros((16, 65), np.float32)
    params["encoder"]["layer_7"]["feed_forward"]["in"]["kernel"] = wide
    groups = groups_of(dataclasses.replace(model, params=params))
    assert [group.name for group in groups if "/layer_" in group.name] == [
        "encoder/layer_0 … layer_6 ×7",
        "encoder/layer_7",
        "encoder/layer_8 … layer_11 ×4",
    ]


def test_frozen_layers_are_named(model, tmp_path):
    write_json(
        {"optimizer": {"frozen_layers": 3}}, epath.Path(tmp_path / "config.json")
    )
    run = dataclasses.replace(model, imported=False, directory=epath.Path(tmp_path))
    groups = groups_of(run)
    assert [(group.name, group.modules[0].origin) for group in groups[:3]] == [
        ("encoder/embeddings", "frozen"),
        ("encoder/layer_0 … layer_2 ×3", "frozen"),
        ("encoder/layer_3 … layer_11 ×9", "trained"),
    ]
    assert groups[-1].modules[0].origin == "trained"
    write_json({"optimizer": {}}, epath.Path(tmp_path / "config.json"))
    assert set(jax.tree.leaves(origins_of(run))) == {"trained"}


def test_the_memory_is_that_of_a_training_state(model):
    params = jax.tree.map(jnp.asarray, model.params)
    state = Optimizer.of(RunConfig(model=CONFIG)).init(params)
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(params))
    with_moments = size + sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    assert with_moments == pytest.approx(3 * size, rel=1e-3)
    first, second = memory_lines(model.params)
    assert first == f"memory of the parameters: {size / 2**20:.2f} MiB"
    assert second.startswith(f"training state: {with_moments / 2**20:.2f} MiB with")


def test_the_flops_are_those_that_the_compiler_counts():
    config = BertConfig.miniature(2, 128, vocab_size=1000)
    ids = jax.ShapeDtypeStruct((1, 128), jnp.int32)
    mask = jax.ShapeDtypeStruct((1, 128), jnp.bool_)
    params = jax.eval_shape(lambda: init_params(config, jax.random.key(0)))

    def forward(params, ids, mask):
        inputs = Inputs(ids, ids, mask)
        return Bert(config).apply(
            {"params": params}, inputs, method="hidden_and_pooled"
        )

    lowered = jax.jit(forward).lower(params, ids, mask)
    counted = lowered.cost_analysis()["flops"]
    # The compiler counts softmax, GELU and LayerNorm too.
    assert encoding_flops(config, 1, 128) == pytest.approx(counted, rel=0.1)
    assert encoding_flops(config, 1, 128) < counted
    line = flops_line(config, {"masked_lm": {}}, 128)
    per_token = 2 * (128 * 128 + 128 * 1000)
    mega = f"{encoding_flops(config, 1, 128) / 1e6:.3g} MFLOPs"
    assert line == (
        f"forward pass of a row of 128 tokens: {mega}, and "
        f"{per_token / 1e3:.3g} kFLOPs for each token to predict"
    )
    assert "predict" not in flops_line(config, {}, 128)


def test_what_is_printed_of_a_run(pretrained, capsys):
    assert main(["inspect", str(pretrained), "--summary"]) == 0
    lines = capsys.readouterr().out.splitlines()
    total = sum(
        leaf.size for leaf in jax.tree.leaves(load_pretrained(str(pretrained)).params)
    )
    assert lines[0].endswith("checkpoints/10, head pretraining")
    row = next(line for line in lines if line.strip().startswith("attention/query"))
    assert row.split()[1:5] == ["[16,", "16],", "[16]", "float32"]
    last = next(line for line in lines if line.strip().startswith("all"))
    assert last.split() == ["all", f"{total:,}", "100.0", "%"]
    shares = [
        float(line.split()[-2])
        for line in lines
        if line.endswith(" % ") and line.startswith(" ") and not line.startswith("  ")
    ]
    assert sum(shares) == pytest.approx(200, abs=0.5), "the groups, and all"
    assert any("a row of 32 tokens" in line for line in lines), "as in its pretraining"
    assert max(map(len, lines)) <= 120


def test_another_length(pretrained):
    _, _, lines = summary(str(pretrained), 8)
    assert "a row of 8 tokens" in lines[-1]

"""The model and its training beside PyTorch's: see tests/parity/README.md."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config import (
    PRESETS,
    BertConfig,
    DataConfig,
    MeshConfig,
    OptimizerConfig,
    PretrainConfig,
)
from bert_jax.distributed.mesh import make_mesh
from bert_jax.distributed.sharding import path_name, tree_shardings
from bert_jax.masking.batch import MaskedBatch
from bert_jax.model.bert import compute, init_params
from bert_jax.model.encoder import Encoder
from bert_jax.model.heads import Pooler
from bert_jax.model.inputs import Inputs
from bert_jax.tasks.pretraining.task import (
    PretrainingBatch,
    pretraining_losses,
    pretraining_scores,
)
from bert_jax.tasks.task import Task
from bert_jax.training.optimizer import Optimizer
from bert_jax.training.step import initial_state, make_train_step, num_parameters

pytestmark = pytest.mark.precise
PARITY = Path(__file__).parent


def unflatten(npz: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Arrays by "/"-joined path -> nested dict; strings are JSON and are parsed."""
    tree: dict[str, Any] = {}
    for path, array in npz.items():
        *parents, leaf = path.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = json.loads(str(array)) if array.dtype.kind == "U" else array
    return tree


def load_fixture(name: str) -> dict[str, Any]:
    with np.load(PARITY / f"{name}.npz") as npz:
        return unflatten(npz)


def leaves(tree: Any) -> dict[str, np.ndarray]:
    return {
        path_name(path): np.asarray(leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


@pytest.fixture(scope="module")
def forward() -> dict[str, Any]:
    return load_fixture("forward")


def test_the_tree_holds_exactly_the_reference_weights(forward):
    config = BertConfig(**forward["config"])
    ours = jax.eval_shape(lambda: init_params(config, jax.random.key(0)))
    shapes = {
        path_name(path): leaf.shape
        for path, leaf in jax.tree_util.tree_leaves_with_path(ours)
    }
    assert shapes == {k: v.shape for k, v in leaves(forward["weights"]).items()}


def outputs(forward: dict[str, Any], hidden_act: str) -> dict[str, jax.Array]:
    """Every output of the model, from its public parts."""
    config = BertConfig(**forward["config"] | {"hidden_act": hidden_act})
    weights, inputs = jax.tree.map(jnp.asarray, (forward["weights"], forward["inputs"]))
    rows, length = inputs["input_ids"].shape
    everywhere = jnp.broadcast_to(jnp.arange(length), (rows, length))
    hidden_states = Encoder(config).apply(
        {"params": weights["encoder"]},
        inputs["input_ids"],
        inputs["segment_ids"],
        inputs["attention_mask"],
        method="hidden_states",
    )
    token_scores, pair_scores = compute(
        config,
        weights,
        "pretraining_scores",
        Inputs(
            inputs["input_ids"], inputs["segment_ids"], inputs["attention_mask"] > 0
        ),
        everywhere,
        jnp.zeros((rows, 1), jnp.int32),
    )
    pooled = Pooler(config).apply(
        {"params": weights["pooler"]}, hidden_states[-1][:, 0]
    )
    return {
        "hidden_states": jnp.stack(hidden_states),
        "last_hidden_state": hidden_states[-1],
        "pooled_output": pooled,
        "masked_lm_logits": token_scores,
        "next_sentence_logits": pair_scores[:, 0],
    }


@pytest.mark.parametrize(
    ("hidden_act", "reference"), [("gelu", "outputs"), ("gelu_new", "gelu_new")]
)
def test_forward_equals_transformers(forward, hidden_act, reference):
    ours = outputs(forward, hidden_act)
    for name, expected in forward[reference].items():
        # Float32 noise of the reference against itself in float64 is 4e-6 here, and
        # ours is as much; the other GELU differs by more than 1e-4.
        np.testing.assert_allclose(
            ours[name], expected, rtol=0, atol=2e-5, err_msg=name
        )


def test_the_two_gelus_are_told_apart(forward):
    erf, tanh = (forward[name]["masked_lm_logits"] for name in ("outputs", "gelu_new"))
    assert np.abs(erf - tanh).max() > 1e-4


class PremaskedTask(Task):
    """What the training step needs of pretraining: masked beforehand, no dropout."""

    objective = ("mlm_loss", "nsp_loss")

    def __init__(self, config: BertConfig) -> None:
        self.config = config

    def corrupt(self, batch: Any, key: Any) -> PretrainingBatch:
        masked = MaskedBatch(
            inputs=Inputs(
                batch["input_ids"], batch["segment_ids"], batch["attention_mask"] > 0
            ),
            predicted=batch["masked_lm_positions"],
            labels=batch["masked_lm_labels"],
            weights=batch["masked_lm_weights"],
        )
        labels = batch["next_sentence_labels"][:, None]
        return PretrainingBatch(masked, jnp.zeros_like(labels), labels)

    def count(self, batch: PretrainingBatch) -> Any:
        pairs = jnp.float32(batch.pair_labels.size)
        return {"mlm_loss": batch.masked.weights.sum(), "nsp_loss": pairs}

    def loss(self, params: Any, batch: PretrainingBatch, key: Any) -> Any:
        scores = pretraining_scores(self.config, params, batch)
        return pretraining_losses(scores, batch, "nsp")

    init_params = row_numbers = batch = evaluate = None
    evaluation_batches = num_tokens = flops = None


def test_fifty_steps_equal_pytorch():
    """The same weights and masked batches, through our step and through PyTorch's.

    A wrong decay mask, clipping, schedule or label moves a loss by at least 1.5e-4
    and a weight by 7e-3; tools/parity/make_training.py prints the table.
    """
    fixture = load_fixture("training")
    rules = fixture["hyperparameters"]
    clipped = (fixture["grad_norm"] > rules["clip_norm"]).sum()
    assert 0 < clipped < rules["num_steps"], "the fixture must clip some steps only"
    optimizer = OptimizerConfig(
        peak_learning_rate=rules["peak_learning_rate"],
        warmup_steps=rules["warmup_steps"],
        weight_decay=rules["weight_decay"],
        beta1=rules["beta1"],
        beta2=rules["beta2"],
        epsilon=rules["epsilon"],
        max_grad_norm=rules["clip_norm"],
    )
    config = PretrainConfig(
        model=BertConfig(**fixture["config"]),
        data=DataConfig(sequence_length=8),
        optimizer=optimizer,
        num_steps=rules["schedule_steps"],
        batch_size=1,
    )
    mesh = make_mesh(MeshConfig(data=1), config.batch_size)
    state = initial_state(
        lambda _: jax.tree.map(jnp.asarray, fixture["initial"]),
        Optimizer.of(config),
        seed=0,
    )
    shardings = tree_shardings(mesh, state)
    task: Any = PremaskedTask(config.model)
    step = make_train_step(
        task, Optimizer.of(config), config.microbatches, mesh, shardings
    )
    state = jax.device_put(state, shardings)
    names = {
        "loss": "loss",
        "mlm_loss": "masked_lm_loss",
        "nsp_loss": "next_sentence_loss",
        "grad_norm": "grad_norm",
    }
    for number in range(rules["num_steps"]):
        batch = {name: values[number] for name, values in fixture["batches"].items()}
        state, scalars, _ = step(state, batch)
        for ours, theirs in names.items():
            expected = pytest.approx(fixture[theirs][number], abs=1e-4)
            assert float(scalars[ours]) == expected, (number, ours)
        # Each of four float32 operations of a schedule rounds by 6e-8.
        np.testing.assert_allclose(
            scalars["learning_rate"], fixture["learning_rate"][number], rtol=2e-6
        )
    final = leaves(fixture["final"])
    for name, leaf in leaves(state.params).items():
        # By norm and not by element: elements near zero differ by rounding alone.
        difference = np.linalg.norm(leaf - final[name])
        largest = 1e-4 * np.linalg.norm(final[name])
        np.testing.assert_allclose(difference, 0, atol=largest, err_msg=name)


@pytest.mark.parametrize("name", PRESETS)
def test_parameter_counts_equal_transformers(name):
    counts = json.loads((PARITY / "parameter_counts.json").read_text())[name]
    params = jax.eval_shape(lambda: init_params(PRESETS[name], jax.random.key(0)))
    assert num_parameters(params) == counts["pretraining"]
    encoder = {"encoder": params["encoder"], "pooler": params["pooler"]}
    assert num_parameters(encoder) == counts["encoder"]

"""The training step of base and large, lowered for devices that no test runs on."""

import dataclasses
import functools

import jax
import pytest

from bert_jax.benchmark.command import parser
from bert_jax.benchmark.synthetic import synthetic_task
from bert_jax.config import MeshConfig
from bert_jax.sharding import batch_sharding, make_mesh, tree_shardings
from bert_jax.training.optimizer import make_optimizer
from bert_jax.training.state import initial_state
from bert_jax.training.step import make_train_step

PLATFORMS = ("tpu", "cuda")


def lowered(model: str, mesh_config: MeshConfig) -> str:
    """The program of a bfloat16 training step for all of PLATFORMS, as StableHLO."""
    sizes = "--batch-size 16 --sequence-length 128 --dtype bfloat16".split()
    config, task = synthetic_task(
        parser().parse_args(["train", "--model", model, *sizes])
    )
    config = dataclasses.replace(config, mesh=mesh_config)
    mesh = make_mesh(config.mesh, config.batch_size)
    optimizer = make_optimizer(config.optimizer, config.schedule_steps)
    shapes = jax.eval_shape(
        functools.partial(initial_state, task.initialise, optimizer, config.seed)
    )
    shardings = tree_shardings(mesh, shapes)
    state = jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(
            leaf.shape, leaf.dtype, sharding=sharding
        ),
        shapes,
        shardings,
    )
    batch = {
        name: jax.ShapeDtypeStruct(
            values.shape, values.dtype, sharding=batch_sharding(mesh)
        )
        for name, values in task.batch(0).items()
    }
    step = make_train_step(task, config, mesh, shardings)
    return step.trace(state, batch).lower(lowering_platforms=PLATFORMS).as_text()


@pytest.mark.parametrize("model", ["base", "large"])
def test_the_step_lowers(model):
    """Every operation has a rule there; nothing has been compiled or run.

    The products are in bfloat16, and 110 or 335 million parameters go in and out.
    """
    text = lowered(model, MeshConfig(data=4, fsdp=2))
    assert "stablehlo.dot_general" in text
    assert "xbf16>" in text
    width = {"base": 768, "large": 1024}[model]
    assert f"tensor<30522x{width}xf32>" in text

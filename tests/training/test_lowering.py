"""The training step, lowered for devices that no test runs on."""

import dataclasses
import functools
import re

import jax
import pytest

from bert_jax.apps.benchmark.command import parse
from bert_jax.apps.benchmark.steps import synthetic_task
from bert_jax.config import MeshConfig, OptimizerConfig
from bert_jax.distributed.mesh import make_mesh
from bert_jax.distributed.sharding import batch_sharding, tree_shardings
from bert_jax.training.optimizer import Optimizer
from bert_jax.training.step import initial_state, make_train_step, with_shardings

PLATFORMS = ("tpu", "cuda")
LONG_ROWS = "--sequence-length 512 --remat layer --microbatches 2"


def lowered(words: str, mesh_config: MeshConfig, optimizer: OptimizerConfig) -> str:
    """The program of a bfloat16 training step for all of PLATFORMS, as StableHLO."""
    sizes = "train --batch-size 16 --dtype bfloat16".split()
    config, task = synthetic_task(parse([*sizes, *words.split()]))
    config = dataclasses.replace(config, mesh=mesh_config, optimizer=optimizer)
    mesh = make_mesh(config.mesh, config.batch_size)
    optimizer = Optimizer.of(config)
    shapes = jax.eval_shape(
        functools.partial(
            initial_state,
            task.init_params,
            optimizer,
            config.seed,
        )
    )
    shardings = tree_shardings(mesh, shapes)
    batch = task.batch(0)
    rows = with_shardings(batch, dict.fromkeys(batch, batch_sharding(mesh)))
    step = make_train_step(task, optimizer, config.microbatches, mesh, shardings)
    program = step.trace(with_shardings(shapes, shardings), rows)
    return program.lower(lowering_platforms=PLATFORMS).as_text()


@pytest.mark.parametrize(
    ("words", "width", "optimizer"),
    [
        pytest.param("--model base", 768, OptimizerConfig(), marks=pytest.mark.slow),
        (f"--model tiny {LONG_ROWS}", 128, OptimizerConfig(algorithm="lamb")),
        pytest.param("--model large", 1024, OptimizerConfig(), marks=pytest.mark.slow),
        pytest.param(
            f"--model large {LONG_ROWS}",
            1024,
            OptimizerConfig(algorithm="lamb"),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["base", "tiny-512-lamb", "large", "large-512-lamb"],
)
def test_the_step_lowers(words, width, optimizer):
    """Every operation has a rule there; nothing has been compiled or run.

    The products are in bfloat16, softmax is in float32, and the state, 110 or 335
    million parameters and their moments, is donated.
    """
    text = lowered(words, MeshConfig(data=4, fsdp=2), optimizer)
    assert "stablehlo.dot_general" in text
    assert "xbf16>" in text
    exponentials = re.findall(r"stablehlo.exponential .*x(\w+)>", text)
    assert set(exponentials) == {"f32"}
    arguments = text[: text.index("->")].split("%")
    tables = [one for one in arguments if f"tensor<30522x{width}xf32>" in one]
    assert len(tables) == 3, "of the parameters and of two moments"
    assert all("tf.aliasing_output" in one for one in tables)

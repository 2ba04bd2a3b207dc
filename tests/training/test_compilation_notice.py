"""What a run says while a step is compiled."""

import contextlib

import jax.numpy as jnp

from bert_jax.training.loop import announce_compilation


def test_each_shape_is_announced_once_around_its_first_call():
    told = []

    @contextlib.contextmanager
    def announce(text):
        told.append(text)
        yield
        told.append("end")

    def step(state, batch):
        told.append("step")
        return state + len(batch["tokens"])

    def batch(*shape):
        return {"tokens": jnp.zeros(shape, jnp.int32), "label": jnp.zeros(shape[:1])}

    call = announce_compilation(step, "the training step", announce)
    assert call(1, batch(4, 16)) == 5
    call(1, batch(4, 16))
    call(1, batch(4, 2, 32))
    call(1, batch(4, 16))
    assert told == [
        *("compiling the training step for 4 rows of 16", "step", "end", "step"),
        *("compiling the training step for 4 rows of 2 × 32", "step", "end", "step"),
    ]

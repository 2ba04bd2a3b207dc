"""Measure training, inference, the input pipeline and preparation on this machine."""

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark that the arguments name. It needs no tyro."""
    from bert_jax.apps.benchmark.command import parse, run

    return run(parse(arguments))

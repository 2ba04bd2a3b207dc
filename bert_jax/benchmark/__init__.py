"""Measure training, inference, the input pipeline and preparation on this machine."""

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a table, and write JSON where asked."""
    from bert_jax.benchmark.command import main as run

    return run(arguments)

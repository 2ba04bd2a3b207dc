"""`bert-jax`, and `python -m bert_jax`: the first lines of a process."""

from typing import NoReturn

from bert_jax.terminal import signals


def main(*verb: str) -> NoReturn:
    """Handle signals before anything is imported that takes time; then run the verb."""
    signals.install()
    from bert_jax.cli.main import entry_point

    entry_point(*verb)


if __name__ == "__main__":
    main()

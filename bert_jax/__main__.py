"""The entry point of `bert-jax` and `python -m bert_jax`."""

from typing import NoReturn

from bert_jax.terminal import signals


def main(*verb: str) -> NoReturn:
    """Install the signal handlers before slow imports, then run the verb."""
    signals.install()
    from bert_jax.cli.main import entry_point

    entry_point(*verb)


if __name__ == "__main__":
    main()

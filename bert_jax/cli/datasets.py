"""`bert-jax vocab` and `prepare`."""

from collections.abc import Sequence

from bert_jax.cli.command import parse, split_beam_options, with_beam_options
from bert_jax.config import PrepareConfig, VocabularyConfig
from bert_jax.terminal.messages import say


def vocab(config: VocabularyConfig) -> None:
    from bert_jax.data.vocabulary import train_vocabulary

    tokenizer = train_vocabulary(config)
    wanted, actual = config.vocab_size, tokenizer.vocab_size
    if config.kind != "char" and wanted != "auto" and actual < wanted:
        say(f"The text fills no more than {actual:,} of {wanted:,} tokens.")
    say(
        f"{config.output}: {tokenizer.kind}, {tokenizer.vocab_size} tokens, "
        f"{'cased' if tokenizer.cased else 'uncased'}."
    )


def read_prepare(
    options_class: type[PrepareConfig], arguments: Sequence[str], verb: str
) -> PrepareConfig:
    """Parse the arguments before `--`; those after it are options of Apache Beam."""
    arguments, beam_options = split_beam_options(arguments)
    return with_beam_options(parse(options_class, arguments, verb), beam_options)


def prepare(config: PrepareConfig) -> None:
    from bert_jax.data.prepare import prepare

    prepare(config)

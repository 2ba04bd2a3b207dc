"""`bert-jax vocab` and `prepare`."""

from bert_jax.cli.command import parse_with_beam_options as parse_with_beam_options
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


def prepare(config: PrepareConfig) -> None:
    from bert_jax.data.prepare import prepare

    prepare(config)

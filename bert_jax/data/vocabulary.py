"""Train a vocabulary on text; the same text always gives the same bytes.

`wordpiece.py` trains WordPiece, sentencepiece trains unigram and BPE.
"""

import codecs
import collections
import functools
import io
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bert_jax.config import VocabularyConfig
from bert_jax.data.folding import fold_rules
from bert_jax.data.line_sample import LineSample
from bert_jax.data.lost_characters import LostCharacters
from bert_jax.data.sources import PIECE_BYTES, Source, read_pieces
from bert_jax.data.structured import located_records, sources_of
from bert_jax.data.word_counts import WordCounter
from bert_jax.data.wordpiece import learn_pieces
from bert_jax.storage.atomic import atomic_directory, local_output, require_new
from bert_jax.storage.files import JsonObject
from bert_jax.tables.lines import split_lines
from bert_jax.terminal.messages import say, warn
from bert_jax.tokenization import MAX_WORD_CHARACTERS, SPECIAL_TOKENS, Tokenizer

AUTO_SIZE = 30522
"""The most tokens of vocab_size=auto: as many as BERT has."""
AUTO_COUNT = 100
"""The least occurrences of a token of vocab_size=auto (Gowda & May 2020, §5)."""
MAX_LINE = 10_000
"""Characters of a line; sentencepiece fails at 100,000 without a space."""

_RESERVED = "\u2585"
"""A line with it, sentencepiece would leave out silently: its own mark of [UNK]."""
_NAME = re.compile(rf"\[(?=(?:{'|'.join(name[1:-1] for name in SPECIAL_TOKENS)})\])")
"""The bracket of a special token's name, whose characters it would not learn."""
_PART = re.compile(rf"\S{{{MAX_WORD_CHARACTERS // 3}}}")
"""A part of text without spaces that no normalizer makes too long for a word."""


def train_vocabulary(config: VocabularyConfig) -> Tokenizer:
    """Train on `config.input` and write the tokenizer to `config.output`, atomically.

    Raise FileNotFoundError if an input pattern matches no file, FileExistsError if the
    output exists and is no empty directory, or ValueError if the input holds no text,
    or more characters than `vocab_size`, or a source is damaged or invalid.
    """
    output = local_output(config.output)
    require_new(output)
    sources = sources_of(config)
    train = _train_wordpiece if config.kind == "wordpiece" else _train_sentencepiece
    lost = LostCharacters(config)
    options, vocabulary = train(config, read_lines(sources, config, lost=lost))
    options = {"kind": config.kind, "cased": config.cased} | options
    tokenizer = Tokenizer(options, vocabulary)
    report = lost.report(tokenizer)
    for line in report.lines():
        say(line)
    for line in report.warnings("use a larger --vocab-size"):
        warn(f"warning: {line}")
    with atomic_directory(output) as directory:
        tokenizer.save(directory)
    return tokenizer


def read_lines(
    sources: Iterable[Source],
    config: VocabularyConfig,
    piece_bytes: int = PIECE_BYTES,
    lost: LostCharacters | None = None,
) -> Iterator[str]:
    """Yield the sources' stripped lines, not blank ones; invalid UTF-8 gives U+FFFD.

    `lost` looks at each line.
    """
    dropped = lost.as_read.dropped if lost else collections.Counter()
    for source in sources:
        if source.holds_records:
            lines = (
                (where.removeprefix(source.path), line)
                for where, record in located_records(source, config, dropped)
                # A line does not continue in the next record.
                for _, line in _lines([record + b"\n"])
            )
        else:
            pieces = read_pieces(source, config.strict, piece_bytes)
            lines = ((f":{number}", line) for number, line in _lines(pieces))
        for place, line in lines:
            if stripped := line.strip():
                if lost:
                    lost.add(stripped, f"{source.name}{place}")
                yield stripped


def _lines(pieces: Iterable[bytes]) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of a text that is given in pieces of any length.

    A long line is divided, so that no line is held in memory as a whole.
    """
    decoder = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
    number, last = 1, ""  # of the line that may continue
    for piece in itertools.chain(pieces, [b""]):
        *lines, last = split_lines(last + decoder.decode(piece, final=not piece))
        for line in lines:
            yield from ((number, part) for part in _divide(line))
            number += 1
        *parts, last = _divide(last)
        yield from ((number, part) for part in parts)
    yield number, last


def _divide(line: str) -> Iterator[str]:
    """Yield a line in parts that end at a space, or without one are all as long."""
    start = 0
    while len(line) - start > MAX_LINE:
        end = line.rfind(" ", start + 1, start + MAX_LINE)
        end = end if end > 0 else start + MAX_LINE
        yield line[start:end]
        start = end
    yield line[start:]


def _train_wordpiece(
    config: VocabularyConfig, lines: Iterable[str]
) -> tuple[JsonObject, bytes]:
    counter = WordCounter(config.cased).update(lines)
    words = counter.words
    if not words and counter.num_long:
        raise ValueError(
            f"each word of the text has more than {MAX_WORD_CHARACTERS} characters, "
            "which WordPiece cannot read; for text without spaces use --kind unigram."
        )
    if not words:
        raise _no_text(config)
    if config.vocab_size == "auto":
        tokens = learn_pieces(words, AUTO_SIZE, min_count=AUTO_COUNT)
    else:
        tokens = learn_pieces(words, config.vocab_size)
    num_words = counter.total + counter.num_long
    training = {"words": num_words, "distinct_words": len(words)}
    options = {"max_input_chars_per_word": MAX_WORD_CHARACTERS, "training": training}
    return options, "".join(token + "\n" for token in tokens).encode()


def _no_text(config: VocabularyConfig) -> ValueError:
    return ValueError(f"input {' '.join(config.input)} holds no text.")


def _train_sentencepiece(
    config: VocabularyConfig, lines: Iterable[str]
) -> tuple[JsonObject, bytes]:
    sampled = LineSample(config.sample_sentences, config.seed)
    for line in lines:
        sampled.add(_NAME.sub("[ ", line.replace(_RESERVED, " ")))
    sample = sampled.lines
    if not sample:
        raise _no_text(config)
    if config.vocab_size != "auto":
        size = config.vocab_size
    elif config.kind == "char":
        size = AUTO_SIZE
    else:
        parts = (_PART.sub(r"\g<0> ", line) for line in sample)
        words = WordCounter(config.cased).update(parts).words
        size = len(learn_pieces(words, AUTO_SIZE, min_count=AUTO_COUNT))
    try:
        model = _sentencepiece_model(config, sample, size)
    except RuntimeError as error:
        size = _fitting_size(config, size, str(error))
        model = _sentencepiece_model(config, sample, size)
    sampling = {
        "lines": sampled.num_lines,
        "sampled_lines": len(sample),
        "seed": config.seed,
    }
    normalization = "nmt_nfkc" if config.cased else "nfkc_lower_no_accents"
    return {"normalization": normalization, "training": sampling}, model


def _sentencepiece_model(
    config: VocabularyConfig, sample: Sequence[str], size: int
) -> bytes:
    import sentencepiece  # optional: not needed for WordPiece

    sentencepiece.SetMinLogLevel(2)  # errors only; the normalizer logs too
    model = io.BytesIO()
    pad, unk, cls, sep, mask = SPECIAL_TOKENS
    # Of single characters, all that the text has, if they fit.
    every: JsonObject = {"character_coverage": 1.0, "hard_vocab_limit": False}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sample),
        model_writer=model,
        model_type=config.kind,
        vocab_size=size,
        normalizer=_normalizer(config.cased),
        # Control symbols have ids but are never matched in text.
        pad_id=0, pad_piece=pad, unk_id=1, unk_piece=unk, bos_id=2, bos_piece=cls,
        eos_id=3, eos_piece=sep, control_symbols=[mask],
        max_sentence_length=1 << 30,  # longer lines are dropped silently
        num_threads=16,  # fixed, because the result depends on it
        minloglevel=2,
        **(every if config.kind == "char" else {}),
    )  # fmt: skip
    return model.getvalue()


def _fitting_size(config: VocabularyConfig, size: int, message: str) -> int:
    """Return the size that sentencepiece names, if it may; else raise ValueError."""
    if match := re.search(r"too high .* <= (\d+)\.", message):
        return int(match[1])
    if match := re.search(r"required_chars\. \d+ vs (\d+)\.", message):
        if config.vocab_size == "auto":
            return int(match[1])
        raise ValueError(
            f"vocab_size={size} is less than the {match[1]} special tokens and "
            f"characters of the text; use at least {match[1]}."
        )
    if "all_chars_count" in message:
        raise ValueError("the text holds only characters that are removed.")
    if size < len(SPECIAL_TOKENS):  # only single characters have no message for it
        raise ValueError(
            f"vocab_size={size} is less than the {len(SPECIAL_TOKENS)} special tokens; "
            "use a larger number."
        )
    raise ValueError(f"sentencepiece cannot learn from the text: {message}")


@functools.cache
def _normalizer(cased: bool) -> Any:
    """Return sentencepiece's NFKC normalizer or, if uncased, a map made of `fold`."""
    import sentencepiece

    if cased:
        return sentencepiece.SentencePieceNormalizer(rule_name="nmt_nfkc")
    return sentencepiece.SentencePieceNormalizer(norm_map=list(fold_rules()))

"""Configurations of `vocab` and `prepare`: from text to vocabulary and rows."""

import dataclasses
from typing import Literal

from bert_jax.config.checks import (
    CheckedConfig,
    require,
    require_beam_engine,
    require_seed,
)

_MAX_PASSES = 10_000
_MAX_VOCABULARY = 1 << 24


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class TextConfig(CheckedConfig):
    """Options for reading text, shared by `vocab` and `prepare`."""

    input: tuple[str, ...]
    """Paths, patterns (** for folders of any depth) or directories of text files,
    plain, .gz or .zst; or of records: .jsonl, .json, .csv, .tsv (also .gz or .zst) or
    .parquet; or tfds:NAME; or installed-documentation.
    A document is a record, or in text files the lines up to a blank line."""
    output: str
    """Directory to write to."""
    text_field: str = "text"
    """Field (JSON), column (tables) or feature (TFDS) that holds the text."""
    tfds_split: str = "train"
    """Split of tfds:NAME to read, for example train[:10%]."""
    tfds_data_dir: str = ""
    """Directory of TFDS datasets; empty: the default of TFDS."""
    strict: bool = True
    """Stop at text that cannot be decoded; else its bad bytes are replaced and counted.
    Text is UTF-8, or as the byte order mark of its file says."""

    def __post_init__(self) -> None:
        super().__post_init__()
        is_tfds = any(name.startswith("tfds:") for name in self.input)
        for name in ("tfds_split", "tfds_data_dir"):
            why_not = "an input that is not tfds:NAME; leave it out."
            self.require_effect(name, is_tfds, why_not)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class VocabularyConfig(TextConfig):
    """Train a vocabulary on text."""

    kind: Literal["wordpiece", "unigram", "bpe", "char"] = "wordpiece"
    """Kind of vocabulary: wordpiece as in BERT; or unigram, bpe or char (single
    characters) by sentencepiece."""
    vocab_size: int | Literal["auto"] = 30522
    """Number of entries, special tokens included; fewer if the text cannot fill them,
    and with char as many as it has. auto: at most 30,522, and none longer than a
    character that occurs less than 100 times (after Gowda & May 2020)."""
    cased: bool = False
    """Keep case and accents, instead of lowercasing and stripping accents."""
    sample_sentences: int = 1_000_000
    """For sentencepiece: number of randomly sampled lines to learn from."""
    seed: int = 0
    """Seed of the sample of lines."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_positive("sample_sentences")
        if self.vocab_size != "auto":
            self.require_positive("vocab_size")
            require(
                self.vocab_size <= _MAX_VOCABULARY,
                f"vocab_size={self.vocab_size:.6g} must be at most {_MAX_VOCABULARY}.",
            )
        require_seed(self)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class PrepareConfig(TextConfig):
    """Turn text into a dataset of training rows."""

    tokenizer: str
    """Directory of a tokenizer, or of a dataset or checkpoint that holds one."""
    weights: tuple[float, ...] = ()
    """One weight per input: how often its documents are used for training.
    2: twice; 0.5: a random half of them. Default: 1 each."""
    repeats: int = 1
    """Number of passes over the text, each with different pairs."""
    deduplicate: bool = False
    """Drop repeated documents and, with sentences=split, repeated paragraphs."""
    language: str = "en"
    """ISO 639-1 code of the language, for sentences=split."""
    pairs: Literal["nsp", "sop", "none"] = "nsp"
    """Objective of the pairs: nsp (next sentence prediction),
    sop (sentence order prediction, Lan et al. 2019, §3.1), none (one segment)."""
    sequence_length: int = 128
    """Tokens per row, including special tokens."""
    pack: bool = False
    """Put several short pairs into one row; attention stays within each pair."""
    sentences: Literal["split", "lines"] = "split"
    """split: split lines of prose into sentences; lines: each line is a sentence."""
    short_sequence_probability: float = 0.1
    """Fraction of pairs with a random shorter length (Devlin et al. 2018, A.2)."""
    validation_fraction: float = 0.01
    """Fraction of documents held out, chosen by a hash of source and position."""
    engine: Literal["local", "beam"] = "local"
    """local: processes on this machine; beam: Apache Beam, its options after --."""
    beam_options: tuple[str, ...] = ()
    """Options for Apache Beam, such as --runner=FlinkRunner."""
    workers: int = 0
    """Number of local processes; 0: one per core. The result does not depend on it."""
    seed: int = 0
    """Seed of the order of documents and of the pairs."""

    def __post_init__(self) -> None:
        super().__post_init__()
        why_not = "sentences=lines, where each line is a sentence; leave it out."
        self.require_effect("language", self.sentences == "split", why_not)
        why_not = "engine=beam, whose own options say it; leave it out."
        self.require_effect("workers", self.engine == "local", why_not)
        self.require_fraction("short_sequence_probability", "validation_fraction")
        require(
            8 <= self.sequence_length <= 65_535,
            f"sequence_length={self.sequence_length} must be from 8 to 65535.",
        )
        self.require_positive("repeats")
        self.require_not_negative("workers")
        require(
            len(self.weights) in (0, len(self.input)),
            f"weights has {len(self.weights)} numbers for {len(self.input)} inputs; "
            "give one per input.",
        )
        for weight in self.weights:
            require(weight > 0, f"weights: {weight} must be finite and greater than 0.")
            require(weight >= 1e-6, f"weights: {weight} must be at least 1e-6.")
        passes = max(self.weights, default=1.0) * self.repeats
        require(
            passes <= _MAX_PASSES,
            f"weights={self.weights} times repeats={self.repeats:.6g} must be at most "
            f"{_MAX_PASSES} passes over the text; lower one of them.",
        )
        require_beam_engine(self)
        require_seed(self)

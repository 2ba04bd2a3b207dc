"""How text becomes a vocabulary, and rows to train on."""

import dataclasses
import math
from typing import Literal

from bert_jax.config.checks import (
    require,
    require_fraction,
    require_not_negative,
    require_positive,
    require_seed,
    require_types,
)

_MAX_PASSES = 10_000
_MAX_VOCABULARY = 1 << 24


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextConfig:
    """What the text is read from: shared by `vocab` and `prepare`."""

    input: tuple[str, ...]
    """Paths or patterns of .txt (or any name), .jsonl and .parquet files, the first two
    also as .gz or .zst; tfds:NAME; installed-documentation. In a text file a blank
    line ends a document; elsewhere a record is one."""
    output: str
    """Directory for what is made."""
    text_field: str = "text"
    """The field of JSONL, column of Parquet, or feature of TFDS that holds the text."""
    tfds_split: str = "train"
    """Which rows of tfds:NAME; e.g. train[:10%]."""
    tfds_data_dir: str = ""
    """Where TFDS keeps its datasets; empty: as TFDS itself decides."""
    strict: bool = False
    """Refuse text that is not UTF-8 instead of replacing and counting what is not."""

    def __post_init__(self) -> None:
        require_types(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabularyConfig(TextConfig):
    """Train a vocabulary on text."""

    kind: Literal["wordpiece", "unigram", "bpe"] = "wordpiece"
    """wordpiece as in BERT; unigram and bpe by sentencepiece."""
    vocab_size: int = 30522
    """Number of entries, special tokens included."""
    cased: bool = False
    """Keep case and accents; otherwise text is lowercased, accents stripped."""
    sample_sentences: int = 1_000_000
    """sentencepiece kinds learn from this many lines, drawn by the seed."""
    seed: int = 0
    """Of the sample of lines."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "vocab_size", "sample_sentences")
        require(
            self.vocab_size <= _MAX_VOCABULARY,
            f"vocab_size={self.vocab_size:.6g} must be at most {_MAX_VOCABULARY}.",
        )
        require_seed(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrepareConfig(TextConfig):
    """Turn text into a dataset of training rows."""

    tokenizer: str
    """Directory of the tokenizer (or of a dataset or checkpoint that holds one)."""
    weights: tuple[float, ...] = ()
    """How often the documents of each input are used for training: 2: twice, 0.5: half
    of them; one number an input, or none for 1 each."""
    repeats: int = 1
    """How often all of this is done, each time with fresh pairs."""
    deduplicate: bool = False
    """Drop documents, and with split sentences paragraphs, that came up before."""
    language: str = "en"
    """Of the sentence splitter: ISO 639-1 code."""
    pairs: Literal["nsp", "sop", "none"] = "nsp"
    """nsp: next sentence prediction; sop: sentence order (Lan et al. 2019, §3.1);
    none: one segment a row."""
    sequence_length: int = 128
    """Tokens a row, special tokens included."""
    pack: bool = False
    """Let pairs that do not fill a row share one; each sees itself alone."""
    sentences: Literal["split", "lines"] = "split"
    """split: lines are prose, cut into sentences; lines: one sentence a line."""
    short_sequence_probability: float = 0.1
    """Share of pairs aimed at a random shorter length (Devlin et al. 2018, A.2)."""
    validation_fraction: float = 0.01
    """Share of documents held out, by a hash of source and position."""
    engine: Literal["local", "beam"] = "local"
    """local: processes of this machine; beam: Apache Beam, whose options follow --."""
    beam_options: tuple[str, ...] = ()
    """Options of Apache Beam, such as --runner=FlinkRunner."""
    workers: int = 0
    """Processes; 0: one a core. The result does not depend on it."""
    seed: int = 0
    """Of the order of documents and of the pairs."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_fraction(self, "short_sequence_probability", "validation_fraction")
        require(
            8 <= self.sequence_length <= 65_535,
            f"sequence_length={self.sequence_length} must be from 8 to 65535.",
        )
        require_positive(self, "repeats")
        require_not_negative(self, "workers")
        require(
            len(self.weights) in (0, len(self.input)),
            f"weights has {len(self.weights)} numbers for {len(self.input)} inputs; "
            "give one each.",
        )
        for weight in self.weights:
            holds = math.isfinite(weight) and weight > 0
            require(holds, f"weights: {weight} must be finite and greater than 0.")
            require(weight >= 1e-6, f"weights: {weight} must be at least 1e-6.")
        most = max(self.weights, default=1.0) * min(self.repeats, 1 << 40)
        require(
            most <= _MAX_PASSES,
            f"weights={self.weights} times repeats={self.repeats:.6g} must be at most "
            f"{_MAX_PASSES} passes over the text; lower one of them.",
        )
        require(
            self.engine == "beam" or not self.beam_options,
            "beam_options are given but engine=local; pass --engine beam.",
        )
        require_seed(self)

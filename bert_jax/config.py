"""Every configuration: frozen dataclasses, their checks, JSON in and out.

A configuration holds plain values only, so that it can be compared, written as JSON
into a checkpoint, and offered field by field on the command line.
"""

import dataclasses
import json
import math
import typing
from typing import Any, Literal, TypeVar

from etils import epath

ConfigT = TypeVar("ConfigT")


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)


def _require_positive(config: Any, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        _require(value > 0, f"{name}={value} must be greater than 0.")


def _require_share(config: Any, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        _require(0 <= value < 1, f"{name}={value} must be at least 0 and less than 1.")


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """The shape of the model: the fields of `bert_config.json`, and ours beside them.

    Defaults are BERT base, uncased English (Devlin et al. 2018, §3).
    """

    vocab_size: int = 30522
    """Number of entries in the token embedding table."""
    hidden_size: int = 768
    """Width D of the residual stream."""
    num_hidden_layers: int = 12
    """Number of encoder layers."""
    num_attention_heads: int = 12
    """Attention heads a layer; must divide hidden_size."""
    intermediate_size: int = 3072
    """Width F of the feed-forward layer."""
    hidden_act: Literal["gelu", "gelu_new", "relu"] = "gelu"
    """gelu: by the error function; gelu_new: its tanh approximation."""
    hidden_dropout_prob: float = 0.1
    """Dropout on the embeddings and on each sublayer's output."""
    attention_probs_dropout_prob: float = 0.1
    """Dropout on the attention probabilities."""
    max_position_embeddings: int = 512
    """Longest sequence that the position table holds."""
    type_vocab_size: int = 2
    """Number of segments."""
    initializer_range: float = 0.02
    """Standard deviation of the truncated normal that fills kernels and embeddings."""
    layer_norm_eps: float = 1e-12
    """Added to the variance in LayerNorm."""
    attention: Literal["bidirectional", "causal"] = "bidirectional"
    """Which tokens a token may look at."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of matrix products; parameters, softmax, LayerNorm and losses stay float32."""

    def __post_init__(self) -> None:
        _require_positive(
            self,
            "vocab_size",
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "intermediate_size",
            "max_position_embeddings",
            "type_vocab_size",
            "initializer_range",
            "layer_norm_eps",
        )
        _require_share(self, "hidden_dropout_prob", "attention_probs_dropout_prob")
        d, n = self.hidden_size, self.num_attention_heads
        _require(
            d % n == 0,
            f"hidden_size={d} is not a multiple of num_attention_heads={n}; "
            f"{-(-d // n) * n} would be.",
        )

    @classmethod
    def miniature(cls, layers: int, hidden: int, **overrides: Any) -> "BertConfig":
        """One of the 24 released miniatures (Turc et al. 2019), or its kind."""
        shape = {
            "num_hidden_layers": layers,
            "hidden_size": hidden,
            "num_attention_heads": max(1, hidden // 64),
            "intermediate_size": 4 * hidden,
        }
        return cls(**(shape | overrides))

    @classmethod
    def tiny(cls, **overrides: Any) -> "BertConfig":
        """2 layers of 128."""
        return cls.miniature(2, 128, **overrides)

    @classmethod
    def mini(cls, **overrides: Any) -> "BertConfig":
        """4 layers of 256."""
        return cls.miniature(4, 256, **overrides)

    @classmethod
    def small(cls, **overrides: Any) -> "BertConfig":
        """4 layers of 512."""
        return cls.miniature(4, 512, **overrides)

    @classmethod
    def medium(cls, **overrides: Any) -> "BertConfig":
        """8 layers of 512."""
        return cls.miniature(8, 512, **overrides)

    @classmethod
    def base(cls, **overrides: Any) -> "BertConfig":
        """12 layers of 768: 109,482,240 parameters with the pooler."""
        return cls.miniature(12, 768, **overrides)

    @classmethod
    def large(cls, **overrides: Any) -> "BertConfig":
        """24 layers of 1024: 335,141,888 parameters with the pooler."""
        return cls.miniature(24, 1024, **overrides)


PRESETS: dict[str, BertConfig] = {
    name: getattr(BertConfig, name)()
    for name in ("tiny", "mini", "small", "medium", "base", "large")
} | {
    f"L{layers}_H{hidden}": BertConfig.miniature(layers, hidden)
    for layers in (2, 4, 6, 8, 10, 12)
    for hidden in (128, 256, 512, 768)
}


@dataclasses.dataclass(frozen=True)
class VocabularyConfig:
    """Train a vocabulary on text files."""

    input: tuple[str, ...]
    """Text files: paths or glob patterns."""
    output: str
    """Directory for the tokenizer's files; must not exist or be empty."""
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
        _require_positive(self, "vocab_size", "sample_sentences")


@dataclasses.dataclass(frozen=True)
class PrepareConfig:
    """Turn text files into a dataset of training rows."""

    input: tuple[str, ...]
    """Text files: paths or glob patterns; a blank line ends a document."""
    tokenizer: str
    """Directory of the tokenizer (or of a dataset or checkpoint that holds one)."""
    output: str
    """Directory of the dataset; an interrupted one is continued."""
    sequence_length: int = 128
    """Tokens a row, special tokens included."""
    sentences: Literal["split", "lines"] = "split"
    """split: lines are prose, cut into sentences; lines: one sentence a line."""
    short_sequence_probability: float = 0.1
    """Share of pairs aimed at a random shorter length (Devlin et al. 2018, A.2)."""
    validation_fraction: float = 0.01
    """Share of documents held out, by a hash of source and position."""
    workers: int = 0
    """Processes; 0: one a core. The result does not depend on it."""
    seed: int = 0
    """Of the order of documents and of the pairs."""

    def __post_init__(self) -> None:
        _require_share(self, "short_sequence_probability", "validation_fraction")
        _require(
            8 <= self.sequence_length <= 65_535,
            f"sequence_length={self.sequence_length} must be from 8 to 65535.",
        )
        _require(self.workers >= 0, f"workers={self.workers} must be at least 0.")


@dataclasses.dataclass(frozen=True)
class MaskingConfig:
    """Which tokens the model must predict (Devlin et al. 2018, §3.1, Task #1)."""

    rate: float = 0.15
    """Share of a row's tokens to predict; its length counts [CLS] and [SEP]."""
    max_predictions: int = 20
    """Prediction slots P a row; rows due fewer fill the rest with weight 0."""
    mask_token_id: int | None = None
    """Id of [MASK]; None: as the dataset's tokenizer says."""
    vocab_size: int | None = None
    """Random replacements are drawn from so many ids; None: as the tokenizer says."""

    def __post_init__(self) -> None:
        _require(0 < self.rate < 1, f"rate={self.rate} must be between 0 and 1.")
        _require_positive(self, "max_predictions")


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """What to train on."""

    path: str = ""
    """Directory made by `bert-jax prepare`."""
    sequence_length: int = 128
    """Tokens a row; must be the dataset's."""
    fingerprint: str = ""
    """Of the dataset's content; filled in at the start, checked on resuming."""


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """AdamW with linear warm-up and linear decay (Devlin et al. 2018, A.2)."""

    peak_learning_rate: float = 1e-4
    """Reached at the end of the warm-up."""
    warmup_steps: int = 10_000
    """Steps from 0 to the peak; then the rate falls to 0 at `num_steps`."""
    weight_decay: float = 0.01
    """On kernels and embeddings; biases and LayerNorm are not decayed."""
    beta1: float = 0.9
    """Decay of the first moment."""
    beta2: float = 0.999
    """Decay of the second moment."""
    epsilon: float = 1e-6
    """Added to the root of the second moment."""
    max_grad_norm: float = 1.0
    """The global gradient is scaled down to this norm."""

    def __post_init__(self) -> None:
        for name in ("peak_learning_rate", "epsilon", "max_grad_norm"):
            value = getattr(self, name)
            _require(
                math.isfinite(value) and value > 0,
                f"{name}={value} must be finite and greater than 0.",
            )
        _require(
            math.isfinite(self.weight_decay) and self.weight_decay >= 0,
            f"weight_decay={self.weight_decay} must be finite and at least 0.",
        )
        _require_share(self, "beta1", "beta2")
        _require(
            self.warmup_steps >= 0,
            f"warmup_steps={self.warmup_steps} must be at least 0.",
        )


@dataclasses.dataclass(frozen=True)
class MeshConfig:
    """How the devices are arranged."""

    data: int = -1
    """Devices that share a batch; -1: all there are."""

    def __post_init__(self) -> None:
        _require(
            self.data == -1 or self.data > 0,
            f"data={self.data} must be greater than 0, or -1 for every device.",
        )


@dataclasses.dataclass(frozen=True)
class PretrainConfig:
    """A pretraining run. Defaults are the paper's first phase, except its hardware."""

    model: BertConfig = BertConfig()
    data: DataConfig = DataConfig()
    masking: MaskingConfig = MaskingConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    mesh: MeshConfig = MeshConfig()
    num_steps: int = 900_000
    """Optimizer steps to run to."""
    batch_size: int = 256
    """Rows an optimizer step, over all devices and hosts."""
    seed: int = 0
    """Of initialisation, data order, masks and dropout."""
    log_every: int = 100
    """Steps between two training lines."""
    eval_every: int = 10_000
    """Steps between two evaluations on the validation rows."""
    checkpoint_every: int = 10_000
    """Steps between two checkpoints; the last step always has one."""
    keep_checkpoints: int = 2
    """How many of the newest to keep, beside the best."""
    log_examples: bool = False
    """Write the row numbers of each step to examples.jsonl."""

    def __post_init__(self) -> None:
        _require_positive(
            self,
            "num_steps",
            "batch_size",
            "log_every",
            "eval_every",
            "checkpoint_every",
            "keep_checkpoints",
        )
        _require(
            self.data.sequence_length <= self.model.max_position_embeddings,
            f"data.sequence_length={self.data.sequence_length} is more than "
            f"model.max_position_embeddings={self.model.max_position_embeddings}; "
            "prepare shorter rows or raise the latter.",
        )
        _require(
            self.optimizer.warmup_steps <= self.num_steps,
            f"optimizer.warmup_steps={self.optimizer.warmup_steps} is more than "
            f"num_steps={self.num_steps}; lower it to at most that.",
        )


def to_dict(config: Any) -> dict[str, Any]:
    """The configuration as nested dicts of JSON values."""
    return dataclasses.asdict(config)


def from_dict(cls: type[ConfigT], values: dict[str, Any]) -> ConfigT:
    """The configuration of class `cls` that `to_dict` turned into `values`.

    Raises:
        ValueError: a key that `cls` does not have, or a value it refuses.
    """
    hints = typing.get_type_hints(cls)
    unknown = sorted(set(values) - set(hints))
    _require(not unknown, f"{cls.__name__} has no field {', '.join(unknown)}.")
    return cls(
        **{
            name: from_dict(hints[name], value)
            if dataclasses.is_dataclass(hints[name])
            else tuple(value)
            if isinstance(value, list)
            else value
            for name, value in values.items()
        }
    )


def write_json(values: Any, path: epath.Path) -> None:
    """Write `values` as readable JSON, in one piece or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
    temporary.replace(path)


def differences(
    old: dict[str, Any], new: dict[str, Any], prefix: str = ""
) -> list[tuple[str, Any, Any]]:
    """The fields in which two `to_dict` results differ: (dotted name, old, new)."""
    found = []
    for name in old.keys() | new.keys():
        a, b = old.get(name), new.get(name)
        if isinstance(a, dict) and isinstance(b, dict):
            found += differences(a, b, f"{prefix}{name}.")
        elif a != b:
            found.append((prefix + name, a, b))
    return sorted(found)

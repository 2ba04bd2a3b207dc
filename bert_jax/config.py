"""Every configuration: frozen dataclasses and their checks.

They hold plain values only, to be compared, written as JSON, and offered as options.
"""

import dataclasses
import functools
from typing import Any, Literal

from bert_jax.checks import (
    require,
    require_not_negative,
    require_positive,
    require_seed,
    require_share,
    require_types,
)


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
        require_types(self)
        sizes = (
            "vocab_size hidden_size num_hidden_layers num_attention_heads "
            "intermediate_size max_position_embeddings type_vocab_size"
        )
        require_positive(self, *sizes.split(), "initializer_range", "layer_norm_eps")
        require_share(self, "hidden_dropout_prob", "attention_probs_dropout_prob")
        d, n = self.hidden_size, self.num_attention_heads
        rule = f"hidden_size={d} is not a multiple of num_attention_heads={n}"
        require(d % n == 0, f"{rule}; {-(-d // n) * n} would be.")

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

    tiny = functools.partialmethod(miniature, 2, 128)
    mini = functools.partialmethod(miniature, 4, 256)
    small = functools.partialmethod(miniature, 4, 512)
    medium = functools.partialmethod(miniature, 8, 512)
    base = functools.partialmethod(miniature, 12, 768)
    large = functools.partialmethod(miniature, 24, 1024)


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
        require_types(self)
        require_positive(self, "vocab_size", "sample_sentences")
        require_seed(self)


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
        require_types(self)
        require_share(self, "short_sequence_probability", "validation_fraction")
        require(
            8 <= self.sequence_length <= 65_535,
            f"sequence_length={self.sequence_length} must be from 8 to 65535.",
        )
        require_not_negative(self, "workers")
        require_seed(self)


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
        require_types(self)
        require(0 < self.rate < 1, f"rate={self.rate} must be between 0 and 1.")
        require_positive(self, "max_predictions")


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """What to train on."""

    path: str = ""
    """Directory made by `bert-jax prepare`."""
    sequence_length: int = 128
    """Tokens a row; must be the dataset's."""
    fingerprint: str = ""
    """Of the dataset's content; filled in at the start, checked on resuming."""
    first_step: int = 0
    """Step at which the order of rows begins; filled in by keep_optimizer."""

    def __post_init__(self) -> None:
        require_types(self)
        require_positive(self, "sequence_length")
        require_not_negative(self, "first_step")


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """AdamW with linear warm-up and linear decay (Devlin et al. 2018, A.2)."""

    peak_learning_rate: float = 1e-4
    """Reached at the end of the warm-up."""
    warmup_steps: int = 10_000
    """Steps from 0 to the peak."""
    decay_steps: int = 0
    """Step at which the learning rate is back at 0; 0: at num_steps."""
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
        require_types(self)
        require_positive(self, "peak_learning_rate", "epsilon", "max_grad_norm")
        require_not_negative(self, "weight_decay", "warmup_steps", "decay_steps")
        require_share(self, "beta1", "beta2")


@dataclasses.dataclass(frozen=True)
class MeshConfig:
    """How the devices are arranged."""

    data: int = -1
    """Devices that share a batch, the first there are; -1: all of them."""

    def __post_init__(self) -> None:
        require_types(self)
        require(
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
    init_from: str = ""
    """Workdir or checkpoint to take the parameters from; empty: drawn by the seed."""
    keep_optimizer: bool = False
    """With init_from: take its optimizer and step too; the schedule counts on."""
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
        require_types(self)
        numbers = (
            "num_steps batch_size log_every eval_every checkpoint_every "
            "keep_checkpoints"
        )
        require_positive(self, *numbers.split())
        require_seed(self)
        require(
            self.data.sequence_length <= self.model.max_position_embeddings,
            f"data.sequence_length={self.data.sequence_length} is more than "
            f"model.max_position_embeddings={self.model.max_position_embeddings}; "
            "prepare shorter rows or raise the latter.",
        )
        end, warmup = self.schedule_steps, self.optimizer.warmup_steps
        require(
            warmup <= end,
            f"optimizer.warmup_steps={warmup} is more than the {end} steps of the "
            "schedule; lower it to at most that.",
        )
        require(
            end >= self.num_steps,
            f"optimizer.decay_steps={end} is less than num_steps={self.num_steps}; "
            "the learning rate would be 0 before the end.",
        )
        require(
            bool(self.init_from) or not self.keep_optimizer,
            "keep_optimizer needs init_from; name the run to go on from.",
        )

    @property
    def schedule_steps(self) -> int:
        """The step at which the learning rate is back at 0."""
        return self.optimizer.decay_steps or self.num_steps

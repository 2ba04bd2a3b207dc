"""Configuration of the model, and the released sizes."""

import dataclasses
import functools
from typing import Any, Literal

from bert_jax.config.checks import RESOLVED, CheckedConfig, require, require_class_names

Params = dict[str, Any]
"""A nested dict of arrays: the parameter tree of docs/pretraining.md."""

Head = Literal[
    "pretraining",
    "masked_lm",
    "encoder",
    "sequence_classification",
    "token_classification",
    "question_answering",
    "multiple_choice",
]
ProblemType = Literal[
    "single_label_classification", "multi_label_classification", "regression"
]

Family = Literal["bert", "roberta", "xlm-roberta", "camembert", "distilbert", "electra"]
PoolerActivation = Literal["tanh", "relu", "gelu"]

MAX_PARAMETERS = 10**12
"""4 TB in float32; with Adam's moments, too much for the devices of a pod."""

ANSWERABLE_LABELS = ("answerable", "unanswerable")
"""`BertConfig.labels` of a question answering model that may predict "no answer". Other
such models have no labels. The head has two scores per token either way."""

POOLED_HEADS = ("sequence_classification", "multiple_choice")
"""Heads that take one vector per text; the others take every token's vector."""

SHAPE_FIELDS = (
    "hidden_size num_hidden_layers num_attention_heads intermediate_size hidden_act "
    "max_position_embeddings type_vocab_size layer_norm_eps pooler_act family"
).split()
"""Fields of a model that a run takes from the model that it starts from."""
OWN_FIELDS = (
    "hidden_dropout_prob attention_probs_dropout_prob attention_kernel dtype remat "
    "pooling"
).split()
"""Model fields that a fine-tuning run may set; its source fixes the others."""


@dataclasses.dataclass(frozen=True, repr=False)
class BertConfig(CheckedConfig):
    """Shape of the model: the fields of `bert_config.json`, and additional ones.

    Defaults are BERT base, uncased English (Devlin et al. 2018, §3).
    """

    vocab_size: int = 30522
    """Size of the vocabulary; 0: as the dataset, for pretraining."""
    hidden_size: int = 768
    """Width D of the hidden states."""
    num_hidden_layers: int = 12
    """Number of encoder layers."""
    num_attention_heads: int = 12
    """Number of attention heads per layer; must divide hidden_size."""
    intermediate_size: int = 3072
    """Width F of the feed-forward layer."""
    hidden_act: Literal["gelu", "gelu_new", "relu"] = "gelu"
    """Activation function; gelu uses the error function, gelu_new a tanh."""
    hidden_dropout_prob: float = 0.1
    """Dropout rate of the embeddings and of each sublayer's output."""
    attention_probs_dropout_prob: float = 0.1
    """Dropout rate of the attention probabilities."""
    max_position_embeddings: int = 512
    """Maximum sequence length, the size of the position embedding table."""
    type_vocab_size: int = 2
    """Number of segment types."""
    initializer_range: float = 0.02
    """Standard deviation of the truncated normal that initialises the weights."""
    initializer: Literal["bert", "deepnorm", "local", "matching"] = "bert"
    """bert; deepnorm: the layers' kernels but those of query and key are smaller, so
    that each layer at first changes its input little (Wang et al. 2022); local: so,
    and up to four heads of the first layer attend to a neighbour each at first; or
    matching: two of each of two layers do, and two more of the first attend to their
    token in the other segment, for next sentence prediction."""
    layer_norm_eps: float = 1e-12
    """Added to the variance in LayerNorm."""
    attention: Literal["bidirectional", "causal"] = "bidirectional"
    """Attention mask: tokens attend to all tokens, or only to those before them."""
    attention_kernel: Literal["plain", "fused"] = "plain"
    """plain, or fused: never store the attention probabilities, on TPUs for rows of a
    multiple of 128 tokens, on NVIDIA GPUs in bfloat16 by cuDNN, which needs
    attention_probs_dropout_prob=0. Elsewhere plain."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of matrix products; parameters, softmax, LayerNorm, losses stay float32."""
    remat: Literal["none", "attention", "layer"] = "none"
    """What the backward pass recomputes to save memory: attention scores,
    or all of a layer (Chen et al. 2016; Korthikanti et al. 2022, §4)."""

    head: Head = dataclasses.field(default="pretraining", metadata=RESOLVED)
    """Head on top of the encoder."""
    labels: tuple[str, ...] = dataclasses.field(default=(), metadata=RESOLVED)
    """Class names of a classification head, in the order of its outputs."""
    problem_type: ProblemType = dataclasses.field(
        default="single_label_classification", metadata=RESOLVED
    )
    """Output of a sequence classifier: one class of several, any number of classes,
    or a real number."""
    target_mean: float = dataclasses.field(default=0.0, metadata=RESOLVED)
    """Regression: the mean of the training targets. The number that a score s stands
    for is target_mean + target_deviation · s."""
    target_deviation: float = dataclasses.field(default=1.0, metadata=RESOLVED)
    """Regression: the standard deviation of the training targets."""
    pooling: Literal["cls", "mean", "last"] = "cls"
    """Input of a sequence classifier: the tanh layer on [CLS], the mean of the hidden
    states of all tokens except padding, or the tanh layer on the last of them, [SEP],
    for causal attention, by which [CLS] sees no other."""
    pooler_act: PoolerActivation = dataclasses.field(default="tanh", metadata=RESOLVED)
    """Activation of the pooler: tanh in BERT, relu in DistilBERT, gelu in ELECTRA."""
    family: Family = dataclasses.field(default="bert", metadata=RESOLVED)
    """Whose names and files an export for transformers writes: those of the model that
    was imported. It does not change what the model computes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_positive("hidden_size", "num_hidden_layers")
        self.require_positive("num_attention_heads", "intermediate_size")
        self.require_positive("max_position_embeddings", "type_vocab_size")
        self.require_positive("initializer_range", "layer_norm_eps")
        self.require_positive("target_deviation")
        self.require_not_negative("vocab_size")
        self.require_fraction("hidden_dropout_prob", "attention_probs_dropout_prob")
        d, n = self.hidden_size, self.num_attention_heads
        rule = f"hidden_size={d} is not a multiple of num_attention_heads={n}"
        require(d % n == 0, f"{rule}; {-(-d // n) * n} would be.")
        self._check_initializer()
        require_class_names(self.labels)
        reads_cls = self.head in POOLED_HEADS and self.pooling == "cls"
        require(
            not reads_cls or self.attention == "bidirectional",
            "model.pooling=cls cannot be used with attention=causal, by which [CLS] "
            "sees no other token; set it to last or mean.",
        )
        tables = self.vocab_size + self.max_position_embeddings + self.type_vocab_size
        layer = 4 * d * d + 2 * d * self.intermediate_size
        parameters = tables * d + self.num_hidden_layers * layer
        require(
            parameters <= MAX_PARAMETERS,
            f"vocab_size={self.vocab_size}, hidden_size={d}, "
            f"num_hidden_layers={self.num_hidden_layers}, "
            f"intermediate_size={self.intermediate_size} and "
            f"max_position_embeddings={self.max_position_embeddings} make "
            f"{parameters:.2g} parameters; lower them to {MAX_PARAMETERS:.0e}.",
        )

    @staticmethod
    def upgraded(values: dict[str, Any]) -> dict[str, Any]:
        """Return the values of a file, with the names of 0.1 replaced by today's."""
        others = {name: v for name, v in values.items() if name != "fused_attention"}
        is_fused = values.get("fused_attention") is True
        return others | ({"attention_kernel": "fused"} if is_fused else {})

    def _check_initializer(self) -> None:
        name, num_heads = self.initializer, self.num_attention_heads
        width = self.hidden_size // num_heads
        least = {"local": 2, "matching": 6}.get(name, 1)
        require(
            width >= least,
            f"model.initializer={name} cannot be used with heads of {width}, which "
            f"must be at least {least} wide; lower num_attention_heads.",
        )
        if name != "matching":
            return
        require(
            num_heads > 2 and self.type_vocab_size > 1,
            f"model.initializer=matching cannot be used with {num_heads} heads and "
            f"{self.type_vocab_size} segments; it needs 3 and 2, or use local.",
        )
        require(
            self.attention == "bidirectional",
            "model.initializer=matching cannot be used with attention=causal, by which "
            "no token of the first segment sees the second; use local.",
        )

    @classmethod
    def miniature(cls, layers: int, hidden: int, **overrides: Any) -> "BertConfig":
        """A model of the shape of the 24 released miniatures (Turc et al. 2019)."""
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

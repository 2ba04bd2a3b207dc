"""The families of models at Hugging Face whose tensors are BERT's under other names.

RoBERTa (Liu et al. 2019), XLM-R (Conneau et al. 2020), CamemBERT (Martin et al. 2020),
DistilBERT (Sanh et al. 2019) and ELECTRA (Clark et al. 2020) compute what BERT does.
They differ in names, in the first position, in segments, and in the layer before a
classifier. Each is converted when its files are read or written; the model is BERT.
"""

import dataclasses
from collections.abc import Mapping

from bert_jax.config.checks import quoted
from bert_jax.config.model import Family as FamilyName
from bert_jax.config.model import PoolerActivation
from bert_jax.storage.files import JsonObject

HEAD_OF_CLASS = {
    "Model": "encoder",
    "ForPreTraining": "pretraining",
    "ForMaskedLM": "masked_lm",
    "ForSequenceClassification": "sequence_classification",
    "ForTokenClassification": "token_classification",
    "ForQuestionAnswering": "question_answering",
    "ForMultipleChoice": "multiple_choice",
}
"""Our heads by the ends of the names of transformers' classes."""
Renames = tuple[tuple[str, str], ...]
"""Parts of names: theirs, and BERT's."""


@dataclasses.dataclass(frozen=True)
class FamilyFormat:
    """How the files of one family differ from BERT's."""

    model_type: FamilyName
    class_name: str
    """Begins the names of transformers' classes, for example `RobertaModel`."""
    prefix: str
    """Begins the names of the encoder's tensors in classes with a head."""
    inside: Renames = ()
    """Parts of the encoder's names, which are replaced in turn."""
    heads: Renames = ()
    """Names of modules outside of the encoder, for every head."""
    own_heads: Mapping[str, Renames] = dataclasses.field(default_factory=dict)
    """Names of modules outside of the encoder, by the head."""
    config_keys: dict[str, str] = dataclasses.field(default_factory=dict)
    """Their names of BERT's configuration keys, by BERT's."""
    defaults: JsonObject = dataclasses.field(default_factory=dict)
    """Values of BERT's keys that a file of the family may leave out."""
    pooler_act: PoolerActivation = "tanh"
    has_segments: bool = True
    positions_after_padding: bool = False
    """Whether positions are counted from `pad_token_id` + 1."""
    required: dict[str, str] = dataclasses.field(default_factory=dict)
    """Keys that must have the value of another key."""
    fixed: JsonObject = dataclasses.field(default_factory=dict)
    """Values of keys that the classes never read: they compute by these."""
    only: dict[str, JsonObject] = dataclasses.field(default_factory=dict)
    """By the head, values of keys that the classes compute whatever the file says."""
    own_head: str = ""
    """The tensors of a head that bert_jax does not have, of the class for pretraining,
    begin so."""
    left_over: str = r"(?!)"
    """A pattern of the names, once changed to BERT's, of tensors that a head may leave
    unused."""

    def rename_to_bert(self, name: str, head: str) -> str:
        """Return the name at BERT of a tensor; other names stay as they are."""
        for theirs, berts in (*self.own_heads.get(head, ()), *self.heads):
            if name.startswith(theirs):
                return berts + name.removeprefix(theirs)
        if head in self.own_heads and name.startswith(f"{self.prefix}.pooler."):
            return name  # the head has a layer of its own in the pooler's place
        if not name.startswith(f"{self.prefix}."):
            return name
        name = f"bert.{name.removeprefix(f'{self.prefix}.')}"
        for theirs, berts in self.inside:
            name = name.replace(theirs, berts)
        return name

    def rename_from_bert(self, name: str, head: str) -> str:
        """Return the family's name of BERT's tensor."""
        for theirs, berts in (*self.own_heads.get(head, ()), *self.heads):
            if name.startswith(berts):
                return theirs + name.removeprefix(berts)
        if not name.startswith("bert."):
            return name
        for theirs, berts in self.inside:
            name = name.replace(berts, theirs)
        return f"{self.prefix}.{name.removeprefix('bert.')}"

    def bert_values(self, values: JsonObject) -> JsonObject:
        """Return a config.json under BERT's keys, with the family's defaults.

        Positions are counted from 0, and there is one segment if the family has none.
        """
        renamed = {
            berts: values[theirs]
            for berts, theirs in self.config_keys.items()
            if theirs in values
        }
        values = {**self.defaults, **values, **renamed, **self.fixed}
        for key, other in self.required.items():
            if values.get(key) != values.get(other):
                raise ValueError(
                    f"{key}={quoted(values.get(key))} is not {other}="
                    f"{quoted(values.get(other))}: such a model has a layer between "
                    "the two, which bert_jax does not have."
                )
        if not self.has_segments:
            values["type_vocab_size"] = 1
        positions = values.get("max_position_embeddings", 512)
        if type(positions) is int and (first := self.first_position(values)):
            values["max_position_embeddings"] = positions - first
        return values

    def class_of(self, head: str) -> str:
        """Return the name of transformers' class of a head; empty: there is none."""
        suffix = next((s for s, h in self.head_of.items() if h == head), None)
        return "" if suffix is None else self.class_name + suffix

    @property
    def head_of(self) -> dict[str, str]:
        """The head of each class, by the end of the class's name."""
        if self.model_type == "bert":
            return HEAD_OF_CLASS
        others = {s: h for s, h in HEAD_OF_CLASS.items() if h != "pretraining"}
        return others | ({"ForPreTraining": "encoder"} if self.own_head else {})

    def first_position(self, values: JsonObject) -> int:
        """Return the row of the position table that belongs to the first token."""
        if not self.positions_after_padding:
            return 0
        padding = values.get("pad_token_id", 1)
        if type(padding) is not int or not 0 <= padding < 1000:
            raise ValueError(
                f"pad_token_id={padding!r:.80} must be the id of the padding token, "
                "after which positions are counted."
            )
        return padding + 1


# Old files of token, question and masked-LM classes hold a pooler.
BERT = FamilyFormat("bert", "Bert", "bert", left_over=r"bert\.pooler\..*")

_ROBERTA_HEADS = (
    ("lm_head.dense.", "cls.predictions.transform.dense."),
    ("lm_head.layer_norm.", "cls.predictions.transform.LayerNorm."),
    ("lm_head.", "cls.predictions."),
)
_DENSE_CLASSIFIER = {
    "sequence_classification": (
        ("classifier.dense.", "bert.pooler.dense."),
        ("classifier.out_proj.", "classifier."),
    )
}


def _roberta(model_type: FamilyName, class_name: str) -> FamilyFormat:
    return FamilyFormat(
        model_type,
        class_name,
        "roberta",
        heads=_ROBERTA_HEADS,
        own_heads=_DENSE_CLASSIFIER,
        positions_after_padding=True,
        only={"masked_lm": {"hidden_act": "gelu"}},
        # The released files of masked language models hold a pooler, and so do those of
        # some classifiers beside `classifier.dense`.
        left_over=r"(bert|roberta)\.pooler\..*",
    )


DISTILBERT = FamilyFormat(
    "distilbert",
    "DistilBert",
    "distilbert",
    inside=(
        (".transformer.layer.", ".encoder.layer."),
        (".attention.q_lin.", ".attention.self.query."),
        (".attention.k_lin.", ".attention.self.key."),
        (".attention.v_lin.", ".attention.self.value."),
        (".attention.out_lin.", ".attention.output.dense."),
        (".sa_layer_norm.", ".attention.output.LayerNorm."),
        (".ffn.lin1.", ".intermediate.dense."),
        (".ffn.lin2.", ".output.dense."),
        (".output_layer_norm.", ".output.LayerNorm."),
    ),
    heads=(
        ("vocab_transform.", "cls.predictions.transform.dense."),
        ("vocab_layer_norm.", "cls.predictions.transform.LayerNorm."),
        ("vocab_projector.weight", "cls.predictions.decoder.weight"),
        ("vocab_projector.bias", "cls.predictions.bias"),
        ("pre_classifier.", "bert.pooler.dense."),
    ),
    config_keys={
        "hidden_size": "dim",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "intermediate_size": "hidden_dim",
        "hidden_act": "activation",
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
    },
    defaults={"num_hidden_layers": 6},
    fixed={"layer_norm_eps": 1e-12},
    pooler_act="relu",
    has_segments=False,
)
ELECTRA = FamilyFormat(
    "electra",
    "Electra",
    "electra",
    heads=(
        ("generator_predictions.dense.", "cls.predictions.transform.dense."),
        ("generator_predictions.LayerNorm.", "cls.predictions.transform.LayerNorm."),
        ("generator_lm_head.weight", "cls.predictions.decoder.weight"),
        ("generator_lm_head.bias", "cls.predictions.bias"),
        ("sequence_summary.summary.", "bert.pooler.dense."),
    ),
    own_heads=_DENSE_CLASSIFIER,
    required={"embedding_size": "hidden_size"},
    defaults={
        "embedding_size": 128,
        "hidden_size": 256,
        "num_attention_heads": 4,
        "intermediate_size": 1024,
    },
    pooler_act="gelu",
    only={
        "masked_lm": {"hidden_act": "gelu"},
        "multiple_choice": {
            "summary_type": "first",
            "summary_use_proj": True,
            "summary_activation": "gelu",
        },
    },
    own_head="discriminator_predictions.",
    left_over=r"discriminator_predictions\..*",
)
FAMILIES: dict[str, FamilyFormat] = {
    family.model_type: family
    for family in (
        BERT,
        _roberta("roberta", "Roberta"),
        _roberta("xlm-roberta", "XLMRoberta"),
        _roberta("camembert", "Camembert"),
        DISTILBERT,
        ELECTRA,
    )
}
"""By `model_type` of config.json."""
OTHER_MODELS = {
    "albert": "its layers share their parameters",
    "big_bird": "its attention is sparse",
    "deberta": "its attention has relative positions",
    "deberta-v2": "its attention has relative positions",
    "funnel": "its layers shorten the sequence",
    "longformer": "its attention is sparse",
    "modernbert": "it has rotary positions and gated layers",
    "mpnet": "its attention has relative positions",
    "nomic_bert": "it has rotary positions and gated layers",
    "roberta-prelayernorm": "its LayerNorm stands before each sublayer",
    "xlnet": "its attention has relative positions",
}
"""Why encoders of other families are another model than BERT."""


def family_of(values: JsonObject) -> FamilyFormat:
    """Return the family of a config.json; raise ValueError if it is no BERT."""
    name = values.get("model_type", "bert")
    if isinstance(name, str) and name in FAMILIES:
        return FAMILIES[name]
    known = ", ".join(FAMILIES)
    reason = OTHER_MODELS.get(name) if isinstance(name, str) else None
    because = f", because {reason}" if reason else ""
    raise ValueError(
        f"model_type={quoted(name)} is not supported{because}; bert_jax supports only "
        f"{known}."
    )

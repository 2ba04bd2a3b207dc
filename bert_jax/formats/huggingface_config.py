"""Convert Hugging Face's `config.json` to a BertConfig."""

import re
import warnings

from etils import epath

from bert_jax.config import BertConfig
from bert_jax.config.checks import field_types, quoted, require_type
from bert_jax.config.model import ANSWERABLE_LABELS
from bert_jax.formats.families import HEAD_OF_CLASS, FamilyFormat, family_of
from bert_jax.storage.files import JsonObject

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_new",
    "gelu_fast": "gelu_new",
    "gelu_accurate": "gelu_new",
    "gelu_python_tanh": "gelu_new",
    "gelu_pytorch_tanh": "gelu_new",
    "relu": "relu",
}
"""Our names by transformers' names: `gelu` uses the error function, `gelu_new` its
approximation by tanh. `quick_gelu` is another function, so it is absent."""
SIZES = (
    "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size "
    "max_position_embeddings type_vocab_size"
).split()
RATES = (
    "hidden_dropout_prob attention_probs_dropout_prob initializer_range layer_norm_eps"
).split()
SUPPORTED_VALUES = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "is_encoder_decoder": False,
    "pruned_heads": {},
    "quantization_config": None,
}
"""Keys with a single supported value, which is also the default."""
KNOWN_KEYS = {
    *SIZES,
    *RATES,
    *SUPPORTED_VALUES,
    *"model_type hidden_act architectures id2label num_labels problem_type".split(),
    "tie_word_embeddings",
}
"""The keys that an import reads."""
_LAYERS = "num_hidden_layers"
TIED_HEADS = ("pretraining", "masked_lm")
"""Heads whose output layer is the table of token embeddings, with names in `cls`."""
_MAX_LABELS = 1 << 23
_DEFAULT_NAMES = {"0": "LABEL_0", "1": "LABEL_1"}
_LAYER = re.compile(r"bert[./]encoder[./]layer[._](\w+)[./]")


def read_bert_config(
    path: epath.Path, values: JsonObject, shapes: dict[str, tuple[int, ...]]
) -> BertConfig:
    """Return the configuration of a `config.json`, of which `values` is the content.

    A key that is absent has transformers' default, which is BERT base's. `shapes` are
    the tensors' by the library's names, with the prefix `bert`. Raise ValueError if a
    value is invalid or not supported, or the tensors have another number of layers.
    """
    family = family_of(values)
    try:
        config = _bert_config(family, values, shapes)
    except ValueError as error:
        message = str(error)
        for berts, theirs in family.config_keys.items():
            message = re.sub(rf"\b{berts}\b", theirs, message)
        raise ValueError(f"{path}: {message}") from error
    # The names of all parameters are listed later: not of a billion layers.
    layers = {match[1] for match in map(_LAYER.match, shapes) if match}
    if len(layers) != config.num_hidden_layers:
        raise ValueError(
            f"{path} says {family.config_keys.get(_LAYERS, _LAYERS)}="
            f"{config.num_hidden_layers} and there are tensors of {len(layers)} "
            "layers; use the file that belongs to them."
        )
    return config


def _bert_config(
    family: FamilyFormat, values: JsonObject, shapes: dict[str, tuple[int, ...]]
) -> BertConfig:
    _require_own_class(family, values.get("auto_map"))
    values = family.bert_values(values)
    # transformers takes null there for the default.
    given = {name: value for name, value in values.items() if value is not None}
    _require_values(given, SUPPORTED_VALUES)
    fields = {name: values[name] for name in SIZES + RATES if name in values}
    act = values.get("hidden_act", "gelu")
    if not isinstance(act, str) or act not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise ValueError(f"hidden_act={quoted(act)} must be one of {known}.")
    head = _head(family, values.get("architectures"), shapes)
    _require_values(
        values | {"hidden_act": ACTIVATIONS[act]}, family.only.get(head, {})
    )
    labels = _labels(values) if head.endswith("_classification") else ()
    if head == "question_answering" and values.get("id2label") is not None:
        # Labels have no meaning for this head, but models of bert_jax that can answer
        # "no answer" are marked by them.
        labels = ANSWERABLE_LABELS if _labels(values) == ANSWERABLE_LABELS else ()
    fields |= {"hidden_act": ACTIVATIONS[act], "head": head, "labels": labels}
    fields |= {"family": family.model_type, "pooler_act": family.pooler_act}
    if head == "sequence_classification":
        # The defaults of transformers.
        default = "regression" if len(labels) == 1 else BertConfig.problem_type
        kind = values.get("problem_type")
        fields["problem_type"] = default if kind is None else kind
        if fields["problem_type"] == "regression" and len(labels) > 1:
            raise ValueError(
                f"problem_type='regression' gives {len(labels)} numbers for a text; "
                "bert_jax supports one. Its encoder alone is read where architectures "
                f'is ["{family.class_name}Model"].'
            )
    for name, value in fields.items():
        require_type(name, value, field_types(BertConfig)[name])
        fields[name] = float(value) if name in RATES else value
    return BertConfig(**fields)


def _require_own_class(family: FamilyFormat, auto_map: object) -> None:
    """Raise ValueError if a file names a class with a program of the model's own.

    A class that has the name of transformers' own is taken to compute the same.
    """
    named = auto_map.items() if isinstance(auto_map, dict) else ()
    known = {family.class_name + end for end in HEAD_OF_CLASS}
    for key, value in named:
        if key.startswith("AutoModel") and str(value).rpartition(".")[2] not in known:
            raise ValueError(
                f"auto_map names {quoted(value)} for {key}, a program of the model's "
                "own, which may compute anything; bert_jax supports only transformers' "
                f"classes of {family.model_type}."
            )


def _require_values(values: JsonObject, supported: JsonObject) -> None:
    """Raise ValueError if a key that is there has another value than the only one."""
    for name, only in supported.items():
        if name in values and values[name] != only:
            raise ValueError(
                f"{name}={quoted(values[name])} is not supported; "
                f"bert_jax supports only {only!r}."
            )


def keys_left_over(values: JsonObject) -> JsonObject:
    """Return the entries of a `config.json` that an import does not read.

    None of them changes what a model computes: versions of libraries, the form of
    transformers' outputs, and rates that runs of bert_jax have options for, such as
    `classifier_dropout`.
    """
    family = family_of(values)
    known = KNOWN_KEYS.union(family.config_keys.values(), family.required)
    known |= {key for only in family.only.values() for key in only}
    known |= {"pad_token_id"} if family.positions_after_padding else set()
    known -= family.fixed.keys()
    return {
        name: value
        for name, value in values.items()
        if name not in known and (name, value) not in family.fixed.items()
    }


def _head(
    family: FamilyFormat, architectures: object, shapes: dict[str, tuple[int, ...]]
) -> str:
    """Return the head by the name of the class, or else by the tensors."""
    if architectures is None:
        return _head_by_tensors(family, shapes)
    heads = {family.class_name + end: head for end, head in family.head_of.items()}
    names = architectures if isinstance(architectures, list) else []
    if len(names) != 1 or not isinstance(names[0], str) or names[0] not in heads:
        raise ValueError(
            f"architectures={quoted(architectures)} must hold one of "
            f"{', '.join(heads)}."
        )
    head = heads[names[0]]
    if head in TIED_HEADS and not any(name.startswith("cls") for name in shapes):
        # Sentence models keep the name of the class that they were trained from.
        line = (
            f"There is no tensor of the head of {names[0]}: this is an encoder alone."
        )
        warnings.warn(line, stacklevel=2)
        return "encoder"
    others = {"bert.pooler.dense.weight", "cls.seq_relationship.weight"}
    # The files of the first released models name BertForMaskedLM and hold both heads.
    return "pretraining" if head == "masked_lm" and others <= shapes.keys() else head


def _head_by_tensors(family: FamilyFormat, shapes: dict[str, tuple[int, ...]]) -> str:
    if "qa_outputs.weight" in shapes:
        return "question_answering"
    if "cls.seq_relationship.weight" in shapes:
        return "pretraining"
    if "cls.predictions.bias" in shapes or "cls.predictions.decoder.bias" in shapes:
        return "masked_lm"
    if "classifier.weight" not in shapes:
        return "encoder"
    if "bert.pooler.dense.weight" not in shapes:
        return "token_classification"
    if shapes["classifier.weight"][:1] != (1,):
        return "sequence_classification"
    name = family.class_name
    raise ValueError(
        "architectures is absent, and the classifier gives one score, of a class or a "
        f'choice; add "architectures": ["{name}ForSequenceClassification"] or '
        f'["{name}ForMultipleChoice"].'
    )


def _labels(values: JsonObject) -> tuple[str, ...]:
    """Return the names of the classes; two by default, as in transformers.

    Transformers 2 wrote the two default names whatever `num_labels` was.
    """
    labels = values.get("id2label")
    if labels is None or (labels == _DEFAULT_NAMES and "num_labels" in values):
        count = values.get("num_labels", 2)
        if type(count) is not int or not 0 < count < _MAX_LABELS:
            raise ValueError(f"num_labels={quoted(count)} must be a number of classes.")
        return tuple(f"LABEL_{i}" for i in range(count))
    count = len(labels) if isinstance(labels, dict) else 0
    names = tuple(labels.get(str(i)) for i in range(count))
    if not names or not all(isinstance(name, str) for name in names):
        raise ValueError(
            f'id2label={quoted(labels)} must name each class by "0", "1", … in turn, '
            "and each name is a text."
        )
    return names

"""Hugging Face's `config.json` as a BertConfig, or what in it we cannot compute."""

from typing import Any, get_args

from bert_jax.config import BertConfig
from bert_jax.config.model import ANSWERABLE_LABELS, ProblemType

HEADS = {
    "BertModel": "encoder",
    "BertForPreTraining": "pretraining",
    "BertForMaskedLM": "masked_lm",
    "BertForSequenceClassification": "sequence_classification",
    "BertForTokenClassification": "token_classification",
    "BertForQuestionAnswering": "question_answering",
    "BertForMultipleChoice": "multiple_choice",
}
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
"""By transformers' names: the error function's, and its approximation by tanh in five
ways of writing it. `quick_gelu` is another function."""
SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
)
PROBLEM_TYPES: tuple[str, ...] = get_args(ProblemType)
RATES = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "initializer_range",
    "layer_norm_eps",
)
ONLY = {
    "model_type": "bert",
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "is_encoder_decoder": False,
    "pruned_heads": {},
    "quantization_config": None,
}
"""Keys of which we compute one value alone; a key that is absent has it."""
READ = {
    *SIZES,
    *RATES,
    *ONLY,
    "hidden_act",
    "architectures",
    "id2label",
    "num_labels",
    "problem_type",
    "tie_word_embeddings",
}
"""Every key that an import looks at."""
_LARGEST = 1 << 31


def read_bert_config(
    values: dict[str, Any], shapes: dict[str, tuple[int, ...]]
) -> BertConfig:
    """The configuration in a `config.json`.

    A key that is absent has transformers' default, which is BERT base's.

    Args:
        values: what the file holds.
        shapes: those of the tensors, under Hugging Face's names with the prefix `bert.`

    Raises:
        ValueError: a value is no such value, or one that we do not compute.
    """
    for name, only in ONLY.items():
        if name in values and values[name] != only:
            raise ValueError(
                f"{name}={_short(values[name])} is not supported; "
                f"bert_jax computes {only!r} alone."
            )
    fields: dict[str, Any] = {name: values[name] for name in SIZES if name in values}
    for name, size in fields.items():
        if type(size) is not int or not 0 < size < _LARGEST:
            raise ValueError(
                f"{name}={_short(size)} must be a whole number greater than 0 "
                f"and less than {_LARGEST}."
            )
    for name in RATES:
        if name in values:
            fields[name] = _number(name, values[name])
    act = values.get("hidden_act", "gelu")
    if not isinstance(act, str) or act not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise ValueError(f"hidden_act={_short(act)} must be one of {known}.")
    head = _head(values.get("architectures"), shapes)
    labels = _labels(values) if head.endswith("_classification") else ()
    if head == "question_answering" and values.get("id2label") is not None:
        # Without a meaning there, but for models of ours that may say "no answer".
        labels = ANSWERABLE_LABELS if _labels(values) == ANSWERABLE_LABELS else ()
    fields |= {"hidden_act": ACTIVATIONS[act], "head": head, "labels": labels}
    return BertConfig(**fields, problem_type=_problem_type(values, head, labels))


def keys_left_over(values: dict[str, Any]) -> dict[str, Any]:
    """What a `config.json` says that an import does not look at.

    None of it changes what a model computes: the versions of libraries, the shape of
    transformers' own outputs, and rates that a run here has options for, such as
    `classifier_dropout`.
    """
    return {name: value for name, value in values.items() if name not in READ}


def _problem_type(values: dict[str, Any], head: str, labels: tuple[str, ...]) -> Any:
    """What the scores mean; where it is not said, as transformers guesses."""
    if head != "sequence_classification":
        return PROBLEM_TYPES[0]
    kind = values.get("problem_type")
    if kind is None:
        return "regression" if len(labels) == 1 else PROBLEM_TYPES[0]
    if kind not in PROBLEM_TYPES:
        raise ValueError(
            f"problem_type={_short(kind)} must be one of {', '.join(PROBLEM_TYPES)}."
        )
    return kind


def _number(name: str, value: Any) -> float:
    if type(value) not in (int, float) or abs(value) > _LARGEST:
        raise ValueError(f"{name}={_short(value)} must be a number near 0.")
    return float(value)


def _head(architectures: Any, shapes: dict[str, tuple[int, ...]]) -> str:
    """The head by name; where there is none, by the tensors."""
    if architectures is None:
        return _head_by_tensors(shapes)
    if (
        not isinstance(architectures, list)
        or len(architectures) != 1
        or not isinstance(architectures[0], str)
        or architectures[0] not in HEADS
    ):
        raise ValueError(
            f"architectures={_short(architectures)} must hold one of "
            f"{', '.join(HEADS)}."
        )
    head = HEADS[architectures[0]]
    rest = {"bert.pooler.dense.weight", "cls.seq_relationship.weight"}
    # The files of the first released models name the one and hold the other.
    return "pretraining" if head == "masked_lm" and rest <= shapes.keys() else head


def _head_by_tensors(shapes: dict[str, tuple[int, ...]]) -> str:
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
    raise ValueError(
        "architectures is absent, and classifier.weight gives one score, of a class or "
        'a choice; add "architectures": ["BertForSequenceClassification"] or '
        '["BertForMultipleChoice"].'
    )


def _labels(values: dict[str, Any]) -> tuple[str, ...]:
    """The names of the classes; as in transformers, two where nothing is said."""
    if values.get("id2label") is None:
        count = values.get("num_labels", 2)
        if type(count) is not int or not 0 < count < _LARGEST >> 8:
            raise ValueError(f"num_labels={_short(count)} must be a number of classes.")
        return tuple(f"LABEL_{i}" for i in range(count))
    labels = values["id2label"]
    wanted = [str(i) for i in range(len(labels))] if isinstance(labels, dict) else []
    if (
        not wanted
        or set(labels) != set(wanted)
        or not all(isinstance(label, str) for label in labels.values())
    ):
        raise ValueError(
            f'id2label={_short(labels)} must name each class by "0", "1", … in turn.'
        )
    return tuple(labels[number] for number in wanted)


def _short(value: Any) -> str:
    return repr(value)[:80]

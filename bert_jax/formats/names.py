"""One table of every parameter's name: here, at Hugging Face, and in TensorFlow 1.

Kernels are [in, out] here and in TensorFlow, [out, in] at Hugging Face; the rows of
TensorFlow's output layers are the classes, so those are transposed too.
"""

import dataclasses
from collections.abc import Iterator

from bert_jax.config import BertConfig
from bert_jax.model.heads import POOLED_HEADS, num_outputs

_NAMED = 8


@dataclasses.dataclass(frozen=True)
class Name:
    """One parameter's names, and whether the others hold it transposed."""

    ours: str
    huggingface: str
    """With the prefix `bert.` of every class but BertModel itself."""
    tf1: str
    huggingface_transposed: bool = False
    tf1_transposed: bool = False


def _dense(ours: str, huggingface: str, tf1: str) -> Iterator[Name]:
    yield Name(f"{ours}/kernel", f"{huggingface}.weight", f"{tf1}/kernel", True)
    yield Name(f"{ours}/bias", f"{huggingface}.bias", f"{tf1}/bias")


def _layer_norm(ours: str, huggingface: str, tf1: str) -> Iterator[Name]:
    yield Name(f"{ours}/scale", f"{huggingface}.weight", f"{tf1}/gamma")
    yield Name(f"{ours}/bias", f"{huggingface}.bias", f"{tf1}/beta")


def _output(ours: str, huggingface: str, tf1: str) -> Iterator[Name]:
    """A layer of few outputs, which TensorFlow's code keeps as a bare matrix."""
    yield Name(
        f"{ours}/kernel", f"{huggingface}.weight", f"{tf1}output_weights", True, True
    )
    yield Name(f"{ours}/bias", f"{huggingface}.bias", f"{tf1}output_bias")


def encoder_names(config: BertConfig) -> Iterator[Name]:
    """Embeddings and layers."""
    ours, huggingface, tf1 = "encoder/embeddings", "bert.embeddings", "bert/embeddings"
    for mine, theirs in (
        ("token", "word_embeddings"),
        ("position", "position_embeddings"),
        ("segment", "token_type_embeddings"),
    ):
        yield Name(
            f"{ours}/{mine}/embedding",
            f"{huggingface}.{theirs}.weight",
            f"{tf1}/{theirs}",
        )
    yield from _layer_norm(
        f"{ours}/layer_norm", f"{huggingface}.LayerNorm", f"{tf1}/LayerNorm"
    )
    for i in range(config.num_hidden_layers):
        layer = (
            f"encoder/layer_{i}",
            f"bert.encoder.layer.{i}",
            f"bert/encoder/layer_{i}",
        )
        for part in ("query", "key", "value"):
            yield from _dense(
                *_below(layer, f"attention/{part}", f"attention/self/{part}")
            )
        attention = "attention/output"
        yield from _dense(*_below(layer, attention, f"{attention}/dense"))
        yield from _layer_norm(
            *_below(layer, "attention/layer_norm", f"{attention}/LayerNorm")
        )
        yield from _dense(*_below(layer, "feed_forward/in", "intermediate/dense"))
        yield from _dense(*_below(layer, "feed_forward/out", "output/dense"))
        yield from _layer_norm(
            *_below(layer, "feed_forward/layer_norm", "output/LayerNorm")
        )


def _below(layer: tuple[str, str, str], ours: str, theirs: str) -> tuple[str, str, str]:
    here, huggingface, tf1 = layer
    dotted = theirs.replace("/", ".")
    return f"{here}/{ours}", f"{huggingface}.{dotted}", f"{tf1}/{theirs}"


def pooler_names() -> Iterator[Name]:
    """The tanh layer on [CLS]."""
    yield from _dense("pooler/dense", "bert.pooler.dense", "bert/pooler/dense")


def masked_lm_names() -> Iterator[Name]:
    """The masked-LM head; its table is the token embeddings."""
    theirs, tf1 = "cls.predictions", "cls/predictions"
    ours = "masked_lm"
    transform = f"{theirs}.transform", f"{tf1}/transform"
    yield from _dense(
        f"{ours}/dense", *(f"{transform[0]}.dense", f"{transform[1]}/dense")
    )
    yield from _layer_norm(
        f"{ours}/layer_norm", f"{transform[0]}.LayerNorm", f"{transform[1]}/LayerNorm"
    )
    yield Name(f"{ours}/bias", f"{theirs}.bias", f"{tf1}/output_bias")


def next_sentence_names() -> Iterator[Name]:
    """Follows, or random."""
    yield from _output(
        "next_sentence/dense", "cls.seq_relationship", "cls/seq_relationship/"
    )


def classifier_names(head: str) -> Iterator[Name]:
    """The one layer of the heads for classes, tags, answers and choices."""
    answers = head == "question_answering"
    yield from _output(
        "classifier/dense",
        "qa_outputs" if answers else "classifier",
        "cls/squad/" if answers else "",
    )


def names_of(config: BertConfig, pooler: bool = True) -> list[Name]:
    """Every parameter of a model with `config.head`.

    Args:
        pooler: whether there is one, where the head itself does not decide it.
    """
    names = list(encoder_names(config))
    if config.head in POOLED_HEADS:
        pooler = config.pooling == "cls"
    elif config.head != "encoder":
        pooler = config.head == "pretraining"
    if pooler:
        names += pooler_names()
    if config.head in ("pretraining", "masked_lm"):
        names += masked_lm_names()
    if config.head == "pretraining":
        names += next_sentence_names()
    elif config.head not in ("masked_lm", "encoder"):
        names += classifier_names(config.head)
    return names


def some(names: list[str]) -> str:
    """The first few of some names, and how many there are."""
    more = [f"{len(names)} in all"] if len(names) > _NAMED else []
    return ", ".join(names[:_NAMED] + more)


def format_shape(shape: tuple[int, ...]) -> str:
    """A shape as messages have it."""
    return "x".join(map(str, shape)) or "a scalar"


def describe_shapes(wrong: list[tuple[str, tuple[int, ...], tuple[int, ...]]]) -> str:
    """Tensors of another shape than they should have: the first few, and how many."""
    told = [
        f"{name} is {format_shape(is_)}, not {format_shape(due)}"
        for name, is_, due in wrong
    ]
    more = [f"{len(told)} in all differ"] if len(told) > _NAMED else []
    return "; ".join(told[:_NAMED] + more)


def shape_of(config: BertConfig, ours: str) -> tuple[int, ...]:
    """The shape of the parameter `ours`, one of `names_of`."""
    c = config
    width, inner = c.hidden_size, c.intermediate_size
    tables = {
        "token": c.vocab_size,
        "position": c.max_position_embeddings,
        "segment": c.type_vocab_size,
    }
    *_, module, leaf = ours.split("/")
    if leaf == "embedding":
        return tables[module], width
    if ours == "masked_lm/bias":
        return (c.vocab_size,)
    ends = {"feed_forward/in": (width, inner), "feed_forward/out": (inner, width)}
    if ours.startswith("classifier/"):
        ends["classifier/dense"] = (width, num_outputs(c))
    elif ours.startswith("next_sentence/"):
        ends["next_sentence/dense"] = (width, 2)
    kernel = next((shape for end, shape in ends.items() if end in ours), (width, width))
    return kernel if leaf == "kernel" else kernel[1:]

"""The names of every parameter in bert_jax, at Hugging Face, and in TensorFlow 1.

Kernels are [in, out] here and in TensorFlow, and [out, in] at Hugging Face. The output
layers of TensorFlow are [classes, in], so these are transposed too.
"""

import dataclasses
from collections.abc import Iterator

from bert_jax.config import BertConfig
from bert_jax.model.classifiers import POOLED_HEADS, num_outputs


@dataclasses.dataclass(frozen=True)
class Name:
    """The names of one parameter, and whether another library stores it transposed."""

    ours: str
    huggingface: str
    """With the prefix `bert.`, which every class but BertModel uses."""
    tf1: str
    huggingface_transposed: bool = False
    tf1_transposed: bool = False


def _dense(ours: str, tf1: str) -> Iterator[Name]:
    yield Name(f"{ours}/kernel", f"{_dotted(tf1)}.weight", f"{tf1}/kernel", True)
    yield Name(f"{ours}/bias", f"{_dotted(tf1)}.bias", f"{tf1}/bias")


def _layer_norm(ours: str, tf1: str) -> Iterator[Name]:
    yield Name(f"{ours}/scale", f"{_dotted(tf1)}.weight", f"{tf1}/gamma")
    yield Name(f"{ours}/bias", f"{_dotted(tf1)}.bias", f"{tf1}/beta")


def _output(ours: str, huggingface: str, tf1: str) -> Iterator[Name]:
    """Names of an output layer, whose kernel TensorFlow stores as [classes, in]."""
    yield Name(
        f"{ours}/kernel", f"{huggingface}.weight", f"{tf1}output_weights", True, True
    )
    yield Name(f"{ours}/bias", f"{huggingface}.bias", f"{tf1}output_bias")


def _dotted(tf1: str) -> str:
    """Return the name at Hugging Face of a module inside the encoder or `cls`."""
    return tf1.replace("layer_", "layer.").replace("/", ".")


def _encoder_names(config: BertConfig) -> Iterator[Name]:
    ours, tf1 = "encoder/embeddings", "bert/embeddings"
    for name, theirs in (
        ("token", f"{tf1}/word_embeddings"),
        ("position", f"{tf1}/position_embeddings"),
        ("segment", f"{tf1}/token_type_embeddings"),
    ):
        yield Name(f"{ours}/{name}/embedding", f"{_dotted(theirs)}.weight", theirs)
    yield from _layer_norm(f"{ours}/layer_norm", f"{tf1}/LayerNorm")
    for i in range(config.num_hidden_layers):
        ours, tf1 = f"encoder/layer_{i}", f"bert/encoder/layer_{i}"
        attention, theirs = f"{ours}/attention", f"{tf1}/attention"
        for name in ("query", "key", "value"):
            yield from _dense(f"{attention}/{name}", f"{theirs}/self/{name}")
        yield from _dense(f"{attention}/output", f"{theirs}/output/dense")
        yield from _layer_norm(f"{attention}/layer_norm", f"{theirs}/output/LayerNorm")
        yield from _dense(f"{ours}/feed_forward/in", f"{tf1}/intermediate/dense")
        yield from _dense(f"{ours}/feed_forward/out", f"{tf1}/output/dense")
        yield from _layer_norm(
            f"{ours}/feed_forward/layer_norm", f"{tf1}/output/LayerNorm"
        )


def _masked_lm_names() -> Iterator[Name]:
    """Names of the masked-LM head; its kernel is the table of token embeddings."""
    tf1 = "cls/predictions/transform"
    yield from _dense("masked_lm/dense", f"{tf1}/dense")
    yield from _layer_norm("masked_lm/layer_norm", f"{tf1}/LayerNorm")
    yield Name("masked_lm/bias", "cls.predictions.bias", "cls/predictions/output_bias")


def names_of(config: BertConfig, pooler: bool = True) -> list[Name]:
    """Return the names of every parameter of a model with `config.head`.

    Args:
        pooler: whether the model has a pooler, if the head does not determine it.
    """
    head = config.head
    names = list(_encoder_names(config))
    if head in POOLED_HEADS:
        pooler = config.pooling == "cls"
    elif head != "encoder":
        pooler = head == "pretraining"
    if pooler:
        names += _dense("pooler/dense", "bert/pooler/dense")
    if head in ("pretraining", "masked_lm"):
        names += _masked_lm_names()
    if head == "pretraining":
        relationship = "cls.seq_relationship", "cls/seq_relationship/"
        names += _output("next_sentence/dense", *relationship)
    elif head == "question_answering":
        names += _output("classifier/dense", "qa_outputs", "cls/squad/")
    elif head not in ("masked_lm", "encoder"):
        names += _output("classifier/dense", "classifier", "")
    return names


def shape_of(config: BertConfig, ours: str) -> tuple[int, ...]:
    """Return the shape of the parameter `ours`, one of `names_of`."""
    width, inner = config.hidden_size, config.intermediate_size
    tables = {
        "token": config.vocab_size,
        "position": config.max_position_embeddings,
        "segment": config.type_vocab_size,
    }
    module, _, leaf = ours.rpartition("/")
    if leaf == "embedding":
        return tables[module.rpartition("/")[2]], width
    if ours == "masked_lm/bias":
        return (config.vocab_size,)
    kernel = width, width
    if module.endswith("feed_forward/in"):
        kernel = width, inner
    elif module.endswith("feed_forward/out"):
        kernel = inner, width
    elif module == "next_sentence/dense":
        kernel = width, 2
    elif module == "classifier/dense":
        kernel = width, num_outputs(config)
    # A bias and the scale of a LayerNorm have one number per output.
    return kernel if leaf == "kernel" else kernel[1:]

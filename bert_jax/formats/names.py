"""The names of every parameter in bert_jax, at Hugging Face, and in TensorFlow 1.

Kernels are [in, out] here and in TensorFlow, and [out, in] at Hugging Face. The output
layers of TensorFlow are [classes, in], so these are transposed too.
"""

import dataclasses
from collections.abc import Iterator

from bert_jax.config import BertConfig
from bert_jax.config.model import POOLED_HEADS
from bert_jax.model.classifiers import num_outputs


@dataclasses.dataclass(frozen=True)
class Name:
    """The names and the shape of a parameter, and which libraries transpose it."""

    ours: str
    huggingface: str
    """With the prefix `bert.`, which every class but BertModel uses."""
    tf1: str
    shape: tuple[int, ...]
    """In bert_jax."""
    huggingface_transposed: bool = False
    tf1_transposed: bool = False


def _dense(ours: str, tf1: str, *shape: int) -> Iterator[Name]:
    theirs = _dotted(tf1)
    yield Name(f"{ours}/kernel", f"{theirs}.weight", f"{tf1}/kernel", shape, True)
    yield Name(f"{ours}/bias", f"{theirs}.bias", f"{tf1}/bias", shape[1:])


def _layer_norm(ours: str, tf1: str, width: int) -> Iterator[Name]:
    theirs = _dotted(tf1)
    yield Name(f"{ours}/scale", f"{theirs}.weight", f"{tf1}/gamma", (width,))
    yield Name(f"{ours}/bias", f"{theirs}.bias", f"{tf1}/beta", (width,))


def _output(ours: str, huggingface: str, tf1: str, *shape: int) -> Iterator[Name]:
    """Names of an output layer, whose kernel TensorFlow stores as [classes, in]."""
    weights = f"{tf1}output_weights"
    yield Name(f"{ours}/kernel", f"{huggingface}.weight", weights, shape, True, True)
    bias = f"{tf1}output_bias"
    yield Name(f"{ours}/bias", f"{huggingface}.bias", bias, shape[1:])


def _dotted(tf1: str) -> str:
    """Return the name at Hugging Face of a module inside the encoder or `cls`."""
    return tf1.replace("layer_", "layer.").replace("/", ".")


def _encoder_names(config: BertConfig) -> Iterator[Name]:
    width, inner = config.hidden_size, config.intermediate_size
    ours, tf1 = "encoder/embeddings", "bert/embeddings"
    for name, theirs, rows in (
        ("token", f"{tf1}/word_embeddings", config.vocab_size),
        ("position", f"{tf1}/position_embeddings", config.max_position_embeddings),
        ("segment", f"{tf1}/token_type_embeddings", config.type_vocab_size),
    ):
        table, weight = f"{ours}/{name}/embedding", f"{_dotted(theirs)}.weight"
        yield Name(table, weight, theirs, (rows, width))
    yield from _layer_norm(f"{ours}/layer_norm", f"{tf1}/LayerNorm", width)
    for i in range(config.num_hidden_layers):
        ours, tf1 = f"encoder/layer_{i}/attention", f"bert/encoder/layer_{i}/attention"
        for name in ("query", "key", "value"):
            yield from _dense(f"{ours}/{name}", f"{tf1}/self/{name}", width, width)
        yield from _dense(f"{ours}/output", f"{tf1}/output/dense", width, width)
        yield from _layer_norm(f"{ours}/layer_norm", f"{tf1}/output/LayerNorm", width)
        ours, tf1 = f"encoder/layer_{i}/feed_forward", f"bert/encoder/layer_{i}"
        yield from _dense(f"{ours}/in", f"{tf1}/intermediate/dense", width, inner)
        yield from _dense(f"{ours}/out", f"{tf1}/output/dense", inner, width)
        yield from _layer_norm(f"{ours}/layer_norm", f"{tf1}/output/LayerNorm", width)


def names_of(config: BertConfig, pooler: bool = True) -> list[Name]:
    """Return the names of every parameter of a model with `config.head`.

    With `pooler`, the model has a pooler, if the head does not determine it.
    """
    head, width = config.head, config.hidden_size
    names = list(_encoder_names(config))
    if head in POOLED_HEADS:
        pooler = config.pooling != "mean"
    elif head != "encoder":
        pooler = head == "pretraining"
    if pooler:
        names += _dense("pooler/dense", "bert/pooler/dense", width, width)
    if head in ("pretraining", "masked_lm"):
        # The kernel of the output layer is the table of token embeddings.
        tf1 = "cls/predictions/transform"
        names += _dense("masked_lm/dense", f"{tf1}/dense", width, width)
        names += _layer_norm("masked_lm/layer_norm", f"{tf1}/LayerNorm", width)
        theirs, bias = "cls.predictions.bias", "cls/predictions/output_bias"
        names.append(Name("masked_lm/bias", theirs, bias, (config.vocab_size,)))
    if head == "pretraining":
        theirs, tf1 = "cls.seq_relationship", "cls/seq_relationship/"
        names += _output("next_sentence/dense", theirs, tf1, width, 2)
    elif head not in ("masked_lm", "encoder"):
        is_qa = head == "question_answering"
        theirs, tf1 = ("qa_outputs", "cls/squad/") if is_qa else ("classifier", "")
        names += _output("classifier/dense", theirs, tf1, width, num_outputs(config))
    return names

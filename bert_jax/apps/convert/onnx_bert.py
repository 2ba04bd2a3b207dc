"""BERT as an ONNX graph: what `Bert.outputs` computes for rows of one text or pair.

Each operation has the form that ONNX Runtime's optimizer fuses: embeddings, attention,
the sum and LayerNorm after it, GELU. Everything is float32. Inputs and outputs have the
names of transformers' exports.
"""

import math

import numpy as np
from jaxtyping import Float32

from bert_jax.apps.convert.onnx_graph import Graph
from bert_jax.config import BertConfig
from bert_jax.config.embedding import Embedding
from bert_jax.config.model import POOLED_HEADS
from bert_jax.model.classifiers import num_outputs

_IDS, _MASK, _SEGMENTS = "input_ids", "attention_mask", "token_type_ids"
_ROWS = ("batch", "sequence")
_TABLES = "encoder/embeddings"
_LOWEST = float(np.finfo(np.float32).min)
_MIN_NORM = 1e-12  # as in `Bert.embed`


def bert_graph(
    config: BertConfig,
    params: dict[str, Float32[np.ndarray, "..."]],
    embedding: Embedding | None = None,
) -> Graph:
    """Return the graph of a model, for any batch size and any length.

    Inputs are int64 [batch, sequence], for multiple choice [batch, choices, sequence]:
    `input_ids`, `attention_mask` (1 for a real token, 0 for padding) and, if the model
    has two segments, `token_type_ids`. Outputs are float32, by the head:

    - encoder: `last_hidden_state`, `pooler_output` if there is a pooler, and
      `sentence_embedding` if there is an `embedding`;
    - pretraining: `prediction_logits`, `seq_relationship_logits`;
    - question answering: `start_logits`, `end_logits`;
    - others: `logits`.

    Args:
        params: by their paths; those that the head does not use are left out.
        embedding: how the model makes one vector per text.
    """
    graph = Graph(config, params)
    is_choice = config.head == "multiple_choice"
    dims = ("batch", "choices", "sequence") if is_choice else _ROWS
    has_segments = config.type_vocab_size > 1
    inputs = (_IDS, _MASK, _SEGMENTS) if has_segments else (_IDS, _MASK)
    names = [graph.input(name, dims) for name in inputs]
    if is_choice:  # each choice becomes a row
        shape = graph.op("Shape", _IDS, at="inputs", start=-1)
        shape = graph.op("Concat", [-1], shape, at="inputs", axis=0)
        names = [graph.op("Reshape", name, shape, at="inputs") for name in names]
    ids, mask = names[:2]
    hidden = _encoder(graph, ids, mask, names[2] if has_segments else None)
    if config.head == "encoder":
        _encoder_outputs(graph, hidden, mask, embedding)
    elif config.head in ("pretraining", "masked_lm"):
        _pretraining_outputs(graph, hidden)
    else:
        _classifier_outputs(graph, hidden, mask)
    return graph


def _encoder(graph: Graph, ids: str, mask: str, segments: str | None = None) -> str:
    config = graph.config
    hidden = _embeddings(graph, ids, segments)
    mask_scores = _mask_scores(graph, mask)
    for index in range(config.num_hidden_layers):
        path = f"encoder/layer_{index}"
        mixed = _attention(graph, hidden, mask_scores, f"{path}/attention")
        hidden = _add_and_normalize(graph, hidden, mixed, f"{path}/attention")
        feed_forward = f"{path}/feed_forward"
        inner = _dense(graph, hidden, f"{feed_forward}/in")
        inner = _activation(graph, config.hidden_act, inner, feed_forward)
        output = _dense(graph, inner, f"{feed_forward}/out")
        hidden = _add_and_normalize(graph, hidden, output, feed_forward)
    return hidden


def _dense(graph: Graph, values: str, path: str) -> str:
    kernel, bias = (graph.parameter(f"{path}/{name}") for name in ("kernel", "bias"))
    product = graph.op("MatMul", values, kernel, at=path)
    return graph.op("Add", product, bias, at=path)


def _layer_norm(graph: Graph, values: str, path: str) -> str:
    scale, bias = (graph.parameter(f"{path}/{name}") for name in ("scale", "bias"))
    epsilon = graph.config.layer_norm_eps
    operands = values, scale, bias
    return graph.op("LayerNormalization", *operands, at=path, axis=-1, epsilon=epsilon)


def _add_and_normalize(graph: Graph, hidden: str, output: str, path: str) -> str:
    total = graph.op("Add", output, hidden, at=path)
    return _layer_norm(graph, total, f"{path}/layer_norm")


def _activation(graph: Graph, name: str, values: str, path: str) -> str:
    if name in ("relu", "tanh"):
        return graph.op(name.capitalize(), values, at=path)
    if name == "gelu":  # x / 2 · (1 + erf(x / √2))
        bent = graph.op("Div", values, math.sqrt(2), at=path)
        bent = graph.op("Erf", bent, at=path)
        bent = graph.op("Add", bent, 1.0, at=path)
        return graph.op("Mul", graph.op("Mul", values, bent, at=path), 0.5, at=path)
    # x / 2 · (1 + tanh(√(2 / π) · (x + 0.044715 x³)))
    half = graph.op("Mul", values, 0.5, at=path)
    bent = graph.op("Pow", values, 3.0, at=path)
    bent = graph.op("Mul", bent, 0.044715, at=path)
    bent = graph.op("Add", values, bent, at=path)
    bent = graph.op("Mul", bent, math.sqrt(2 / math.pi), at=path)
    bent = graph.op("Tanh", bent, at=path)
    bent = graph.op("Add", bent, 1.0, at=path)
    return graph.op("Mul", half, bent, at=path)


def _embeddings(graph: Graph, ids: str, segments: str | None) -> str:
    config, at = graph.config, _TABLES
    words = graph.parameter(f"{at}/token/embedding")
    token = graph.op("Gather", words, ids, at=f"{at}/token")
    table = graph.parameter(f"{at}/segment/embedding")
    if segments is None:  # every token has the only row
        segments = graph.op("Sub", ids, ids, at=f"{at}/segment")
    segment = graph.op("Gather", table, segments, at=f"{at}/segment")
    # The first positions, as many as tokens. More tokens than there are positions fail
    # at the sum, whose shapes then differ.
    at = f"{_TABLES}/position"
    zero, one = graph.value([0]), graph.value([1])
    length = graph.op("Shape", ids, at=at)
    length = graph.op("Gather", length, 1, at=at)
    length = graph.op("Unsqueeze", length, zero, at=at)
    numbers = np.arange(config.max_position_embeddings)[None]
    positions = graph.constant(f"{at}/numbers", numbers)
    positions = graph.op("Slice", positions, zero, length, one, at=at)
    table = graph.parameter(f"{at}/embedding")
    position = graph.op("Gather", table, positions, at=at)
    total = graph.op("Add", token, segment, at=_TABLES)
    total = graph.op("Add", total, position, at=_TABLES)
    return _layer_norm(graph, total, f"{_TABLES}/layer_norm")


def _mask_scores(graph: Graph, mask: str) -> str:
    """Return what is added to the attention scores: 0, or the lowest finite number.

    [batch, 1, 1, sequence]; for causal attention [batch, 1, sequence, sequence].
    """
    import onnx

    at = "attention_mask"
    for axis in (1, 2):
        mask = graph.op("Unsqueeze", mask, [axis], at=at)
    visible = graph.op("Cast", mask, at=at, to=onnx.TensorProto.FLOAT)
    if graph.config.attention == "causal":
        length = graph.op("Shape", mask, at=at, start=-1)
        square = graph.op("Concat", length, length, at=at, axis=0)
        ones = graph.op("Expand", 1.0, square, at=at)
        lower = graph.op("Trilu", ones, at=at, upper=0)
        visible = graph.op("Mul", visible, lower, at=at)
    hidden = graph.op("Sub", 1.0, visible, at=at)
    return graph.op("Mul", hidden, _LOWEST, at=at)


def _attention(graph: Graph, hidden: str, mask_scores: str, at: str) -> str:
    """Return self-attention with its output projection (Vaswani et al. 2017, §3.2)."""
    config = graph.config
    width = config.hidden_size // config.num_attention_heads

    def heads(name: str, order: list[int]) -> str:
        path = f"{at}/{name}"
        split = [0, 0, config.num_attention_heads, width]
        values = graph.op("Reshape", _dense(graph, hidden, path), split, at=path)
        return graph.op("Transpose", values, at=path, perm=order)

    query, key = heads("query", [0, 2, 1, 3]), heads("key", [0, 2, 3, 1])
    value = heads("value", [0, 2, 1, 3])
    scores = graph.op("MatMul", query, key, at=at)
    scores = graph.op("Div", scores, math.sqrt(width), at=at)
    scores = graph.op("Add", scores, mask_scores, at=at)
    probabilities = graph.op("Softmax", scores, at=at, axis=-1)
    mixed = graph.op("MatMul", probabilities, value, at=at)
    mixed = graph.op("Transpose", mixed, at=at, perm=[0, 2, 1, 3])
    mixed = graph.op("Reshape", mixed, [0, 0, config.hidden_size], at=at)
    return _dense(graph, mixed, f"{at}/output")


def _first(graph: Graph, hidden: str, at: str) -> str:
    """Return the hidden state of [CLS], [batch, D]."""
    return graph.op("Gather", hidden, 0, at=at, axis=1)


def _mean(graph: Graph, hidden: str, mask: str, at: str) -> str:
    """Return the mean of the real tokens' hidden states, [batch, D]."""
    import onnx

    weights = graph.op("Cast", mask, at=at, to=onnx.TensorProto.FLOAT)
    weights = graph.op("Unsqueeze", weights, [2], at=at)
    weighted = graph.op("Mul", hidden, weights, at=at)
    total = graph.op("ReduceSum", weighted, [1], at=at, keepdims=0)
    count = graph.op("ReduceSum", weights, [1], at=at, keepdims=0)
    return graph.op("Div", total, graph.op("Max", count, 1.0, at=at), at=at)


def _last(graph: Graph, hidden: str, mask: str, at: str) -> str:
    """Return the hidden state of the last real token, [batch, D]."""
    count = graph.op("ReduceSum", mask, [1], at=at, keepdims=1)
    last = graph.op("Sub", count, 1, at=at)
    last = graph.op("Max", last, 0, at=at)
    return graph.op("GatherND", hidden, last, at=at, batch_dims=1)


def _pooler(graph: Graph, hidden: str) -> str:
    dense = _dense(graph, hidden, "pooler/dense")
    return _activation(graph, graph.config.pooler_act, dense, "pooler")


def _encoder_outputs(
    graph: Graph, hidden: str, mask: str, embedding: Embedding | None
) -> None:
    width, at = graph.config.hidden_size, "embedding"
    graph.output(hidden, "last_hidden_state", (*_ROWS, width))
    if "pooler/dense/kernel" in graph.params:
        pooled = _pooler(graph, _first(graph, hidden, "pooler"))
        graph.output(pooled, "pooler_output", ("batch", width))
    if embedding is not None:
        is_mean = embedding.pooling == "mean"
        vectors = (
            _mean(graph, hidden, mask, at) if is_mean else _first(graph, hidden, at)
        )
        if embedding.normalize:
            norms = graph.op("ReduceL2", vectors, at=at, axes=[1], keepdims=1)
            norms = graph.op("Max", norms, _MIN_NORM, at=at)
            vectors = graph.op("Div", vectors, norms, at=at)
        graph.output(vectors, "sentence_embedding", ("batch", width))


def _pretraining_outputs(graph: Graph, hidden: str) -> None:
    at, is_pretraining = "masked_lm", graph.config.head == "pretraining"
    values = _dense(graph, hidden, f"{at}/dense")
    values = _activation(graph, graph.config.hidden_act, values, at)
    values = _layer_norm(graph, values, f"{at}/layer_norm")
    # Runtimes transpose the table once, when they load the model.
    table = graph.parameter(f"{_TABLES}/token/embedding")
    table = graph.op("Transpose", table, at=at, perm=[1, 0])
    scores = graph.op("MatMul", values, table, at=at)
    scores = graph.op("Add", scores, graph.parameter(f"{at}/bias"), at=at)
    name = "prediction_logits" if is_pretraining else "logits"
    graph.output(scores, name, (*_ROWS, graph.config.vocab_size))
    if is_pretraining:
        pooled = _pooler(graph, _first(graph, hidden, "pooler"))
        scores = _dense(graph, pooled, "next_sentence/dense")
        graph.output(scores, "seq_relationship_logits", ("batch", 2))


def _classifier_outputs(graph: Graph, hidden: str, mask: str) -> None:
    config, at = graph.config, "classifier"
    if config.head in POOLED_HEADS:
        if config.pooling == "mean":
            hidden = _mean(graph, hidden, mask, at)
        elif config.pooling == "last":
            hidden = _pooler(graph, _last(graph, hidden, mask, "pooler"))
        else:
            hidden = _pooler(graph, _first(graph, hidden, "pooler"))
    scores = _dense(graph, hidden, f"{at}/dense")
    if config.head == "question_answering":
        for index, name in enumerate(("start_logits", "end_logits")):
            chosen = graph.op("Gather", scores, index, at=at, axis=-1)
            graph.output(chosen, name, _ROWS)
    elif config.head == "multiple_choice":
        shape = graph.op("Shape", _IDS, at=at, end=2)
        scores = graph.op("Reshape", scores, shape, at=at)
        graph.output(scores, "logits", ("batch", "choices"))
    else:
        rows = _ROWS[:1] if config.head in POOLED_HEADS else _ROWS
        graph.output(scores, "logits", (*rows, num_outputs(config)))

"""All that a model computes of a batch, from its plain tree of parameters."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bert_jax.config import BertConfig
from bert_jax.model.encoder import Encoder
from bert_jax.model.finetuning import CLASSIFIERS, SEE_ONE_VECTOR
from bert_jax.model.heads import MaskedLM, NextSentence, Pooler, mean_of_tokens

_MIN_NORM = 1e-12  # a vector of zeros stays one, as in sentence-transformers


def head_outputs(
    config: BertConfig,
    params: Any,
    input_ids: Int[Array, "B T"],
    segment_ids: Int[Array, "B T"],
    attention_mask: Bool[Array, "B T"],
) -> dict[str, Float[Array, "..."]]:
    """What the model with `config.head` computes, without dropout.

    Returns:
        `hidden_states` [L+1, B, T, D], the embeddings first; where there is a pooler,
        `pooled` [B, D]; of the pretraining heads `token_scores` [B, T, V] and
        `pair_scores` [B, 2]; of another `scores`, as `BertForFinetuning` gives them.
    """
    states: Any = Encoder(config).apply(
        {"params": params["encoder"]},
        input_ids,
        segment_ids,
        attention_mask,
        method="hidden_states",
    )
    hidden = states[-1]
    outputs: dict[str, Any] = {"hidden_states": jnp.stack(states)}
    if "pooler" in params:
        pooler = {"params": params["pooler"]}
        outputs["pooled"] = Pooler(config).apply(pooler, hidden[:, 0])
    if config.head in CLASSIFIERS:
        seen = hidden
        if config.head in SEE_ONE_VECTOR:
            mean = config.pooling == "mean"
            seen = mean_of_tokens(hidden, attention_mask) if mean else outputs["pooled"]
        classifier = CLASSIFIERS[config.head](config)
        outputs["scores"] = classifier.apply({"params": params["classifier"]}, seen)
    if config.head in ("pretraining", "masked_lm"):
        outputs["token_scores"] = MaskedLM(config).apply(
            {"params": params["masked_lm"]},
            hidden,
            jnp.asarray(params["encoder"]["embeddings"]["token"]["embedding"]),
        )
    if config.head == "pretraining":
        next_sentence = {"params": params["next_sentence"]}
        outputs["pair_scores"] = NextSentence(config).apply(
            next_sentence, outputs["pooled"]
        )
    return outputs


def _hidden(
    config: BertConfig,
    params: Any,
    input_ids: Int[Array, "B T"],
    segment_ids: Int[Array, "B T"],
    attention_mask: Bool[Array, "B T"],
) -> Float[Array, "B T D"]:
    hidden: Any = Encoder(config).apply(
        {"params": params["encoder"]}, input_ids, segment_ids, attention_mask
    )
    return hidden


def vectors(
    config: BertConfig,
    params: Any,
    input_ids: Int[Array, "B T"],
    segment_ids: Int[Array, "B T"],
    attention_mask: Bool[Array, "B T"],
    *,
    pooling: str,
    normalize: bool,
) -> Float[Array, "B D"]:
    """One float32 vector a row: the real tokens' mean, or the hidden state of [CLS]."""
    hidden = _hidden(config, params, input_ids, segment_ids, attention_mask)
    hidden = hidden.astype(jnp.float32)
    mean = pooling == "mean"
    found = mean_of_tokens(hidden, attention_mask) if mean else hidden[:, 0]
    if normalize:
        norms = jnp.linalg.norm(found, axis=1, keepdims=True)
        found = found / jnp.maximum(norms, _MIN_NORM)
    return found


def token_probabilities(
    config: BertConfig,
    params: Any,
    input_ids: Int[Array, "1 T"],
    segment_ids: Int[Array, "1 T"],
    attention_mask: Bool[Array, "1 T"],
    position: Int[Array, ""],
) -> Float[Array, " V"]:
    """What stands at a position, by the masked-LM head."""
    hidden = _hidden(config, params, input_ids, segment_ids, attention_mask)
    scores: Any = MaskedLM(config).apply(
        {"params": params["masked_lm"]},
        hidden[:, position][:, None],
        params["encoder"]["embeddings"]["token"]["embedding"],
    )
    return jax.nn.softmax(scores[0, 0])


def encode(
    config: BertConfig,
    params: Any,
    input_ids: Int[Array, "B T"],
    segment_ids: Int[Array, "B T"],
    attention_mask: Bool[Array, "B T"],
) -> tuple[Float[Array, "B T D"], Float[Array, "B D"]]:
    """The last layer's hidden states, and the pooled vectors."""
    hidden = _hidden(config, params, input_ids, segment_ids, attention_mask)
    pooled: Any = Pooler(config).apply({"params": params["pooler"]}, hidden[:, 0])
    return hidden, pooled


def pair_probabilities(
    config: BertConfig,
    params: Any,
    input_ids: Int[Array, "B T"],
    segment_ids: Int[Array, "B T"],
    attention_mask: Bool[Array, "B T"],
) -> Float[Array, "B 2"]:
    """Whether the second segment follows or is random, by the next-sentence head."""
    _, pooled = encode(config, params, input_ids, segment_ids, attention_mask)
    scores: Any = NextSentence(config).apply(
        {"params": params["next_sentence"]}, pooled
    )
    return jax.nn.softmax(scores)

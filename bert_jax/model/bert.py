"""BERT: the encoder and its heads, assembled once for every use.

Devlin et al. 2018, §3 and §4. Each computation on a batch is a method of `Bert`, called
by `compute(config, params, "embed", inputs, …)`.
"""

import functools
from collections.abc import Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.traverse_util import flatten_dict, unflatten_dict
from jaxtyping import Array, Float, Int, Key, PyTree

from bert_jax.config import BertConfig
from bert_jax.config.model import POOLED_HEADS, Params
from bert_jax.model.classifiers import CLASSIFIERS
from bert_jax.model.encoder import Encoder
from bert_jax.model.heads import (
    MaskedLM,
    NextSentence,
    Pooler,
    gather_positions,
    mean_of_tokens,
    unit,
)
from bert_jax.model.initializers import INITIALIZERS
from bert_jax.model.inputs import Inputs
from bert_jax.model.layers import at_least_float32


class Bert(nn.Module):
    """The encoder with the heads that `config.head` names.

    A method uses the parameters that it needs; the tree may hold more of them.
    """

    config: BertConfig

    def setup(self) -> None:
        c = self.config
        self.encoder = Encoder(c)
        self.pooler = Pooler(c)
        self.masked_lm = MaskedLM(c)
        self.next_sentence = NextSentence(c)
        if c.head in CLASSIFIERS:
            self.classifier = CLASSIFIERS[c.head].module(c)

    def __call__(
        self, inputs: Inputs, deterministic: bool = True
    ) -> Float[Array, "B T D"]:
        """Return the hidden states of the last layer, in `config.dtype`.

        Args:
            deterministic: if false, apply dropout, which needs the rng "dropout".
        """
        return self.hidden_states(inputs, deterministic)[-1]

    def pretraining_scores(
        self,
        inputs: Inputs,
        predicted: Int[Array, "B P"] | None,
        first: Int[Array, "B K"],
        deterministic: bool = True,
    ) -> tuple[Float[Array, "B P V"], Float[Array, "B K 2"]]:
        """Return vocabulary scores at `predicted`, and next-sentence scores.

        Args:
            predicted: positions to predict; the masked-LM head runs on these alone.
                None: all but the last, for the token after each.
            first: the position of each pair's [CLS].
        """
        hidden = self(inputs, deterministic)
        pooled = self.pooler(gather_positions(hidden, first))
        return self.masked_lm_scores(hidden, predicted), self.next_sentence(pooled)

    def masked_lm_scores(
        self, hidden: Float[Array, "B T D"], predicted: Int[Array, "B P"] | None
    ) -> Float[Array, "B P V"]:
        """Return vocabulary scores at `predicted`; None: at all but the last."""
        if predicted is None:
            gathered = hidden[:, :-1]
        else:
            gathered = gather_positions(hidden, predicted)
        table = self.encoder.token_table()
        scores: Float[Array, "B P V"] = self.masked_lm(gathered, table)
        return scores

    def token_scores(
        self, inputs: Inputs, predicted: Int[Array, "B P"] | None
    ) -> Float[Array, "B P V"]:
        """Return vocabulary scores at `predicted`, without dropout."""
        return self.masked_lm_scores(self(inputs), predicted)

    def next_token_scores(
        self, token: Int[Array, ""], position: Int[Array, ""], length: int
    ) -> Float[Array, " V"]:
        """Return the scores of the token after this one, by a causal model.

        The collection "cache" has the keys and values of all tokens before it, in
        `length` places, and takes those of this one.
        """
        ids = token[None, None]
        hidden = self.encoder.hidden_states(
            ids,
            segment_ids=jnp.zeros_like(ids),
            attention_mask=jnp.ones((1, length), bool),
            num_cached=position,
        )[-1]
        table = self.encoder.token_table()
        scores: Float[Array, "1 1 V"] = self.masked_lm(hidden, table)
        return scores[0, 0]

    def classifier_scores(
        self,
        inputs: Inputs,
        deterministic: bool = True,
        hidden: Float[Array, "B T D"] | None = None,
    ) -> Float[Array, "B ..."]:
        """Return the float32 scores of a fine-tuning head.

        [B, C] for texts, [B, T, C] for tokens, [B, 1] for choices (a row each). The
        hidden states are computed, unless `hidden` gives them.
        """
        hidden = self(inputs, deterministic) if hidden is None else hidden
        features = hidden
        if self.config.head in POOLED_HEADS:
            if self.config.pooling == "mean":
                features = mean_of_tokens(hidden, inputs.attention_mask)
            elif self.config.pooling == "last":
                last = jnp.maximum(inputs.attention_mask.sum(1) - 1, 0)
                features = self.pooler(gather_positions(hidden, last[:, None])[:, 0])
            else:
                features = self.pooler(hidden[:, 0])
        scores: Float[Array, "B ..."] = self.classifier(features, deterministic)
        return scores

    def hidden_and_pooled(
        self, inputs: Inputs
    ) -> tuple[Float[Array, "B T D"], Float[Array, "B D"]]:
        """Return the last layer's hidden states, and the pooled vectors."""
        hidden = self(inputs)
        return hidden, self.pooler(hidden[:, 0])

    def fill(
        self, inputs: Inputs, predicted: Int[Array, "B P"]
    ) -> Float[Array, "B P V"]:
        """Return the probabilities of each token at the positions `predicted`."""
        return jax.nn.softmax(self.token_scores(inputs, predicted))

    def follows(self, inputs: Inputs) -> Float[Array, "B 2"]:
        """Return the probabilities that the second segment follows, or is random."""
        _, pooled = self.hidden_and_pooled(inputs)
        return jax.nn.softmax(self.next_sentence(pooled))

    def embed(
        self,
        inputs: Inputs,
        pooling: Literal["mean", "cls"],
        normalize: bool,
        skip: int | Int[Array, " B"] = 0,
        deterministic: bool = True,
    ) -> Float[Array, "B D"]:
        """Return a float32 vector per row: the mean of the real tokens, or [CLS]'s.

        Args:
            skip: the number of tokens of each row, [CLS] and a prompt's, that are not
                pooled; "cls" is then the first token after them.
        """
        hidden = at_least_float32(self(inputs, deterministic))
        if pooling == "mean":
            after = jnp.arange(hidden.shape[1])[None] >= jnp.reshape(skip, (-1, 1))
            vectors = mean_of_tokens(hidden, inputs.attention_mask & after)
        elif isinstance(skip, int):
            vectors = hidden[:, skip]
        else:
            vectors = gather_positions(hidden, skip[:, None])[:, 0]
        return unit(vectors) if normalize else vectors

    def hidden_states(
        self, inputs: Inputs, deterministic: bool = True
    ) -> list[Float[Array, "B T D"]]:
        """Return the embeddings and the hidden states of every layer: L + 1 arrays."""
        states: list[Float[Array, "B T D"]] = self.encoder.hidden_states(
            inputs.input_ids,
            inputs.segment_ids,
            inputs.attention_mask,
            deterministic,
            inputs.pair_ids,
        )
        return states

    def features(
        self, inputs: Inputs, layers: Sequence[int], combine: str
    ) -> Float[Array, "B T _"]:
        """Return the float32 hidden states of `layers`, summed or concatenated."""
        states = self.hidden_states(inputs)
        chosen = [at_least_float32(states[layer]) for layer in layers]
        if combine == "sum":
            return functools.reduce(jnp.add, chosen)
        return jnp.concatenate(chosen, axis=-1)

    def outputs(
        self, inputs: Inputs, has_pooler: bool = False
    ) -> dict[str, Float[Array, "..."]]:
        """Return everything that the model computes for a batch, without dropout.

        An encoder without a head may have a pooler, too.

        Returns:
            `hidden_states` [L+1, B, T, D], the embeddings first; `pooled` [B, D] if
            there is a pooler; for the pretraining heads `token_scores` [B, T, V] and
            `pair_scores` [B, 2]; for another head `scores`: see `classifier_scores`.
        """
        states = self.hidden_states(inputs)
        hidden, head = states[-1], self.config.head
        outputs = {"hidden_states": jnp.stack(states)}
        if has_pooler or head == "pretraining":
            outputs["pooled"] = self.pooler(hidden[:, 0])
        if head in CLASSIFIERS:
            outputs["scores"] = self.classifier_scores(inputs, hidden=hidden)
        if head in ("pretraining", "masked_lm"):
            table = self.encoder.token_table()
            outputs["token_scores"] = self.masked_lm(hidden, table)
        if head == "pretraining":
            outputs["pair_scores"] = self.next_sentence(outputs["pooled"])
        return outputs


def init_params(config: BertConfig, key: Key[Array, ""]) -> Params:
    """Draw the parameters of the encoder and the heads that `config.head` names."""
    ids = jnp.zeros((1, 8), jnp.int32)  # the shapes of parameters do not depend on it
    inputs = Inputs(ids, ids, ids == 0)
    drawn = flatten_dict(Bert(config).init(key, inputs, method="outputs")["params"])
    params: Params = unflatten_dict(INITIALIZERS[config.initializer](config, drawn))
    return params


def compute(
    config: BertConfig,
    params: Params,
    method: str,
    *args: object,
    dropout_key: Key[Array, ""] | None = None,
    **options: Any,
) -> PyTree:
    """Return what a method of `Bert` computes with `params`.

    Args:
        dropout_key: apply dropout by this key; None: no dropout.
        options: of the method, or of `apply`, such as mutable=["internals"].
    """
    rngs = None
    if dropout_key is not None:
        rngs, options = {"dropout": dropout_key}, {**options, "deterministic": False}
    return Bert(config).apply(
        {"params": params}, *args, method=method, rngs=rngs, **options
    )


def head_outputs(
    config: BertConfig, params: Params, inputs: Inputs
) -> dict[str, Float[Array, "..."]]:
    """Return the dictionary of `Bert.outputs` for a batch."""
    outputs: dict[str, Float[Array, ...]] = compute(
        config, params, "outputs", inputs, has_pooler="pooler" in params
    )
    return outputs


def layer_attention(
    config: BertConfig, params: Params, inputs: Inputs
) -> Float[Array, "B L N T T"]:
    """Return how much each token attends to each other, by layer and head, in float32.

    From the same parameters and the same computation, without dropout.
    """
    plain = config.changed(attention_kernel="plain", remat="none")
    _, stored = Bert(plain).apply({"params": params}, inputs, mutable=["attention"])
    layers: Any = stored["attention"]["encoder"]
    return jnp.stack(
        [
            layers[f"layer_{index}"]["attention"]["probabilities"][0]
            for index in range(config.num_hidden_layers)
        ],
        axis=1,
    )

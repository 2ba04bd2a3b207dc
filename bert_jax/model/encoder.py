"""The BERT encoder: embeddings, then post-LN layers of self-attention and feed-forward.

Devlin et al. 2018, §3; Vaswani et al. 2017, §3.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from bert_jax.config import BertConfig
from bert_jax.model.attention import (
    Visibility,
    chosen_kernel,
    cudnn_attention,
    plain_attention,
)
from bert_jax.model.layers import (
    Dense,
    Dropout,
    LayerNorm,
    activation,
    kernel_init,
    store,
    target_device,
)


def positions_in_pairs(pair_ids: Int[Array, "B T"]) -> Int[Array, "B T"]:
    """Return each token's position within its own pair."""
    position = jnp.arange(pair_ids.shape[1])[None]
    starts = jnp.diff(pair_ids, axis=1, prepend=-1) != 0
    return position - jax.lax.cummax(jnp.where(starts, position, 0), axis=1)


def select_rows(
    table: Float[Array, "S D"], indices: Int[Array, "B T"]
) -> Float[Array, "B T D"]:
    """Return the rows of a small table; NaN where there is no such row.

    A table of one row has it for every index, like `nn.Embed`. The gradient of a choice
    is a sum for each row, which takes a fraction of the time of the scatter that is the
    gradient of an index.
    """
    if len(table) == 1:
        return jnp.broadcast_to(table, (*indices.shape, table.shape[1]))
    rows = jnp.full((*indices.shape, table.shape[1]), jnp.nan, table.dtype)
    for index, row in enumerate(table):
        rows = jnp.where(indices[..., None] == index, row, rows)
    return rows


class Embeddings(nn.Module):
    """Token, position and segment embeddings, then LayerNorm and dropout."""

    config: BertConfig

    def setup(self) -> None:
        c = self.config

        def table(rows: int) -> nn.Embed:
            return nn.Embed(rows, c.hidden_size, embedding_init=kernel_init(c))

        self.token = table(c.vocab_size)
        self.position = table(c.max_position_embeddings)
        self.segment = table(c.type_vocab_size)
        self.layer_norm = LayerNorm(c)
        self.dropout = Dropout(c.hidden_dropout_prob)

    def __call__(
        self,
        input_ids: Int[Array, "B T"],
        segment_ids: Int[Array, "B T"],
        deterministic: bool,
        pair_ids: Int[Array, "B T"] | None = None,
        num_cached: Int[Array, ""] | None = None,
    ) -> Float[Array, "B T D"]:
        if num_cached is not None:
            position = self.position(num_cached[None, None])
        elif pair_ids is None:
            position = self.position.embedding[None, : input_ids.shape[1]]
        else:
            position = self.position(positions_in_pairs(pair_ids))
        segment = select_rows(jnp.asarray(self.segment.embedding), segment_ids)
        total = self.token(input_ids) + position + segment
        hidden = self.dropout(self.layer_norm(total), deterministic)
        return hidden.astype(self.config.dtype)


class SelfAttention(nn.Module):
    """Self-attention with dropout, residual connection and LayerNorm."""

    config: BertConfig

    @nn.compact
    def __call__(
        self, hidden: Float[Array, "B T D"], visible: Visibility, deterministic: bool
    ) -> Float[Array, "B T D"]:
        c = self.config
        query, key, value = (
            Dense(c.hidden_size, c, name=name)(hidden)
            for name in ("query", "key", "value")
        )
        store(self, "internals", "projections", (query, key, value))  # to distil
        if visible.num_cached is not None:
            key = self._cached("keys", key, visible)
            value = self._cached("values", value, visible)
        mixed = self._attend(query, key, value, visible, deterministic)
        output = Dense(c.hidden_size, c, name="output")(mixed, after=hidden)
        output = Dropout(c.hidden_dropout_prob)(output, deterministic)
        return LayerNorm(c, name="layer_norm")(hidden + output).astype(c.dtype)

    def _attend(
        self,
        query: Float[Array, "B T D"],
        key: Float[Array, "B S D"],
        value: Float[Array, "B S D"],
        visible: Visibility,
        deterministic: bool,
    ) -> Float[Array, "B T D"]:
        """Return attention by the kernel of the device; plain if keys are cached."""
        c, heads = self.config, self.config.num_attention_heads
        kernel, rate = "plain", 0.0 if deterministic else c.attention_probs_dropout_prob
        if visible.num_cached is None:
            kernel = chosen_kernel(c, query.shape[1], deterministic)
        if kernel == "tpu":
            from bert_jax.model.tpu_attention import tpu_attention  # takes 0.1 s

            seeds = None
            if rate:
                words = jax.random.bits(self.make_rng("dropout"), (2,), jnp.uint32)
                seeds = jax.lax.bitcast_convert_type(words, jnp.int32)
            return tpu_attention(
                query,
                key,
                value,
                visible.attention_mask,
                visible.pair_ids,
                seeds,
                num_heads=heads,
                causal=visible.causal,
                rate=rate,
            )
        if kernel == "cudnn":
            return cudnn_attention(query, key, value, visible, heads)
        # Queries are the last axis of the probabilities in a TPU's memory.
        dropout = Dropout(rate, swapped=target_device().platform == "tpu")

        def kept(probabilities: Float[Array, "B N T S"]) -> Float[Array, "B N T S"]:
            store(self, "attention", "probabilities", probabilities)
            return dropout(probabilities, deterministic)

        return plain_attention(query, key, value, visible, heads, kept)

    def _cached(
        self, name: str, last: Float[Array, "B 1 D"], visible: Visibility
    ) -> Float[Array, "B S D"]:
        """Put the last token's key or value behind those of the tokens before it."""
        batch, _, width = last.shape
        shape = (batch, visible.attention_mask.shape[1], width)
        stored = self.variable("cache", name, jnp.zeros, shape, last.dtype)
        stored.value = stored.value.at[:, visible.num_cached].set(last[:, 0])
        values: Float[Array, "B S D"] = stored.value
        return values


class FeedForward(nn.Module):
    """Two dense layers, then dropout, residual connection and LayerNorm."""

    config: BertConfig

    @nn.compact
    def __call__(
        self, hidden: Float[Array, "B T D"], deterministic: bool
    ) -> Float[Array, "B T D"]:
        c = self.config
        inner = activation(c.hidden_act)(
            Dense(c.intermediate_size, c, name="in")(hidden)
        )
        output = Dense(c.hidden_size, c, name="out")(inner, after=hidden)
        output = Dropout(c.hidden_dropout_prob)(output, deterministic)
        return LayerNorm(c, name="layer_norm")(hidden + output).astype(c.dtype)


def rematerialised(module: type[nn.Module], config: BertConfig) -> type[nn.Module]:
    """Return `module`, rematerialised if `config.remat` names it."""
    if (module, config.remat) == (SelfAttention, "attention"):
        # Keep the projections; recompute the T × T scores and all that depends on them,
        # which takes the most memory and the least time (Korthikanti et al. 2022, §4).
        policy = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
    elif (module, config.remat) == (EncoderLayer, "layer"):
        policy = None  # only the layer's input is kept (Chen et al. 2016)
    else:
        return module
    return nn.remat(module, policy=policy, static_argnums=(3,))


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    config: BertConfig

    @nn.compact
    def __call__(
        self, hidden: Float[Array, "B T D"], visible: Visibility, deterministic: bool
    ) -> Float[Array, "B T D"]:
        attention = rematerialised(SelfAttention, self.config)
        hidden = attention(self.config, name="attention")(
            hidden, visible, deterministic
        )
        return FeedForward(self.config, name="feed_forward")(hidden, deterministic)


class Encoder(nn.Module):
    """Token ids to hidden states.

    Example:
        `Encoder(config).apply({"params": params["encoder"]}, ids, segments, mask)`
    """

    config: BertConfig

    def setup(self) -> None:
        self.embeddings = Embeddings(self.config)
        layer = rematerialised(EncoderLayer, self.config)
        self.layers = [
            layer(self.config, name=f"layer_{i}")
            for i in range(self.config.num_hidden_layers)
        ]

    def __call__(
        self,
        input_ids: Int[Array, "B T"],
        segment_ids: Int[Array, "B T"],
        attention_mask: Bool[Array, "B T"] | Int[Array, "B T"],
        deterministic: bool = True,
        pair_ids: Int[Array, "B T"] | None = None,
    ) -> Float[Array, "B T D"]:
        """Return the last layer's hidden states, in `config.dtype`.

        Args:
            input_ids: below `config.vocab_size`.
            segment_ids: 0 for the first text, 1 for the second.
            attention_mask: true (or 1) where a token is real, false (0) on padding.
            deterministic: if false, apply dropout, which needs the rng "dropout".
            pair_ids: the index of each token's pair, if a row holds several. A token
                attends to its own pair only, and each pair has positions from 0.
        """
        return self.hidden_states(
            input_ids, segment_ids, attention_mask, deterministic, pair_ids
        )[-1]

    def hidden_states(
        self,
        input_ids: Int[Array, "B T"],
        segment_ids: Int[Array, "B T"],
        attention_mask: Bool[Array, "B S"] | Int[Array, "B S"],
        deterministic: bool = True,
        pair_ids: Int[Array, "B T"] | None = None,
        num_cached: Int[Array, ""] | None = None,
    ) -> list[Float[Array, "B T D"]]:
        """Return the embeddings and every layer's hidden states: L + 1 arrays.

        Args:
            num_cached: compute one token after so many, whose keys and values are in
                the collection "cache"; `attention_mask` [B, S] is of its S places.
        """
        causal = self.config.attention == "causal"
        visible = Visibility(attention_mask.astype(bool), pair_ids, causal, num_cached)
        embedded = self.embeddings(
            input_ids, segment_ids, deterministic, pair_ids, num_cached
        )
        states = [embedded]
        for layer in self.layers:
            states.append(layer(states[-1], visible, deterministic))
        store(self, "internals", "states", states)  # to distil
        return states

    def token_table(self) -> Float[Array, "V D"]:
        """Return the token embeddings, which the masked-LM head shares."""
        return jnp.asarray(self.embeddings.token.embedding)

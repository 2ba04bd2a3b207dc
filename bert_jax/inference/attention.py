"""The attention of each head to each token of a text, and statistics of the heads."""

import dataclasses
import functools

import numpy as np
from jaxtyping import Bool, Float, Float32

from bert_jax.data.examples import build_row
from bert_jax.inference.arguments import require_texts_or_pairs
from bert_jax.inference.batching import attention_of, compute_texts
from bert_jax.pretrained import Model


@dataclasses.dataclass(frozen=True)
class Attention:
    """The attention in one row: L layers of N heads, T tokens."""

    tokens: list[str]
    """[CLS] first, [SEP] last."""
    is_separator: Bool[np.ndarray, " T"]
    """Whether a token is a [SEP]."""
    probabilities: Float32[np.ndarray, "L N T T"]
    """Of each token (third axis) to each token (last axis); each row adds up to 1."""


def attention(model: Model, text: str | tuple[str, str]) -> Attention:
    """Return the attention in a row of one text or two.

    Raise ValueError if the row is too long for the model, or `text` is something else.
    """
    ((*parts,),) = require_texts_or_pairs("text", [text])
    tokenizer = model.tokenizer
    segments = tuple(tokenizer.encode_batch(parts))
    program = functools.partial(attention_of, model.config)
    (probabilities,) = compute_texts(program, model, [segments], batch_size=1)
    ids, _ = build_row(tokenizer, *segments)
    length = len(ids)
    return Attention(
        tokens=tokenizer.tokens(ids),
        is_separator=np.array(ids) == tokenizer.sep_id,
        probabilities=np.asarray(probabilities[:, :, :length, :length]),
    )


def head_statistics(attention: Attention) -> dict[str, Float[np.ndarray, "L N"]]:
    """Return what Clark et al. (2019, §3) measure of a head, as means over the tokens.

    These are the fractions of attention to [SEP], to the token itself, to the one
    before and to the one after; and the entropy of the attention, in nats.
    """
    probabilities = attention.probabilities
    num_tokens = probabilities.shape[-1]

    def diagonal(offset: int) -> Float[np.ndarray, "L N"]:
        # The first or last token has no neighbour: it counts as 0.
        return probabilities.diagonal(offset, 2, 3).sum(-1) / num_tokens

    logs = np.log(np.maximum(probabilities, np.finfo(np.float32).tiny))
    return {
        "to [SEP]": probabilities[..., attention.is_separator].sum(-1).mean(-1),
        "to itself": diagonal(0),
        "to the token before": diagonal(-1),
        "to the token after": diagonal(1),
        "entropy": -(probabilities * logs).sum(-1).mean(-1),
    }

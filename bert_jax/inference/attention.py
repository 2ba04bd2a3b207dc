"""The attention of each head to each token of a text, and statistics of the heads."""

import dataclasses

import numpy as np
from jaxtyping import Bool, Float, Float32

from bert_jax.config import BertConfig
from bert_jax.config.model import Params
from bert_jax.data.examples import build_row
from bert_jax.inference.arguments import require_texts_or_pairs
from bert_jax.inference.batching import compiled_attention, compute_rows, rows_of
from bert_jax.tokenization import Tokenizer


@dataclasses.dataclass(frozen=True)
class Attention:
    """The attention in one row: L layers of N heads, T tokens."""

    tokens: list[str]
    """[CLS] first, [SEP] last."""
    is_separator: Bool[np.ndarray, " T"]
    """Whether a token is a [SEP]."""
    probabilities: Float32[np.ndarray, "L N T T"]
    """Of each token (third axis) to each token (last axis); each row adds up to 1."""


def attention(
    config: BertConfig,
    params: Params,
    tokenizer: Tokenizer,
    text: str | tuple[str, str],
    trained_length: int = 0,
) -> Attention:
    """Return the attention in a row of one text or two.

    Warn if the row is longer than `trained_length`; 0: that of the training is unknown.

    Raises:
        ValueError: the row is too long for the model, or `text` is something else.
    """
    ((*parts,),) = require_texts_or_pairs("text", [text])
    segments = tokenizer.encode_batch(parts)
    row = [tuple(segments)]
    rows = rows_of(tokenizer, config, row, trained_length=trained_length)
    ids, _ = build_row(tokenizer, *segments)
    program = compiled_attention(config)
    (probabilities,) = compute_rows(program, params, rows, config, batch_size=1)
    length = len(ids)
    return Attention(
        tokens=tokenizer.tokens(ids),
        is_separator=np.array(ids) == tokenizer.sep_id,
        probabilities=np.asarray(probabilities[:, :, :length, :length]),
    )


def head_statistics(attention: Attention) -> dict[str, Float[np.ndarray, "L N"]]:
    """Return what Clark et al. (2019, §3) measure of a head, as means over the tokens.

    Returns:
        The fractions of attention to [SEP], to the token itself, to the one before and
        to the one after; and the entropy of the attention, in nats.
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

"""One self-contained web page of the attention in a text: it needs no network."""

import base64
import math
from pathlib import Path

import numpy as np

from bert_jax.inference.arguments import require_text
from bert_jax.inference.attention import Attention, attention, head_statistics
from bert_jax.inference.predictor import Predictor
from bert_jax.storage.files import atomic_write, require_output_file
from bert_jax.storage.web_page import SUFFIX, web_page

MAX_BYTES = 8_000_000
"""Limit of the probabilities of a page, one byte each: a browser draws them all."""


def write_attention_page(
    bert: Predictor, name: str, text: str, path: Path, max_bytes: int = MAX_BYTES
) -> None:
    """Write a page of the attention of each layer and head in `text`.

    Args:
        name: of the model, for the title.
        max_bytes: limit of the number of probabilities.

    Raises:
        ValueError: the text is too long for the model, or for a page.
        OSError: the page cannot be written.
    """
    require_output_file(path, SUFFIX)
    require_text("attention", text)
    num_tokens = len(bert.tokenizer.encode(text).ids) + 2
    num_heads = bert.config.num_hidden_layers * bert.config.num_attention_heads
    if (size := num_heads * num_tokens**2) > max_bytes:
        limit = math.isqrt(max_bytes // num_heads)
        raise ValueError(
            f"A page of {num_heads} heads and {num_tokens} tokens has {size:,} "
            f"probabilities, and at most {max_bytes:,} are allowed; shorten the text "
            f"to {limit} tokens, [CLS] and [SEP] included."
        )
    model = bert.config, bert.params, bert.tokenizer
    page = attention_page(name, attention(*model, text, bert.trained_length))
    atomic_write(path, page.encode())


def attention_page(name: str, shown: Attention) -> str:
    """Return the page as HTML; names and tokens are escaped."""
    num_layers, num_heads, num_tokens, _ = shown.probabilities.shape
    statistics = head_statistics(shown)
    rounded = np.round(shown.probabilities * 255).astype(np.uint8)
    data = {
        "tokens": shown.tokens,
        "layers": num_layers,
        "heads": num_heads,
        "probabilities": base64.b64encode(rounded.tobytes()).decode(),
        "statistics": {
            key: values.round(4).tolist() for key, values in statistics.items()
        },
    }
    fields = {"model": name, "uniform": f"{math.log(num_tokens):.2f}"}
    return web_page("bert_jax.inference", "attention_page.html", fields, data)

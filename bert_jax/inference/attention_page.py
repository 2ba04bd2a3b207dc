"""One self-contained web page of the attention in a text: it needs no network."""

import base64
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np

from bert_jax.config.checks import require
from bert_jax.inference.arguments import require_text
from bert_jax.inference.attention import attention, head_statistics
from bert_jax.inference.predictor import Predictor, load
from bert_jax.reports.web_page import SUFFIX, web_page
from bert_jax.storage.files import JsonObject, atomic_write, require_output_file

MAX_BYTES = 8_000_000
"""Limit of the probabilities of a page, one byte each: a browser draws them all."""
_ABOUT = {
    "bidirectional": "Bidirectional attention: each token attends to all tokens, on "
    "its left and on its right.",
    "causal": "Causal attention: a token attends to itself and to those before it, "
    "never to those after. The causal mask leaves the half above the diagonal blank, "
    "since the model learns to predict each next token, which it must not see.",
}


ModelOrPath: TypeAlias = Predictor | str | os.PathLike[str]


def attention_page(
    model: ModelOrPath | Mapping[str, ModelOrPath],
    text: str,
    output: str | os.PathLike[str],
) -> Path:
    """Write a page of the attention of each layer and head in `text`; return its path.

    Args:
        model: a path, a name or a loaded model; or several by name, side by side, as
            {"before": "runs/a", "after": bert}.
        output: a file that ends in .html; it needs no network.

    Raises:
        ValueError: the text is too long for the model or for a page, `output` is no
            .html, or there is no model.
        OSError: the page cannot be written.
    """
    require_output_file(Path(output), SUFFIX)  # before the model is loaded
    if not isinstance(model, Mapping):
        is_loaded = isinstance(model, Predictor)
        model = {"the model" if is_loaded else str(model): model}
    require(bool(model), "model={} names no model; name one or several.")
    loaded = {
        name: one if isinstance(one, Predictor) else load(one)
        for name, one in model.items()
    }
    write_attention_page(loaded, text, Path(output))
    return Path(output)


def write_attention_page(
    models: Mapping[str, Predictor], text: str, path: Path, max_bytes: int = MAX_BYTES
) -> None:
    """Write a page of the attention of loaded models, side by side, by their names.

    It has at most `max_bytes` probabilities. Raise ValueError if the text is too long
    for a model or for a page, OSError if the page cannot be written.
    """
    require_output_file(path, SUFFIX)
    require_text("attention", text)
    lengths = [len(bert.tokenizer.encode(text).ids) + 2 for bert in models.values()]
    configs = [bert.config for bert in models.values()]
    heads = [c.num_hidden_layers * c.num_attention_heads for c in configs]
    size = sum(n * length**2 for n, length in zip(heads, lengths, strict=True))
    limit = math.isqrt(max_bytes // sum(heads))
    if size > max_bytes:
        raise ValueError(
            f"A page of {sum(heads)} heads and {max(lengths)} tokens has {size:,} "
            f"probabilities, and at most {max_bytes:,} are allowed; shorten the text "
            f"to {limit} tokens, [CLS] and [SEP] included."
        )
    shown = [model_data(name, bert, text) for name, bert in models.items()]
    fields = {"models": " and ".join(models)}
    page = web_page(
        "bert_jax.inference", "attention_page.html", fields, {"models": shown}
    )
    atomic_write(path, page.encode())


def model_data(name: str, bert: Predictor, text: str) -> JsonObject:
    """Return what the page reads of the attention of one model."""
    shown = attention(bert.model, text)
    num_layers, num_heads, _, _ = shown.probabilities.shape
    rounded = np.round(shown.probabilities * 255).astype(np.uint8)
    num_tokens, is_causal = len(shown.tokens), bert.config.attention == "causal"
    num_seen = np.arange(1, num_tokens + 1) if is_causal else num_tokens
    return {
        "name": name,
        "about": _ABOUT[bert.config.attention],
        "tokens": shown.tokens,
        "layers": num_layers,
        "heads": num_heads,
        "probabilities": base64.b64encode(rounded.tobytes()).decode(),
        "statistics": {
            key: values.round(4).tolist()
            for key, values in head_statistics(shown).items()
        },
        # The mean entropy, in nats, if each token attends evenly to all it sees.
        "evenly": f"{np.log(num_seen).mean():.2f}",
    }

"""Export a small masked-language model to one web page that fills masks by itself.

The page holds the parameters, the tokenizer and the forward pass (`wordpiece.js`,
`bert.js`), so that it needs no network.
"""

import base64
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from etils import epath
from flax.traverse_util import flatten_dict
from jaxtyping import Float32

from bert_jax.checkpoints.steps import checkpoint_of_step, read_config
from bert_jax.formats.huggingface import CONFIG
from bert_jax.pretrained import Model, load_pretrained, resolve_path
from bert_jax.reports.web_page import SUFFIX, web_page
from bert_jax.runs.average import require_same_model
from bert_jax.storage.files import atomic_write, require_output_file
from bert_jax.storage.remote import open_directory
from bert_jax.tokenization.wordpiece import (
    ACCENTS,
    CHINESE,
    MAX_WORD_CHARACTERS,
    WORD_LIMIT,
    added_tokens,
)

MAX_TOKENS = 64
"""Tokens in a text, [CLS] and [SEP] included; fewer if the model has fewer positions,
or was last pretrained on shorter rows."""
MAX_BYTES = 25_000_000
"""Limit of the float32 parameters of all checkpoints; the page is up to 15 % larger."""
SAMPLE = "She opened the [MASK] and looked at him."
_TABLES = "encoder/embeddings"


def export_page(
    source: str | Model,
    output: Path,
    steps: Sequence[int] = (),
    max_bytes: int = MAX_BYTES,
) -> str:
    """Write a page that fills masks by a model; return a summary.

    Raise FileNotFoundError if there is no model or no checkpoint of a step, OSError if
    the page cannot be written, ValueError if a checkpoint is damaged, a step is given
    twice, or the page cannot compute the model or would be too large.

    Args:
        source: a model, or a path for `load_pretrained`; with `steps`, the workdir of
            a run.
        output: a file that ends in .html.
        steps: steps of checkpoints, in any order; the page has a slider over them.
        max_bytes: limit of the parameters, four bytes each, of all checkpoints.
    """
    require_output_file(output, SUFFIX)
    if len(set(steps)) < len(steps):
        listed = ", ".join(map(str, steps))
        raise ValueError(f"--steps has a step twice, in {listed}; give each once.")
    models: dict[str, str | Model] = {str(source): source}
    if steps:
        run = open_directory(str(source))
        models = {f"step {n}": str(checkpoint_of_step(run, n)) for n in sorted(steps)}
    first = next(iter(models.values()))
    if isinstance(first, str):
        directory, _ = resolve_path(first)
        _require_small(least_bytes(directory), len(models), max_bytes)
        first = load_pretrained(str(directory))
    _require_supported(first, source)
    size = sum(leaf.nbytes for leaf in page_leaves(first).values())
    _require_small(size, len(models), max_bytes)
    checkpoints: list[dict[str, str]] = []
    for name, path in models.items():
        model = load_pretrained(path) if checkpoints else first
        leaves = page_leaves(model)
        require_same_model(first, model, page_leaves(first), leaves)
        checkpoints.append({"name": name, "weights": packed(leaves)})
    page = fill_mask_page(str(source), first, checkpoints).encode()
    atomic_write(output, page)
    return f"{output}: {len(page) / 1e6:.1f} MB; open it in a browser."


def least_bytes(directory: epath.Path) -> int:
    """Return the bytes of a model's largest kernels, by its config.json; 0: unknown.

    A large model is refused by it before its parameters are read.
    """
    if not (directory / CONFIG).exists():
        return 0  # of sentence-transformers, which may have it in another directory
    values = read_config(directory)
    values = values.get("model", values)
    if not isinstance(values, dict):
        return 0  # damaged: reading the model says so
    names = "vocab_size", "hidden_size", "num_hidden_layers", "intermediate_size"
    sizes = [size for name in names if type(size := values.get(name)) is int]
    if len(sizes) < len(names):
        return 0
    vocabulary, hidden, layers, inner = sizes
    return 4 * hidden * (vocabulary + layers * (4 * hidden + 2 * inner))


def page_leaves(model: Model) -> dict[str, Float32[np.ndarray, "..."]]:
    """Return, by their paths, the parameters that fill masks in `MAX_TOKENS` tokens."""
    leaves = {
        name: leaf
        for name, leaf in flatten_dict(model.params, sep="/").items()
        if name.startswith(("encoder/", "masked_lm/"))
    }
    for table, rows in (("position", _max_tokens(model)), ("segment", 1)):
        name = f"{_TABLES}/{table}/embedding"
        leaves[name] = leaves[name][:rows]
    return leaves


def packed(leaves: dict[str, Float32[np.ndarray, "..."]]) -> str:
    """Return the values of all leaves in their order, without loss, as text.

    The bytes are sorted by their place in a float32, lowest first, because only the
    highest, with sign and most of the exponent, can be compressed: by zlib, which a
    browser decompresses. Base64 makes a text of them.
    """
    values = np.concatenate([leaf.ravel() for leaf in leaves.values()])
    planes = values.astype("<f4").view(np.uint8).reshape(-1, 4).T
    return base64.b64encode(zlib.compress(planes.tobytes(), 9)).decode()


def fill_mask_page(name: str, model: Model, checkpoints: list[dict[str, str]]) -> str:
    """Return the page as HTML; `checkpoints` have a name and packed weights."""
    config, leaves = model.config, page_leaves(model)
    tokenizer, rules = model.tokenizer, model.tokenizer.config
    data: dict[str, Any] = {
        "config": {
            "layers": config.num_hidden_layers,
            "heads": config.num_attention_heads,
            "activation": config.hidden_act,
            "epsilon": config.layer_norm_eps,
        },
        "maxTokens": _max_tokens(model),
        "tokenizer": {
            "cased": tokenizer.cased,
            # As in Hugging Face: uncased is without accents, unless it says otherwise.
            "stripAccents": rules.get(ACCENTS, not tokenizer.cased),
            "chinese": rules.get(CHINESE, True),
            "maxWord": rules.get(WORD_LIMIT, MAX_WORD_CHARACTERS),
        },
        "vocabulary": tokenizer.tokens(range(tokenizer.vocab_size)),
        "sizes": [[path, leaf.size] for path, leaf in leaves.items()],
        "checkpoints": checkpoints,
        "sample": SAMPLE,
    }
    size = sum(leaf.size for leaf in leaves.values())
    suffix = " of each checkpoint" if len(checkpoints) > 1 else ""
    summary = (
        f"The page holds {size:,} parameters{suffix}, float32 and unchanged, and takes "
        f"texts of at most {_max_tokens(model)} tokens."
    )
    fields = {"model": name, "summary": summary}
    return web_page("bert_jax.apps.convert", "fill_mask_page.html", fields, data)


def _max_tokens(model: Model) -> int:
    positions = model.config.max_position_embeddings
    return min(MAX_TOKENS, positions, model.trained_length or positions)


def _require_supported(model: Model, source: str | Model) -> None:
    """Raise ValueError if the page's code cannot fill masks by the model."""
    config, tokenizer = model.config, model.tokenizer
    if config.attention == "causal":
        raise ValueError(
            f"{source} has attention=causal, which cannot fill masks; use a model that "
            "was pretrained with objective=masked_lm."
        )
    if "masked_lm" not in model.params:
        raise ValueError(
            f"{source} has no masked_lm head (head={config.head}), which a page needs "
            "to fill masks; use a pretrained model that has one."
        )
    if tokenizer.kind != "wordpiece":
        raise ValueError(
            f"{source} has a vocabulary of kind {tokenizer.kind}, and a page supports "
            "only wordpiece; use a model with one, or --to stablehlo."
        )
    if added := added_tokens(tokenizer.config):
        raise ValueError(
            f"{source} has added tokens, such as {added[0].content!r:.40}, and a page "
            "does not look for them; use a model without them, or --to stablehlo."
        )


def _require_small(size: int, num_checkpoints: int, max_bytes: int) -> None:
    """Raise ValueError if the page would be too large, by the bytes of a checkpoint."""
    if (total := size * num_checkpoints) <= max_bytes:
        return
    remedy = "use a smaller model"
    if size <= max_bytes:
        remedy = f"give at most {max_bytes // size} of the steps"
    raise ValueError(
        f"The page would hold {total / 1e6:.1f} MB of parameters, {num_checkpoints} x "
        f"{size / 1e6:.1f} MB, and at most {max_bytes / 1e6:g} MB are allowed; "
        f"{remedy}."
    )

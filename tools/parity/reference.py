"""The independent implementation: transformers' BERT in PyTorch, under our names."""

import dataclasses
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

HERE = Path(__file__).parents[2] / "tests" / "parity"
"""The folder of the files that are made."""

SHAPE = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 48,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
}

# PyTorch module -> ours. Linear weights are [out, in] there and [in, out] here.
MODULES = (
    (r"bert\.embeddings\.word_embeddings", "encoder/embeddings/token"),
    (r"bert\.embeddings\.position_embeddings", "encoder/embeddings/position"),
    (r"bert\.embeddings\.token_type_embeddings", "encoder/embeddings/segment"),
    (r"bert\.embeddings\.LayerNorm", "encoder/embeddings/layer_norm"),
    (
        r"bert\.encoder\.layer\.(\d+)\.attention\.self\.(query|key|value)",
        r"encoder/layer_\1/attention/\2",
    ),
    (
        r"bert\.encoder\.layer\.(\d+)\.attention\.output\.dense",
        r"encoder/layer_\1/attention/output",
    ),
    (
        r"bert\.encoder\.layer\.(\d+)\.attention\.output\.LayerNorm",
        r"encoder/layer_\1/attention/layer_norm",
    ),
    (
        r"bert\.encoder\.layer\.(\d+)\.intermediate\.dense",
        r"encoder/layer_\1/feed_forward/in",
    ),
    (
        r"bert\.encoder\.layer\.(\d+)\.output\.dense",
        r"encoder/layer_\1/feed_forward/out",
    ),
    (
        r"bert\.encoder\.layer\.(\d+)\.output\.LayerNorm",
        r"encoder/layer_\1/feed_forward/layer_norm",
    ),
    (r"bert\.pooler\.dense", "pooler/dense"),
    (r"cls\.predictions\.transform\.dense", "masked_lm/dense"),
    (r"cls\.predictions\.transform\.LayerNorm", "masked_lm/layer_norm"),
    (r"cls\.predictions", "masked_lm"),
    (r"cls\.seq_relationship", "next_sentence/dense"),
)


@dataclasses.dataclass(frozen=True)
class Scales:
    """Standard deviations of the random weights.

    None is zero and LayerNorm's scales are not one, so that every weight matters.
    """

    embedding: float
    kernel: float
    bias: float
    layer_norm: float
    layer_norm_mean: float


def build_model(
    config: Mapping[str, Any], scales: Scales, seed: int
) -> transformers.BertForPreTraining:
    """A model of random weights, without dropout.

    `pad_token_id=None`, for with one PyTorch hides that token from the gradient.
    """
    model = transformers.BertForPreTraining(
        transformers.BertConfig(
            **config,
            pad_token_id=None,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            attn_implementation="eager",
        )
    )
    return draw_weights(model, scales, seed)


def draw_weights(model: Any, scales: Scales, seed: int) -> Any:
    """`model` with random weights, without dropout."""
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(_draw(rng, name, parameter, scales)))
    return model.eval()


def _draw(
    rng: np.random.Generator, name: str, parameter: torch.Tensor, scales: Scales
) -> np.ndarray:
    noise = rng.standard_normal(tuple(parameter.shape)).astype(np.float32)
    if "LayerNorm" in name:
        return scales.layer_norm * noise + scales.layer_norm_mean * name.endswith(
            "weight"
        )
    if name.endswith("bias"):
        return scales.bias * noise
    return (scales.embedding if "embeddings" in name else scales.kernel) * noise


def export_weights(model: torch.nn.Module) -> dict[str, np.ndarray]:
    """Every parameter once, by our path, in our layout."""
    weights = {}
    for name, parameter in model.named_parameters():
        path, array = _translate(name, parameter.detach().float().numpy())
        assert path not in weights, path
        weights[path] = array.copy()
    return weights


def _translate(name: str, array: np.ndarray) -> tuple[str, np.ndarray]:
    module, leaf = name.rsplit(".", 1)
    matches = [
        re.sub(pattern, path, module)
        for pattern, path in MODULES
        if re.fullmatch(pattern, module)
    ]
    assert len(matches) == 1, name
    if leaf == "bias":
        return f"{matches[0]}/bias", array
    if "LayerNorm" in module:
        return f"{matches[0]}/scale", array
    if "embeddings" in module:
        return f"{matches[0]}/embedding", array
    return f"{matches[0]}/kernel", array.T


def save(path: Path, settings: Mapping[str, Any], tree: Mapping[str, Any]) -> None:
    """Writes nested arrays under paths joined by "/", and settings as JSON strings."""
    arrays = {name: np.array(json.dumps(value)) for name, value in settings.items()}
    arrays |= _flatten(tree)
    np.savez_compressed(path, allow_pickle=False, **arrays)
    print(f"{path.name}: {os.path.getsize(path):,} bytes, {len(arrays)} arrays")


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, np.ndarray]:
    flat = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{prefix}{name}/")
        else:
            flat[prefix + name] = np.ascontiguousarray(value)
    return flat

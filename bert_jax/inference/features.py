"""Hidden states of each token as features (Devlin et al. 2018, §5.3)."""

import dataclasses
import itertools
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Int32

from bert_jax.config import BertConfig
from bert_jax.data.examples import build_row
from bert_jax.inference.batching import compiled, compute_rows, rows_of
from bert_jax.pretrained import Model
from bert_jax.storage.files import (
    JsonObject,
    atomic_file,
    name_path_in_errors,
    require_output_file,
)
from bert_jax.tables.write import write_rows

COMBINATIONS = ("concatenate", "sum")
SUFFIXES = (".npz", ".jsonl")
"""Of the files that `write_features` writes."""


@dataclasses.dataclass(frozen=True)
class Features:
    """The features of one text, [CLS] first and [SEP] last."""

    tokens: list[str]
    offsets: Int32[np.ndarray, "T 2"]
    """Start and end in the text, in characters; (-1, -1) for [CLS] and [SEP]."""
    vectors: Float32[np.ndarray, "T _"]
    """D numbers per token, or D times the number of layers."""


def check_layers(layers: Sequence[int], combine: str, config: BertConfig) -> None:
    """Raise ValueError if a layer is outside -L-1 … L, or there is none."""
    num_layers = config.num_hidden_layers
    if not isinstance(layers, Collection | np.ndarray):
        raise ValueError(f"layers={layers!r:.80} must be a list, such as (-1,).")
    are_ints = [isinstance(layer, int | np.integer) for layer in layers]
    if isinstance(layers, str) or not all(are_ints):
        raise ValueError(f"layers={layers!r:.80} must be whole numbers, such as (-1,).")
    for layer in layers:
        if not -num_layers - 1 <= layer <= num_layers:
            raise ValueError(
                f"layer {layer} is none of the model's: 0 is the embeddings, "
                f"{num_layers} or -1 the last layer."
            )
    if not len(layers):
        raise ValueError("layers is empty; name at least one, such as -1.")
    if combine not in COMBINATIONS:
        raise ValueError(f"combine={combine!r} must be {' or '.join(COMBINATIONS)}.")


def features(
    model: Model,
    texts: Sequence[str],
    layers: Sequence[int] = (-1,),
    combine: str = "concatenate",
    batch_size: int = 32,
    names: Iterable[str] | None = None,
) -> list[Features]:
    """Return the features of each text's tokens, in the order of the texts.

    Takes and raises the same as `Predictor.features`; `names` is that of `rows_of`.
    """
    check_layers(layers, combine, model.config)
    if not texts:
        return []
    encodings = [model.tokenizer.encode(text) for text in texts]
    segments = [(encoding.ids.tolist(),) for encoding in encodings]
    rows = rows_of(model, segments, names)
    program = compiled(model.config, "features", layers=tuple(layers), combine=combine)
    vectors = compute_rows(program, model, rows, batch_size)
    results = []
    for encoding, states in zip(encodings, vectors, strict=True):
        ids, _ = build_row(model.tokenizer, encoding.ids.tolist())
        offsets = np.pad(encoding.offsets, ((1, 1), (0, 0)), constant_values=-1)
        results.append(
            Features(model.tokenizer.tokens(ids), offsets, states[: len(ids)])
        )
    return results


def write_features(chunks: Iterable[Sequence[Features]], path: Path) -> int:
    """Write the features of many texts to .npz or .jsonl, atomically.

    A .npz file holds `tokens` [S], `offsets` [S, 2] and `vectors` [S, …] of all texts
    end to end, and `starts` [N + 1]; all are in memory until the end. A .jsonl file has
    one line per text with the first three, the vectors rounded to six decimals.

    Return the number of texts; raise ValueError if there is none, or the file name has
    another suffix.
    """
    require_output_file(path, *SUFFIXES)
    rest = iter(chunks)
    first = next(rest, ())
    if not first:
        raise ValueError(f"There is no text to write to {path}.")
    chunks = itertools.chain([first], rest)
    if path.suffix.lower() == ".jsonl":
        return write_rows(([_row(text) for text in texts] for texts in chunks), path)
    texts = list(itertools.chain.from_iterable(chunks))
    lengths = [len(text.tokens) for text in texts]
    with (
        atomic_file(path) as temporary,
        name_path_in_errors(path),
        temporary.open("wb") as file,
    ):
        np.savez(
            file,
            tokens=np.concatenate([np.array(text.tokens) for text in texts]),
            offsets=np.concatenate([text.offsets for text in texts]),
            vectors=np.concatenate([text.vectors for text in texts]),
            starts=np.concatenate([[0], np.cumsum(lengths)]),
        )
    return len(texts)


def _row(text: Features) -> JsonObject:
    return {
        "tokens": text.tokens,
        "offsets": text.offsets.tolist(),
        "vectors": text.vectors.astype(np.float64).round(6).tolist(),
    }

"""Hidden states of each token as features (Devlin et al. 2018, §5.3)."""

import dataclasses
import functools
import itertools
import json
import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Float32, Int, Int32

from bert_jax.config import BertConfig
from bert_jax.data.buckets import assign_buckets, batches_by_bucket
from bert_jax.data.examples import from_rows
from bert_jax.model.encoder import Encoder
from bert_jax.model.inputs import inputs_of
from bert_jax.storage.files import name_path_in_errors, require_writable
from bert_jax.tokenization import Encoding, Tokenizer

COMBINATIONS = ("concatenate", "sum")


@dataclasses.dataclass(frozen=True)
class Features:
    """Of one text, [CLS] first and [SEP] last."""

    tokens: list[str]
    offsets: Int32[np.ndarray, "T 2"]
    """Start and end in the text, in characters; (-1, -1) of [CLS] and [SEP]."""
    vectors: Float32[np.ndarray, "T _"]
    """Of D numbers, or of D times the number of layers."""


def check_layers(layers: Sequence[int], combine: str, config: BertConfig) -> None:
    """Refuse layers that the model does not have.

    Raises:
        ValueError: one is outside -L-1 … L, or there is none.
    """
    most = config.num_hidden_layers
    whole = [isinstance(layer, int | np.integer) for layer in layers]
    if isinstance(layers, str) or not all(whole):
        raise ValueError(f"layers={layers!r:.80} must be whole numbers, as (-1,).")
    for layer in layers:
        if not -most - 1 <= layer <= most:
            raise ValueError(
                f"layer {layer} is none of the model's: 0 is the embeddings, {most} or "
                f"-1 the last layer."
            )
    if not layers:
        raise ValueError("layers is empty; name one at least, such as -1.")
    if combine not in COMBINATIONS:
        raise ValueError(f"combine={combine!r} must be {' or '.join(COMBINATIONS)}.")


def combined(
    config: BertConfig,
    layers: tuple[int, ...],
    combine: str,
    params: Any,
    input_ids: Int[Array, "B T"],
    segment_ids: Int[Array, "B T"],
    attention_mask: Bool[Array, "B T"],
) -> Float[Array, "B T _"]:
    """The hidden states of some layers, added up or side by side, in float32."""
    states: Any = Encoder(config).apply(
        {"params": params["encoder"]},
        input_ids,
        segment_ids,
        attention_mask,
        method="hidden_states",
    )
    chosen = [states[layer].astype(jnp.float32) for layer in layers]
    return sum(chosen) if combine == "sum" else jnp.concatenate(chosen, axis=-1)


def features(
    config: BertConfig,
    params: Any,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    layers: Sequence[int] = (-1,),
    combine: str = "concatenate",
    batch_size: int = 32,
    what: str = "text",
    first: int = 0,
) -> list[Features]:
    """The features of each text's tokens, in the texts' order.

    Args:
        layers: 0 for the embeddings, 1 … L, or from behind: -1 for the last.
        combine: concatenate or sum, of several layers.
        what, first: a text's name where it is refused, and the first one's number.

    Raises:
        ValueError: a text is too long, or there is no such layer.
    """
    check_layers(layers, combine, config)
    if not texts:
        return []
    encodings = [tokenizer.encode(text) for text in texts]
    longest = config.max_position_embeddings
    rows = [
        _row(tokenizer, each, longest, f"{what} {number}")
        for number, each in enumerate(encodings, first)
    ]
    examples = from_rows(rows, np.arange(len(rows), dtype=np.int32))
    buckets = assign_buckets(examples.lengths, longest)
    compute = _compiled(config, tuple(layers), combine)
    found: list[Features | None] = [None] * len(rows)
    for length, chosen in batches_by_bucket(buckets, batch_size):
        size = min(batch_size, 1 << (len(chosen) - 1).bit_length())
        numbers = np.pad(chosen, (0, size - len(chosen)), constant_values=-1)
        vectors = jax.device_get(compute(params, examples.gather(numbers, length)))
        for place, number in enumerate(chosen):
            tokens = tokenizer.tokens(rows[number][0])
            found[number] = _found(tokens, encodings[number], vectors[place])
    return [each for each in found if each is not None]


def _found(
    tokens: list[str], encoding: Encoding, vectors: Float32[np.ndarray, "T _"]
) -> Features:
    offsets = np.full((len(tokens), 2), -1, np.int32)
    offsets[1:-1] = encoding.offsets
    return Features(tokens, offsets, vectors[: len(tokens)])


def _row(
    tokenizer: Tokenizer, encoding: Encoding, longest: int, what: str
) -> tuple[list[int], int]:
    """[CLS] text [SEP], and where a second text would begin."""
    ids = [tokenizer.cls_id, *encoding.ids.tolist(), tokenizer.sep_id]
    if len(ids) > longest:
        raise ValueError(
            f"{what} has {len(ids)} tokens, [CLS] and [SEP] among them; the model "
            f"takes {longest}. Shorten it."
        )
    return ids, len(ids)


@functools.cache
def _compiled(config: BertConfig, layers: tuple[int, ...], combine: str) -> Any:
    def compute(params: Any, rows: dict[str, Any]) -> Float[Array, "B T _"]:
        end = jnp.asarray(rows["end"])[:, None]
        inputs = inputs_of(
            {
                "tokens": rows["tokens"],
                "first": jnp.zeros_like(end),
                "second": rows["second"][:, None],
                "end": end,
            }
        )
        return combined(
            config,
            layers,
            combine,
            params,
            inputs.input_ids,
            inputs.segment_ids,
            inputs.attention_mask,
        )

    return jax.jit(compute)


def check_output(path: Path) -> None:
    """Refuse a file that cannot be written, before anything is computed.

    Raises:
        ValueError: its name says no format.
        FileNotFoundError: its directory is not there.
        OSError: nothing can be written there.
    """
    if path.suffix not in (".npz", ".jsonl"):
        raise ValueError(f"{path} must end in .npz or .jsonl, which says the format.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path.parent} is not a directory; make it first.")
    if path.is_dir():
        raise ValueError(f"{path} is a directory; name a file to write.")
    require_writable(path.parent)


def write_features(chunks: Iterable[Sequence[Features]], path: Path) -> int:
    """Write the features of many texts to .npz or .jsonl, whole or not at all.

    In .npz, all in memory until the end: `tokens` [S], `offsets` [S, 2], `vectors`
    [S, …] of all texts end to end, and `starts` [N + 1]. In .jsonl a line a text, with
    the first three, the vectors to six digits after the point.

    Returns:
        The number of texts.

    Raises:
        ValueError: the name ends otherwise, or there is no text.
    """
    check_output(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    write = _write_npz if path.suffix == ".npz" else _write_jsonl
    try:
        with name_path_in_errors(path):
            number = write(chunks, temporary)
        if not number:
            raise ValueError(f"There is no text to write to {path}.")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return number


def _write_npz(chunks: Iterable[Sequence[Features]], path: Path) -> int:
    found = list(itertools.chain.from_iterable(chunks))
    if not found:
        return 0
    lengths = [len(each.tokens) for each in found]
    with path.open("wb") as file:
        np.savez(
            file,
            tokens=np.concatenate([np.array(each.tokens) for each in found]),
            offsets=np.concatenate([each.offsets for each in found]),
            vectors=np.concatenate([each.vectors for each in found]),
            starts=np.concatenate([[0], np.cumsum(lengths)]),
        )
    return len(found)


def _write_jsonl(chunks: Iterable[Sequence[Features]], path: Path) -> int:
    number = 0
    with path.open("w", encoding="utf-8") as file:
        for each in itertools.chain.from_iterable(chunks):
            line = {
                "tokens": each.tokens,
                "offsets": each.offsets.tolist(),
                "vectors": each.vectors.astype(np.float64).round(6).tolist(),
            }
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
            number += 1
    return number

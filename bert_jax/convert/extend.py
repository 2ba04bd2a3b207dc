"""A model with more words, or more positions, than it was trained with."""

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from etils import epath
from jaxtyping import Float

from bert_jax.config.checks import quoted
from bert_jax.convert.receipts import write_checkpoint
from bert_jax.formats.names import some
from bert_jax.pretrained import Model, load_pretrained
from bert_jax.tokenization import Tokenizer, vocabulary_file

MAX_POSITIONS = 1 << 20
"""Attention over more takes 4 TiB a head."""


def read_words(path: str) -> list[str]:
    """The words of a file, one a line; blank lines are skipped.

    Raises:
        ValueError: there is none, or the file is not UTF-8.
    """
    try:
        lines = epath.Path(path).read_bytes().decode().splitlines()
    except UnicodeDecodeError as error:
        wrong = error.object[error.start]
        raise ValueError(
            f"{path}: byte {error.start} is 0x{wrong:02x}, which is not UTF-8; words "
            "must be in UTF-8, so convert the file, as by iconv."
        ) from error
    words = list(dict.fromkeys(line.strip() for line in lines if line.strip()))
    if not words:
        raise ValueError(f"{path} holds no word; write one a line.")
    return words


def pieces_of(words: Sequence[str], tokenizer: Tokenizer) -> dict[str, list[int]]:
    """The pieces that each word, as the tokenizer sees it, falls into until now.

    Words that are one token already are left out.

    Raises:
        ValueError: the vocabulary is not WordPiece, a word is several to it, or is
            written with characters that it lacks.
    """
    if tokenizer.kind != "wordpiece":
        raise ValueError(
            f"words cannot be added to a vocabulary of kind {tokenizer.kind}; only to "
            "one of kind wordpiece."
        )
    if added := tokenizer.tokens(range(tokenizer.num_pieces, tokenizer.vocab_size)):
        raise ValueError(
            f"the vocabulary has {len(added)} added tokens ({some(added)}) after its "
            "words, whose ids more words would move; add the words in transformers, by "
            "add_tokens and resize_token_embeddings, and import the model again."
        )
    found: dict[str, list[int]] = {}
    for word in words:
        encoding = tokenizer.encode(word)
        ids = encoding.ids.tolist()
        if tokenizer.unk_id in ids or not ids:
            raise ValueError(
                f"word {word!r} holds characters that the vocabulary lacks; leave it "
                "out."
            )
        if not encoding.continues[1:].all() or encoding.continues[0]:
            raise ValueError(
                f"word {word!r} is several words to the tokenizer, which parts them "
                "at spaces and punctuation; add these."
            )
        if len(ids) > 1:
            parts = [token.removeprefix("##") for token in tokenizer.tokens(ids)]
            found["".join(parts)] = ids
    return found


def with_words(model: Model, pieces: dict[str, list[int]]) -> Model:
    """The model with a token more for each word: the mean of its pieces' rows."""
    if not pieces:
        return model
    params = copy.copy(model.params)
    table = _rows(params, "encoder/embeddings/token/embedding")
    means = [table[ids].mean(axis=0) for ids in pieces.values()]
    _put(params, "encoder/embeddings/token/embedding", np.stack([*table, *means]))
    if "masked_lm" in params:
        bias = _rows(params, "masked_lm/bias")
        more = [bias[ids].mean() for ids in pieces.values()]
        _put(
            params, "masked_lm/bias", np.concatenate([bias, np.array(more, bias.dtype)])
        )
    name = vocabulary_file(model.tokenizer.kind)
    old = model.tokenizer.files[name].removesuffix(b"\n") + b"\n"
    added = "".join(f"{word}\n" for word in pieces).encode()
    tokenizer = Tokenizer(model.tokenizer.config, old + added)
    config = dataclasses.replace(model.config, vocab_size=tokenizer.vocab_size)
    return dataclasses.replace(model, config=config, params=params, tokenizer=tokenizer)


def with_positions(model: Model, number: int) -> Model:
    """The model with `number` positions: the old ones repeat (Beltagy et al. 2020, §5).

    Raises:
        ValueError: it has so many already, or that is more than a model has.
    """
    old = model.config.max_position_embeddings
    if not old < number <= MAX_POSITIONS:
        raise ValueError(
            f"positions={quoted(number)} must be more than the {old} that the model "
            f"has, and at most {MAX_POSITIONS}."
        )
    params = copy.copy(model.params)
    path = "encoder/embeddings/position/embedding"
    _put(
        params, path, np.resize(_rows(params, path), (number, model.config.hidden_size))
    )
    config = dataclasses.replace(model.config, max_position_embeddings=number)
    return dataclasses.replace(model, config=config, params=params)


def extend(
    source: str, output: epath.Path, words: Sequence[str], positions: int | None
) -> str:
    """Write `source` with more words and positions as a checkpoint; a line on it.

    Raises:
        ValueError: there is nothing to add, or it cannot be added.
        FileExistsError: `output` is there and not an empty directory.
    """
    model = load_pretrained(source)
    pieces = pieces_of(words, model.tokenizer) if words else {}
    if not pieces and positions is None:
        raise ValueError(
            "there is nothing to add: each word is one token already; pass --words "
            "with others, or --positions."
        )
    larger = with_words(model, pieces)
    if positions is not None:
        larger = with_positions(larger, positions)
    first = model.tokenizer.vocab_size
    said = {
        "source": str(model.directory),
        "words": {
            word: {"id": first + number, "mean_of": model.tokenizer.tokens(ids)}
            for number, (word, ids) in enumerate(pieces.items())
        },
        "positions": {
            "before": model.config.max_position_embeddings,
            "now": larger.config.max_position_embeddings,
        },
    }
    write_checkpoint(
        larger.config, larger.params, larger.tokenizer, model.embedding, said, output
    )
    return (
        f"{output}: {len(pieces)} words more, {larger.config.vocab_size:,} tokens; "
        f"{larger.config.max_position_embeddings:,} positions. Train it on, since what "
        "is new has learned nothing yet."
    )


def _rows(params: dict[str, Any], path: str) -> Float[np.ndarray, "..."]:
    node: Any = params
    for name in path.split("/"):
        node = node[name]
    return np.asarray(node)


def _put(params: dict[str, Any], path: str, rows: Float[np.ndarray, "..."]) -> None:
    """Put `rows` in; the dicts on the way are copied, for the source keeps its own."""
    *parents, last = path.split("/")
    for name in parents:
        params[name] = copy.copy(params[name])
        params = params[name]
    params[last] = rows

"""Add words or positions to a trained model."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from etils import epath
from flax.traverse_util import flatten_dict, unflatten_dict

from bert_jax.config.checks import quoted
from bert_jax.formats.imported import ROWS_OF_TOKENS, abbreviate
from bert_jax.pretrained import (
    Model,
    finetuning_run_config,
    load_pretrained,
    write_checkpoint,
)
from bert_jax.tokenization import Tokenizer, vocabulary_file

MAX_POSITIONS = 1 << 20
"""The attention scores of one head over so many positions take 4 TiB."""


def read_words(path: str) -> list[str]:
    """Return the words of a file, one per line; blank lines are skipped.

    Raise ValueError if there are none, or the file is not UTF-8.
    """
    try:
        lines = epath.Path(path).read_bytes().decode().splitlines()
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise ValueError(
            f"{path}: byte {error.start} is 0x{byte:02x}, which is not UTF-8; words "
            "must be in UTF-8, so convert the file, for example by iconv."
        ) from error
    words = list(dict.fromkeys(line.strip() for line in lines if line.strip()))
    if not words:
        raise ValueError(f"{path} holds no word; write one per line.")
    return words


def split_words(words: Sequence[str], tokenizer: Tokenizer) -> dict[str, list[int]]:
    """Return the ids of the pieces of each word, by the word after normalization.

    Words that are a single token already are left out. Raise ValueError if the
    vocabulary is not WordPiece or has added tokens, or a word is several words to the
    tokenizer, too long, or has characters that the vocabulary lacks.
    """
    if tokenizer.kind != "wordpiece":
        raise ValueError(
            f"words cannot be added to a vocabulary of kind {tokenizer.kind}; only to "
            "one of kind wordpiece."
        )
    if added := tokenizer.tokens(range(tokenizer.num_pieces, tokenizer.vocab_size)):
        raise ValueError(
            f"the vocabulary has {len(added)} added tokens ({abbreviate(added)}) after "
            "its words, whose ids would change if words were added; add the words in "
            "transformers, by add_tokens and resize_token_embeddings, and import the "
            "model again."
        )
    pieces: dict[str, list[int]] = {}
    for word in words:
        encoding = tokenizer.encode(word)
        ids = encoding.ids.tolist()
        if tokenizer.unk_id in ids or not ids:
            reason = "holds characters that the vocabulary lacks"
            if (limit := tokenizer.word_limit) and len(word) > limit:
                reason = (
                    f"is longer than the {limit} characters of a word that it reads"
                )
            raise ValueError(f"word {word!r:.80} {reason}; leave it out.")
        if not encoding.continues[1:].all() or encoding.continues[0]:
            raise ValueError(
                f"word {word!r} is several words to the tokenizer, which splits texts "
                "at spaces and punctuation; add these words."
            )
        if len(ids) > 1:
            parts = [token.removeprefix("##") for token in tokenizer.tokens(ids)]
            pieces["".join(parts)] = ids
    return pieces


def add_words(model: Model, pieces: dict[str, list[int]]) -> Model:
    """Return the model with a row for each word: the mean of its pieces' rows."""
    params = flatten_dict(model.params, sep="/")
    for name in ROWS_OF_TOKENS:
        if name in params:
            rows = np.asarray(params[name])
            means = [rows[ids].mean(axis=0) for ids in pieces.values()]
            params[name] = np.concatenate([rows, np.array(means, rows.dtype)])
    name = vocabulary_file(model.tokenizer.kind)
    old = model.tokenizer.files[name].removesuffix(b"\n") + b"\n"
    added = "".join(f"{word}\n" for word in pieces).encode()
    tokenizer = Tokenizer(model.tokenizer.config, old + added)
    # Rows after the vocabulary had no meaning, and now others stand there.
    unused = {k: rows for k, rows in model.unused.items() if k not in ROWS_OF_TOKENS}
    model = dataclasses.replace(model, tokenizer=tokenizer, unused=unused)
    return model.changed(
        unflatten_dict(params, sep="/"), vocab_size=tokenizer.vocab_size
    )


def add_positions(model: Model, num_positions: int) -> Model:
    """Return the model with copies of its positions (Beltagy et al. 2020, §5).

    Raise ValueError if it has as many already, or they are over `MAX_POSITIONS`.
    """
    old = model.config.max_position_embeddings
    if not old < num_positions <= MAX_POSITIONS:
        raise ValueError(
            f"positions={quoted(num_positions)} must be more than the {old} that the "
            f"model has, and at most {MAX_POSITIONS}."
        )
    params = flatten_dict(model.params, sep="/")
    name, size = "encoder/embeddings/position/embedding", model.config.hidden_size
    params[name] = np.resize(params[name], (num_positions, size))
    # No run had rows of the new length yet.
    data = model.data and model.data.changed(max_length=0)
    model = dataclasses.replace(model, own_length=0, trained_length=0, data=data)
    return model.changed(
        unflatten_dict(params, sep="/"), max_position_embeddings=num_positions
    )


def extend(
    source: str, output: epath.Path, words: Sequence[str], positions: int | None
) -> str:
    """Write `source` with more words and positions as a checkpoint; return a summary.

    Raise ValueError if there is nothing to add, or it cannot be added, FileExistsError
    if `output` exists and is not an empty directory.
    """
    model = load_pretrained(source)
    pieces = split_words(words, model.tokenizer) if words else {}
    if not pieces and positions is None:
        reason = "each word is one token already" if words else "no words are given"
        raise ValueError(
            f"there is nothing to add: {reason}; pass --words with others, or "
            "--positions."
        )
    larger = add_words(model, pieces) if pieces else model
    if positions is not None:
        larger = add_positions(larger, positions)
    first = model.tokenizer.vocab_size
    receipt = {
        "source": str(model.directory),
        "words": {
            word: {"id": first + i, "mean_of": model.tokenizer.tokens(ids)}
            for i, (word, ids) in enumerate(pieces.items())
        },
        "positions": {
            "before": model.config.max_position_embeddings,
            "now": larger.config.max_position_embeddings,
        },
    }
    write_checkpoint(larger, receipt, output, finetuning_run_config(larger))
    return (
        f"{output}: {len(pieces)} words more, {larger.config.vocab_size:,} tokens; "
        f"{larger.config.max_position_embeddings:,} positions. Train it further: the "
        "new rows are untrained."
    )

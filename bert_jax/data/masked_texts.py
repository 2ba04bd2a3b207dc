"""Validation texts with one frequent word masked, chosen by a rule and not by hand."""

import dataclasses
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from jaxtyping import Bool, Int, Shaped

from bert_jax.data.records import Dataset
from bert_jax.tokenization import Tokenizer

_MIN_TOKENS, _MAX_TOKENS, MIN_LETTERS = 12, 60, 4
NUM_FREQUENT, _COUNTED_ROWS = 500, 8192
RULE = (
    f"the middle one of the words that are among the corpus's {NUM_FREQUENT} most "
    f"frequent ones of {MIN_LETTERS} letters or more"
)
"""Which word of a text `masked_texts` masks."""

ValueT = TypeVar("ValueT")


@dataclasses.dataclass(frozen=True)
class MaskedText:
    """A text in which one word is [MASK], and the token that stood there."""

    text: str
    answer: str


def spread(values: Sequence[ValueT], count: int) -> list[ValueT]:
    """Return at most `count` values: the first, the last, and some evenly between."""
    if len(values) <= count:
        return list(values)
    places = np.linspace(0, len(values) - 1, count).round().astype(int)
    return [values[place] for place in places]


def validation_rows(dataset: Dataset, count: int) -> Shaped[np.ndarray, " B"]:
    """Return at most `count` validation rows, spread evenly."""
    numbers = np.linspace(0, len(dataset.validation) - 1, count, dtype=np.int64)
    return dataset.validation.gather(np.unique(numbers))


def masked_texts(dataset: Dataset, count: int, max_tokens: int) -> list[MaskedText]:
    """Return at most `count` validation texts with one word masked, by `RULE`.

    They are first segments of rows that are spread evenly over the validation rows, cut
    to sixty tokens around the mask, and have at most `max_tokens` besides [CLS] and
    [SEP].
    """
    tokenizer = dataset.tokenizer
    rows = validation_rows(dataset, 10 * count)  # not all have such a word
    first = (row["tokens"][1 : row["second"][0] - 1].astype(np.int64) for row in rows)
    train, size = dataset.train, tokenizer.vocab_size
    numbers = np.linspace(0, len(train) - 1, min(len(train), _COUNTED_ROWS))
    counted = train.gather(np.unique(numbers.astype(np.int64)))["tokens"]
    counts = np.bincount(counted.ravel().astype(np.int64), minlength=size)
    # Without the mark of a word's start, of sentencepiece or byte-level BPE.
    words = (token.lstrip("▁Ġ") for token in tokenizer.tokens(range(size)))
    is_long = np.array([len(word) >= MIN_LETTERS and word.isalpha() for word in words])
    chosen = np.argsort(-counts * is_long, kind="stable")[:NUM_FREQUENT]
    frequent = np.isin(np.arange(size), chosen) & is_long & (counts > 0)
    texts = [_masked_text(tokenizer, frequent, ids, max_tokens) for ids in first]
    return spread([text for text in texts if text is not None], count)


def _masked_text(
    tokenizer: Tokenizer,
    frequent: Bool[np.ndarray, " V"],
    ids: Int[np.ndarray, " T"],
    max_tokens: int,
) -> MaskedText | None:
    """Return the text with one word masked; None if it is short or has none."""
    # A token is a whole word if it starts one, and so does the next token.
    starts = ~tokenizer.continues_word[ids]
    is_word = starts & np.append(starts[1:], True)
    tokens = tokenizer.tokens(ids.tolist())
    words = np.flatnonzero(is_word & frequent[ids])
    if len(ids) < _MIN_TOKENS or not len(words):
        return None
    place, reach = words[len(words) // 2], _MAX_TOKENS // 2
    begins = [i for i in np.flatnonzero(starts) if i >= place - reach]
    before, after = ids[begins[0] : place], ids[place + 1 : place + 1 + reach]
    if tokenizer.unk_id in (*before, *after):
        return None  # its name would be encoded as a text
    mask = tokenizer.mask_token
    text = f"{tokenizer.decode(before)} {mask} {tokenizer.decode(after)}".strip()
    rebuilt = tokenizer.encode(text, mask_token=True).ids.tolist()
    if len(rebuilt) > max_tokens or rebuilt.count(tokenizer.mask_id) != 1:
        return None  # the text itself may hold the letters of the mask's name
    return MaskedText(text, tokens[place])

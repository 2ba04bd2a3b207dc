"""Find the rows that contain a sequence of tokens as whole words."""

import dataclasses
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from jaxtyping import Bool, Int64, Integer

from bert_jax.data.records import Rows
from bert_jax.tokenization import Tokenizer

_CHUNK_ROWS = 8192
_SEPARATING = ("P", "S", "Z")
"""First letters of the Unicode categories of punctuation, symbols and spaces."""
_UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")
"""Scripts without spaces between words, as the names of their letters begin."""


@dataclasses.dataclass(frozen=True)
class Matches:
    """The rows of a chunk that contain a sequence of tokens."""

    rows: Int64[np.ndarray, " M"]
    """Their numbers, ascending."""
    starts: Int64[np.ndarray, " M"]
    """Where the sequence first begins in each."""


def tokens_inside_words(tokenizer: Tokenizer) -> Bool[np.ndarray, " V"]:
    """Return which tokens continue the word of the token before them.

    Sentencepiece has no mark at punctuation that follows a word: it ends the word. In
    scripts without spaces, a word may begin at each token.
    """
    names = tokenizer.tokens(range(tokenizer.vocab_size))
    first = [name.removeprefix("##")[:1] or name[:1] for name in names]
    is_separating = [character != "" and _separates(character) for character in first]
    return tokenizer.continues_word & ~np.array(is_separating)


def _separates(character: str) -> bool:
    category, name = unicodedata.category(character), unicodedata.name(character, "")
    is_word = category == "Lo" and name.startswith(_UNSPACED)
    return is_word or category.startswith(_SEPARATING)


def token_sequences(tokenizer: Tokenizer, text: str) -> list[tuple[int, ...]]:
    """Return the tokens that a text may have in a row, first those after a space.

    At the start of a document byte-level BPE has others; so has sentencepiece within
    text without spaces, where no mark stands before a word.
    """
    texts = dict.fromkeys([*tokenizer.after_space([text]), text])
    sequences = tokenizer.encode_batch(list(texts))
    ids = tokenizer.encode(tokenizer.mask_token + text, mask_token=True).ids.tolist()
    # Some tokenizer.json know the mask token only with a space after it.
    unmarked = ids[1:] if ids[:1] == [tokenizer.mask_id] else []
    if unmarked and not tokens_inside_words(tokenizer)[unmarked[0]]:
        sequences.append(unmarked)
    return list(dict.fromkeys(map(tuple, sequences)))


def find_tokens(
    rows: Rows, ids: Sequence[int], continues_word: Bool[np.ndarray, " V"]
) -> Iterator[Matches]:
    """Find the rows that contain all of `ids` in this order, as `find_any` does."""
    return find_any(rows, [ids], continues_word)


def find_any(
    rows: Rows,
    sequences: Iterable[Sequence[int]],
    continues_word: Bool[np.ndarray, " V"],
    before: Sequence[int] = (),
) -> Iterator[Matches]:
    """Find the rows that contain one of the sequences of ids, without a gap.

    The rows are read in chunks, so that the memory does not depend on their number; the
    matches of each are yielded, also if there are none. After the sequence stands no
    token that continues a word, by `continues_word`. If its first token does, as where
    a text begins, one of the tokens `before` stands before it.
    """
    sequences = list(sequences)
    for start in range(0, len(rows), _CHUNK_ROWS):
        numbers = np.arange(start, min(start + _CHUNK_ROWS, len(rows)), dtype=np.int64)
        tokens = rows.gather(numbers)["tokens"]
        begins = np.zeros(tokens.shape, bool)
        for ids in sequences:
            starts = sequence_starts(tokens, ids, continues_word)
            if before and continues_word[ids[0]]:
                starts[:, 0] = False
                starts[:, 1:] &= np.isin(tokens[:, : starts.shape[1] - 1], before)
            begins[:, : starts.shape[1]] |= starts
        matching = np.flatnonzero(begins.any(axis=1))
        yield Matches(numbers[matching], begins[matching].argmax(axis=1))


def sequence_starts(
    tokens: Integer[np.ndarray, "B T"],
    ids: Sequence[int],
    continues_word: Bool[np.ndarray, " V"],
) -> Bool[np.ndarray, "B starts"]:
    """Return at which positions of each row the sequence `ids` begins."""
    last = tokens.shape[1] - len(ids)
    if last < 0:
        return np.zeros((len(tokens), 1), bool)
    starts = tokens[:, : last + 1] == ids[0]
    # Compare the next tokens only at the few positions that are left.
    row, position = np.nonzero(starts)
    for offset, token in enumerate(ids[1:], 1):
        same = tokens[row, position + offset] == token
        row, position = row[same], position[same]
    # At the end of a row nothing continues the last word.
    after = np.minimum(position + len(ids), tokens.shape[1] - 1)
    ends_word = (position == last) | ~continues_word[tokens[row, after]]
    starts[:] = False
    starts[row[ends_word], position[ends_word]] = True
    return starts

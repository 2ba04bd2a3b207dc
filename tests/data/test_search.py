"""Rows that contain a sequence of tokens."""

import numpy as np
import pytest
import tokenizers

from bert_jax.config import VocabularyConfig
from bert_jax.data.records import Rows
from bert_jax.data.search import (
    find_any,
    find_tokens,
    sequence_starts,
    token_sequences,
    tokens_inside_words,
)
from bert_jax.data.shards import row_dtype
from bert_jax.data.vocabulary import train_vocabulary
from bert_jax.tokenization import SPECIAL_TOKENS, Tokenizer

WORDS = np.zeros(100, bool)
"""Of a vocabulary in which no token continues a word."""


def rows_of(tokens: np.ndarray) -> Rows:
    """Rows with these tokens, in shards of a thousand."""
    rows = np.zeros(len(tokens), row_dtype(tokens.shape[1], 100))
    rows["tokens"] = tokens
    shards = [rows[start : start + 1000] for start in range(0, len(rows), 1000)]
    return Rows(rows.dtype, shards)


def by_hand(tokens: np.ndarray, ids: list[int]) -> list[tuple[int, int]]:
    """Each row that contains `ids`, and where they first begin."""
    found = []
    for number, row in enumerate(tokens.tolist()):
        for start in range(len(row) - len(ids) + 1):
            if row[start : start + len(ids)] == ids:
                found.append((number, start))
                break
    return found


@pytest.mark.parametrize("length", [1, 2, 3, 12])
def test_rows_with_a_sequence(length):
    """More rows than a chunk has; few words, so that beginnings repeat: 7 7 8."""
    generator = np.random.default_rng(length)
    tokens = generator.integers(5, 8, (20_000, 12)).astype(np.uint16)
    ids = tokens[12_345, 12 - length :].tolist()
    expected = by_hand(tokens, ids)
    assert any(number > 8192 for number, _ in expected)
    assert matches_of(tokens, ids, WORDS) == expected


def matches_of(tokens: np.ndarray, ids: list[int], table: np.ndarray) -> list:
    """The rows that are found, and where, of all chunks."""
    found = []
    for matches in find_tokens(rows_of(tokens), ids, table):
        pairs = matches.rows.tolist(), matches.starts.tolist()
        found += zip(*pairs, strict=True)
    return found


def test_all_places_in_a_row():
    tokens = np.array([[7, 7, 8, 7, 7], [8, 8, 8, 8, 8]])
    expected = [[True, False, False, True], [False] * 4]
    np.testing.assert_array_equal(sequence_starts(tokens, [7, 7], WORDS), expected)


def test_a_sequence_longer_than_a_row_is_in_none():
    assert not matches_of(np.full((3, 4), 7, np.uint16), [7] * 5, WORDS)
    assert not matches_of(np.zeros((0, 4), np.uint16), [7], WORDS)


def test_the_last_token_ends_its_word():
    """Token 9 continues a word: the text is not the first half of a longer one."""
    continues = np.arange(100) == 9
    tokens = np.array([[7, 9, 5, 7], [7, 9, 7, 9], [5, 7, 9, 5], [7, 9, 7, 5]])
    found = matches_of(tokens.astype(np.uint16), [7], continues)
    assert found == [(0, 3), (3, 2)]
    found = matches_of(tokens.astype(np.uint16), [7, 9], continues)
    assert found == [(0, 0), (1, 0), (2, 1), (3, 0)]


@pytest.mark.parametrize("kind", ["wordpiece", "unigram", "bpe", "char"])
def test_whole_words_of_each_kind_of_vocabulary(kind, tmp_path):
    """A word that begins a longer one; punctuation after a word does not."""
    text = tmp_path / "text.txt"
    text.write_text("the cat, cat. a catalog cats\n" * 50)
    size, output = {"wordpiece": 27, "unigram": 19}.get(kind, 26), tmp_path / "words"
    config = VocabularyConfig(
        input=(str(text),), output=str(output), vocab_size=size, kind=kind
    )
    train_vocabulary(config)
    tokenizer = Tokenizer.load(output)
    table = tokens_inside_words(tokenizer)
    ids = tokenizer.encode("cat").ids.tolist()
    texts = ["the cat", "cat, a", "a cat. the", "a catta", "cata the", "the cat a"]
    rows = np.zeros((len(texts), 24), np.uint16)
    for row, encoded in zip(rows, tokenizer.encode_batch(texts), strict=True):
        row[: len(encoded)] = encoded
    # The longer words begin with the same tokens, and are not found.
    assert all(sequence_starts(rows, ids, np.zeros_like(table)).any(axis=1))
    assert [number for number, _ in matches_of(rows, ids, table)] == [0, 1, 2, 5]


def test_words_of_text_without_spaces_are_found_within_it(tmp_path):
    """No mark stands before them, and a letter may follow."""
    texts = ["これは猫です。", "猫がいる。", "犬です。"]
    (tmp_path / "a.txt").write_text("\n".join(texts * 9))
    options = {"kind": "char", "cased": True, "output": str(tmp_path / "v")}
    config = VocabularyConfig(input=(str(tmp_path / "a.txt"),), **options)
    tokenizer = train_vocabulary(config)
    rows = np.zeros((len(texts), 12), np.uint16)
    for row, encoded in zip(rows, tokenizer.encode_batch(texts), strict=True):
        row[: len(encoded)] = encoded
    table, ids = tokens_inside_words(tokenizer), token_sequences(tokenizer, "猫")
    (matches,) = find_any(rows_of(rows), ids, table, (tokenizer.pad_id,))
    assert matches.rows.tolist() == [0, 1] and matches.starts.tolist() == [4, 0]


def test_a_tokenizer_that_knows_its_mask_as_a_whole_word_alone():
    marks = [tokenizers.AddedToken(name, single_word=True) for name in SPECIAL_TOKENS]
    library = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    library.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    trainer = tokenizers.trainers.WordPieceTrainer(special_tokens=marks)
    library.train_from_iterator(["the cat"], trainer)
    roles = {name: name for name in SPECIAL_TOKENS}
    config = {"kind": "huggingface", "cased": True, "special_tokens": roles}
    tokenizer = Tokenizer(config, library.to_str().encode())
    (ids,) = token_sequences(tokenizer, "cat")
    assert tokenizer.tokens(ids) == ["cat"]

"""Learning WordPiece's pieces from counted words."""

import collections
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.data.wordpiece import learn_pieces
from bert_jax.tokenization import SPECIAL_TOKENS

WORDS = {"low": 5, "lower": 2, "newest": 6, "widest": 3}
ALPHABET = "##d ##e ##i ##o ##r ##s ##t ##w l n w".split()
# By hand, with counts; of equal counts the pair that sorts first.
MERGES = (
    "##es "  # 9, before (##s, ##t)
    "##est "  # 9
    "##ow "  # 7, before (l, ##o)
    "low "  # 7
    "##ew "  # 6, before (##w, ##est) and (n, ##e)
    "##ewest "  # 6
    "newest "  # 6
    "##dest "  # 3, before (##i, ##d) and (w, ##i)
    "##idest "  # 3
    "widest "  # 3
    "##er "  # 2, before (low, ##e)
    "lower"  # 2
).split()


@pytest.mark.parametrize("merges", range(len(MERGES) + 1))
def test_pieces_worked_out_by_hand(merges):
    size = len(SPECIAL_TOKENS) + len(ALPHABET) + merges
    expected = [*SPECIAL_TOKENS, *ALPHABET, *MERGES[:merges]]
    assert learn_pieces(WORDS, size) == expected


def test_the_order_of_the_words_does_not_matter():
    results = {
        tuple(learn_pieces(dict(order), 24))
        for order in itertools.permutations(WORDS.items())
    }
    assert len(results) == 1


def test_overlapping_pairs():
    """aaaaa: (##a, ##a) stands three times, and merging leaves a ##aa ##aa."""
    expected = [*SPECIAL_TOKENS, "##a", "a", "##aa", "##aaaa", "aaaaa"]
    assert learn_pieces({"aaaaa": 2}, 10) == expected


def test_two_ways_to_one_piece_count_once():
    words = {"xabc": 9, "yabc": 8, "xab": 7, "zbc": 30}
    tokens = learn_pieces(words, 17)
    assert len(tokens) == len(set(tokens)) == 17
    assert "##abc" in tokens


def test_sizes_that_do_not_fit():
    message = r"vocab_size=15 is less than the 16 special .* use at least 16\."
    with pytest.raises(ValueError, match=message):
        learn_pieces(WORDS, 15)
    assert learn_pieces(WORDS, 29) == learn_pieces(WORDS, 28)
    assert len(learn_pieces(WORDS, 29)) == 28


def test_pairs_that_occur_once_are_not_merged():
    assert len(learn_pieces({"ab": 1, "cd": 1}, 10)) == 9


def test_pairs_that_occur_less_often_than_asked_are_not_merged():
    words = {"ab": 50, "cd": 20, "cdb": 30, "bc": 9}
    tokens = learn_pieces(words, 30, min_count=31)
    assert "ab" in tokens and "cd" in tokens
    assert "cdb" not in tokens and "bc" not in tokens


# Of 200,000 words, 20 may have a character that is not kept: one word of 10,000.
COMMON = {"ab": 99_990, "ba": 99_990}


def test_characters_are_kept_until_few_words_have_another():
    words = COMMON | {"xa": 18, "zqq": 1, "bé": 1}
    # After a, b: x in 18 words, q in 1, z and é in 1 each.
    assert learn_pieces(words, 30, min_alphabet=0) == [
        *SPECIAL_TOKENS,
        *("##a", "##b", "a", "b"),
        *("ab", "ba"),  # no word with x, z, q or é teaches anything
    ]
    tokens = learn_pieces(words | {"xa": 19}, 30, min_alphabet=0)
    assert {"x", "xa"} <= set(tokens) and not {"z", "##q", "##é"} & set(tokens)
    assert {"z", "##q", "##é"} <= set(learn_pieces(words, 30, min_alphabet=6))


def test_characters_fill_half_of_the_vocabulary_or_what_pieces_leave():
    rare = {chr(0x4E00 + i): 30 - i for i in range(20)}
    words = COMMON | rare | {"abba": 9, "baab": 8, "abab": 7}
    # 16 tokens: of 8 for characters, 4 are of a and b; ab and ba are merged first.
    tokens = learn_pieces(words, 16, min_alphabet=0)
    assert tokens[9:] == ["一", "丁", "丂", "七", "ab", "ba", "##ab"]
    # Of 30, 15 are for characters; the 7 pieces that there are leave 3 more.
    tokens = learn_pieces(words, 30, min_alphabet=0)
    assert tokens[9:23] == list(rare)[:14] and len(tokens) == 30


def test_words_that_encode_as_unknown_teach_nothing():
    assert len(learn_pieces({"xy" * 101: 5, "ab": 1, "yx": 1}, 12)) == 11


def naive(words, size):
    """The same by counting everything anew before each merge."""
    split = {w: [w[0], *("##" + c for c in w[1:])] for w in words}
    tokens = [
        *SPECIAL_TOKENS,
        *sorted({p for pieces in split.values() for p in pieces}),
    ]
    while len(tokens) < size:
        counts = collections.Counter()
        for word, pieces in split.items():
            for pair in itertools.pairwise(pieces):
                counts[pair] += words[word]
        (left, right), count = min(
            counts.items(), key=lambda item: (-item[1], item[0]), default=(("", ""), 0)
        )
        if count < 2:
            break
        merged = left + right[2:]
        for pieces in split.values():
            i = 0
            while i + 1 < len(pieces):
                if pieces[i : i + 2] == [left, right]:
                    pieces[i : i + 2] = [merged]
                i += 1
        if merged not in tokens:
            tokens.append(merged)
    return tokens


@settings(deadline=None)  # machines are shared
@given(
    st.dictionaries(
        st.text("abc", min_size=1, max_size=12), st.integers(1, 20), min_size=1
    )
)
def test_counts_kept_up_to_date_give_what_counting_anew_gives(words):
    expected = naive(words, 60)
    assert learn_pieces(words, len(expected)) == expected

"""Our WordPiece beside the rules of the 2018 code, as tokenizer_2018.py states them.

Where the two differ, a test of its own says what each side does; docs/fidelity.md has
the list.
"""

import sys
import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizer_2018 import encode_2018, words_2018
from tokenizers.pre_tokenizers import BertPreTokenizer

from bert_jax.data.word_counts import WordCounter
from bert_jax.data.wordpiece import learn_pieces
from bert_jax.tokenization import SPECIAL_TOKENS, Tokenizer, bert_normalizer


def words_here(text: str, cased: bool = False) -> list[str]:
    normal = bert_normalizer(cased).normalize_str(text)
    return [word for word, _ in BertPreTokenizer().pre_tokenize_str(normal)]


def differ(text: str, cased: bool) -> bool:
    return words_2018(text, cased) != words_here(text, cased)


ASSIGNED = [
    character
    for character in map(chr, range(sys.maxunicode + 1))
    if unicodedata.category(character) not in ("Cn", "Cs")
]
PRIVATE = {c for c in ASSIGNED if unicodedata.category(c) == "Co"}
REORDERED = {
    character
    for character in ASSIGNED
    if unicodedata.combining(character) and unicodedata.category(character) != "Mn"
}
"""Marks that take space, so stay, and that NFD moves past others."""


@pytest.fixture(scope="session")
def differing() -> dict[bool, set[str]]:
    """Uncased and cased: the characters that the two sides take differently.

    Between letters, where every rule shows: a character is deleted, parts the word, is
    changed, or stays. Those of private use, half of all, are not asked.
    """
    public = [character for character in ASSIGNED if character not in PRIVATE]
    rows = [public[i : i + 32] for i in range(0, len(public), 32)]
    return {
        cased: {
            character
            for row in rows
            if differ(" ".join(f"a{character}b" for character in row), cased)
            for character in row
            if differ(f"a{character}b", cased)
        }
        for cased in (False, True)
    }


TEXT = """
The Quick brown fox, naïve café: coöperation isn't résumé-like (ﬁne ﬂuff)!
Straße GROẞE İstanbul ılık Łódź Đà Nẵng Ångström e\u0301te\u0301 x\u0327\u0301y ſo ŉ ǆ K
Ελληνικά άνθρωποι Ὀδυσσεύς Привет, ёлка йод Ґанок Հայերեն ქართული ᲥᲐᲠᲗᲣᲚᲘ
中国人民 日本語のテスト、カタカナ。 한국어 각각 漢字かな交じり文 𠀀𫝀豈﨑
हिन्दी भाषा में বাংলা தமிழ் ภาษาไทย ສະບາຍ မြန်မာ العَرَبِيَّة שָׁלוֹם ܫܠܡܐ
½ ² ™ № ① Ａｂｃ ﷺ € $5.00 a_b c\\d ~^` «quoted» “curly” — … ¡hola! ¿qué?
[MASK] [CLS] ##ing don't @user #tag https://example.org/a?b=c 😀👩\u200d💻🇫🇷 ☃️ ✅
""".strip()
ODD = (
    "\0\a\b\t\n\v\f\r\x1c\x1f\x7f\x85\xa0\xad\ufffd\ufeff\u200b\u200c\u200d\u200e"
    "\u2003\u2028\u2029\u2060\u3000\u180e\ue000\U000f0000\u0301\u0308\u0327\u0345\u20dd"
    "\u0344\u1fef\u037e\u212a\u2126\u1e9b\ufb03\u0958\uac01\u1100\u1161\u11a8\U0002f800"
)
CHARACTERS = sorted(set(TEXT) | set(ODD))


@pytest.fixture(scope="session")
def tokenizers() -> dict[bool, tuple[Tokenizer, dict[str, int]]]:
    """Trained on TEXT, with every character of it and of ODD by itself as well."""
    made = {}
    for cased in (False, True):
        lines = TEXT.split("\n")
        learned = learn_pieces(WordCounter(cased).update(lines * 2).words, 340)
        singles = {
            form
            for character in CHARACTERS
            for word in words_2018(character, cased) + words_here(character, cased)
            for form in word
        }
        both = [form for single in sorted(singles) for form in (single, f"##{single}")]
        tokens = list(dict.fromkeys([*learned, *both]))
        vocabulary = "".join(token + "\n" for token in tokens).encode()
        tokenizer = Tokenizer({"kind": "wordpiece", "cased": cased}, vocabulary)
        made[cased] = tokenizer, {token: i for i, token in enumerate(tokens)}
    return made


def encode_here(text: str, tokenizer: Tokenizer) -> list[tuple[int, ...]]:
    found = tokenizer.encode(text)
    return [
        (i, a, b) for i, (a, b) in zip(found.ids, found.offsets.tolist(), strict=True)
    ]


FRAGMENTS = st.one_of(
    st.sampled_from(TEXT.split()),
    st.sampled_from([" ", "\n", "[MASK]", "\r\n", "a\u0301\u0327", "\u200d"]),
    st.text(st.sampled_from(CHARACTERS), max_size=8),
    st.text(st.characters(exclude_categories=("Cs", "Cn")), max_size=4),
    st.builds(str.__mul__, st.sampled_from("aé中한\u0301"), st.integers(195, 205)),
)


@pytest.mark.parametrize("cased", [False, True])
@settings(max_examples=40, deadline=None)
@given(fragments=st.lists(FRAGMENTS, max_size=8))
@example(fragments=[TEXT])
@example(fragments=CHARACTERS)
@example(fragments=["a" * 200, " ", "a" * 201, " ", "é" * 201, "x" * 100])
def test_ids_and_offsets_are_those_of_2018(tokenizers, differing, cased, fragments):
    left_out = differing[cased] | PRIVATE | REORDERED | {"Σ"}  # see the tests below
    text = "".join(c for c in "".join(fragments) if c not in left_out)
    tokenizer, ids = tokenizers[cased]
    expected = encode_2018(text, cased, ids)
    assert encode_here(text, tokenizer) == expected
    assert tokenizer.encode_batch([text]) == [[i for i, _, _ in expected]]


def test_the_vocabulary_leaves_few_words_unknown(tokenizers):
    for cased, (tokenizer, _) in tokenizers.items():
        found = tokenizer.encode(TEXT).ids.tolist()
        assert found.count(tokenizer.unk_id) == 0, cased
        assert len(set(found)) > 200
        assert not set(found) & {tokenizer.special_ids[name] for name in SPECIAL_TOKENS}


# What differs, and how.

CHINESE_LEFT_OUT = set(map(chr, range(0x2B820, 0x2B920)))
CHANGED = set("\u166d\u1734\u1885\u1886\ua9bd\U000111c9")
"""In Unicode 8.0 of another category than in 14.0."""


@pytest.mark.parametrize("cased", [False, True])
def test_which_characters_differ(differing, cased):
    assert differing[cased] > CHINESE_LEFT_OUT
    others = differing[cased] - CHINESE_LEFT_OUT
    if unicodedata.unidata_version == "14.0.0":
        assert len(others) == (119 if cased else 504)
    assert others & CHANGED == (set("\u166d\U000111c9") if cased else CHANGED)
    newer = others - CHANGED
    if unicodedata.unidata_version == "14.0.0":
        assert all(unicodedata.ucd_3_2_0.category(c) == "Cn" for c in newer)
    kinds = {unicodedata.category(c)[0] for c in newer}
    assert kinds == ({"C", "P"} if cased else {"C", "M", "P"})


def test_characters_of_private_use_are_deleted_here_and_kept_in_2018():
    assert len(PRIVATE) == 137_468
    words = [f"a{character}b" for character in sorted(PRIVATE)[::20]]
    assert words_2018(" ".join(words)) == words
    assert words_here(" ".join(words)) == ["ab"] * len(words)


def test_256_chinese_characters_are_not_words_of_their_own_here():
    assert words_2018("a\U0002b820\U0002b91f") == ["a", "\U0002b820", "\U0002b91f"]
    assert words_here("a\U0002b820\U0002b91f") == ["a\U0002b820\U0002b91f"]
    assert words_here("a\U0002b81f\U0002b920") == ["a", "\U0002b81f", "\U0002b920"]


def test_a_last_sigma_is_as_any_other_here():
    assert words_2018("ΟΔΟΣ ΣΑΣ") == ["οδος", "σας"]
    assert words_here("ΟΔΟΣ ΣΑΣ") == ["οδοσ", "σασ"]
    assert words_2018("ὁδός") == words_here("ὁδός") == ["οδος"]  # lower already
    assert words_2018("ΟΔΟΣ", cased=True) == words_here("ΟΔΟΣ", cased=True)


@pytest.mark.parametrize(
    ("text", "then", "here"),
    [
        ("a\u2e43b", ["a", "\u2e43", "b"], ["a\u2e43b"]),  # punctuation since 9.0
        ("a\u09feb", ["ab"], ["a\u09feb"]),  # a mark since 11.0
        ("a\u08e2b", ["ab"], ["a\u08e2b"]),  # a control since 9.0
        ("a\u166db", ["a\u166db"], ["a", "\u166d", "b"]),  # a symbol since 12.0
        ("a\u1734b", ["a\u1734b"], ["ab"]),  # takes space since 14.0
        ("a\u1885b", ["ab"], ["a\u1885b"]),  # a mark since 9.0
    ],
)
def test_the_library_here_has_the_categories_of_unicode_8(text, then, here):
    assert words_2018(text) == then
    assert words_here(text) == here


def test_marks_that_nfd_moves_have_their_old_places_here(tokenizers):
    text = "a\u0301\u302eb"  # NFD puts the tone mark before the accent
    assert "\u302e" in REORDERED
    tokens = [*SPECIAL_TOKENS, "a", "##\u302e", "##b"]
    ids = {token: i for i, token in enumerate(tokens)}
    vocabulary = "".join(token + "\n" for token in tokens).encode()
    tokenizer = Tokenizer({"kind": "wordpiece", "cased": False}, vocabulary)
    assert encode_2018(text, False, ids) == [(5, 0, 1), (6, 2, 3), (7, 3, 4)]
    assert encode_here(text, tokenizer) == [(5, 0, 1), (6, 1, 2), (7, 3, 4)]

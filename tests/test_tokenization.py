"""The one Tokenizer, for every kind of vocabulary."""

import random
import string
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.config import VocabularyConfig
from bert_jax.data.vocabulary import train_vocabulary
from bert_jax.tokenization import SPECIAL_TOKENS, Tokenizer

KINDS = ("wordpiece", "unigram", "bpe")
WORDS = (
    "[PAD] [UNK] [CLS] [SEP] [MASK] the cat ##s sat on [ ] mask MASK a s x ##x . , "
    "m ##at é e cafe café Cat 中 国 i ▁"
).split()


def wordpiece(cased=False, words=WORDS, **config):
    config = {"kind": "wordpiece", "cased": cased, **config}
    return Tokenizer(config, "".join(word + "\n" for word in words).encode())


def english(lines=400, seed=0):
    """Sentences of a made-up zoo, with brackets, so that "[" is in the vocabulary."""
    pick = random.Random(seed).choice
    syllables = [a + b for a in "bdfgklmnprstvz" for b in ("a", "en", "or", "ish", "u")]
    return "".join(
        f"The {pick(['quick', 'lazy', 'small', 'Old'])} "
        f"{pick(['cat', 'dog', 'owl', 'fox', 'hen'])}s "
        f"of {pick(syllables)}{pick(syllables)} "
        f"{pick(['walked', 'talked', 'jumped', 'looked'])} "
        f"[{pick(['slowly', 'often', 'MASK it', 'masking'])}] over "
        f"{pick(['hills', 'rivers', 'tables'])}, {pick(string.ascii_lowercase)}.\n"
        for _ in range(lines)
    )


@pytest.fixture(scope="module", params=[(k, c) for k in KINDS for c in (False, True)])
def trained(request, tmp_path_factory):
    kind, cased = request.param
    directory = tmp_path_factory.mktemp(f"{kind}-{cased}")
    (directory / "text.txt").write_text(english())
    return train_vocabulary(
        VocabularyConfig(
            input=(str(directory / "text.txt"),),
            output=str(directory / "vocabulary"),
            kind=kind,
            vocab_size=120,
            cased=cased,
        )
    )


def tokens(tokenizer, text, mask_token=False):
    return tokenizer.tokens(tokenizer.encode(text, mask_token).ids)


def test_wordpiece_takes_the_longest_match_first():
    encoding = wordpiece().encode("The cats sat, xxx.")
    assert encoding.ids.tolist() == [5, 6, 7, 8, 19, 16, 17, 17, 18]
    assert encoding.offsets.tolist() == [
        *([0, 3], [4, 7], [7, 8], [9, 12], [12, 13]),
        *([14, 15], [15, 16], [16, 17], [17, 18]),
    ]
    assert encoding.continues.tolist() == [0, 0, 1, 0, 0, 0, 1, 1, 0]
    assert encoding.ids.dtype == encoding.offsets.dtype == np.int32


@pytest.mark.parametrize(
    ("text", "cased", "expected"),
    [
        ("CAFÉ Cafe\u0301", False, ["cafe", "cafe"]),
        ("café Cat É", True, ["café", "Cat", "[UNK]"]),
        ("a中国x", False, ["a", "中", "国", "x"]),
        ("c\x00a\u200bt\ufffd\x07 the\u00a0cat\tsat", False, "cat the cat sat".split()),
        ("x" * 200, False, ["x"] + ["##x"] * 199),
        ("x" * 201, False, ["[UNK]"]),
        ("the " + "x" * 201 + ".", False, ["the", "[UNK]", "."]),
        ("", False, []),
        ("  \n ", False, []),
        ("İi", False, ["[UNK]"]),
        ("the qat", False, ["the", "[UNK]"]),
    ],
)
def test_bert_normalisation(text, cased, expected):
    tokenizer = wordpiece(cased)
    assert tokens(tokenizer, text) == expected
    assert tokenizer.tokens(tokenizer.encode_batch([text])[0]) == expected


def test_an_imported_vocabulary_keeps_its_own_word_limit():
    tokenizer = wordpiece(max_input_chars_per_word=100)
    assert tokens(tokenizer, "x" * 101) == ["[UNK]"]
    assert len(tokens(tokenizer, "x" * 100)) == 100


def test_ids_of_special_tokens_go_by_name():
    """In Google's vocab.txt [UNK] is 100, [CLS] 101, [SEP] 102, [MASK] 103."""
    unused = [f"[unused{i}]" for i in range(99)]
    words = ["[PAD]", *unused, "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the"]
    tokenizer = wordpiece(words=words)
    assert tokenizer.special_ids == dict(
        zip(SPECIAL_TOKENS, (0, 100, 101, 102, 103), strict=True)
    )
    assert (tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id) == (0, 100, 101)
    assert (tokenizer.sep_id, tokenizer.mask_id) == (102, 103)
    assert tokenizer.encode("the dog [unused3]").ids.tolist() == [104] + [100] * 4


def test_trained_special_tokens_come_first(trained):
    assert list(trained.special_ids.values()) == [0, 1, 2, 3, 4]
    assert trained.tokens(range(5)) == list(SPECIAL_TOKENS)
    assert trained.vocab_size == 120 == len(trained.continues_word)


@pytest.mark.parametrize("name", SPECIAL_TOKENS)
@pytest.mark.parametrize("form", ["{}", "the {} cat", "a{}s", "{0}{0}", "[{}] {}."])
def test_special_names_in_text_are_plain_text(trained, name, form):
    text = form.format(name, name)
    encoded = trained.encode(text).ids.tolist()
    assert trained.encode_batch([text, "the"])[0] == encoded
    # [UNK] may stand for a letter that the vocabulary lacks, never for its own name.
    assert not set(encoded) & {0, 2, 3, 4}
    if trained.unk_id in encoded:
        assert trained.unk_id in trained.encode(text.replace("[", " ")).ids


def test_unk_in_text_is_not_the_unk_token():
    tokenizer = wordpiece(words=[*WORDS, "unk"])
    assert tokens(tokenizer, "[UNK]") == ["[", "unk", "]"]


def test_mask_in_a_prompt_is_one_token(trained):
    for text in ("The [MASK] sat.", "[MASK]", "a[MASK]s", "[MASK][MASK] [MASK]."):
        encoding = trained.encode(text, mask_token=True)
        places = encoding.offsets[encoding.ids == trained.mask_id]
        starts = [i for i in range(len(text)) if text.startswith("[MASK]", i)]
        assert places.tolist() == [[i, i + 6] for i in starts]
        assert not encoding.continues[encoding.ids == trained.mask_id].any()


def test_text_around_a_mask_is_cut_as_without_it(trained):
    """In training "cats" stands between "The" and "walked,"; so must its mask."""
    text = "The cats, walked. [often]"
    encoding = trained.encode(text)
    after = trained.tokens(encoding.ids[encoding.offsets[:, 0] >= 8])
    masked = tokens(trained, text.replace("cats", "[MASK]"), mask_token=True)
    place = masked.index("[MASK]")
    assert masked[:place] == tokens(trained, "The")
    assert masked[place + 1 :] == after


def test_what_follows_a_mask_without_a_space_starts_no_word(trained):
    following = trained.encode("[MASK]s", mask_token=True)
    assert trained.tokens(following.ids) == ["[MASK]", "s"]
    assert following.offsets.tolist() == [[0, 6], [6, 7]]


def test_lower_case_mask_is_text(trained):
    assert trained.mask_id not in trained.encode("the [mask] cat", mask_token=True).ids


@settings(deadline=None)  # machines are shared
@given(st.text(st.sampled_from("aexst.,Cé\u0301中国 \n\t\x00\u200bıİßﬁ[]MASK😀")))
def test_wordpiece_offsets_are_slices_of_the_text(text):
    tokenizer = wordpiece(cased=True)
    encoding = tokenizer.encode(text)
    for token, (start, end) in zip(
        tokenizer.tokens(encoding.ids), encoding.offsets.tolist(), strict=True
    ):
        assert 0 <= start < end <= len(text)
        if token != "[UNK]" and text.isprintable():
            assert token.removeprefix("##") == text[start:end]


@settings(deadline=None)  # machines are shared
@given(st.text(), st.booleans())
def test_offsets_rise_and_batches_agree(trained_all, text, mask_token):
    text = text.replace("0", "[MASK]")
    for tokenizer in trained_all:
        encoding = tokenizer.encode(text, mask_token)
        assert encoding.offsets.shape == (len(encoding.ids), 2)
        flat = encoding.offsets.reshape(-1)
        assert (np.diff(encoding.offsets, axis=1) >= 0).all()
        assert (np.diff(encoding.offsets[:, 0]) >= 0).all()
        assert not len(flat) or (flat.min() >= 0 and flat.max() <= len(text))
        assert (encoding.ids < tokenizer.vocab_size).all()
        assert encoding.continues.tolist() == [
            bool(tokenizer.continues_word[i]) for i in encoding.ids
        ]
        if not mask_token:
            assert tokenizer.encode_batch([text]) == [encoding.ids.tolist()]
            assert not set(encoding.ids.tolist()) & {0, 2, 3, 4}


@pytest.fixture(scope="module")
def trained_all(tmp_path_factory):
    directory = tmp_path_factory.mktemp("all")
    (directory / "text.txt").write_text(english())
    return [
        train_vocabulary(
            VocabularyConfig(
                input=(str(directory / "text.txt"),),
                output=str(directory / kind),
                kind=kind,
                vocab_size=100,
            )
        )
        for kind in KINDS
    ]


def test_texts_are_encoded_a_few_at_a_time(trained_all):
    """Many long ones would fill the memory: a character takes some twenty bytes."""
    texts = [f"The judge reads {i}. " * 999 for i in range(9)]
    for tokenizer in trained_all:
        remaining = iter(texts)
        ids = tokenizer.encode_each(remaining)
        assert next(ids) == tokenizer.encode_batch(texts[:1])[0]
        assert len([*remaining]) == 2, "seven have more than 2^17 characters"
        assert [*tokenizer.encode_each(texts)] == tokenizer.encode_batch(texts)
        assert [*tokenizer.encode_each([])] == []


def test_uncased_means_the_same_for_every_kind(trained_all):
    for tokenizer in trained_all:
        plain = tokenizer.encode_batch(["the cafe, a cat"])
        assert tokenizer.encode_batch(["The CAFÉ, À\u200b cat\x07"]) == plain
        assert tokenizer.unk_id not in plain[0]


def test_offsets_survive_characters_that_normalise_to_several(trained_all):
    for tokenizer in trained_all[1:]:
        encoding = tokenizer.encode("oﬃce often")
        text = ["oﬃce often"[a:b] for a, b in encoding.offsets.tolist()]
        assert "".join(text).replace(" ", "") in ("oﬃceoften", "oﬃﬃceoften")


def test_decode_gives_back_the_words(trained):
    text = "the cats walked over hills"
    assert trained.decode(trained.encode(text).ids) == text
    assert trained.decode(trained.encode_batch([text])[0]) == text
    with_specials = [trained.cls_id, *trained.encode("the [MASK] cats", True).ids, 3]
    assert trained.decode(with_specials) == "[CLS] the [MASK] cats [SEP]"
    assert trained.token(trained.mask_id) == "[MASK]"


@pytest.mark.parametrize("token_id", [-100, -1, len(WORDS), np.int32(-1)])
def test_ids_that_are_no_token_are_refused(token_id):
    with pytest.raises(ValueError, match=rf"^id {token_id} is not .* ids are 0 to "):
        wordpiece().decode([5, token_id])


def test_continues_word(trained):
    table = dict(
        zip(trained.tokens(range(120)), trained.continues_word.tolist(), strict=True)
    )
    assert not any(table[name] for name in SPECIAL_TOKENS)
    mark = "##" if trained.kind == "wordpiece" else "▁"
    for token, continues in table.items():
        if token not in SPECIAL_TOKENS:
            assert continues == (token.startswith(mark) == (mark == "##"))
    with pytest.raises(ValueError, match="read-only"):
        trained.continues_word[0] = True


def test_imports_neither_jax_nor_tensorflow():
    check = (
        "import sys, bert_jax.data.vocabulary; "
        "print(sorted({'jax', 'tensorflow', 'sentencepiece'} & set(sys.modules)))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"

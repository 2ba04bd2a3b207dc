"""A tokenizer's directory: saved, loaded, and damaged in every way."""

import json

import pytest

from bert_jax.config import VocabularyConfig
from bert_jax.data.vocabulary import train_vocabulary
from bert_jax.tokenization import SPECIAL_TOKENS, Tokenizer

KINDS = ("wordpiece", "unigram", "bpe")
WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] the cat ##s café".split()


def wordpiece(cased=False, words=WORDS):
    config = {"kind": "wordpiece", "cased": cased}
    return Tokenizer(config, "".join(word + "\n" for word in words).encode())


def train(kind, directory):
    text = directory / "text.txt"
    text.write_text("".join(f"Word {i}, wording {i * 7} words\n" for i in range(99)))
    return train_vocabulary(
        VocabularyConfig(
            input=(str(text),), output=str(directory / "out"), kind=kind, vocab_size=50
        )
    )


@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_loaded_is_the_same(kind, tmp_path):
    trained = train(kind, tmp_path)
    trained.save(tmp_path / "run" / "tokenizer")
    loaded = Tokenizer.load(tmp_path / "run")  # as of a checkpoint that holds one
    assert loaded.fingerprint == trained.fingerprint
    assert (loaded.kind, loaded.cased) == (trained.kind, trained.cased)
    texts = ["Word 3 word", "[MASK] é 中 ten", ""]
    assert loaded.encode_batch(texts) == trained.encode_batch(texts)
    loaded.save(str(tmp_path / "again"))
    for file in (tmp_path / "run" / "tokenizer").iterdir():
        assert file.read_bytes() == (tmp_path / "again" / file.name).read_bytes()


def test_foreign_files_are_kept_as_they_are(tmp_path):
    """No final newline, a foreign key: saved again to the byte."""
    vocabulary = "\r\n".join(WORDS).encode()
    config = b'{"cased":true,"kind":"wordpiece","note":1}'
    (tmp_path / "vocab.txt").write_bytes(vocabulary)
    (tmp_path / "tokenizer_config.json").write_bytes(config)
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.encode_batch(["the café"]) == [[5, 8]]
    tokenizer.save(tmp_path / "copy")
    assert (tmp_path / "copy" / "vocab.txt").read_bytes() == vocabulary
    assert (tmp_path / "copy" / "tokenizer_config.json").read_bytes() == config


def test_fingerprint_is_of_content():
    assert wordpiece().fingerprint == wordpiece().fingerprint
    others = [wordpiece(cased=True), wordpiece(words=[*WORDS, "dog"])]
    assert len({t.fingerprint for t in [wordpiece(), *others]}) == 3


GOOD = {"kind": "wordpiece", "cased": False}


@pytest.mark.parametrize(
    ("config", "vocabulary", "message"),
    [
        (GOOD, WORDS[:4], r"vocab\.txt: lacks \[MASK\]; a vocabulary must hold"),
        (GOOD, WORDS[2:], r"lacks \[PAD\], \[UNK\];"),
        (GOOD, [*WORDS, "cat"], r"line \d+ repeats 'cat' of line 7; keep one"),
        (GOOD, [*WORDS, "", "b"], r"line 10 is blank; each line must hold one token"),
        (GOOD, [*WORDS, "cat"], r"keep one: put .* \[unused-7\], on line 7: without"),
        (GOOD, [*WORDS, "", "b"], r"each line must hold one token: put .* on line 10:"),
        (GOOD, [*WORDS, ""], "line 10 is blank; each line must .* one token: drop it"),
        (GOOD, [], "line 1 is blank"),
        (GOOD, None, r"vocab\.txt is missing; kind wordpiece needs it beside"),
        ({"kind": "wordpiece"}, WORDS, "cased=None must be one of false, true"),
        ({"kind": "word", "cased": True}, WORDS, "kind='word' must be one of "),
        ([], WORDS, "must be a JSON object"),
        (
            None,
            WORDS,
            'tokenizer_config.json is missing; for a plain vocab.txt, write {"',
        ),
        ({"kind": "bpe", "cased": True}, WORDS, r"tokenizer\.model is missing"),
    ],
)
def test_damaged_directories(tmp_path, config, vocabulary, message):
    if config is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    if vocabulary is not None:
        (tmp_path / "vocab.txt").write_text("".join(w + "\n" for w in vocabulary))
    with pytest.raises((ValueError, FileNotFoundError), match=message) as error:
        Tokenizer.load(tmp_path)
    assert "\n" not in str(error.value)


def test_missing_directory(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere is not a directory"):
        Tokenizer.load(tmp_path / "nowhere")


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@pytest.mark.parametrize("garbage", [b"", b"\0" * 99, b"[PAD]\n[UNK]\n" * 9])
def test_garbage_sentencepiece_model(tmp_path, kind, garbage):
    config = json.dumps({"kind": kind, "cased": False})
    (tmp_path / "tokenizer_config.json").write_text(config)
    (tmp_path / "tokenizer.model").write_bytes(garbage)
    with pytest.raises(ValueError, match=r"model: is not a sentencepiece model"):
        Tokenizer.load(tmp_path)


def test_a_model_cut_short_is_refused(tmp_path):
    train("unigram", tmp_path)
    model = (tmp_path / "out" / "tokenizer.model").read_bytes()
    with pytest.raises(ValueError, match="is not a sentencepiece model"):
        Tokenizer({"kind": "unigram", "cased": False}, model[: len(model) // 2])


def test_bytes_that_are_not_text():
    with pytest.raises(ValueError, match="decode byte 0xff"):
        Tokenizer(GOOD, b"\xff\xfe\n")


ADDED = [{"content": "<url>"}, {"content": "New York", "single_word": True}]


def test_added_tokens_are_found_before_the_text_is_cut_into_words(tmp_path):
    config = {"kind": "wordpiece", "cased": False, "added_tokens": ADDED}
    vocabulary = "".join(word + "\n" for word in WORDS).encode()
    made = Tokenizer(config, vocabulary)
    made.save(tmp_path)
    for tokenizer in (made, Tokenizer.load(tmp_path)):
        assert tokenizer.vocab_size == len(WORDS) + 2
        assert tokenizer.tokens([9, 10]) == ["<url>", "New York"]
        encoding = tokenizer.encode("the<URL> new york cats")
        assert encoding.ids.tolist() == [5, 9, 10, 6, 7]
        assert encoding.offsets.tolist()[1] == [3, 8]
        assert tokenizer.encode_batch(["the <url>", "New Yorks"]) == [[5, 9], [1, 1]]


def test_an_added_token_that_is_a_line_of_the_vocabulary_keeps_its_id():
    config = {"kind": "wordpiece", "cased": True, "added_tokens": [{"content": "cat"}]}
    tokenizer = Tokenizer(config, "".join(word + "\n" for word in WORDS).encode())
    assert tokenizer.vocab_size == len(WORDS)
    assert tokenizer.encode_batch(["thecat"]) == [[5, 6]]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("max_input_chars_per_word", "x", "='x' must be a whole number from 1 to 21"),
        ("max_input_chars_per_word", None, "=None must be a whole number from 1 to"),
        ("max_input_chars_per_word", -1, "=-1 must be a whole number from 1 to"),
        ("max_input_chars_per_word", 1e30, r"=1e\+30 must be a whole number from 1"),
        ("max_input_chars_per_word", True, "=True must be a whole number from 1 to"),
        ("strip_accents", 1.0, "strip_accents=1.0 must be one of false, true"),
        ("cased", 1, "cased=1 must be one of false, true"),
        ("kind", [], r"kind=\[\] must be one of"),
        ("added_tokens", 3, "added_tokens=3 must be a list of tokens"),
        ("added_tokens", [3], "has the entry 3, which must be an object with content"),
        ("added_tokens", [{"content": ""}], "which must be an object with content"),
        (
            "added_tokens",
            [{"content": "a", "lstrip": 1}],
            "each true or false, single_word, lstrip, rstrip",
        ),
        ("added_tokens", [{"content": "a"}] * 2, "repeats 'a'"),
        ("added_tokens", [{"content": "[MASK]"}], r"repeats '\[MASK\]'"),
    ],
)
def test_a_setting_of_a_wrong_type_is_named(name, value, message, tmp_path):
    wordpiece().save(tmp_path)
    config = {"kind": "wordpiece", "cased": True, name: value}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=message) as error:
        Tokenizer.load(tmp_path)
    assert str(tmp_path / "tokenizer_config.json") in str(error.value)


def test_what_nests_too_deep_is_one_line(tmp_path):
    wordpiece().save(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match=r"tokenizer_config.json: is not JSON"):
        Tokenizer.load(tmp_path)


def test_a_byte_order_mark_is_no_part_of_a_token():
    """An editor may write one before the first line of vocab.txt."""
    lines = "".join(f"{token}\n" for token in [*SPECIAL_TOKENS, "a"]).encode()
    marked, plain = (
        Tokenizer({"kind": "wordpiece", "cased": True}, mark + lines)
        for mark in (b"\xef\xbb\xbf", b"")
    )
    assert marked.pad_id == plain.pad_id == 0
    assert marked.encode("a").ids.tolist() == plain.encode("a").ids.tolist()

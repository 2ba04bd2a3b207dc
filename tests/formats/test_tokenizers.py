"""Tokenizers from and to Hugging Face's files."""

import json
import re
from typing import Any

import pytest
from etils import epath
from tokenizers import AddedToken
from tokenizers import Tokenizer as HuggingFaceTokenizer

from bert_jax.formats.tokenizers import from_huggingface, to_huggingface
from bert_jax.tokenization import Tokenizer

WORDS = (
    "[PAD] [UNK] [CLS] [SEP] [MASK] "
    "the The cat ##s cafe café Café a ##a . [ ] 中 国 中国"
).split()
VOCABULARY = "".join(word + "\n" for word in WORDS).encode()
INPUTS = "input_ids", "token_type_ids", "attention_mask"
LIMITS = {"model_max_length": 512, "model_input_names": list(INPUTS)}
TEXTS = ["The cats, a CAFÉ.", "中国 the Café", "a" * 100, "a" * 150, "a" * 201, ""]


def ours(cased: bool = False, **config: Any) -> Tokenizer:
    return Tokenizer({"kind": "wordpiece", "cased": cased, **config}, VOCABULARY)


@pytest.fixture
def exported(tmp_path):
    """The uncased tokenizer at Hugging Face, 100 characters a word as usual there."""
    tokenizer = ours(max_input_chars_per_word=100)
    path = epath.Path(tmp_path)
    to_huggingface(tokenizer, path, LIMITS)
    names = {"vocab.txt", "tokenizer.json", "tokenizer_config.json"}
    assert {file.name for file in path.iterdir()} == names
    return path


def change(path: epath.Path, *keys: str, to: Any) -> None:
    """Set one entry of a JSON file."""
    content = json.loads(path.read_text())
    node = content
    for key in keys[:-1]:
        node = node[key]
    node[keys[-1]] = to
    path.write_text(json.dumps(content))


SETTINGS = (
    {},
    {"cased": True},
    {"max_input_chars_per_word": 100},
    {"cased": True, "max_input_chars_per_word": 100},
    {"strip_accents": False},
    {"cased": True, "strip_accents": True},
    {"tokenize_chinese_chars": False},
)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_there_and_back(tmp_path, settings):
    tokenizer = ours(**settings)
    path = epath.Path(tmp_path)
    to_huggingface(tokenizer, path, LIMITS)
    back = from_huggingface(path)
    assert back.encode_batch(TEXTS) == tokenizer.encode_batch(TEXTS)
    assert back.files["vocab.txt"] == VOCABULARY
    expected = {"kind": "wordpiece", "cased": False, "max_input_chars_per_word": 200}
    assert back.config == {**expected, **settings}
    (path / "vocab.txt").unlink()
    (path / "tokenizer_config.json").unlink()
    assert from_huggingface(path).files == back.files


def test_tokenizer_json_is_not_needed_where_the_limit_is_the_usual(exported):
    (exported / "tokenizer.json").unlink()
    expected = ours(max_input_chars_per_word=100)
    assert from_huggingface(exported).files == expected.files


def test_every_setting_moves_the_ids():
    ids = [ours(**settings).encode_batch(TEXTS) for settings in SETTINGS]
    assert all(a != b for i, a in enumerate(ids) for b in ids[:i])


@pytest.mark.parametrize("name", ["strip_accents", "tokenize_chinese_chars"])
def test_a_setting_is_true_or_false(name):
    with pytest.raises(ValueError, match=f"{name}='yes' must be one of false, true"):
        ours(**{name: "yes"})


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_library_gives_our_ids_between_cls_and_sep(tmp_path, settings):
    tokenizer = ours(**settings)
    to_huggingface(tokenizer, epath.Path(tmp_path), LIMITS)
    theirs = HuggingFaceTokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in TEXTS:
        assert theirs.encode(text).ids == [2, *tokenizer.encode(text).ids, 3]
    a, b = (tokenizer.encode(text).ids.tolist() for text in TEXTS[:2])
    pair = theirs.encode(*TEXTS[:2])
    assert pair.ids == [2, *a, 3, *b, 3]
    assert pair.type_ids == [0] * (len(a) + 2) + [1] * (len(b) + 1)
    masked = theirs.encode("the [MASK] cat", add_special_tokens=False).ids
    assert masked == tokenizer.encode("the [MASK] cat", mask_token=True).ids.tolist()
    assert theirs.decode([2, *a, 3]) == theirs.decode(a)


def test_what_the_config_tells_transformers(exported):
    config = json.loads((exported / "tokenizer_config.json").read_text())
    assert config["tokenizer_class"] == "BertTokenizer"
    assert config["model_max_length"] == 512
    assert config["do_lower_case"] is True
    assert config["mask_token"] == "[MASK]"


@pytest.mark.parity
@pytest.mark.parametrize("beside_a_model", [False, True])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_transformers_gives_our_ids(tmp_path, settings, beside_a_model):
    transformers = pytest.importorskip("transformers")
    tokenizer = ours(**settings)
    to_huggingface(tokenizer, epath.Path(tmp_path), LIMITS)
    if beside_a_model:
        (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs.model_max_length == 512
    assert (theirs.pad_token_id, theirs.mask_token_id) == (0, 4)
    for text in TEXTS:
        assert theirs(text)["input_ids"] == [2, *tokenizer.encode(text).ids, 3]
    a, b = (tokenizer.encode(text).ids.tolist() for text in TEXTS[:2])
    pair = theirs(*TEXTS[:2])
    assert pair["input_ids"] == [2, *a, 3, *b, 3]
    assert pair["token_type_ids"] == [0] * (len(a) + 2) + [1] * (len(b) + 1)


def test_a_plain_vocabulary_has_the_limit_of_transformers(tmp_path):
    (tmp_path / "vocab.txt").write_bytes(VOCABULARY)
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    tokenizer = from_huggingface(epath.Path(tmp_path))
    assert tokenizer.cased
    unknown = [tokenizer.unk_id]
    assert tokenizer.encode_batch(["a" * 100, "a" * 101])[1] == unknown
    assert tokenizer.encode_batch(["a" * 100])[0] != unknown


def test_old_files_without_a_model_type_and_a_normalizer_that_follows_case(exported):
    path = exported / "tokenizer.json"
    content = json.loads(path.read_text())
    del content["model"]["type"]
    content["normalizer"]["strip_accents"] = None
    path.write_text(json.dumps(content))
    assert (
        from_huggingface(exported).config == ours(max_input_chars_per_word=100).config
    )


def test_nothing_to_read(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"neither tokenizer\.json nor vocab"):
        from_huggingface(epath.Path(tmp_path))


def test_texts_that_the_files_cut_at_their_beginning(exported):
    cut = {"max_length": 8, "strategy": "LongestFirst", "stride": 0}
    for name, values in (
        ("tokenizer.json", {"truncation": cut | {"direction": "Left"}}),
        ("tokenizer_config.json", {"truncation_side": "left"}),
    ):
        content = json.loads((exported / name).read_text())
        (exported / name).write_text(json.dumps(content | values))
        with pytest.warns(UserWarning, match="truncation_side=.* cuts a long text at"):
            from_huggingface(exported)
        (exported / name).write_text(json.dumps(content))


def test_casing_that_stands_nowhere(exported):
    (exported / "tokenizer.json").unlink()
    change(exported / "tokenizer_config.json", "do_lower_case", to=None)
    with pytest.raises(ValueError, match='write {"do_lower_case": true} into its'):
        from_huggingface(exported)


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (("model", "unk_token"), "<unk>", "model.unk_token='<unk>' must be \"[UNK]\""),
        (("model", "continuing_subword_prefix"), "@@", "prefix='@@' must be \"##\""),
        (("normalizer", "clean_text"), False, "clean_text=False must be true"),
        (("normalizer",), {"type": "NFC"}, "normalizer.type='NFC' must be"),
        (("normalizer",), None, "normalizer.type=None must be"),
        (("pre_tokenizer",), {"type": "Whitespace"}, "type='Whitespace' must be"),
        (
            ("post_processor", "single"),
            [{"Sequence": {"id": "A", "type_id": 0}}],
            "post_processor.single='$A:0' must be",
        ),
        (("normalizer", "lowercase"), False, "tokenizer.json has do_lower_case=False"),
        (("normalizer", "strip_accents"), False, "has strip_accents=False and"),
        (("normalizer", "handle_chinese_chars"), False, "chinese_chars=False and"),
        (("model", "vocab", "cat"), 99, "'##s' has the id 8 instead of 7"),
        (("model", "vocab", "cat"), 8, "has the id 8 instead of 7"),
        (("model", "vocab", "dog"), 20, "id 20 is None in vocab.txt and 'dog' in"),
        (("added_tokens", "0", "content"), "<pad>", "added token '<pad>' has id 0"),
    ],
)  # fmt: skip
def test_a_tokenizer_json_that_is_refused(exported, keys, value, message):
    path = exported / "tokenizer.json"
    if keys[0] == "added_tokens":
        content = json.loads(path.read_text())
        content["added_tokens"][0]["content"] = value
        path.write_text(json.dumps(content))
    else:
        change(path, *keys, to=value)
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        from_huggingface(exported)
    assert str(exported) in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"type": "BPE", "vocab": {"a": 0, "[UNK]": 1}, "merges": []}, "lacks [PAD]"),
        (
            {"vocab": {"a": 0, "[UNK]": 1}, "merges": []},
            "model.type='BPE' must be \"WordPiece\"",
        ),
        ({"type": "Unigram", "vocab": [["[UNK]", 0.0]], "unk_id": 0}, "lacks [PAD]"),
    ],
)
def test_another_model_without_berts_tokens(exported, model, message):
    path = exported / "tokenizer.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "model": model, "added_tokens": []}))
    with pytest.raises(ValueError, match=re.escape(message)):
        from_huggingface(exported)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("tokenizer_class", "BertJapaneseTokenizer", "tokenizer_class='BertJapanese"),
        ("do_basic_tokenize", False, "do_basic_tokenize=False must be true"),
        ("never_split", ["<url>"], "never_split=['<url>'] must be []"),
        ("mask_token", "<mask>", "mask_token='<mask>' must be \"[MASK]\""),
        ("cls_token", {"content": "<s>"}, "cls_token='<s>' must be \"[CLS]\""),
        ("do_lower_case", "yes", "do_lower_case='yes' must be false or true"),
        ("do_lower_case", 1, "do_lower_case=1 must be false or true"),
        ("do_lower_case", False, "tokenizer_config.json do_lower_case=False"),
        ("strip_accents", False, "tokenizer_config.json strip_accents=False"),
        (
            "added_tokens_decoder",
            {"6": {"content": "the"}},
            "the added token 'the' has id 6, but 5 in the vocabulary",
        ),
    ],
)
def test_a_tokenizer_config_that_is_refused(exported, key, value, message):
    change(exported / "tokenizer_config.json", key, to=value)
    with pytest.raises(ValueError, match=re.escape(message)):
        from_huggingface(exported)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer.json", "{", "tokenizer.json is not JSON"),
        ("tokenizer.json", "[1]", "tokenizer.json holds [1], not a JSON object"),
        ("tokenizer.json", '{"model": 3}', "tokenizer.json is no tokenizer"),
        ("special_tokens_map.json", '{"unk_token": "?"}', "unk_token='?' must be"),
        (
            "added_tokens.json",
            '{"<new>": 21}',
            "added token '<new>' has id 21, but the next free id is 20",
        ),
        ("vocab.txt", "the\n[UNK]\n", r"vocabulary: lacks [PAD], [CLS]"),
        ("vocab.txt", "the\nthe\n", "vocabulary: line 2 repeats 'the'"),
    ],
)
def test_a_file_that_is_refused(exported, name, content, message):
    (exported / name).write_text(content)
    with pytest.raises(ValueError, match=re.escape(message)):
        from_huggingface(exported)


def test_a_vocabulary_that_disagrees(exported):
    words = [*WORDS[:5], "a", *(word for word in WORDS[5:] if word != "a")]
    (exported / "vocab.txt").write_text("".join(word + "\n" for word in words))
    with pytest.raises(ValueError, match=r"id 5 is 'a' in vocab\.txt and 'the' in"):
        from_huggingface(exported)


ADDED_TEXTS = ["the<URL>cat", "a new york cat", "new yorks", "x <e1>the", "<url> [SEP]"]


def added(library: HuggingFaceTokenizer) -> None:
    """Tokens beyond the vocabulary, found in every way that there is."""
    library.add_special_tokens([AddedToken("<e1>", special=True, rstrip=True)])
    library.add_tokens(["<url>", AddedToken("New York", single_word=True)])
    library.add_tokens([AddedToken("cat", normalized=False, lstrip=True)])


def test_added_tokens_of_a_tokenizer_json_are_kept(exported, tmp_path):
    path = exported / "tokenizer.json"
    library = HuggingFaceTokenizer.from_file(str(path))
    added(library)
    library.save(str(path))
    tokenizer = from_huggingface(exported)
    assert tokenizer.vocab_size == len(WORDS) + 3 == library.get_vocab_size()
    assert tokenizer.tokens(range(len(WORDS), len(WORDS) + 3)) == [
        "<e1>",
        "<url>",
        "New York",
    ]
    plain = [text for text in [*TEXTS, *ADDED_TEXTS] if "[" not in text]
    expected = [library.encode(t, add_special_tokens=False).ids for t in plain]
    assert tokenizer.encode_batch(plain) == expected
    assert expected != ours(max_input_chars_per_word=100).encode_batch(plain)
    again = epath.Path(tmp_path / "again")
    again.mkdir()
    to_huggingface(tokenizer, again, LIMITS)
    assert from_huggingface(again).files == tokenizer.files
    back = HuggingFaceTokenizer.from_file(str(again / "tokenizer.json"))
    assert [back.encode(t).ids for t in ADDED_TEXTS] == [
        library.encode(t).ids for t in ADDED_TEXTS
    ]


def test_added_tokens_of_the_older_files_are_kept(exported):
    (exported / "tokenizer.json").unlink()
    (exported / "added_tokens.json").write_text('{"<url>": 20, "<e1>": 21}')
    decoder = {"21": {"content": "<e1>", "special": True, "normalized": False}}
    change(exported / "tokenizer_config.json", "added_tokens_decoder", to=decoder)
    roles = {"additional_special_tokens": ["<e1>", {"content": "café"}]}
    (exported / "special_tokens_map.json").write_text(json.dumps(roles))
    tokenizer = from_huggingface(exported)
    assert tokenizer.encode_batch(["the<url><e1>café a"]) == [[5, 20, 21, 10, 12]]


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("added_tokens.json", {"the": 20}, "'the' has id 20, but 5 in the vocabulary"),
        (
            "added_tokens.json",
            {"<a>": 7},
            "'<a>' has id 7, which is 'cat' in the vocabulary",
        ),
        ("added_tokens.json", {"<a>": "x"}, "the added token {'<a>': 'x'} must have c"),
        ("added_tokens.json", {"": 18}, "the added token {'': 18} must have content"),
        (
            "added_tokens.json",
            {"\ud800": 18},
            r"the added token {'\ud800': 18} must have content",
        ),
        (
            "special_tokens_map.json",
            {"additional_special_tokens": ["<a>"]},
            "special_tokens_map.json: the special token '<a>' has no id in any file",
        ),
        (
            "special_tokens_map.json",
            {"additional_special_tokens": [3]},
            "the added token 3 must have content",
        ),
        ("tokenizer_config.json", {"added_tokens_decoder": [1]}, "token [1] must have"),
        (
            "tokenizer_config.json",
            {"added_tokens_decoder": {"x": {"content": "<a>"}}},
            "the added token {'content': '<a>'} must have content (a string), an id",
        ),
        (
            "tokenizer_config.json",
            {"added_tokens_decoder": {"18": {"content": "<a>", "lstrip": "no"}}},
            "'lstrip': 'no'} must have",
        ),
        (
            "tokenizer_config.json",
            {
                "added_tokens_decoder": {
                    "18": {"content": "<a>"},
                    "19": {"content": "<a>"},
                }
            },
            "'<a>' has id 19, but 18 in another file",
        ),
    ],
)
def test_an_added_token_that_cannot_be_kept(exported, name, values, message):
    path = exported / name
    before = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(before | values))
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        from_huggingface(exported)
    assert str(path) in str(error.value)

"""What sentence-transformers' files say of vectors: read, kept, written, refused."""

import dataclasses
import json
import re

import numpy as np
import pytest
from etils import epath
from huggingface_files import stored

import bert_jax
from bert_jax.apps.convert.export import export_huggingface
from bert_jax.apps.convert.extend import extend
from bert_jax.apps.convert.receipts import write_imported
from bert_jax.cli.main import main
from bert_jax.config.embedding import Embedding
from bert_jax.formats.embedding import read_embedding
from bert_jax.formats.huggingface import read_huggingface
from bert_jax.tasks.pairs.prompts import chosen_embedding

TEXTS = ["the cat", "a mat", "cat the mat"]


def module(kind, place=""):
    return {"idx": 0, "name": "0", "path": place, "type": kind}


def write(
    folder,
    *,
    kinds=("Normalize",),
    pooling=None,
    general=None,
    own=None,
    tokenizer=None,
):
    """The files of a model that pools, and then has modules of some kinds."""
    old = "sentence_transformers.models."
    modules = [
        module(old + "Transformer"),
        module(old + "Pooling", "1_Pooling"),
        *(
            module(kind if "." in kind else old + kind, f"{i}_{kind}")
            for i, kind in enumerate(kinds, 2)
        ),
    ]
    pooling = {"pooling_mode_mean_tokens": True} if pooling is None else pooling
    (folder / "1_Pooling").mkdir(parents=True, exist_ok=True)
    for name, values in (
        ("modules.json", modules),
        ("1_Pooling/config.json", pooling),
        ("config_sentence_transformers.json", general),
        ("sentence_bert_config.json", own),
        ("tokenizer_config.json", tokenizer),
    ):
        if values is not None:
            (folder / name).write_text(json.dumps(values))
    return epath.Path(folder)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, Embedding("mean", True)),
        ({"own": {"max_seq_length": 256}}, Embedding("mean", True, max_tokens=256)),
        ({"own": {"max_seq_length": 600}}, Embedding("mean", True)),
        ({"own": {"max_seq_length": None}}, Embedding("mean", True)),
        (
            {"own": {"max_seq_length": None}, "tokenizer": {"model_max_length": None}},
            Embedding("mean", True),
        ),
        ({"kinds": ()}, Embedding("mean", False)),
        ({"pooling": {"pooling_mode_cls_token": True}}, Embedding("cls", True)),
        ({"pooling": {"pooling_mode": "cls"}}, Embedding("cls", True)),
        ({"pooling": {"pooling_mode": ["mean"]}}, Embedding("mean", True)),
        ({"pooling": {}}, Embedding("mean", True)),
        # The new key alone counts where both are there.
        (
            {"pooling": {"pooling_mode": "mean", "pooling_mode_cls_token": True}},
            Embedding("mean", True),
        ),
        (
            {"general": {"prompts": {"query": "q: "}}},
            Embedding("mean", True, prompt_names=("query",), prompt_texts=("q: ",)),
        ),
        (
            {"general": {"prompts": {"a": "b: "}, "default_prompt_name": "a"}},
            Embedding("mean", True, "", None, ("a",), ("b: ",), default_prompt="a"),
        ),
        (
            {"pooling": {"pooling_mode": "cls", "include_prompt": False}},
            Embedding("cls", True, pool_prompt=False),
        ),
    ],
)
def test_what_the_files_say(tmp_path, files, expected):
    if expected.max_tokens is None:  # as many as the model takes
        expected = dataclasses.replace(expected, max_tokens=512)
    found = read_embedding(write(tmp_path, **files), cased=True, positions=512)
    assert found == expected


def test_modules_by_the_names_of_version_5_4(tmp_path):
    write(tmp_path)
    start = "sentence_transformers.sentence_transformer.modules"
    modules = [
        module("sentence_transformers.base.modules.transformer.Transformer"),
        module(f"{start}.pooling.Pooling", "1_Pooling"),
        module(f"{start}.normalize.Normalize", "2_Normalize"),
    ]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    expected = Embedding("mean", True, max_tokens=512)
    assert read_embedding(epath.Path(tmp_path), True, 512) == expected


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"kinds": ("Dense", "Normalize")}, "Dense in '2_Dense', Normalize in"),
        ({"kinds": ("theirs.Normalize",)}, "theirs.Normalize in"),
        ({"pooling": {"pooling_mode_max_tokens": True}}, "pooling by max"),
        ({"pooling": {"pooling_mode": "weightedmean"}}, "pooling by weightedmean"),
        ({"pooling": {"pooling_mode_lasttoken": True}}, "pooling by lasttoken"),
        (
            {"pooling": {"pooling_mode_cls_token": 1, "pooling_mode_mean_tokens": 1}},
            "pooling by cls and mean",
        ),
        ({"own": {"do_lower_case": True}}, "lower case of a cased vocabulary"),
    ],
)
def test_what_we_do_not_compute(tmp_path, files, reason):
    found = read_embedding(write(tmp_path, **files), cased=True, positions=512)
    assert found is not None and reason in found.unsupported


def test_a_model_in_a_directory_of_its_own_below_the_modules(tmp_path):
    write(tmp_path)
    path = tmp_path / "modules.json"
    path.write_text(path.read_text().replace('"path": ""', '"path": "0_BERT"'))
    (tmp_path / "0_BERT").mkdir()
    found = read_embedding(epath.Path(tmp_path / "0_BERT"), cased=False, positions=512)
    assert found is not None and "modules.json lists" in found.unsupported
    (tmp_path / "other").mkdir()
    assert (
        read_embedding(epath.Path(tmp_path / "other"), cased=False, positions=512)
        is None
    )


@pytest.mark.parametrize(
    ("name", "content", "error", "message"),
    [
        ("modules.json", "[" * 100_000, ValueError, "it is nested too deep"),
        ("modules.json", "{", ValueError, "modules.json is not JSON that"),
        ("modules.json", "{}", ValueError, "must be a list of modules, each with"),
        ("modules.json", '["a"]', ValueError, "must be a list of modules, each with"),
        ("modules.json", '[{"type": 3}]', ValueError, "must be a list of modules"),
        ("1_Pooling/config.json", "[]", ValueError, "holds [], not a JSON object"),
        (
            "1_Pooling/config.json",
            '{"pooling_mode": 3}',
            ValueError,
            "pooling_mode=3 must be a name",
        ),
        (
            "1_Pooling/config.json",
            '{"include_prompt": 0}',
            ValueError,
            "include_prompt=0 must be true or false",
        ),
        (
            "config_sentence_transformers.json",
            '{"prompts": ["query: "]}',
            ValueError,
            "prompts=['query: '] must be an object of texts",
        ),
        (
            "config_sentence_transformers.json",
            '{"default_prompt_name": "query"}',
            ValueError,
            "default_prompt_name='query' is none of its prompts (there are none)",
        ),
        (
            "config_sentence_transformers.json",
            '{"similarity_fn_name": "maxsim"}',
            ValueError,
            "similarity_fn_name='maxsim' must be one of cosine, dot, euclidean, ",
        ),
        (
            "1_Pooling/config.json",
            None,
            FileNotFoundError,
            "is missing, which configures",
        ),
    ],
)
def test_damaged_files(tmp_path, name, content, error, message):
    write(tmp_path)
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_text(content)
    with pytest.raises(error, match=re.escape(message)) as raised:
        read_embedding(epath.Path(tmp_path), cased=True, positions=512)
    assert str(tmp_path / name) in str(raised.value)


@pytest.fixture
def source(tmp_path):
    """A model that pools [CLS] to unit length: neither is embed's own default."""
    folder = stored("BertModel").write(tmp_path / "model")
    return write(folder, pooling={"pooling_mode_cls_token": True})


def test_kept_through_import_extension_and_export(source, tmp_path):
    expected = bert_jax.load(source).embed(TEXTS, pooling="cls", normalize=True)
    imported = read_huggingface(source)
    read = {entry["path"] for entry in imported.sources}
    assert {"modules.json", "1_Pooling/config.json"} <= read
    write_imported(imported, epath.Path(tmp_path / "a"))
    extend(str(tmp_path / "a"), epath.Path(tmp_path / "b"), ["catmat"], None)
    export_huggingface(str(tmp_path / "b"), epath.Path(tmp_path / "c"))
    for path in (source, *(tmp_path / name for name in "abc")):
        bert = bert_jax.load(path)
        assert bert.embedding == Embedding("cls", True, max_tokens=20), path
        np.testing.assert_allclose(bert.embed(TEXTS), expected, atol=1e-6)
    assert np.abs(expected - bert.embed(TEXTS, "mean")).max() > 1e-3
    assert np.abs(expected - bert.embed(TEXTS, normalize=False)).max() > 1e-3
    card = (tmp_path / "c" / "README.md").read_text()
    assert "pipeline_tag: sentence-similarity" in card
    assert 'model = SentenceTransformer(".")' in card
    listed = json.loads((tmp_path / "c" / "conversion.json").read_text())["files"]
    assert "1_Pooling/config.json" in {entry["path"] for entry in listed}


def test_without_such_files_the_mean_is_not_normalized(tmp_path):
    folder = stored("BertModel").write(tmp_path / "model")
    bert = bert_jax.load(folder)
    plain = bert.embed(TEXTS, pooling="mean", normalize=False)
    np.testing.assert_array_equal(bert.embed(TEXTS), plain)
    export_huggingface(str(folder), epath.Path(tmp_path / "out"))
    assert not (tmp_path / "out" / "modules.json").exists()


def test_embed_takes_no_default_that_it_cannot_compute(source, tmp_path, capsys):
    write(source, kinds=("Dense",))
    write_imported(read_huggingface(source), epath.Path(tmp_path / "a"))
    for path in (source, tmp_path / "a"):
        bert = bert_jax.load(path)
        for asked in ({}, {"pooling": "cls"}, {"normalize": True}):
            with pytest.raises(ValueError, match="require the modules .*Dense.* which"):
                bert.embed(TEXTS, **asked)
        assert bert.embed(TEXTS, pooling="cls", normalize=True).shape == (3, 32)
    export_huggingface(str(tmp_path / "a"), epath.Path(tmp_path / "out"))
    assert not (tmp_path / "out" / "modules.json").exists()
    assert "out: the model's files require the modules" in capsys.readouterr().err
    card = (tmp_path / "out" / "README.md").read_text()
    assert "Dense in '2_Dense', which bert_jax neither computes nor exports" in card


def test_another_vector_keeps_prompts_and_length_of_the_files(tmp_path):
    """Where the pooling of the files is not computed."""
    general = {"prompts": {"query": "q: "}, "similarity_fn_name": "dot"}
    pooling = {"pooling_mode": "max", "include_prompt": False}
    own = {"max_seq_length": 8}
    write(tmp_path, kinds=(), pooling=pooling, general=general, own=own)
    found = read_embedding(epath.Path(tmp_path), cased=False, positions=512)
    expected = Embedding(
        "cls",
        max_tokens=8,
        prompt_names=("query",),
        prompt_texts=("q: ",),
        pool_prompt=False,
        similarity="dot",
    )
    assert chosen_embedding(found, "cls") == expected
    # What else is damaged does not matter of modules that are not computed.
    (tmp_path / "1_Pooling" / "config.json").unlink()
    modules = json.loads((tmp_path / "modules.json").read_text())
    dense = {"idx": 2, "path": "2_Dense", "type": "sentence_transformers.models.Dense"}
    (tmp_path / "modules.json").write_text(json.dumps([*modules[:2], dense]))
    found = read_embedding(epath.Path(tmp_path), cased=False, positions=512)
    assert found.unsupported.startswith("the modules Transformer in ")


LONG = ["the cat mat the cat mat the cat mat", "the mat", "cat " * 60]


@pytest.fixture
def nested(tmp_path):
    """A directory of sentence-transformers as version 0 to 2 wrote it, cut at 8."""
    root = tmp_path / "nested"
    write(root, pooling={"pooling_mode_cls_token": True}, general={"prompts": {}})
    path = root / "modules.json"
    path.write_text(path.read_text().replace('"path": ""', '"path": "0_Transformer"'))
    folder = stored("BertModel").write(root / "0_Transformer")
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 8}')
    return root


def test_a_directory_of_modules_opens_from_its_root(nested, tmp_path, capsys):
    plain = bert_jax.load(stored("BertModel").write(tmp_path / "plain"))
    bert = bert_jax.load(nested)
    assert bert.embedding == Embedding("cls", True, max_tokens=8)
    expected = plain.embed(TEXTS, pooling="cls", normalize=True)
    np.testing.assert_array_equal(bert.embed(TEXTS), expected)
    output = tmp_path / "checkpoint"
    command = ["convert", "import", str(nested), "--from", "huggingface"]
    assert main([*command, "--output", str(output)]) == 0
    receipt = json.loads((output / "conversion.json").read_text())
    assert [entry["path"] for entry in receipt["sources"]] == [
        "0_Transformer/config.json",
        "0_Transformer/model.safetensors",
        "0_Transformer/sentence_bert_config.json",
        "0_Transformer/tokenizer_config.json",
        "0_Transformer/vocab.txt",
        "1_Pooling/config.json",
        "config_sentence_transformers.json",
        "modules.json",
    ]
    exported = tmp_path / "exported"
    export_huggingface(str(nested), epath.Path(exported))
    sources = json.loads((exported / "conversion.json").read_text())["sources"]
    assert sources == receipt["sources"]


def test_max_seq_length_survives_import_extension_and_export(nested, tmp_path):
    plain = bert_jax.load(stored("BertModel").write(tmp_path / "plain"))
    # [CLS] and [SEP] take two of the eight.
    cut = ["the cat mat the cat mat", "the mat", "cat cat cat cat cat cat"]
    expected = plain.embed(cut, pooling="cls", normalize=True)
    write_imported(read_huggingface(epath.Path(nested)), epath.Path(tmp_path / "a"))
    extend(str(tmp_path / "a"), epath.Path(tmp_path / "b"), [], 40)
    export_huggingface(str(tmp_path / "b"), epath.Path(tmp_path / "c"))
    again = read_huggingface(epath.Path(tmp_path / "c"))
    write_imported(again, epath.Path(tmp_path / "d"))
    for path in (nested, *(tmp_path / name for name in "abcd")):
        bert = bert_jax.load(path)
        np.testing.assert_allclose(bert.embed(LONG), expected, atol=1e-6)
    limits = json.loads((tmp_path / "c" / "sentence_bert_config.json").read_text())
    assert limits["max_seq_length"] == 8
    whole = plain.embed(LONG[:1], pooling="cls", normalize=True)
    assert np.abs(whole - expected[:1]).max() > 1e-3, "the cut must change a vector"


def test_without_modules_a_long_text_is_refused(tmp_path):
    bert = bert_jax.load(stored("BertModel").write(tmp_path / "plain"))
    with pytest.raises(ValueError, match="text 2 has 62 tokens, .* takes 20. Short"):
        bert.embed(LONG)


@pytest.mark.parametrize("place", ["../elsewhere", "/etc", "a/../../b", "link"])
@pytest.mark.parametrize("number", [0, 1])
def test_modules_outside_of_their_directory_are_refused(place, number, nested):
    (nested / "link").symlink_to(nested.parent)
    path = nested / "modules.json"
    modules = json.loads(path.read_text())
    modules[number]["path"] = place
    path.write_text(json.dumps(modules))
    with pytest.raises(ValueError, match=f"modules.json names '{place}', outside of"):
        bert_jax.load(nested)


@pytest.mark.parametrize("value", ["8", 2, -1, True, [8], {}])
def test_a_limit_that_is_none(value, nested):
    path = nested / "0_Transformer" / "sentence_bert_config.json"
    path.write_text(json.dumps({"max_seq_length": value}))
    with pytest.raises(ValueError, match="max_seq_length=.* must be a number of tok"):
        bert_jax.load(nested)


PROMPTS = {"prompts": {"query": "the cat: ", "document": ""}}


def with_prompts(source, **pooling):
    general = PROMPTS | {"default_prompt_name": "query"}
    own = {"pooling_mode_mean_tokens": True} | pooling
    return write(source, pooling=own, general=general)


def test_prompts_are_kept_through_import_and_export(source, tmp_path):
    with_prompts(source, include_prompt=False)
    write_imported(read_huggingface(source), epath.Path(tmp_path / "a"))
    export_huggingface(str(tmp_path / "a"), epath.Path(tmp_path / "b"))
    expected = bert_jax.load(source).embed(TEXTS)
    for path in (source, tmp_path / "a", tmp_path / "b"):
        bert = bert_jax.load(path)
        assert bert.embedding.prompts == PROMPTS["prompts"]
        assert bert.embedding.default_prompt == "query"
        assert not bert.embedding.pool_prompt
        np.testing.assert_allclose(bert.embed(TEXTS), expected, atol=1e-6)


@pytest.mark.parametrize("name", ["dot", "cosine", None])
def test_similarity_is_that_of_the_files_and_kept(name, source, tmp_path):
    write(source, kinds=(), general={"similarity_fn_name": name})
    write_imported(read_huggingface(source), epath.Path(tmp_path / "a"))
    export_huggingface(str(tmp_path / "a"), epath.Path(tmp_path / "b"))
    vectors = bert_jax.load(source).embed(TEXTS)
    lengths = np.linalg.norm(vectors, axis=1)
    assert np.abs(lengths - 1).min() > 0.1
    expected = vectors @ vectors.T
    if name != "dot":
        expected = expected / lengths / lengths[:, None]
    for path in (source, tmp_path / "a", tmp_path / "b"):
        bert = bert_jax.load(path)
        found = bert.similarity(TEXTS, TEXTS)
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        assert found.dtype == np.float32
        with pytest.raises(ValueError, match="a has vectors of 4 numbers and b of"):
            bert.similarity(np.ones((1, 4)), TEXTS)
    written = json.loads(
        (tmp_path / "b" / "config_sentence_transformers.json").read_text()
    )
    assert written["similarity_fn_name"] == (name or "cosine")


@pytest.mark.parametrize("name", ["euclidean", "manhattan"])
def test_another_similarity_is_refused_where_it_is_asked_for(name, source):
    bert = bert_jax.load(write(source, general={"similarity_fn_name": name}))
    assert bert.embed(TEXTS).shape == (3, 32)
    with pytest.raises(ValueError, match=f"require similarity={name}, and only cosin"):
        bert.similarity(TEXTS, TEXTS)
    with pytest.raises(ValueError, match=f"require similarity={name}, and only cosin"):
        bert.search(TEXTS, TEXTS)


@pytest.mark.parametrize("name", ["dot", "cosine"])
def test_search_is_by_the_similarity_of_the_files(name, source):
    write(source, kinds=(), general={"similarity_fn_name": name})
    bert = bert_jax.load(source)
    stored = bert.embed(TEXTS) * np.array([[1.0], [30.0], [0.1]], np.float32)
    hits = bert.search(TEXTS, stored, 3)
    expected = bert.similarity(TEXTS, stored)
    order = np.argsort(-expected, axis=1)
    assert hits.indices.tolist() == order.tolist()
    assert (hits.indices[:, 0] == 1).all() == (name == "dot")
    ranked = np.take_along_axis(expected, order, axis=1)
    np.testing.assert_allclose(hits.scores, ranked, rtol=1e-5)


def test_a_prompt_stands_before_each_text(source):
    bert = bert_jax.load(with_prompts(source))
    plain = bert.embed(TEXTS, prompt="")
    with_text = bert.embed([f"the cat: {text}" for text in TEXTS], prompt="")
    assert np.abs(plain - with_text).max() > 1e-3
    for prompt in (None, "query", "the cat: "):
        np.testing.assert_array_equal(bert.embed(TEXTS, prompt=prompt), with_text)
    np.testing.assert_array_equal(bert.embed(TEXTS, prompt="document"), plain)
    with pytest.raises(ValueError, match="prompt='qery' is not the name .*'query'"):
        bert.embed(TEXTS, prompt="qery")
    with pytest.raises(ValueError, match="The prompt .* has .* are cut to 20"):
        bert.embed(TEXTS, prompt="the cat mat " * 8)


@pytest.mark.parametrize("mode", ["mean", "cls"])
def test_a_prompt_that_is_not_pooled(source, mode):
    """By the hidden states, without the tokens before the text."""
    modes = {"pooling_mode_mean_tokens": False, f"pooling_mode_{mode}_tokens": True}
    if mode == "cls":
        modes = {"pooling_mode_mean_tokens": False, "pooling_mode_cls_token": True}
    bert = bert_jax.load(with_prompts(source, include_prompt=False, **modes))
    bert.embedding = dataclasses.replace(bert.embedding, normalize=False)
    found = bert.embed(TEXTS, prompt="the cat: ")
    num_before = 1 + len(bert.tokenizer.encode("the cat: ").ids)
    for text, vector in zip(TEXTS, found, strict=True):
        states = bert.features([f"the cat: {text}"])[0].vectors[num_before:]
        expected = states.mean(axis=0) if mode == "mean" else states[0]
        np.testing.assert_allclose(vector, expected, atol=1e-5)

"""More words, and more positions."""

import dataclasses
import json

import numpy as np
import pytest
from etils import epath

import bert_jax
from bert_jax.apps.convert.extend import extend, read_words, split_words
from bert_jax.cli.main import main
from bert_jax.runs.pretraining import pretrain


@pytest.fixture
def source(pretrained) -> str:
    return str(pretrained)


def several_pieces(bert) -> str:
    """A word that falls into pieces, all of the vocabulary."""
    for word in ("judgement", "readers", "candlestick", "paintings", "doctoral"):
        ids = bert.tokenizer.encode(word).ids
        if len(ids) > 1 and bert.tokenizer.unk_id not in ids:
            return word
    raise AssertionError("the vocabulary holds every word whole")


def test_a_new_word_begins_as_the_mean_of_its_pieces(source, tmp_path, capsys):
    bert = bert_jax.load(source)
    word = several_pieces(bert)
    (tmp_path / "words").write_text(f"{word.upper()}\n\nthe\n")
    output = tmp_path / "out"
    arguments = ["--words", str(tmp_path / "words"), "--output", str(output)]
    assert main(["convert", "extend", source, *arguments]) == 0
    assert "1 words more, 161 tokens" in capsys.readouterr().out
    larger = bert_jax.load(output)
    assert larger.tokenizer.encode(f"The {word}.").ids.tolist().count(160) == 1
    ids = bert.tokenizer.encode(word).ids
    for path in (
        ("encoder", "embeddings", "token", "embedding"),
        ("masked_lm", "bias"),
    ):
        old, new = bert.params, larger.params
        for name in path:
            old, new = old[name], new[name]
        np.testing.assert_array_equal(new[:-1], old)
        np.testing.assert_allclose(new[-1], old[ids].mean(0), rtol=1e-6)
    receipt = json.loads((output / "conversion.json").read_text())
    assert receipt["words"] == {
        word: {"id": 160, "mean_of": bert.tokenizer.tokens(ids)}
    }
    assert larger.trained_length == bert.trained_length == 32
    # What holds none of the new words is read as before.
    for text in ("The judge writes.", "A door in the tower."):
        np.testing.assert_allclose(larger.embed([text]), bert.embed([text]), atol=1e-6)


def test_new_positions_repeat_the_old_ones(source, tmp_path):
    bert = bert_jax.load(source)
    extend(source, epath.Path(tmp_path / "out"), [], positions=50)
    larger = bert_jax.load(tmp_path / "out")
    table = larger.params["encoder"]["embeddings"]["position"]["embedding"]
    old = bert.params["encoder"]["embeddings"]["position"]["embedding"]
    np.testing.assert_array_equal(table[:32], old)
    np.testing.assert_array_equal(table[32:], old[:18])
    assert larger.config.max_position_embeddings == 50
    long = " ".join(["the judge writes."] * 10)
    with pytest.raises(ValueError, match="the model takes 32"):
        bert.embed([long])
    assert np.isfinite(larger.embed([long])).all()


def test_more_positions_keep_how_texts_become_rows(classifier, tmp_path):
    """Only the length of the rows is no longer known."""
    extend(str(classifier), epath.Path(tmp_path / "out"), [], positions=50)
    before, data = bert_jax.load(classifier).data, bert_jax.load(tmp_path / "out").data
    assert before.max_length and data == dataclasses.replace(before, max_length=0)


@pytest.mark.parametrize(
    ("words", "positions", "message"),
    [
        ([], 32, "positions=32 must be more than the 32"),
        ([], 10**12, "positions=1000000000000 must be .* and at most 1048576"),
        ([], -(10**400), "positions=-1000.*000 must be more than the 32"),
        ([], None, "there is nothing to add: no words are given"),
        (["the"], None, "there is nothing to add: each word is one token already"),
        (["two words"], None, "'two words' is several words"),
        (["judge.clerk"], None, "'judge.clerk' is several words"),
        (["\u6f22\u5b57"], None, "characters that the vocabulary lacks"),
    ],
)
def test_what_cannot_be_added(words, positions, message, source, tmp_path):
    with pytest.raises(ValueError, match=message):
        extend(source, epath.Path(tmp_path / "out"), words, positions)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_an_extended_model_is_trained_on(source, tmp_path, corpus, small_config):
    """Text prepared with its tokenizer, from its parameters."""
    from bert_jax.config import DataConfig, PrepareConfig
    from bert_jax.data.prepare import prepare

    word = several_pieces(bert_jax.load(source))
    extend(source, epath.Path(tmp_path / "out"), [word], positions=None)
    prepare(
        PrepareConfig(
            input=(str(corpus / "*.txt"),),
            tokenizer=str(tmp_path / "out"),
            output=str(tmp_path / "data"),
            sequence_length=32,
            workers=1,
        )
    )
    config = dataclasses.replace(
        small_config,
        model=dataclasses.replace(small_config.model, vocab_size=161),
        data=DataConfig(path=str(tmp_path / "data"), sequence_length=32),
        init_from=str(tmp_path / "out"),
        num_steps=3,
    )
    assert pretrain(config, tmp_path / "run")["mlm_loss"] > 0


def test_a_word_in_pieces_is_told_from_a_whole_one(source):
    tokenizer = bert_jax.load(source).tokenizer
    assert split_words(["the", "judge"], tokenizer) == {}


def test_words_that_are_not_utf_8(source, tmp_path, capsys):
    path = tmp_path / "words"
    path.write_bytes("über\nbère\n".encode("latin-1"))
    arguments = ["convert", "extend", str(source), "--words", str(path)]
    assert main([*arguments, "--output", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == (
        f"bert-jax: {path}: byte 0 is 0xfc, which is not UTF-8; words must be in "
        "UTF-8, so convert the file, for example by iconv.\n"
    )
    path.write_bytes("über\nb".encode() + b"\xe8re\n")
    with pytest.raises(ValueError, match="byte 7 is 0xe8"):
        read_words(str(path))
    assert not (tmp_path / "out").exists()

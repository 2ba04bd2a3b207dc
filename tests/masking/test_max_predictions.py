"""`max_predictions` follows the rate and the length unless given; a cap is said."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from run_helpers import write_config

import bert_jax
from bert_jax.cli.main import main
from bert_jax.config import MaskingConfig, PrepareConfig
from bert_jax.data.prepare import prepare
from bert_jax.runs.pretraining import pretrain
from bert_jax.tokenization import SPECIAL_TOKENS, Tokenizer


@pytest.mark.parametrize(
    ("rate", "length", "expected"),
    [(0.15, 128, 19), (0.3, 128, 38), (0.15, 512, 77), (0.4, 128, 51), (0.01, 32, 1)],
)
def test_a_full_row_predicts_what_the_rate_says(rate, length, expected):
    masking = MaskingConfig(rate, mask_token_id=4, vocab_size=50)
    batch = {
        "tokens": np.full((2, length), 20, np.uint16),
        "first": np.zeros((2, 1), np.uint16),
        "second": np.full((2, 1), length // 2, np.uint16),
        "end": np.full((2, 1), length, np.uint16),
        "next_sentence_label": np.zeros((2, 1), np.int8),
    }
    masked = jax.jit(bert_jax.mask_tokens, static_argnums=2)(
        jax.random.key(0), batch, masking
    )
    assert masked.weights.shape == (2, expected)
    assert (masked.weights == 1).all()


def command(config, folder, **masking):
    masking = dataclasses.replace(config.masking, **masking)
    config = dataclasses.replace(config, masking=masking, num_steps=2)
    path = write_config(config, folder / "config.py")
    return ["pretrain", str(path), "--workdir", str(folder / "run")]


@pytest.mark.slow
def test_a_cap_is_said_and_an_older_run_keeps_its_number(
    small_config, tmp_path, capsys
):
    """A run of an earlier version has a number in its config.json: it is resumed."""
    cap = "masking.max_predictions=5 caps it at 15.6%, since a full row needs 10;"
    capped = command(small_config, tmp_path, rate=0.3, max_predictions=5)
    assert main([*capped, "--dry-run"]) == 0
    assert f"masking rate: 0.3; {cap}" in capsys.readouterr().out
    assert main(capped) == 0
    assert f"warning: masking rate 0.3: {cap}" in capsys.readouterr().err
    unset = command(small_config, tmp_path, rate=0.3, max_predictions=None)
    assert main([*unset, "--num-steps", "3", "--extend"]) == 0
    saved = json.loads((tmp_path / "run" / "config.json").read_text())
    assert saved["masking"]["max_predictions"] == 5


@pytest.mark.slow
def test_a_new_run_records_the_number_that_its_rate_needs(
    small_config, tmp_path, capsys
):
    unset = command(small_config, tmp_path, rate=0.3, max_predictions=None)
    assert main(unset) == 0
    assert "warning" not in capsys.readouterr().err
    saved = json.loads((tmp_path / "run" / "config.json").read_text())
    assert saved["masking"]["max_predictions"] == 10


@pytest.fixture(scope="module")
def unmarked(tmp_path_factory):
    """A dataset of sentences that are one word each, as with Japanese in unigram."""
    folder = tmp_path_factory.mktemp("unmarked")
    letters = "abcdefghij"
    tokens = [*SPECIAL_TOKENS, *letters, *(f"##{c}" for c in letters)]
    vocabulary = "".join(f"{token}\n" for token in tokens).encode()
    tokenizer = Tokenizer({"kind": "wordpiece", "cased": False}, vocabulary)
    tokenizer.save(folder / "tokenizer")
    text = "\n\n".join(["\n".join(["abcdefghij" * 3] * 6)] * 9)
    (folder / "a.txt").write_text(text)
    config = PrepareConfig(
        input=(str(folder / "a.txt"),),
        tokenizer=str(folder / "tokenizer"),
        output=str(folder / "data"),
        sequence_length=64,
        validation_fraction=0.0,
        workers=1,
    )
    prepare(config)
    return folder / "data"


@pytest.mark.parametrize("unit", ["whole_word", "span"])
def test_whole_words_without_marks_of_words_are_refused(
    unmarked, unit, small_config, tmp_path, refused
):
    data = dataclasses.replace(
        small_config.data, path=str(unmarked), sequence_length=64
    )
    shape = {"vocab_size": 25, "max_position_embeddings": 64}
    model = dataclasses.replace(small_config.model, **shape)
    config = dataclasses.replace(small_config, data=data, model=model)
    words = command(config, tmp_path, unit=unit, max_predictions=None)
    for options in ([], ["--dry-run"]):
        error = refused(*words, *options)
        assert f"masking.unit={unit} masks whole words, but 99% of the tokens" in error
        assert "use masking.unit=token" in error
    assert not (tmp_path / "run" / "config.json").exists()


@pytest.mark.slow
def test_a_fork_to_them_is_refused_too(unmarked, small_config, tmp_path, refused):
    data = dataclasses.replace(
        small_config.data, path=str(unmarked), sequence_length=64
    )
    shape = {"vocab_size": 25, "max_position_embeddings": 64}
    model = dataclasses.replace(small_config.model, **shape)
    config = dataclasses.replace(small_config, data=data, model=model)
    pretrain(config, tmp_path / "run")
    place = ("--at", "8", "--output", tmp_path / "fork")
    words = ("fork", tmp_path / "run", *place, "--masking.unit", "whole_word")
    error = refused(*words, unchanged=tmp_path)
    assert "masking.unit=whole_word masks whole words, but 100% of the tokens" in error

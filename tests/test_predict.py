"""The predictor: what it answers, what it refuses, and that batches do not matter."""

import numpy as np
import pytest

import bert_jax
from bert_jax.predict import Predictor
from bert_jax.run import pretrain


@pytest.fixture(scope="module")
def bert(small_config, tmp_path_factory) -> Predictor:
    """Trained and loaded by a relative path, as on a command line."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("here"))
        pretrain(small_config, "runs/a")
        return bert_jax.load("runs/a")


def test_fill_mask(bert):
    found = bert.fill_mask("The [MASK] writes the letter.", k=5)
    assert len(found) == 5
    tokens, probabilities = zip(*found, strict=True)
    assert all(isinstance(token, str) for token in tokens)
    assert list(probabilities) == sorted(probabilities, reverse=True)
    everything = bert.fill_mask("The [MASK] writes.", k=bert.config.vocab_size)
    assert sum(p for _, p in everything) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("text", ["no mask here", "[MASK] and [MASK]"])
def test_fill_mask_wants_one_mask(bert, text):
    with pytest.raises(ValueError, match=r"holds [02] \[MASK\] tokens.*exactly one"):
        bert.fill_mask(text)


def test_next_sentence_is_a_probability(bert):
    one = bert.next_sentence("The judge writes.", "The judge reads.")
    other = bert.next_sentence("The judge writes.", "A candle in the harbour.")
    assert 0 < one < 1 and 0 < other < 1 and one != other


def test_embeddings_do_not_depend_on_the_batch(bert):
    texts = ["The judge writes.", "The baker", "in the garden " * 5, "door"] * 20
    together = bert.embed(texts)
    assert together.shape == (80, 16) and together.dtype == np.float32
    for i in (0, 1, 2, 79):
        np.testing.assert_allclose(together[i], bert.embed([texts[i]])[0], atol=1e-5)
    assert np.abs(together[0] - together[1]).max() > 1e-3
    cls = bert.embed(texts[:2], pooling="cls")
    assert np.abs(cls - together[:2]).max() > 1e-3


def test_embedding_nothing(bert):
    assert bert.embed([]).shape == (0, 16)


def test_pooling_is_checked(bert):
    with pytest.raises(ValueError, match="pooling='max' must be 'mean' or 'cls'"):
        bert.embed(["a"], pooling="max")


def test_texts_over_the_limit_are_refused(bert):
    with pytest.raises(ValueError, match="The text has .* tokens.*the model takes 32"):
        bert.embed(["the judge writes " * 20])


def test_loading_nothing(tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no whole checkpoint"):
        bert_jax.load(tmp_path / "absent")

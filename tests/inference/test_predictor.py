"""The predictor: what it answers, what it refuses, and that batches do not matter."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from etils import epath
from huggingface_files import stored

import bert_jax
from bert_jax.data.batches import tokenized_batches
from bert_jax.inference import batching
from bert_jax.inference.batching import rows_of
from bert_jax.inference.predictor import Predictor
from bert_jax.model.bert import compute
from bert_jax.model.inputs import Inputs
from bert_jax.pretrained import load_pretrained, write_checkpoint
from bert_jax.runs.pretraining import pretrain


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


def test_fill_mask_wants_a_mask(bert):
    with pytest.raises(ValueError, match=r"The text holds no \[MASK\]; write it in p"):
        bert.fill_mask("no mask here")


def test_fill_mask_of_several_masks(bert):
    """A list for each mask, each as if the others stayed masked; <mask> counts, too."""
    text = "The [MASK] writes the [MASK] in a [MASK]."
    first, second, third = bert.fill_mask(text, top_k=2)
    assert first != second and len(third) == 2
    one, several = bert.fill_mask(["The <mask> writes.", text], k=2)
    assert [token for token, _ in one] == [
        token for token, _ in bert.fill_mask("The [MASK] writes.", k=2)
    ]
    assert [[t for t, _ in mask] for mask in several] == [
        [t for t, _ in mask] for mask in (first, second, third)
    ]
    assert len(bert.fill_mask("The <mask> writes the [MASK].", k=2)) == 2
    # By the tokens of the row itself, of which the three masks are three.
    ids = bert.tokenizer.encode(text, mask_token=True).ids.tolist()
    row = jnp.array([[bert.tokenizer.cls_id, *ids, bert.tokenizer.sep_id]])
    inputs = Inputs(row, jnp.zeros_like(row), jnp.ones_like(row, bool))
    places = jnp.flatnonzero(row[0] == bert.tokenizer.mask_id)[None]
    filled = compute(bert.config, bert.params, "fill", inputs, places)[0]
    for mask, probabilities in zip(several, filled, strict=True):
        best = np.argsort(-probabilities)[:2]
        assert [token for token, _ in mask] == bert.tokenizer.tokens(best.tolist())


def test_fill_mask_of_several_texts(bert):
    """D: a list is taken, and gives a list."""
    texts = ["The [MASK] writes.", "A [MASK] in the garden."]
    for answers, text in zip(bert.fill_mask(texts, k=2), texts, strict=True):
        alone = bert.fill_mask(text, k=2)
        assert [token for token, _ in answers] == [token for token, _ in alone]
        # A CPU's sums depend on the shape of a batch.
        probabilities = [probability for _, probability in answers]
        expected = [probability for _, probability in alone]
        np.testing.assert_allclose(probabilities, expected, rtol=1e-5)
    assert bert.fill_mask([]) == []


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
    for batch_size in (1, 3, 64):
        again = bert.embed(texts, batch_size=batch_size)
        np.testing.assert_allclose(again, together, atol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_embeddings_are_those_of_the_hidden_states(bert, pooling):
    """Against the encoder on each text alone, without padding."""
    texts = ["The judge writes.", "in the garden in the garden", "door"]
    found = bert.embed(texts, pooling=pooling)
    for text, vector in zip(texts, found, strict=True):
        t = bert.tokenizer
        ids = jnp.array([[t.cls_id, *t.encode(text).ids, t.sep_id]])
        hidden = bert_jax.Encoder(bert.config).apply(
            {"params": bert.params["encoder"]}, ids, 0 * ids, ids >= 0
        )[0]
        expected = hidden.mean(0) if pooling == "mean" else hidden[0]
        np.testing.assert_allclose(vector, expected, atol=1e-5)


def test_normalized_embeddings(bert):
    texts = ["The judge writes.", "door"]
    plain, unit = bert.embed(texts), bert.embed(texts, normalize=True)
    norms = np.linalg.norm(plain, axis=1, keepdims=True)
    assert np.abs(norms - 1).min() > 0.1
    np.testing.assert_allclose(unit, plain / norms, atol=1e-6)


@pytest.mark.parametrize("tokens", [16, 50, 90])
def test_parts_of_a_batch_are_its_rows(bert, tokens, monkeypatch):
    """Parts of one row, parts that the last row does not fill, and padding alone."""
    texts = [f"the {'cat ' * (i % 3)}mat" for i in range(21)]
    expected = bert.embed(texts, batch_size=1)
    monkeypatch.setattr(batching, "_CPU_TOKENS", tokens)
    found = bert.embed(texts, batch_size=21)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_few_shapes_are_compiled(bert):
    """Two buckets; of each, full batches of 4 and one batch of 1 or 2."""
    texts = ["door"] * 9 + ["The judge writes the letter. " * 3] * 6
    segments = [(ids,) for ids in bert.tokenizer.encode_batch(texts)]
    rows = rows_of(bert.model, segments)
    shapes = [batch["tokens"].shape for batch in tokenized_batches(rows, 4, 32)]
    assert shapes == [(4, 16), (4, 16), (1, 16), (4, 32), (2, 32)]


@pytest.mark.parametrize("to", ["huggingface", "checkpoint", "onnx", "page"])
def test_a_model_is_saved_as_it_is_in_memory(pretrained, to, tmp_path):
    """With what was changed since it was loaded, here the layers of the encoder."""
    changed = bert_jax.load(pretrained)
    params = jax.tree.map(lambda leaf: 2 * leaf, changed.params["encoder"])
    changed.params = changed.params | {"encoder": params}
    made = Predictor(changed.config, changed.params, changed.tokenizer)
    for number, model in enumerate([changed, made]):
        path = tmp_path / f"{number}.html"
        assert model.save(path, to=to) == path
        if to in ("onnx", "page"):
            assert path.is_file() if to == "page" else (path / "model.onnx").exists()
            continue
        saved = bert_jax.load(path)
        jax.tree.map(np.testing.assert_array_equal, saved.params, model.params)
        if to == "checkpoint" and model is changed:  # as its run made it
            assert saved.trained_length == model.trained_length == 32
        assert saved.fill_mask("The [MASK] reads.") == model.fill_mask(
            "The [MASK] reads."
        )
    with pytest.raises(FileExistsError):
        changed.save(tmp_path, to="checkpoint")
    with pytest.raises(ValueError, match="to='pytorch' must be one of huggingface, on"):
        changed.save(tmp_path / "new", to="pytorch")
    assert not (tmp_path / "new").exists()


def test_parameters_that_were_cast_are_saved_in_float32(tmp_path):
    """Also those of a checkpoint that an earlier version wrote as they were."""
    cast = bert_jax.load(stored("BertModel").write(tmp_path / "model"))
    cast.params = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), cast.params)
    write_checkpoint(cast.model, {}, epath.Path(tmp_path / "earlier"))
    saved = [cast.save(tmp_path / to, to=to) for to in ("checkpoint", "huggingface")]
    cast.params = jax.tree.map(lambda v: np.asarray(v, np.float64), cast.params)
    saved.append(cast.save(tmp_path / "float64"))
    for path in (tmp_path / "earlier", *saved):
        params = load_pretrained(str(path)).params
        assert {leaf.dtype.name for leaf in jax.tree.leaves(params)} == {"float32"}
        jax.tree.map(np.testing.assert_array_equal, params, cast.params)


def test_no_answer_of_an_imported_model_is_by_its_labels(tmp_path, refused):
    files = stored("BertForQuestionAnswering")
    path = files.write(tmp_path / "model")
    with pytest.raises(ValueError, match='null_threshold=1.*needs "id2label": {"0"'):
        bert_jax.load(path).answer("cat", "the cat", null_threshold=1.0)
    (tmp_path / "a.jsonl").write_text('{"question": "cat", "context": "the cat"}\n')
    asked = ("predict", "--model", path, "--input", tmp_path / "a.jsonl")
    error = refused(*asked, "--data.null-threshold=-1")
    assert "data.null_threshold=-1, and the model was trained" in error
    files.config["id2label"] = {"0": "answerable", "1": "unanswerable"}
    answer = bert_jax.load(files.write(path)).answer
    assert answer("cat", "the cat", null_threshold=-1e3)["answer"] == ""


def test_embedding_nothing(bert):
    assert bert.embed([]).shape == (0, 16)


def test_what_embed_refuses(bert):
    with pytest.raises(ValueError, match="pooling='max' must be 'mean' or 'cls'"):
        bert.embed(["a"], pooling="max")
    with pytest.raises(ValueError, match="batch_size=0 must be at least 1"):
        bert.embed(["a"], batch_size=0)


def test_one_text_has_the_result_of_a_list_of_it(bert, tmp_path):
    """By its place or by its name; a list of one stays a list."""
    texts = ["The judge writes.", "door"]
    for method in (bert.embed, bert.pseudo_log_likelihood):
        (expected,) = method(texts[:1])
        for one in (method(texts[0]), method(texts=texts[0])):
            np.testing.assert_array_equal(one, expected)
    assert bert.features(texts[0]).tokens == bert.features(texts)[0].tokens
    model = bert_jax.load(
        stored("BertForSequenceClassification").write(tmp_path / "classifier")
    )
    pair = ("She", "It")
    assert model.classify("She", top_k=1) == model.classify(["She"], top_k=1)[0]
    assert model.classify([pair])[0]["label"] in model.config.labels


def test_texts_over_the_limit_are_refused(bert):
    with pytest.raises(ValueError, match="text 0 has .* tokens.*the model takes 32"):
        bert.embed(["the judge writes " * 20])


def test_a_model_says_what_it_is(bert):
    layers, width = bert.config.num_hidden_layers, bert.config.hidden_size
    start = f"Predictor({layers} layers of {width}, head pretraining, Tokenizer("
    assert repr(bert).startswith(start)
    assert repr(bert).endswith(f"wordpiece, {bert.config.vocab_size} tokens, uncased))")


def test_loading_nothing(tmp_path):
    with pytest.raises(FileNotFoundError, match="absent does not exist; name"):
        bert_jax.load(tmp_path / "absent")

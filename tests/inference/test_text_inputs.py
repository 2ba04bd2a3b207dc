"""Texts as inputs of the encoder."""

import dataclasses

import jax
import numpy as np
import pytest
from etils import epath
from family_files import write_tokenizer

import bert_jax
from bert_jax.formats.tokenizers import from_huggingface
from bert_jax.inference.text_search import corpus_texts


@pytest.fixture(scope="module")
def tokenizer(tokenizer_directory):
    return bert_jax.Tokenizer.load(tokenizer_directory)


def test_rows_of_texts_and_pairs(tokenizer):
    inputs = bert_jax.text_inputs(tokenizer, ["the judge", "a [MASK]"], 16)
    names = [tokenizer.tokens(row.tolist()) for row in inputs.input_ids]
    assert names[0][0] == "[CLS]" and names[0].count("[SEP]") == 1
    assert names[0][names[0].index("[SEP]") + 1 :] == ["[PAD]"] * (
        15 - names[0].index("[SEP]")
    )
    assert "[MASK]" not in names[1]
    assert inputs.input_ids.shape == inputs.segment_ids.shape == (2, 16)
    assert inputs.pair_ids is None
    np.testing.assert_array_equal(
        inputs.attention_mask, np.array(inputs.input_ids) != tokenizer.pad_id
    )
    assert not np.any(inputs.segment_ids)
    pair = bert_jax.text_inputs(tokenizer, [("the judge", "the book")], 16)
    first = tokenizer.encode_batch(["the judge", "the book"])
    with pytest.raises(ValueError, match="texts is of type str; it must be a list"):
        tokenizer.encode_batch("the judge")
    ids = [tokenizer.cls_id, *first[0], tokenizer.sep_id, *first[1], tokenizer.sep_id]
    np.testing.assert_array_equal(pair.input_ids[0, : len(ids)], ids)
    start = 2 + len(first[0])
    expected = [start <= i < len(ids) for i in range(16)]
    np.testing.assert_array_equal(np.array(pair.segment_ids[0], bool), expected)


def test_rows_are_padded_with_the_tokenizers_id(tmp_path):
    """RoBERTa's is 1, and 0 is [CLS]."""
    write_tokenizer("Roberta", tmp_path)
    tokenizer = from_huggingface(epath.Path(tmp_path))
    inputs = bert_jax.text_inputs(tokenizer, ["the cat"], 8)
    assert tokenizer.pad_id == 1
    padding = np.array(inputs.input_ids)[~np.array(inputs.attention_mask)]
    assert len(padding) > 1 and set(padding.tolist()) == {1}


def test_long_texts_are_truncated(tokenizer):
    inputs = bert_jax.text_inputs(tokenizer, ["the judge " * 50], 8)
    assert inputs.input_ids[0, -1] == tokenizer.sep_id and inputs.attention_mask.all()


def test_the_encoder_computes_what_a_predictor_does(pretrained):
    bert = bert_jax.load(pretrained)
    texts = ["The judge reads the letter.", "The baker sells the book."]
    inputs = bert_jax.text_inputs(bert.tokenizer, texts, 32)
    hidden = bert_jax.Encoder(bert.config).apply(
        {"params": bert.params["encoder"]},
        *dataclasses.astuple(inputs)[:3],
    )
    mask = np.array(inputs.attention_mask)[:, :, None]
    means = (np.array(hidden) * mask).sum(1) / mask.sum(1)
    np.testing.assert_allclose(means, bert.embed(texts, pooling="mean"), atol=1e-5)
    assert isinstance(jax.tree.leaves(inputs)[0], jax.Array)


@pytest.mark.parametrize(
    ("texts", "length", "message"),
    [
        ([], 8, "texts is empty"),
        ("one", 8, "texts"),
        (["a", ("b", "c")], 8, "all must be pairs, or none"),
        (["a"], 7, "length=7 must be at least 8"),
    ],
)
@pytest.mark.usefixtures("unchecked_types")
def test_refusals(tokenizer, texts, length, message):
    with pytest.raises(ValueError, match=message):
        bert_jax.text_inputs(tokenizer, texts, length)


@pytest.mark.parametrize("missing", ['""', '" "', "null"])
def test_rows_without_text_are_left_out_of_a_corpus(missing, tmp_path, capsys):
    (tmp_path / "a.jsonl").write_text(f'{{"text": {missing}}}\n{{"text": "b"}}\n')
    assert corpus_texts(str(tmp_path / "a.jsonl")) == {2: "b"}
    assert "1 empty rows are left out" in capsys.readouterr().out


def test_a_corpus_without_the_column_names_the_option(tmp_path):
    (tmp_path / "a.csv").write_text("body,label\na,b\n")
    with pytest.raises(ValueError, match="no text; .* Name the column by --text-colu"):
        corpus_texts(str(tmp_path / "a.csv"))

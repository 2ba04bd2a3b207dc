"""BERT with a tokenizer that gives both texts of a pair segment 0, as XLM-R's does."""

import dataclasses
import json
from pathlib import Path

import jax
import numpy as np
import pytest
from etils import epath
from family_files import write_tokenizer
from huggingface_files import Files, stored

import bert_jax
from bert_jax.apps.convert.export import export_huggingface
from bert_jax.config import (
    BertConfig,
    DataConfig,
    MaskingConfig,
    PrepareConfig,
    PretrainConfig,
)
from bert_jax.data.prepare import prepare
from bert_jax.formats.tokenizers import from_huggingface
from bert_jax.runs.pretraining import pretrain

PAIRS = [("the cat", "a mat"), ("a mat sat", "the cat, the mat")]


@pytest.fixture(scope="module")
def run(corpus: Path, small_config: PretrainConfig, tmp_path_factory) -> Path:
    """Two steps of pretraining on pairs, from the configuration's default shape."""
    folder = tmp_path_factory.mktemp("segments")
    (folder / "theirs").mkdir()
    write_tokenizer("XLMRoberta", folder / "theirs")
    from_huggingface(epath.Path(folder / "theirs")).save(folder / "tokenizer")
    prepare(
        PrepareConfig(
            input=(str(corpus / "a.txt"),),
            tokenizer=str(folder / "tokenizer"),
            output=str(folder / "data"),
            sequence_length=32,
            workers=1,
        )
    )
    config = dataclasses.replace(
        small_config,
        model=BertConfig.miniature(1, 16, vocab_size=40, max_position_embeddings=32),
        data=DataConfig(path=str(folder / "data")),
        masking=MaskingConfig(max_predictions=5),
        num_steps=2,
        checkpoint_every=2,
        log_examples=False,
    )
    assert config.model.type_vocab_size == 2
    pretrain(config, folder / "run")
    return folder / "run"


def test_a_pretrained_model_gives_the_same_before_and_after_export(run, tmp_path):
    """A second row would be trained here, and never read by transformers."""
    trained = bert_jax.load(run)
    assert not trained.tokenizer.has_segments
    assert trained.config.type_vocab_size == 1
    export_huggingface(str(run), epath.Path(tmp_path / "out"))
    again = bert_jax.load(tmp_path / "out")
    for pair in PAIRS:
        assert again.next_sentence(*pair) == trained.next_sentence(*pair)


def files_with_its_tokenizer(head: str, folder: Path) -> Files:
    """A BERT whose two rows for segments differ, with XLM-R's kind of tokenizer."""
    files = stored(head)
    table = next(name for name in files.tensors if "word_embeddings" in name)
    files.tensors[table] = files.tensors[table][:40]
    files.config["vocab_size"] = 40
    files.write(folder)
    (folder / "vocab.txt").unlink()
    write_tokenizer("XLMRoberta", folder)
    path = folder / "tokenizer_config.json"
    # Else transformers makes a WordPiece of it, since the model is a BERT.
    named = {"tokenizer_class": "PreTrainedTokenizerFast"}
    path.write_text(json.dumps(json.loads(path.read_text()) | named))
    return files


def test_an_imported_model_gives_its_second_text_segment_0(tmp_path):
    """As paraphrase-multilingual-MiniLM-L12-v2, whose class is BertModel."""
    files = files_with_its_tokenizer("BertForSequenceClassification", tmp_path / "a")
    table = "bert.embeddings.token_type_embeddings.weight"
    assert np.abs(np.diff(files.tensors[table], axis=0)).max() > 0.01
    model = bert_jax.load(tmp_path / "a")
    assert model.config.type_vocab_size == 1
    expected = model.classify(PAIRS)
    files.tensors[table][1] = 100.0  # never read
    files.write(tmp_path / "b")
    (tmp_path / "b" / "vocab.txt").unlink()
    write_tokenizer("XLMRoberta", tmp_path / "b")
    assert bert_jax.load(tmp_path / "b").classify(PAIRS) == expected


@pytest.mark.parametrize("kind", ["wordpiece", "huggingface"])
def test_segments_that_the_files_leave_out_are_not_given(kind, tmp_path):
    """transformers then gives a BERT none, so all tokens have segment 0."""
    folder = tmp_path / "a"
    if kind == "wordpiece":
        stored("BertForSequenceClassification").write(folder)
    else:
        files_with_its_tokenizer("BertForSequenceClassification", folder)
        path = folder / "tokenizer.json"
        content = json.loads(path.read_text())
        for item in content["post_processor"]["pair"][-2:]:
            next(iter(item.values()))["type_id"] = 1
        path.write_text(json.dumps(content))
    with_two = bert_jax.load(folder)
    assert with_two.tokenizer.kind == kind and with_two.tokenizer.has_segments
    path = folder / "tokenizer_config.json"
    names = {"model_input_names": ["input_ids", "attention_mask"]}
    path.write_text(json.dumps(json.loads(path.read_text()) | names))
    model = bert_jax.load(folder)
    assert not model.tokenizer.has_segments and model.config.type_vocab_size == 1
    assert model.classify(PAIRS) != with_two.classify(PAIRS)
    export_huggingface(str(folder), epath.Path(tmp_path / "b"))
    again = bert_jax.load(tmp_path / "b")
    assert not again.tokenizer.has_segments
    assert again.classify(PAIRS) == model.classify(PAIRS)


@pytest.mark.parity
@pytest.mark.parametrize("leave_out", [False, True])
def test_transformers_gives_the_same_scores_of_pairs(tmp_path, leave_out):
    """With XLM-R's tokenizer, or with a WordPiece without the input for segments."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    if leave_out:
        stored("BertForSequenceClassification").write(tmp_path / "a")
        names = ["input_ids", "attention_mask"]
        values = {"do_lower_case": True, "model_input_names": names}
        path = tmp_path / "a" / "tokenizer_config.json"
        path.write_text(json.dumps(values))
    else:
        files_with_its_tokenizer("BertForSequenceClassification", tmp_path / "a")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "a")
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "a"
    ).eval()
    ours = bert_jax.load(tmp_path / "a").classify(PAIRS)
    for pair, prediction in zip(PAIRS, ours, strict=True):
        with torch.no_grad():
            logits = theirs(**tokenizer(*pair, return_tensors="pt")).logits[0].numpy()
        found = np.array(list(prediction["probabilities"].values()))
        np.testing.assert_allclose(found, jax.nn.softmax(logits), rtol=0, atol=1e-5)

"""Byte-level BPE has a token for a word after a space and another without one."""

import json

import numpy as np
import pytest
import tokenizers
from etils import epath
from family_files import byte_level_bpe, write_tokenizer

from bert_jax.config import BertConfig, ExamplesConfig, PrepareConfig
from bert_jax.data.masked_texts import masked_texts
from bert_jax.data.prepare import prepare
from bert_jax.data.records import open_dataset
from bert_jax.data.search import find_any, find_tokens, tokens_inside_words
from bert_jax.formats.tokenizers import from_huggingface
from bert_jax.tasks.tagging.conll import Sentence
from bert_jax.tasks.tagging.task import TokenClassificationTask

FAMILIES = ("Roberta", "XLMRoberta", "Electra")


def tokenizer_of(family, folder):
    write_tokenizer(family, folder)
    return from_huggingface(epath.Path(folder))


@pytest.mark.parametrize("prefix", [True, False])
def test_words_of_a_tagged_sentence_are_those_of_transformers(prefix, tmp_path):
    """It asks for add_prefix_space where words are given (`is_split_into_words`)."""
    content = byte_level_bpe()
    content["pre_tokenizer"]["add_prefix_space"] = prefix
    tokenizer = tokenizer_of("Roberta", tmp_path)
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    tokenizer = from_huggingface(epath.Path(tmp_path))
    content["pre_tokenizer"]["add_prefix_space"] = True
    library = tokenizers.Tokenizer.from_str(json.dumps(content))
    library.no_truncation()
    words = ("the", "cat", ",", "the", "mat")
    model = BertConfig.tiny(head="token_classification", labels=("O",))
    task = TokenClassificationTask(ExamplesConfig(), model)
    rows = task.tokenize([Sentence(words)], tokenizer)
    theirs = library.encode(words, is_pretokenized=True)
    assert rows.tokens.tolist() == theirs.ids
    starts = [i for i, word in enumerate(theirs.word_ids) if word is not None]
    assert [theirs.word_ids[i] for i in starts if rows.by_token["word"][i] >= 0] == [
        *range(len(words))
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_sentences_of_a_document_have_the_tokens_of_the_document(family, tmp_path):
    sentences = ["the cat sat.", "the mat, the cat!", "a mat."]
    tokenizer = tokenizer_of(family, tmp_path)
    tokenizer.save(tmp_path / "tokenizer")
    (tmp_path / "text.txt").write_text("\n".join(sentences) + "\n\n" + sentences[1])
    config = PrepareConfig(
        input=(str(tmp_path / "text.txt"),),
        tokenizer=str(tmp_path / "tokenizer"),
        output=str(tmp_path / "data"),
        sequence_length=64,
        sentences="lines",
        pairs="none",
        validation_fraction=0.0,
        workers=1,
    )
    prepare(config, lambda line: None)
    train = open_dataset(str(tmp_path / "data")).train
    read = {
        tuple(row["tokens"][1 : row["end"][0] - 1])
        for row in train.gather(np.arange(len(train)))
    }
    texts = [" ".join(sentences), sentences[1]]
    assert read == {tuple(tokenizer.encode(text).ids) for text in texts}
    # A word is found at the start of a document, and after a space.
    ids = [tokenizer.encode(text).ids.tolist() for text in ("the mat", " the mat")]
    inside = tokens_inside_words(tokenizer)
    (found,) = find_any(train, ids, inside)
    assert len(found.rows) == 2
    (one,) = find_tokens(train, ids[0], inside)
    assert len(one.rows) == (1 if family == "Roberta" else 2)
    # Not inside a word, as the tokens of a beginning would be.
    special = tokenizer.cls_id, tokenizer.sep_id
    (same,) = find_any(train, ids, inside, special)
    assert same.rows.tolist() == found.rows.tolist()
    part = [tokenizer.encode("at").ids.tolist()]
    (inner,) = find_any(train, part, inside, special)
    assert not len(inner.rows)


def test_the_mark_of_a_space_is_no_letter_of_a_masked_word(tmp_path):
    """Words of three letters are not masked on the page of a run."""
    tokenizer_of("Roberta", tmp_path).save(tmp_path / "tokenizer")
    sentence = "the cat sat. the mat, the cat! the mat the cat."
    (tmp_path / "text.txt").write_text("\n\n".join([sentence] * 8))
    config = PrepareConfig(
        input=(str(tmp_path / "text.txt"),),
        tokenizer=str(tmp_path / "tokenizer"),
        output=str(tmp_path / "data"),
        pairs="none",
        validation_fraction=0.5,
        workers=1,
    )
    prepare(config, lambda line: None)
    assert masked_texts(open_dataset(str(tmp_path / "data")), 5, 100) == []

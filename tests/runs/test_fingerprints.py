"""The fingerprints of training, validation and test examples."""

import dataclasses
import hashlib
from functools import partial

import pytest

from bert_jax.config import ExamplesConfig
from bert_jax.runs.finetuning_examples import with_fingerprints
from bert_jax.tasks.choices import examples as choices
from bert_jax.tasks.predictions import Splits
from bert_jax.tasks.tagging.conll import read_sentences

DATA = ExamplesConfig()


@pytest.mark.parametrize(
    ("read", "row"),
    [
        (read_sentences, '{"tokens": ["Oslo"], "tags": ["B-LOC"]}\n'),
        (partial(choices.read, config=DATA), '{"context": "a", "choices": ["b", "c"]}'),
    ],
    ids=["tags", "choices"],
)
def test_files_may_be_moved(read, row, tmp_path):
    """Also between hosts, each of which has a copy of its own."""
    fingerprints, of_train = [], []
    for name, text in (("a", row), ("b", row), ("c", row.replace('["', '["d'))):
        path = tmp_path / f"{name}.jsonl"
        path.write_text(text)
        examples = read(str(path))
        data = with_fingerprints(DATA, examples, Splits([], examples, examples))
        assert data.validation_fingerprint == data.test_fingerprint
        fingerprints.append(data.validation_fingerprint)
        of_train.append(data.fingerprint)
        before = with_place(examples)
        for recorded in (before, "that of another file"):
            old = dataclasses.replace(DATA, fingerprint=recorded)
            kept = with_fingerprints(old, examples, Splits([], examples, []))
            assert (kept.fingerprint == before) == (recorded == before)
    assert fingerprints[0] == fingerprints[1] != fingerprints[2]
    assert of_train == fingerprints


def with_place(examples):
    """The fingerprint of a run of an older version, which a run that resumes keeps."""
    line = repr(examples[0]).replace("ChoiceExample", "Choice")
    return hashlib.sha256(f"{line}\n".encode()).hexdigest()

"""Row lengths that follow the model, and classes that may be one."""

import jax
import pytest

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.inference.evaluation import default_examples_config
from bert_jax.inference.predictor import Predictor
from bert_jax.model.bert import init_params
from bert_jax.tasks.class_names import similar_label_warnings
from bert_jax.tasks.lengths import changed_lengths, fit_lengths
from bert_jax.tokenization import Tokenizer


def lengths(data: ExamplesConfig) -> tuple[int, int, int]:
    return data.max_length, data.max_query_length, data.document_stride


@pytest.mark.parametrize(
    ("options", "positions", "expected"),
    [
        # A length that fits the model is kept.
        ({"max_length": 384}, 512, (384, 64, 128)),
        ({"max_length": 195}, 512, (195, 64, 128)),
        # 128 positions leave 61 tokens for the document: half of them.
        ({"max_length": 384}, 128, (128, 64, 30)),
        ({}, 128, (128, 64, 30)),
        ({}, 64, (64, 32, 14)),
        ({}, 32, (32, 16, 6)),
        ({}, 8, (8, 4, 1)),
        # A length that was given is kept, and is refused later if it does not fit.
        ({"max_length": 64}, 32, (64, 32, 14)),
        ({"max_length": 96, "document_stride": 20}, 96, (96, 64, 20)),
        ({"document_stride": 99}, 64, (64, 32, 99)),
        ({"max_query_length": 60}, 64, (64, 60, 1)),
        ({"max_query_length": 61}, 64, (64, 61, 128)),
        ({}, 512, (512, 64, 128)),
    ],
)
def test_f2_lengths_follow_the_model(options, positions, expected):
    """F2: the default stride is one that the model can take."""
    assert lengths(fit_lengths(ExamplesConfig(**options), positions)) == expected


@pytest.mark.parametrize("positions", [8, 16, 32, 64, 96, 128, 200, 256, 512, 2048])
def test_f2_an_imported_model_can_predict(positions):
    max_length, query, stride = lengths(default_examples_config(positions))
    assert max_length == positions and 1 <= stride <= max_length - query - 3


def test_f2_a_model_of_128_positions_answers(tokenizer_directory):
    """F2: as it is loaded, about a document of several rows."""
    tokenizer = Tokenizer.load(tokenizer_directory)
    model = BertConfig.miniature(
        1,
        16,
        vocab_size=tokenizer.vocab_size,
        max_position_embeddings=128,
        head="question_answering",
    )
    params = jax.jit(lambda key: init_params(model, key))(jax.random.key(0))
    context = "The judge reads a letter in the garden. " * 40
    assert len(tokenizer.encode(context).ids) > 256
    answer = Predictor(model, params, tokenizer).answer("Who reads?", context)
    assert answer["answer"] == context[answer["start"] : answer["end"]] != ""


def test_what_changed_is_named():
    before, after = ExamplesConfig(), default_examples_config(32)
    names = ["max_length=32", "max_query_length=16", "document_stride=6"]
    assert changed_lengths(before, after) == names
    assert changed_lengths(before, before) == []


@pytest.mark.parametrize(
    "labels",
    [("a", " a"), ("a", "A"), ("a b", "a  b"), ("é", "e\u0301"), ("ss", "ß")],
)
def test_b2_classes_that_look_the_same(labels):
    """B2: they are two classes, and a line warns of it."""
    (line,) = similar_label_warnings(labels)
    assert (
        f"The classes {labels[0]!a} and {labels[1]!a} differ only in white space"
        in line
    )


def test_classes_that_differ():
    assert similar_label_warnings(("a", "b", "ab", "O", "B-PER", "I-PER")) == []

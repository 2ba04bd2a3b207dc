"""Row lengths that follow the model, and classes that may be one."""

import dataclasses

import jax
import pytest
from etils import epath
from squad_texts import tokenizer

from bert_jax.config import BertConfig, ExamplesConfig, FinetuneConfig
from bert_jax.formats.embedding import stated_length
from bert_jax.inference.evaluation import default_examples_config
from bert_jax.inference.predictor import Predictor
from bert_jax.model.bert import init_params
from bert_jax.runs.finetuning_setup import Start, with_lengths
from bert_jax.tasks.class_names import amounts_warning, similar_label_warnings
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


@pytest.mark.parametrize(
    ("task", "given", "own", "expected", "said"),
    [
        ("text-classification", 0, 256, 256, "max_length=256: the model's own length."),
        ("text-classification", 0, 0, 128, "max_length=128: the default, since the "),
        ("question-answering", 0, 0, 384, "max_length=384: the default, since the "),
        ("question-answering", 0, 512, 512, "max_length=512: the model's own length."),
        ("sentence-pairs", 0, 900, 512, "max_length=512: the model's own length."),
        ("sentence-pairs", 128, 256, 128, "max_length=128 in place of the model's own"),
        ("sentence-pairs", 256, 256, 256, ""),
        ("sentence-pairs", 128, 0, 128, ""),
    ],
)
def test_the_length_of_a_run(task, given, own, expected, said, capsys):
    """That of the command, else the model's own, else a default; a line says which."""
    config = FinetuneConfig(task=task, data=ExamplesConfig(max_length=given))
    model = BertConfig.miniature(1, 16, max_position_embeddings=512)
    start = Start(
        model=model,
        tokenizer=tokenizer(),
        params={},
        embedding=None,
        split="rows",
        own_length=own,
    )
    assert with_lengths(config, start).max_length == expected
    output = capsys.readouterr().out
    assert output.startswith(said) and bool(said) == bool(output)
    # A run that has begun says nothing.
    with_lengths(config, dataclasses.replace(start, params=None))
    assert not capsys.readouterr().out


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 0),
        ({"tokenizer_config.json": '{"model_max_length": 512}'}, 512),
        ({"tokenizer_config.json": '{"model_max_length": 1e30}'}, 0),
        ({"tokenizer_config.json": '{"max_len": 128}'}, 128),
        (
            {
                "tokenizer_config.json": '{"model_max_length": 512}',
                "sentence_bert_config.json": '{"max_seq_length": 256}',
            },
            256,
        ),
        ({"sentence_bert_config.json": '{"max_seq_length": null}'}, 0),
        ({"sentence_xlm-roberta_config.json": '{"max_seq_length": 256}'}, 256),
    ],
)
def test_the_length_that_files_state(files, expected, tmp_path):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert stated_length(epath.Path(tmp_path)) == expected


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


@pytest.mark.parametrize(
    ("labels", "example"),
    [(("1", "0.5", "2", "3", "4", "5.25"), "0.5"), (tuple(map(str, range(21))), "0")],
)
def test_numbers_that_may_be_amounts(labels, example):
    (line,) = amounts_warning(labels)
    assert f"All {len(labels)} classes are numbers, such as '{example}'" in line
    assert "`bert-jax finetune text-regression`" in line


@pytest.mark.parametrize(
    "labels",
    [("1.1", "1.2", "2"), tuple(map(str, range(20))), (*"123456", "1.5 x"), ()],
)
def test_numbers_that_are_codes(labels):
    assert amounts_warning(labels) == []


def test_classes_that_differ():
    assert similar_label_warnings(("a", "b", "ab", "O", "B-PER", "I-PER")) == []

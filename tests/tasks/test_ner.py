"""Tagging: sentences → rows, scores → tags, tags → entities."""

import dataclasses
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.metrics.entities import SCHEMES, Entity, entity_scores, write_tags
from bert_jax.tables.rows import TableRow
from bert_jax.tasks.predictions import Predictions, Split, SplitOutputs, Splits
from bert_jax.tasks.tagging.conll import Sentence, read_sentences
from bert_jax.tasks.tagging.rows import sentence_from_text, split_words
from bert_jax.tasks.tagging.task import TokenClassificationTask
from bert_jax.tokenization import SPECIAL_TOKENS, Tokenizer

WNUT = Path(__file__).parents[3] / "shared" / "data" / "wnut17"
LETTERS = "abcdefgh"
TOKENIZER = Tokenizer(
    {"kind": "wordpiece", "cased": False},
    "\n".join([*SPECIAL_TOKENS, *LETTERS, *(f"##{c}" for c in LETTERS)]).encode(),
)
LABELS = ("O", "B-A", "B-c-d", "I-A", "I-c-d")
IOBES = ("O", *(f"{prefix}-{type_}" for prefix in "BEIS" for type_ in ("A", "c-d")))


def model(labels=LABELS, **options):
    return BertConfig.tiny(head="token_classification", labels=labels, **options)


def sentence(text, tags, **options):
    return Sentence(tuple(text.split()), tuple(tags.split()), "IOB2", **options)


def task(labels=LABELS, **options):
    return TokenClassificationTask(ExamplesConfig(**options), model(labels))


def tokenize(examples, labels=LABELS, **options):
    return task(labels, **options).tokenize(examples, TOKENIZER)


def readable(tokenized, row):
    part = slice(tokenized.starts[row], tokenized.starts[row + 1])
    return " ".join(TOKENIZER.tokens(tokenized.tokens[part]))


def ideal_outputs(tokenized, padding=3):
    """The gold tags of the tokens that have one, and any tags of the others."""
    generator = np.random.default_rng(0)
    outputs = []
    for i in range(len(tokenized)):
        gold = np.pad(tokenized.token_values("label", i), (0, padding))
        tags = np.where(gold < 0, generator.integers(0, 2, len(gold)), gold)
        tags = tags.astype(np.int32)
        outputs.append({"tag": tags, "probability": np.ones(len(gold), np.float32)})
    return outputs


def predict(examples, tokenized, rows, labels=LABELS):
    return task(labels).predict(SplitOutputs(Split(examples, tokenized), rows))


def test_words_are_split_at_white_space_punctuation_and_ideographs():
    text = "Dr. O'Neil,\xa0  £5 in 北京市x\u2028y"
    words, offsets = split_words(text)
    assert words == "Dr . O ' Neil , £5 in 北 京 市 x y".split()
    assert [text[start:end] for start, end in offsets] == words
    assert split_words(" \n") == ([], [])


@given(st.text())
def test_words_lie_in_the_text_in_order_and_leave_only_white_space(text):
    words, offsets = split_words(text)
    assert [text[start:end] for start, end in offsets] == words
    rest, last = "", 0
    for start, end in offsets:
        assert last <= start < end
        rest, last = rest + text[last:start], end
    assert not (rest + text[last:]).strip()


def test_an_example_to_predict_is_a_text_or_tokens():
    example = task().example_without_label(TableRow({"text": "A b."}, "line 1"))
    assert example == sentence_from_text("A b.") and not task().has_label(example)
    body = TableRow({"body": "A b."}, "line 1")
    assert task(text_columns=("body",)).example_without_label(body) == example
    both = TableRow(body.values | {"tokens": ["c"]}, "line 1")
    assert task(text_columns=("body",)).example_without_label(both) == example
    words = task().example_without_label(TableRow({"tokens": ["A", "b."]}, "line 1"))
    assert words.words == ("A", "b.") and not words.text
    with pytest.raises(ValueError, match="^line 1 has no text"):
        task().example_without_label(body)
    assert task().has_label(sentence("a", "O"))


def test_the_first_token_of_a_word_has_its_tag():
    tokenized = tokenize([sentence("ab c fgh", "B-A I-A O"), sentence("b", "B-c-d")])
    assert readable(tokenized, 0) == "[CLS] a ##b c f ##g ##h [SEP]"
    labels, words = (tokenized.token_values(name, 0) for name in ("label", "word"))
    assert labels.tolist() == [-1, 1, -1, 3, 0, -1, -1, -1]
    assert words.tolist() == [-1, 0, -1, 1, 2, -1, -1, -1]
    assert tokenized.token_values("label", 1).tolist() == [-1, 2, -1]
    assert tokenized.example.tolist() == [0, 1] and tokenized.second.tolist() == [8, 3]
    dtypes = {values.dtype for values in tokenized.by_token.values()}
    assert dtypes == {np.dtype(np.int32)}


def test_words_without_tokens_and_without_tags():
    tokenized = tokenize([Sentence(("\x01", "a", "\u200b", "!"))])
    assert readable(tokenized, 0) == "[CLS] [UNK] a [UNK] [UNK] [SEP]"
    assert tokenized.token_values("label", 0).tolist() == [-1] * 6
    assert tokenized.token_values("word", 0).tolist() == [-1, 0, 1, 2, 3, -1]


def test_a_long_sentence_is_split_between_words_and_a_long_word_cut():
    text = "abc de abcdefgh f aaaaaaaa"
    examples = [sentence(text, "B-A I-A O O B-A")]
    tokenized = tokenize(examples, max_length=8)
    assert [readable(tokenized, row) for row in range(4)] == [
        "[CLS] a ##b ##c d ##e [SEP]",
        "[CLS] a ##b ##c ##d ##e ##f [SEP]",
        "[CLS] f [SEP]",
        "[CLS] a ##a ##a ##a ##a ##a [SEP]",
    ]
    assert tokenized.example.tolist() == [0] * 4
    words = [tokenized.token_values("word", row).max() for row in range(4)]
    assert words == [1, 2, 3, 4]
    warning = "split into several rows of 8 tokens: 1 of 1 sentences"
    assert task(max_length=8).warnings(Split(examples, tokenized)) == [warning]
    assert task().warnings(Split(examples, tokenize(examples))) == []


def test_rows_are_no_longer_than_the_model_takes():
    short = TokenClassificationTask(ExamplesConfig(), model(max_position_embeddings=10))
    tokenized = short.tokenize([sentence("a " * 20, "O " * 20)], TOKENIZER)
    assert np.diff(tokenized.starts).tolist() == [10, 10, 6]


def test_a_text_without_words_has_a_row_too():
    examples = [sentence_from_text(" ")]
    tokenized = tokenize(examples)
    assert readable(tokenized, 0) == "[CLS] [SEP]"
    predictions = predict(examples, tokenized, ideal_outputs(tokenized))
    assert predictions == [{"tags": [], "entities": []}]


def test_tags_in_another_scheme_are_learned_in_the_models():
    iob1 = Sentence(("a", "b", "c"), ("I-A", "I-A", "B-A"), "IOB1")
    iob2 = tokenize([iob1]).token_values("label", 0)
    assert [LABELS[i] for i in iob2[1:-1]] == ["B-A", "I-A", "B-A"]
    iobes = tokenize([iob1], IOBES).token_values("label", 0)
    assert [IOBES[i] for i in iobes[1:-1]] == ["B-A", "E-A", "S-A"]
    singles = tokenize([sentence("a b", "B-A O")], ("O", "S-A"))
    assert singles.token_values("label", 0).tolist() == [-1, 1, 0, -1]


def test_labels_are_those_of_training():
    examples = [sentence("a b c", "O B-c I-c"), sentence("d", "B-A")]
    assert task().labels(examples) == ("O", "B-A", "B-c", "I-c")
    iob1 = [Sentence(("a", "b", "c"), ("I-A", "O", "I-A"), "IOB1")]
    assert task().labels(iob1) == ("O", "B-A")
    iobes = [Sentence(("a", "b"), ("B-A", "E-A"), "IOBES")]
    assert task().labels(iobes) == ("O", "B-A", "E-A")
    given = TokenClassificationTask(ExamplesConfig(labels=LABELS))
    assert given.labels(examples) == LABELS


def test_tags_of_entities_in_another_form_are_told():
    for labels in (("O", "B_A", "I_A"), ("A-B", "A-I", "O"), ("B/A", "O")):
        [line] = task(labels).label_warnings([])
        assert line.startswith(
            f"Tags such as {min({*labels} - {'O'})!r} are learned as"
        )
    for labels in (LABELS, ("O", "B-E", "I-E"), ("NN", "O", "V_B"), ("A_B", "A_I")):
        assert task(labels).label_warnings([]) == []


def test_training_files_from_which_nothing_can_be_learned():
    with pytest.raises(ValueError, match="^a.txt has no tags; nothing can be learned"):
        task().labels([Sentence(("a",), path="a.txt")])
    commas = Sentence(("a,O", "b,B-A"), columns=(("a,O",), ("b,B-A",)), path="a.txt")
    with pytest.raises(ValueError, match="^a.txt has no tags; .* write a tab between"):
        task().labels([commas])
    with pytest.raises(ValueError, match="^a.txt has no entity: every tag is O"):
        task().labels([sentence("a", "O", path="a.txt")])
    plain = [Sentence(("a", "b"), ("NN", "NN"), path="a.txt")]
    with pytest.raises(ValueError, match="^a.txt: every tag is 'NN'; nothing can be l"):
        task().labels(plain)


def test_the_tags_of_a_training_file_are_where_the_options_say(tmp_path):
    columns, rows = tmp_path / "a.txt", tmp_path / "a.jsonl"
    columns.write_text("a NN B-A\nb NN O\n\n1 CD O\n")
    rows.write_text('{"tokens": ["a"], "labels": ["B-A"]}\n')
    for file, name, message in (
        (columns, "pos", "a.txt is a file of columns, which have no names, and the la"),
        (rows, "label", "line 1 has no tags; its columns are tokens, labels. Name the"),
        (rows, "lable", "has no lable; .*Did you mean labels. Name .* --label-column"),
    ):
        kind = task(label_column=name)
        with pytest.raises(ValueError, match=message):
            kind.labels(kind.read(str(file)))


def test_tags_that_the_model_lacks():
    examples = [Sentence(("x",)), sentence("a b", "O B-X", path="dev.txt", line=7)]
    message = "^dev.txt, line 7: tag 'B-X' is none of the model's: O, B-A, .*B-X; or r"
    with pytest.raises(ValueError, match=message):
        task().check(examples)
    columns = (("a", "O"), ("b", "B-X"))
    examples = [sentence("a b", "O B-X", path="dev.txt", line=7, columns=columns)]
    message = r"^dev.txt, line 8: tag 'B-X' \(S-X in IOBES\) is none of the model's: O"
    with pytest.raises(ValueError, match=message):
        task(IOBES).check(examples)
    task().check([sentence("a b", "O B-A"), Sentence(("x",))])


def test_loss_is_summed_over_tokens_with_a_tag():
    scores = jnp.log(jnp.array([[[0.5, 0.25, 0.25]] * 3, [[0.1, 0.8, 0.1]] * 3]))
    batch = {"label": jnp.array([[-1, 1, 0], [-1, 1, -1]])}
    total, count = task().label_loss(scores, batch)
    assert total == pytest.approx(np.log(4) + np.log(2) - np.log(0.8), rel=1e-6)
    assert count == task().label_count(batch) == 3
    padding = {"label": jnp.full((2, 3), -1)}
    assert [float(value) for value in task().label_loss(scores, padding)] == [0, 0]
    assert task().label_count(padding) == 0


def test_outputs_are_the_most_probable_tags():
    scores = jnp.log(jnp.array([[[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]]]))
    outputs = jax.jit(task().outputs)(scores)
    assert outputs["tag"].tolist() == [[0, 2]] and outputs["tag"].dtype == jnp.int32
    np.testing.assert_allclose(outputs["probability"], [[0.5, 0.7]], rtol=1e-6)


def test_entities_by_words():
    examples = [sentence("ab c fgh d", "O O O O")]
    output = {
        "tag": np.array([2, 1, 2, 3, 2, 0, 4, 0, 0], np.int32),
        "probability": np.array([1, 0.5, 1, 0.25, 0.75, 1, 1, 1, 1], np.float32),
    }
    (prediction,) = predict(examples, tokenize(examples), [output])
    assert prediction["tags"] == ["B-A", "I-A", "B-c-d", "O"]
    assert prediction["entities"] == [
        {"type": "A", "text": "ab c", "start": 0, "end": 2, "score": 0.375},
        {"type": "c-d", "text": "fgh", "start": 2, "end": 3, "score": 0.75},
    ]


def test_entities_of_a_text_have_their_place_in_it():
    example = sentence_from_text("A-Bc  (d) \U0001f600 e!")
    assert example.words == ("A", "-", "Bc", "(", "d", ")", "\U0001f600", "e", "!")
    tags = [0, 1, 3, 3, 0, 0, 0, 0, 0, 3, 0, 0]  # [CLS] a - b ##c ( d ) 😀 e ! [SEP]
    output = {"tag": np.array(tags, np.int32), "probability": np.ones(12, np.float32)}
    (prediction,) = predict([example], tokenize([example]), [output])
    places = [(e["text"], e["start"], e["end"]) for e in prediction["entities"]]
    # An I after O begins an entity, as in conlleval.
    assert places == [("A-Bc", 0, 4), ("e", 12, 13)]
    for text, start, end in places:
        assert example.text[start:end] == text


def predictions_of(examples, tags):
    return Predictions(examples, [{"tags": own} for own in tags])


def test_scores_counted_by_hand():
    examples = [sentence("a b c d", "B-A I-A O B-c-d"), sentence("e f", "B-A O")]
    tags = [["B-A", "I-A", "O", "O"], ["O", "B-c-d"]]
    scores = task().official_scores(predictions_of(examples, tags))
    assert list(scores) == ["f1", "precision", "recall", "accuracy", "f1_A", "f1_c-d"]
    # One right of two predicted and of three there; three of six tags.
    expected = [0.4, 1 / 2, 1 / 3, 1 / 2, 2 / 3, 0]
    assert list(scores.values()) == pytest.approx(expected)
    with pytest.raises(ValueError, match="^a.txt has no tags; there is nothing to sc"):
        task().official_scores(
            predictions_of([Sentence(("a",), path="a.txt")], [["O"]])
        )


def test_predictions_are_written_in_the_files_own_scheme(tmp_path):
    path = tmp_path / "dev.txt"
    path.write_text("a NN I-A\nb NN I-A\nc NN B-A\nd NN O\n\ne NN I-c-d\n")
    tags = [["B-A", "I-A", "B-A", "I-c-d"], ["O"]]
    predictions = predictions_of(read_sentences(str(path)), tags)
    assert task().write(predictions, tmp_path) == ["predictions.txt"]
    assert (tmp_path / "predictions.txt").read_text() == (
        "a NN I-A I-A\nb NN I-A I-A\nc NN B-A B-A\nd NN O I-c-d\n\ne NN I-c-d O\n"
    )
    assert task().official_scores(predictions)["accuracy"] == 3 / 5


def test_tags_of_a_bilou_model_are_scored_and_written_in_the_files_scheme(tmp_path):
    path = tmp_path / "dev.txt"
    path.write_text("a B-A\nb I-A\nc I-A\n\nd B-d\n\ne O\n")
    own = task(("O", *(f"{prefix}-{kind}" for kind in ("A", "d") for prefix in "BILU")))
    tags = [["B-A", "I-A", "L-A"], ["U-d"], ["O"]]
    predictions = predictions_of(read_sentences(str(path)), tags)
    assert own.official_scores(predictions)["accuracy"] == 1
    own.write(predictions, tmp_path)
    written = (tmp_path / "predictions.txt").read_text()
    assert written == "a B-A B-A\nb I-A I-A\nc I-A I-A\n\nd B-d B-d\n\ne O O\n"


def test_ill_formed_tags_are_written_as_predicted(tmp_path):
    examples = [sentence("a b", "B-A O"), Sentence(("c",))]
    task().write(predictions_of(examples, [["I-A", "O"], ["I-A"]]), tmp_path)
    written = (tmp_path / "predictions.txt").read_text()
    assert written == "a\tB-A\tI-A\nb\tO\tO\n\nc\tI-A\n"


def test_the_baseline_looks_up_the_longest_entity_of_training():
    train = [
        sentence("a b c", "B-A I-A O"),
        sentence("a d", "B-c-d O"),
        sentence("a d", "B-A O"),
        sentence("a d", "B-A O"),
    ]
    # "a b" is found whole, then "a" with its commoner type; "e" was never seen.
    validation = [sentence("a b a e", "B-A I-A B-c-d B-A")]
    name, f1 = task().baseline(Splits(train, validation))
    assert name == "training-dictionary lookup" and f1 == pytest.approx(2 / 5)
    assert task().baseline(Splits([sentence("a", "O")], validation))[1] == 0


@pytest.mark.parametrize(
    ("names", "part", "expected"),
    [
        ("train.txt valid.txt", "validation", "valid.txt"),
        ("train.txt dev.txt test.txt", "validation", "dev.txt"),
        ("eng.train eng.testa eng.testb", "test", "eng.testb"),
        ("train.conll dev.conll", "train", "train.conll"),
        ("emerging.test.annotated wnut17train.conll", "train", "wnut17train.conll"),
    ],
)
def test_parts_of_a_directory(tmp_path, names, part, expected):
    for name in names.split():
        (tmp_path / name).write_text(f"{name} O\n")
    (example,) = task(path=str(tmp_path)).read(part)
    assert example.words == (expected,)


def test_parts_that_are_not_there(tmp_path):
    (tmp_path / "train.txt").write_text("a O\n")
    message = "has no validation file; looked for valid.txt, dev.txt, eng.testa, dev"
    with pytest.raises(FileNotFoundError, match=message):
        task(path=str(tmp_path)).read("validation")
    with pytest.raises(FileNotFoundError, match="path=.*/b is not a directory; give"):
        task(path=str(tmp_path / "b")).read("train")
    # A file is a file, whatever its name.
    with pytest.raises(FileNotFoundError, match="^train is not a file"):
        task().read("train")


WORDS = st.text(LETTERS + "!\x01", min_size=1, max_size=12)
SENTENCES = st.lists(
    st.lists(st.tuples(WORDS, st.integers(0, 3)), min_size=1, max_size=40),
    min_size=1,
    max_size=4,
)


def tagged(drawn, scheme):
    """A sentence of words, each with the entity it begins (1, 2), goes on with (3)."""
    found = []
    for i, (_, kind) in enumerate(drawn):
        if kind == 3 and found and found[-1].end == i:
            found[-1] = Entity(found[-1].type, found[-1].start, i + 1)
        elif kind in (1, 2):
            found.append(Entity(("A", "c-d")[kind - 1], i, i + 1))
    words = tuple(word for word, _ in drawn)
    return Sentence(words, tuple(write_tags(found, len(words), scheme)), scheme)


def test_a_model_in_io_is_scored_by_files_in_other_schemes():
    """Two entities of one type that touch are one: IO cannot tell them apart."""
    labels, words = ("O", "I-A"), ("In", "New", "York")
    tags = {"IOB2": ("O", "B-A", "I-A"), "IOB1": ("O", "I-A", "I-A")}
    examples = [Sentence(words, own, scheme) for scheme, own in tags.items()]
    examples.append(Sentence(words, ("O", "B-A", "B-A"), "IOB2"))
    task(labels).check(examples)
    tokenized = tokenize(examples, labels)
    values = predict(examples, tokenized, ideal_outputs(tokenized), labels)
    assert [value["tags"] for value in values] == [["O", "I-A", "I-A"]] * 3
    scores = task(labels).official_scores(Predictions(examples[:2], values[:2]))
    assert scores["f1"] == scores["accuracy"] == 1
    scores = task(labels).official_scores(Predictions(examples, values))
    assert scores["precision"] == 2 / 3 and scores["recall"] == 1 / 2
    (line,) = task(labels).label_warnings(examples)
    assert "entities of one type that touch are learned as one" in line


@given(
    SENTENCES,
    st.sampled_from(SCHEMES),
    st.sampled_from([LABELS, IOBES]),
    st.sampled_from([8, 16, 64]),
)
def test_ideal_outputs_give_the_gold_tags(drawn, scheme, labels, max_length):
    examples = [tagged(words, scheme) for words in drawn]
    task(labels).check(examples)
    tokenized = tokenize(examples, labels, max_length=max_length)
    assert tokenized.lengths.max() <= max_length
    assert (np.diff(tokenized.example) >= 0).all()
    predictions = predict(examples, tokenized, ideal_outputs(tokenized), labels)
    for example, prediction in zip(examples, predictions, strict=True):
        scheme = "IOB2" if labels is LABELS else "IOBES"
        assert prediction["tags"] == example.tags_in(scheme)
    if any(tag != "O" for example in examples for tag in example.tags or ()):
        scores = task(labels).official_scores(Predictions(examples, predictions))
        assert scores["f1"] == scores["accuracy"] == 1


@pytest.mark.slow
@pytest.mark.skipif(not WNUT.exists(), reason="needs the WNUT-17 files")
def test_ideal_outputs_on_real_data(tmp_path):
    unfitted = task(path=str(WNUT), max_length=24)
    labels = unfitted.labels(unfitted.read("train"))
    fitted = dataclasses.replace(unfitted, model=model(labels))
    for part, number in (("train", 3394), ("validation", 1009), ("test", 1287)):
        examples = fitted.read(part)
        fitted.check(examples)
        assert len(examples) == number
        tokenized = fitted.tokenize(examples, TOKENIZER)
        assert len(tokenized) > number and tokenized.lengths.max() <= 24
        rows = ideal_outputs(tokenized)
        values = fitted.predict(SplitOutputs(Split(examples, tokenized), rows))
        predictions = Predictions(examples, values)
        scores = fitted.official_scores(predictions)
        assert scores["f1"] == scores["accuracy"] == 1
        fitted.write(predictions, tmp_path)
        lines = (tmp_path / "predictions.txt").read_text("utf-8").split("\n")
        columns = [re.split("\t", line) for line in lines if line]
        assert all(gold == tag for *_, gold, tag in columns)
        gold = [[gold for *_, gold, _ in columns]]
        assert entity_scores(gold, gold).tag_accuracy == 1
        assert len(columns) == sum(len(example.words) for example in examples)
        assert lines.count("") >= number

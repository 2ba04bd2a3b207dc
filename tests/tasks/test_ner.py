"""Tagging: sentences → rows, scores → tags, tags → entities."""

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
from bert_jax.tasks.conll import Sentence, read_sentences
from bert_jax.tasks.ner import TOKEN_CLASSIFICATION as NER
from bert_jax.tasks.ner_rows import sentence_of, words_of
from bert_jax.tasks.tables import Row
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


def encode(records, labels=LABELS, **options):
    config = ExamplesConfig(**options)
    return NER.encode(records, TOKENIZER, model(labels), config)


def readable(examples, row):
    part = slice(examples.starts[row], examples.starts[row + 1])
    return " ".join(TOKENIZER.tokens(examples.tokens[part]))


def ideal_outputs(examples, padding=3):
    """The gold tags where there are some, and any elsewhere."""
    generator = np.random.default_rng(0)
    outputs = []
    for i in range(len(examples)):
        gold = np.pad(examples.token_values("label", i), (0, padding))
        tags = np.where(gold < 0, generator.integers(0, 2, len(gold)), gold)
        tags = tags.astype(np.int32)
        outputs.append({"tag": tags, "probability": np.ones(len(gold), np.float32)})
    return outputs


def predict(records, examples, outputs, labels=LABELS):
    return NER.predict(records, examples, outputs, model(labels), ExamplesConfig())


def test_words_are_split_at_white_space_punctuation_and_ideographs():
    text = "Dr. O'Neil,\xa0  £5 in 北京市x\u2028y"
    words, offsets = words_of(text)
    assert words == "Dr . O ' Neil , £5 in 北 京 市 x y".split()
    assert [text[start:end] for start, end in offsets] == words
    assert words_of(" \n") == ([], [])


@given(st.text())
def test_words_lie_in_the_text_in_order_and_leave_only_white_space(text):
    words, offsets = words_of(text)
    assert [text[start:end] for start, end in offsets] == words
    rest, last = "", 0
    for start, end in offsets:
        assert last <= start < end
        rest, last = rest + text[last:start], end
    assert not (rest + text[last:]).strip()


def test_what_a_user_asks_about_is_a_text_or_tokens():
    config = ExamplesConfig()
    found = NER.record(Row({"text": "A b."}, "line 1"), config)
    assert found == sentence_of("A b.") and not NER.labelled(found)
    named = ExamplesConfig(text_columns=("body",))
    assert NER.record(Row({"body": "A b."}, "line 1"), named) == found
    found = NER.record(Row({"tokens": ["A", "b."]}, "line 1"), config)
    assert found.words == ("A", "b.") and not found.text
    with pytest.raises(ValueError, match="^line 1 has no text"):
        NER.record(Row({"body": "A b."}, "line 1"), config)
    assert NER.labelled(sentence("a", "O"))


def test_the_first_token_of_a_word_bears_its_tag():
    examples = encode([sentence("ab c fgh", "B-A I-A O"), sentence("b", "B-c-d")])
    assert readable(examples, 0) == "[CLS] a ##b c f ##g ##h [SEP]"
    assert examples.token_values("label", 0).tolist() == [-1, 1, -1, 3, 0, -1, -1, -1]
    assert examples.token_values("word", 0).tolist() == [-1, 0, -1, 1, 2, -1, -1, -1]
    assert examples.token_values("label", 1).tolist() == [-1, 2, -1]
    assert examples.record.tolist() == [0, 1] and examples.second.tolist() == [8, 3]
    assert {each.dtype for each in examples.by_token.values()} == {np.dtype(np.int32)}


def test_words_without_tokens_and_without_tags():
    records = [Sentence(("\x01", "a", "\u200b", "!"))]
    examples = encode(records)
    assert readable(examples, 0) == "[CLS] [UNK] a [UNK] [UNK] [SEP]"
    assert examples.token_values("label", 0).tolist() == [-1] * 6
    assert examples.token_values("word", 0).tolist() == [-1, 0, 1, 2, 3, -1]


def test_a_long_sentence_is_parted_between_words_and_a_long_word_cut():
    text = "abc de abcdefgh f aaaaaaaa"
    examples = encode([sentence(text, "B-A I-A O O B-A")], max_length=8)
    assert [readable(examples, row) for row in range(4)] == [
        "[CLS] a ##b ##c d ##e [SEP]",
        "[CLS] a ##b ##c ##d ##e ##f [SEP]",
        "[CLS] f [SEP]",
        "[CLS] a ##a ##a ##a ##a ##a [SEP]",
    ]
    assert examples.record.tolist() == [0] * 4
    words = [examples.token_values("word", row).max() for row in range(4)]
    assert words == [1, 2, 3, 4]


def test_rows_are_no_longer_than_the_model_takes():
    config = model(max_position_embeddings=10)
    records = [sentence("a " * 20, "O " * 20)]
    examples = NER.encode(records, TOKENIZER, config, ExamplesConfig())
    assert np.diff(examples.starts).tolist() == [10, 10, 6]


def test_a_text_without_words_has_a_row_too():
    records = [sentence_of(" ")]
    examples = encode(records)
    assert readable(examples, 0) == "[CLS] [SEP]"
    found = predict(records, examples, ideal_outputs(examples))
    assert found == [{"tags": [], "entities": []}]


def test_tags_in_another_scheme_are_learned_in_the_models():
    iob1 = Sentence(("a", "b", "c"), ("I-A", "I-A", "B-A"), "IOB1")
    iob2 = encode([iob1]).token_values("label", 0)
    assert [LABELS[i] for i in iob2[1:-1]] == ["B-A", "I-A", "B-A"]
    iobes = encode([iob1], IOBES).token_values("label", 0)
    assert [IOBES[i] for i in iobes[1:-1]] == ["B-A", "E-A", "S-A"]
    singles = encode([sentence("a b", "B-A O")], ("O", "S-A"))
    assert singles.token_values("label", 0).tolist() == [-1, 1, 0, -1]


def test_labels_are_those_of_training():
    config = ExamplesConfig()
    records = [sentence("a b c", "O B-c I-c"), sentence("d", "B-A")]
    assert NER.labels(records, config) == ("O", "B-A", "B-c", "I-c")
    iob1 = [Sentence(("a", "b", "c"), ("I-A", "O", "I-A"), "IOB1")]
    assert NER.labels(iob1, config) == ("O", "B-A")
    iobes = [Sentence(("a", "b"), ("B-A", "E-A"), "IOBES")]
    assert NER.labels(iobes, config) == ("O", "B-A", "E-A")
    assert NER.labels(records, ExamplesConfig(labels=LABELS)) == LABELS


def test_training_files_from_which_nothing_can_be_learned():
    config = ExamplesConfig()
    with pytest.raises(ValueError, match="^a.txt has no tags; nothing can be learned"):
        NER.labels([Sentence(("a",), path="a.txt")], config)
    with pytest.raises(ValueError, match="^a.txt has no entity: every tag is O"):
        NER.labels([sentence("a", "O", path="a.txt")], config)
    plain = [Sentence(("a", "b"), ("NN", "NN"), path="a.txt")]
    with pytest.raises(ValueError, match="^a.txt: every tag is 'NN'; nothing can be l"):
        NER.labels(plain, config)


def test_tags_that_the_model_lacks():
    records = [Sentence(("x",)), sentence("a b", "O B-X", path="dev.txt", line=7)]
    rule = "^dev.txt, line 7: tag 'B-X' is none of the model's: O, B-A, "
    with pytest.raises(ValueError, match=rule):
        NER.check(records, model(), "dev.txt")
    columns = (("a", "O"), ("b", "B-X"))
    records = [sentence("a b", "O B-X", path="dev.txt", line=7, columns=columns)]
    rule = r"^dev.txt, line 8: tag 'B-X' \(S-X in IOBES\) is none of the model's: O"
    with pytest.raises(ValueError, match=rule):
        NER.check(records, model(IOBES), "dev.txt")
    NER.check([sentence("a b", "O B-A"), Sentence(("x",))], model(), "dev.txt")


def test_loss_is_summed_over_tokens_with_a_tag():
    scores = jnp.log(jnp.array([[[0.5, 0.25, 0.25]] * 3, [[0.1, 0.8, 0.1]] * 3]))
    rows = {"label": jnp.array([[-1, 1, 0], [-1, 1, -1]])}
    total, count = NER.loss(model(), scores, rows)
    assert total == pytest.approx(np.log(4) + np.log(2) - np.log(0.8), rel=1e-6)
    assert count == 3
    nobody = {"label": jnp.full((2, 3), -1)}
    assert [float(each) for each in NER.loss(model(), scores, nobody)] == [0, 0]


def test_outputs_are_the_likeliest_tags():
    scores = jnp.log(jnp.array([[[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]]]))
    found = jax.jit(lambda s: NER.outputs(model(), s, {}))(scores)
    assert found["tag"].tolist() == [[0, 2]] and found["tag"].dtype == jnp.int32
    np.testing.assert_allclose(found["probability"], [[0.5, 0.7]], rtol=1e-6)


def test_entities_by_words():
    records = [sentence("ab c fgh d", "O O O O")]
    examples = encode(records)
    output = {
        "tag": np.array([2, 1, 2, 3, 2, 0, 4, 0, 0], np.int32),
        "probability": np.array([1, 0.5, 1, 0.25, 0.75, 1, 1, 1, 1], np.float32),
    }
    (found,) = predict(records, examples, [output])
    assert found["tags"] == ["B-A", "I-A", "B-c-d", "O"]
    assert found["entities"] == [
        {"type": "A", "text": "ab c", "start": 0, "end": 2, "score": 0.375},
        {"type": "c-d", "text": "fgh", "start": 2, "end": 3, "score": 0.75},
    ]


def test_entities_of_a_text_have_their_place_in_it():
    record = sentence_of("A-Bc  (d) \U0001f600 e!")
    assert record.words == ("A", "-", "Bc", "(", "d", ")", "\U0001f600", "e", "!")
    examples = encode([record])
    tags = [0, 1, 3, 3, 0, 0, 0, 0, 0, 3, 0, 0]  # [CLS] a - b ##c ( d ) 😀 e ! [SEP]
    output = {"tag": np.array(tags, np.int32), "probability": np.ones(12, np.float32)}
    (found,) = predict([record], examples, [output])
    places = [(each["text"], each["start"], each["end"]) for each in found["entities"]]
    # An I after O begins an entity, as in conlleval.
    assert places == [("A-Bc", 0, 4), ("e", 12, 13)]
    for text, start, end in places:
        assert record.text[start:end] == text


def test_scores_counted_by_hand():
    records = [sentence("a b c d", "B-A I-A O B-c-d"), sentence("e f", "B-A O")]
    tags = [["B-A", "I-A", "O", "O"], ["O", "B-c-d"]]
    predictions = [{"tags": each} for each in tags]
    scores = NER.score(records, predictions, model(), ExamplesConfig())
    assert list(scores) == ["f1", "precision", "recall", "accuracy", "f1_A", "f1_c-d"]
    # One right of two predicted and of three there; three of six tags.
    expected = [0.4, 1 / 2, 1 / 3, 1 / 2, 2 / 3, 0]
    assert list(scores.values()) == pytest.approx(expected)
    with pytest.raises(ValueError, match="^a.txt has no tags; there is nothing to sc"):
        untagged = [Sentence(("a",), path="a.txt")]
        NER.score(untagged, [{"tags": ["O"]}], model(), ExamplesConfig())


def test_predictions_are_written_in_the_files_own_scheme(tmp_path):
    path = tmp_path / "dev.txt"
    path.write_text("a NN I-A\nb NN I-A\nc NN B-A\nd NN O\n\ne NN I-c-d\n")
    records = read_sentences(str(path))
    tags = [["B-A", "I-A", "B-A", "I-c-d"], ["O"]]
    predictions = [{"tags": each} for each in tags]
    arguments = (records, predictions, model(), ExamplesConfig())
    assert NER.write(*arguments, tmp_path) == ["predictions.txt"]
    assert (tmp_path / "predictions.txt").read_text() == (
        "a NN I-A I-A\nb NN I-A I-A\nc NN B-A B-A\nd NN O I-c-d\n\ne NN I-c-d O\n"
    )
    assert NER.score(*arguments)["accuracy"] == 3 / 5


def test_ill_formed_tags_are_written_as_predicted(tmp_path):
    records = [sentence("a b", "B-A O"), Sentence(("c",))]
    predictions = [{"tags": ["I-A", "O"]}, {"tags": ["I-A"]}]
    NER.write(records, predictions, model(), ExamplesConfig(), tmp_path)
    written = (tmp_path / "predictions.txt").read_text()
    assert written == "a\tB-A\tI-A\nb\tO\tO\n\nc\tI-A\n"


def test_the_longest_entity_seen_in_training_is_looked_up():
    train = [
        sentence("a b c", "B-A I-A O"),
        sentence("a d", "B-c-d O"),
        sentence("a d", "B-A O"),
        sentence("a d", "B-A O"),
    ]
    # "a b" is found whole, then "a" with its commoner type; "e" was never seen.
    validation = [sentence("a b a e", "B-A I-A B-c-d B-A")]
    name, f1 = NER.baseline(train, validation)
    assert name == "training-dictionary lookup" and f1 == pytest.approx(2 / 5)
    assert NER.baseline([sentence("a", "O")], validation)[1] == 0


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
    (found,) = NER.read(part, ExamplesConfig(path=str(tmp_path)))
    assert found.words == (expected,)


def test_parts_that_are_not_there(tmp_path):
    (tmp_path / "train.txt").write_text("a O\n")
    config = ExamplesConfig(path=str(tmp_path))
    looked_for = "has no validation file; looked for valid.txt, dev.txt, eng.testa, dev"
    with pytest.raises(FileNotFoundError, match=looked_for):
        NER.read("validation", config)
    with pytest.raises(FileNotFoundError, match="path=.*/b is not a directory; give"):
        NER.read("train", ExamplesConfig(path=str(tmp_path / "b")))
    # A file is a file, whatever its name.
    with pytest.raises(FileNotFoundError, match="^train is not a file"):
        NER.read("train", ExamplesConfig())


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


@given(
    SENTENCES,
    st.sampled_from(SCHEMES),
    st.sampled_from([LABELS, IOBES]),
    st.sampled_from([8, 16, 64]),
)
def test_ideal_outputs_give_the_gold_tags(drawn, scheme, labels, max_length):
    records = [tagged(each, scheme) for each in drawn]
    config = model(labels)
    NER.check(records, config, "")
    examples = encode(records, labels, max_length=max_length)
    assert examples.lengths.max() <= max_length
    assert (np.diff(examples.record) >= 0).all()
    found = predict(records, examples, ideal_outputs(examples), labels)
    for record, prediction in zip(records, found, strict=True):
        scheme = "IOB2" if labels is LABELS else "IOBES"
        assert prediction["tags"] == record.tags_in(scheme)
    if any(tag != "O" for record in records for tag in record.tags or ()):
        scores = NER.score(records, found, config, ExamplesConfig())
        assert scores["f1"] == scores["accuracy"] == 1


@pytest.mark.slow
@pytest.mark.skipif(not WNUT.exists(), reason="needs the WNUT-17 files")
def test_ideal_outputs_on_real_data(tmp_path):
    config = ExamplesConfig(path=str(WNUT), max_length=24)
    train = NER.read("train", config)
    fitted = model(NER.labels(train, config))
    for part, number in (("train", 3394), ("validation", 1009), ("test", 1287)):
        records = NER.read(part, config)
        NER.check(records, fitted, part)
        assert len(records) == number
        examples = NER.encode(records, TOKENIZER, fitted, config)
        assert len(examples) > number and examples.lengths.max() <= 24
        outputs = ideal_outputs(examples)
        found = NER.predict(records, examples, outputs, fitted, config)
        scores = NER.score(records, found, fitted, config)
        assert scores["f1"] == scores["accuracy"] == 1
        NER.write(records, found, fitted, config, tmp_path)
        lines = (tmp_path / "predictions.txt").read_text("utf-8").split("\n")
        rows = [re.split("\t", line) for line in lines if line]
        assert all(gold == tag for *_, gold, tag in rows)
        gold = [[gold for *_, gold, _ in rows]]
        assert entity_scores(gold, gold).tag_accuracy == 1
        assert len(rows) == sum(len(record.words) for record in records)
        assert lines.count("") >= number

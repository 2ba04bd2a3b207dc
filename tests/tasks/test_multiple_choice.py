"""Multiple choice: files → rows, scores → choices."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.tasks.choices import Choice
from bert_jax.tasks.multiple_choice import MULTIPLE_CHOICE as PROBLEM
from bert_jax.tasks.tables import Row
from bert_jax.tokenization import SPECIAL_TOKENS, Tokenizer

CODAH = Path(__file__).parents[3] / "shared" / "data" / "codah" / "full_data.tsv"
LETTERS = "abcdefgh"
TOKENIZER = Tokenizer(
    {"kind": "wordpiece", "cased": False},
    "\n".join([*SPECIAL_TOKENS, *LETTERS]).encode(),
)
MODEL = BertConfig.tiny(head="multiple_choice")
SWAG_COLUMNS = (
    ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,"
    "ending0,ending1,ending2,ending3,label"
)


def read(tmp_path, text, name="a.csv", **options):
    path = tmp_path / name
    path.write_text(text, "utf-8")
    return PROBLEM.read(str(path), ExamplesConfig(**options))


def readable(examples, row):
    part = slice(examples.starts[row], examples.starts[row + 1])
    return " ".join(TOKENIZER.tokens(examples.tokens[part]))


def encode(records, **options):
    return PROBLEM.encode(records, TOKENIZER, MODEL, ExamplesConfig(**options))


def test_swag(tmp_path):
    rows = [
        '0,v,1,"A sat, down. He","A sat, down.",He,gold,a.,b.,"c ""d"".",d.,2',
        "1,v,2,B sat. She,B sat.,She,gold,a.,b.,c.,d.,0",
    ]
    first, second = read(tmp_path, "\n".join([SWAG_COLUMNS, *rows]))
    assert first.context == "A sat, down." and first.question == "He"
    assert first.choices == ("a.", "b.", 'c "d".', "d.") and first.label == 2
    assert second.label == 0 and second.where.endswith("a.csv, line 3")


def test_swags_test_file_has_no_labels(tmp_path):
    columns = SWAG_COLUMNS.removesuffix(",label")
    (found,) = read(tmp_path, f"{columns}\n0,v,1,A. B,A.,B,gold,a,b,c,d\n")
    assert found.label is None and not PROBLEM.labelled(found)


def test_codah(tmp_path):
    text = 'o\tI "ate. I\ta\tb\tc\td\t3\ni\tyou\te\tf\tg\th\t\n'
    first, second = read(tmp_path, text, "a.tsv")
    assert first.context == 'I "ate. I' and first.question == ""
    assert first.choices == ("a", "b", "c", "d") and first.label == 3
    assert second.label is None and second.where.endswith("a.tsv, line 2")


def test_lines_of_json(tmp_path):
    rows = [
        {"context": "a", "question": "b?", "choices": ["c", "d", "e"], "answer": 1},
        {"context": "a", "choices": ["c", "d", "e"]},
    ]
    text = "\n".join(map(json.dumps, rows))
    first, second = read(tmp_path, text, "a.jsonl", label_column="answer")
    assert (first.question, first.choices, first.label) == ("b?", ("c", "d", "e"), 1)
    assert (second.question, second.label) == ("", None)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "a.csv",
            f"{SWAG_COLUMNS}\n0,v,1,A,A",
            "line 2 has 5 fields; the header has 12",
        ),
        (
            "a.csv",
            "sent1,ending0\nx,y",
            "line 2 has the columns sent1, ending0; it must",
        ),
        (
            "a.csv",
            "sent1,sent2,ending0\nx,y,z",
            "it must have sent1, sent2, ending0, e",
        ),
        (
            "a.csv",
            "sent1,sent2,ending0,ending1,label\nx,y,z,w,one",
            "line 2: label='one' must be the number of the right choice, from 0",
        ),
        (
            "a.csv",
            "sent1,sent2,ending0,ending1,label\nx,y,z,,1",
            "line 2: ending1 is empty",
        ),
        (
            "a.tsv",
            "o\tq\ta\tb\tc\td\n",
            "line 1 has 6 fields; it must have 7: category",
        ),
        (
            "a.tsv",
            "o\tq\ta\t \tc\td\t1\n",
            "line 1: choice 1 is ' '; it must be a text",
        ),
        (
            "a.tsv",
            "o\t\ta\tb\tc\td\t1\n",
            "line 1: the context is ''; it must be a text",
        ),
        ("a.tsv", "o\tq\ta\tb\tc\td\t-1\n", "line 1: label='-1' must be the number"),
        ("a.tsv", "", "a.tsv has no rows; it must have one at least"),
        ("a.jsonl", '{"context": "a"}', "line 1: choices=None must be a list of two"),
        (
            "a.jsonl",
            '{"context": "a", "choices": ["b"]}',
            "must be a list of two texts",
        ),
        (
            "a.jsonl",
            '{"context": "a", "choices": ["b", 1]}',
            "line 1: choice 1 is 1; it",
        ),
        (
            "a.jsonl",
            '{"context": "a", "choices": ["b", "\\ud83d"]}',
            "line 1: choice 1 is",
        ),
        ("a.jsonl", '{"choices": ["b", "c"]}', "line 1 has no context; its columns"),
        (
            "a.jsonl",
            '{"context": "a", "choices": ["b", "c"], "label": true}',
            "line 1: label=True must be the number of the right choice",
        ),
        (
            "a.jsonl",
            '{"context": "a", "choices": ["b", "c"]}\n'
            '{"context": "a", "choices": ["b", "c", "d"]}',
            "line 2 has 3 choices, and the first 2; all must have the same number",
        ),
    ],
)
def test_files_that_are_refused(tmp_path, name, text, message):
    with pytest.raises(ValueError, match=message) as caught:
        read(tmp_path, text, name)
    assert str(caught.value).startswith(str(tmp_path / name))
    assert "\n" not in str(caught.value)


def test_parts_of_a_directory(tmp_path):
    config = ExamplesConfig(path=str(tmp_path))
    for name in ("train", "val"):
        row = f"0,v,1,A,{name},B,gold,a,b,c,d,0"
        (tmp_path / f"{name}.csv").write_text(f"{SWAG_COLUMNS}\n{row}\n")
    assert PROBLEM.read("train", config)[0].context == "train"
    assert PROBLEM.read("validation", config)[0].context == "val"
    with pytest.raises(FileNotFoundError, match="looked for test.csv, test.jsonl. Ren"):
        PROBLEM.read("test", config)
    with pytest.raises(FileNotFoundError, match="b.tsv is not a file"):
        PROBLEM.read(str(tmp_path / "b.tsv"), ExamplesConfig())


def test_labels_that_number_no_choice():
    records = [
        Choice("a", ("b", "c"), label=1),
        Choice("a", ("b", "c"), label=2, where="dev.csv, line 3"),
    ]
    rule = "^dev.csv, line 3: label=2 must be from 0 to 1, the number of the right"
    with pytest.raises(ValueError, match=rule):
        PROBLEM.check(records, MODEL, "dev.csv")
    with pytest.raises(ValueError, match=rule):
        PROBLEM.labels(records, ExamplesConfig())
    assert PROBLEM.labels(records[:1], ExamplesConfig()) == ()
    unknown = [Choice("a", ("b", "c"), where="train.csv, line 2")]
    PROBLEM.check(unknown, MODEL, "train.csv")
    with pytest.raises(ValueError, match="^train.csv, line 2 has no label. To learn, "):
        PROBLEM.labels(unknown, ExamplesConfig())


def test_a_choice_is_a_row():
    records = [
        Choice("a b", ("c", "d e"), label=1),
        Choice("f", ("g", "h"), "a b"),
    ]
    examples = encode(records)
    assert [readable(examples, row) for row in range(4)] == [
        "[CLS] a b [SEP] c [SEP]",
        "[CLS] a b [SEP] d e [SEP]",
        "[CLS] f [SEP] a b g [SEP]",
        "[CLS] f [SEP] a b h [SEP]",
    ]
    assert examples.second.tolist() == [4, 4, 3, 3]
    assert examples.by_example["label"].tolist() == [1, -1]
    assert examples.by_example["label"].dtype == np.int32
    assert examples.example.tolist() == [0, 1] and len(examples) == 2
    assert examples.choices == 2 and examples.lengths.tolist() == [7, 7]
    assert examples.gather(np.array([1, -1]), 8)["tokens"].shape == (2, 2, 8)


def test_the_longer_text_is_cut_first():
    records = [Choice("a b c d e f", ("g h", "g h a b c d e"))]
    examples = encode(records, max_length=9)
    assert readable(examples, 0) == "[CLS] a b c d [SEP] g h [SEP]"
    assert readable(examples, 1) == "[CLS] a b c [SEP] g h a [SEP]"
    short = BertConfig.tiny(max_position_embeddings=8)
    examples = PROBLEM.encode(records, TOKENIZER, short, ExamplesConfig())
    assert examples.lengths.tolist() == [8]


def test_what_a_user_asks_about():
    row = Row({"context": "a", "choices": ["b", "c"], "question": "d"}, "line 1")
    found = PROBLEM.record(row, ExamplesConfig())
    assert found == Choice("a", ("b", "c"), "d", None, "line 1")
    assert PROBLEM.labelled(Choice("a", ("b", "c"), label=0))
    assert PROBLEM.group(found) == "a"


def test_loss_is_summed_over_questions_with_a_label():
    scores = jnp.log(jnp.array([[0.5, 0.25, 0.25], [0.8, 0.1, 0.1], [1, 1, 1]]))
    total, count = PROBLEM.loss(MODEL, scores, {"label": jnp.array([2, 0, -1])})
    assert total == pytest.approx(np.log(4) - np.log(0.8), rel=1e-6)
    assert count == 2


def test_predictions_scores_and_the_file(tmp_path):
    scores = jnp.log(jnp.array([[0.2, 0.7, 0.1], [0.5, 0.3, 0.2], [0.1, 0.2, 0.7]]))
    found = jax.jit(lambda s: PROBLEM.outputs(MODEL, s, {}))(scores)["probabilities"]
    records = [
        Choice("a", ("b", "c", "d"), label=1),
        Choice("a", ("b", "c", "d"), label=2),
        Choice("a", ("b", "c", "d")),
    ]
    config = ExamplesConfig()
    outputs = [{"probabilities": np.asarray(each)} for each in found]
    predictions = PROBLEM.predict(records, encode(records), outputs, MODEL, config)
    assert [each["choice"] for each in predictions] == [1, 0, 2]
    assert predictions[0]["probabilities"] == pytest.approx([0.2, 0.7, 0.1])
    assert json.loads(json.dumps(predictions)) == predictions
    assert PROBLEM.score(records, predictions, MODEL, config) == {"accuracy": 0.5}
    names = PROBLEM.write(records, predictions, MODEL, config, tmp_path)
    assert names == ["predictions.csv"]
    assert (tmp_path / "predictions.csv").read_bytes() == b"pred\n1\n0\n2\n"
    with pytest.raises(ValueError, match="have no label; there is nothing to score by"):
        PROBLEM.score(records[2:], predictions[2:], MODEL, config)


def test_what_a_model_must_beat():
    def labelled(*numbers):
        return [Choice("a", ("b", "c", "d"), label=number) for number in numbers]

    train = labelled(2, 0, 2, 1)
    assert PROBLEM.baseline(train, labelled(2, 2, 0)) == (
        "majority position (2)",
        2 / 3,
    )
    assert PROBLEM.baseline(train, labelled(0, 0, 1)) == ("chance", 1 / 3)
    assert PROBLEM.baseline(labelled(1, 0), labelled(0))[0] == "majority position (0)"


TEXTS = st.lists(st.sampled_from(LETTERS), min_size=1, max_size=30).map(" ".join)


QUESTIONS = st.lists(
    st.tuples(TEXTS, st.lists(TEXTS, min_size=5, max_size=5), st.just("") | TEXTS),
    min_size=1,
    max_size=5,
)


@given(QUESTIONS, st.integers(2, 5), st.sampled_from([8, 16, 128]))
def test_rows_are_no_longer_than_asked_and_ideal_outputs_score_1(drawn, number, length):
    records = [
        Choice(context, tuple(choices[:number]), question, len(context) % number)
        for context, choices, question in drawn
    ]
    examples = encode(records, max_length=length)
    assert examples.lengths.max() <= length
    assert len(examples.second) == len(records) * number
    ends = examples.tokens[examples.starts[1:] - 1]
    middles = examples.tokens[examples.starts[:-1] + examples.second - 1]
    assert (ends == TOKENIZER.sep_id).all() and (middles == TOKENIZER.sep_id).all()
    ideal = np.eye(number, dtype=np.float32)[examples.by_example["label"]]
    outputs = [{"probabilities": each} for each in ideal]
    config = ExamplesConfig()
    found = PROBLEM.predict(records, examples, outputs, MODEL, config)
    assert PROBLEM.score(records, found, MODEL, config) == {"accuracy": 1.0}


@pytest.mark.skipif(not CODAH.exists(), reason="needs the CODAH file")
def test_ideal_outputs_on_real_data():
    config = ExamplesConfig(max_length=32)
    records = PROBLEM.read(str(CODAH), config)
    assert len(records) == 2776 and PROBLEM.labels(records, config) == ()
    assert [sum(r.label == i for r in records) for i in range(4)] == [
        689,
        684,
        697,
        706,
    ]
    examples = PROBLEM.encode(records, TOKENIZER, MODEL, config)
    ideal = np.eye(4, dtype=np.float32)[examples.by_example["label"]]
    outputs = [{"probabilities": each} for each in ideal]
    found = PROBLEM.predict(records, examples, outputs, MODEL, config)
    assert PROBLEM.score(records, found, MODEL, config) == {"accuracy": 1.0}
    name, share = PROBLEM.baseline(records, records)
    assert name == "majority position (3)" and share == 706 / 2776

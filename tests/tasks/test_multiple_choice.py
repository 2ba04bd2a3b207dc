"""Multiple choice: files → rows, scores → choices."""

import dataclasses
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.model.bert import init_params
from bert_jax.tables.rows import TableRow
from bert_jax.tasks.choices.examples import ChoiceExample
from bert_jax.tasks.choices.task import MultipleChoiceTask
from bert_jax.tasks.predictions import Predictions, Split, SplitOutputs, Splits
from bert_jax.tokenization import SPECIAL_TOKENS, Tokenizer

CODAH = Path(__file__).parents[3] / "shared" / "data" / "codah" / "full_data.tsv"
LETTERS = "abcdefgh"
TOKENIZER = Tokenizer(
    {"kind": "wordpiece", "cased": False},
    "\n".join([*SPECIAL_TOKENS, *LETTERS]).encode(),
)
MODEL = BertConfig.tiny(head="multiple_choice")
SMALL = BertConfig.miniature(
    1,
    16,
    vocab_size=13,
    max_position_embeddings=16,
    initializer_range=0.5,
    head="multiple_choice",
)
SWAG_COLUMNS = (
    ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,"
    "ending0,ending1,ending2,ending3,label"
)


def task(model=MODEL, **options):
    return MultipleChoiceTask(ExamplesConfig(**options), model)


def read(tmp_path, text, name="a.csv", **options):
    path = tmp_path / name
    path.write_text(text, "utf-8")
    return task(**options).read(str(path))


def readable(tokenized, row):
    part = slice(tokenized.starts[row], tokenized.starts[row + 1])
    return " ".join(TOKENIZER.tokens(tokenized.tokens[part]))


def tokenize(examples, **options):
    return task(**options).tokenize(examples, TOKENIZER)


def ideal_predictions(examples, tokenized):
    """The predictions of a model that gives each right choice probability 1."""
    ideal = np.eye(tokenized.choices, dtype=np.float32)[tokenized.by_example["label"]]
    rows = [{"probabilities": probabilities} for probabilities in ideal]
    values = task().predict(SplitOutputs(Split(examples, tokenized), rows))
    return Predictions(examples, values)


def test_swag(tmp_path):
    rows = [
        '0,v,1,"A sat, down. He","A sat, down.",He,gold,a.,b.,"c ""d"".",d.,2',
        "1,v,2,B sat. She,B sat.,She,gold,a.,b.,c.,d.,0",
    ]
    first, second = read(tmp_path, "\n".join([SWAG_COLUMNS, *rows]))
    assert first.context == "A sat, down." and first.question == "He"
    assert first.choices == ("a.", "b.", 'c "d".', "d.") and first.label == 2
    assert second.label == 0 and second.where.endswith("a.csv, line 3")
    again = read(tmp_path, "\n".join([SWAG_COLUMNS, f"{rows[0]}.0", f"{rows[1]}."]))
    assert [example.label for example in again] == [2, 0], "as in a column of floats"


def test_swags_test_file_has_no_labels(tmp_path):
    columns = SWAG_COLUMNS.removesuffix(",label")
    (example,) = read(tmp_path, f"{columns}\n0,v,1,A. B,A.,B,gold,a,b,c,d\n")
    assert example.label is None and not task().has_label(example)


def test_codah(tmp_path):
    text = 'o\tI "ate. I\ta\tb\tc\td\t3\ni\tyou\te\tf\tg\th\t\n'
    first, second = read(tmp_path, text, "a.tsv")
    assert first.context == 'I "ate. I' and first.question == ""
    assert first.choices == ("a", "b", "c", "d") and first.label == 3
    assert second.label is None and second.where.endswith("a.tsv, line 2")


def test_rows_to_predict_are_those_to_learn(tmp_path):
    swag = "sent1\tsent2\tending0\tending1\tlabel\nx\ty\ta\tb\t1\n"
    codah = "o\tx\ta\tb\tc\td\t3\n"
    headed = f"category\tquestion\ta0\ta1\ta2\ta3\tlabel\n{codah}"
    for text, number in (codah, 4), (headed, 4), (swag, 2):
        (example,) = read(tmp_path, text, "a.tsv")
        assert example.context == "x" and len(example.choices) == number
        (row,) = task().rows_to_predict(str(tmp_path / "a.tsv"))
        unlabelled = dataclasses.replace(example, label=None)
        assert task().example_without_label(row) == unlabelled
    (tmp_path / "a.tsv").write_text(codah.replace("3", "?"))
    (row,) = task().rows_to_predict(str(tmp_path / "a.tsv"))
    assert task().example_without_label(row).context == "x", "its label is not needed"


@pytest.mark.parametrize("mark", [";", ","])
def test_swags_columns_in_a_tsv_may_be_separated_by_another_mark(mark, tmp_path):
    header = mark.join(["sent1", "sent2", "ending0", "ending1", "label"])
    (example,) = read(tmp_path, f"{header}\n{mark.join('xyab1')}\n", "a.tsv")
    (row,) = task().rows_to_predict(str(tmp_path / "a.tsv"))
    unlabelled = dataclasses.replace(example, label=None)
    assert task().example_without_label(row) == unlabelled


def test_lines_of_json(tmp_path):
    rows = [
        {"context": "a", "question": "b?", "choices": ["c", "d", "e"], "answer": 1},
        {"context": "a", "choices": ["c", "d", "e"]},
        {"context": "a", "question": None, "choices": ["c", "d", "e"], "answer": 2.0},
    ]
    text = "\n".join(map(json.dumps, rows))
    first, second, third = read(tmp_path, text, "a.jsonl", label_column="answer")
    assert (third.question, third.label) == ("", 2), "as a column of Parquet has them"
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
        ("a.tsv", "", "a.tsv has no rows; it must have at least one"),
        (
            "a.jsonl",
            '{"context": "a", "choice": ["b", "c"]}',
            "line 1 has no choices; its columns are context, choice. Did you mean choi",
        ),
        (
            "a.jsonl",
            '{"context": "a", "choices": null}',
            "line 1: choices=None must be a list of at least two",
        ),
        (
            "a.jsonl",
            '{"context": "a", "choices": ["b"]}',
            "must be a list of at least two texts",
        ),
        *(
            (
                "a.jsonl",
                f'{{"sent1": "a", "sent2": {start}, "ending0": "b", "ending1": "c"}}',
                f"line 1: sent2.* {says}",
            )
            for start, says in (("5", "must be a text"), (r'"\ud83d"', "surrogate"))
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
        *(
            ("a.jsonl", f'{{"context": {text}, "choices": ["b", "c"]}}', says)
            for text, says in (
                (r'"\ud83d"', "line 1: context holds half of a surrogate pair"),
                ('" "', "line 1: context is empty; write a text, or drop it"),
            )
        ),
        (
            "a.jsonl",
            '{"context": "a", "choices": ["b", "c"], "label": true}',
            "line 1: label=True must be the number of the right choice",
        ),
    ],
)
def test_files_that_are_refused(tmp_path, name, text, message):
    with pytest.raises(ValueError, match=message) as caught:
        read(tmp_path, text, name)
    assert str(caught.value).startswith(str(tmp_path / name))
    assert "\n" not in str(caught.value)


def test_parts_of_a_directory(tmp_path):
    published = task(path=str(tmp_path))
    for name in ("train", "val"):
        row = f"0,v,1,A,{name},B,gold,a,b,c,d,0"
        (tmp_path / f"{name}.csv").write_text(f"{SWAG_COLUMNS}\n{row}\n")
    assert published.read("train")[0].context == "train"
    assert published.read("validation")[0].context == "val"
    with pytest.raises(FileNotFoundError, match="looked for test.csv, test.jsonl. Ren"):
        published.read("test")
    with pytest.raises(FileNotFoundError, match="b.tsv is not a file"):
        task().read(str(tmp_path / "b.tsv"))


def test_labels_that_number_no_choice():
    examples = [
        ChoiceExample("a", ("b", "c"), label=1),
        ChoiceExample("a", ("b", "c"), label=2, where="dev.csv, line 3"),
    ]
    message = "^dev.csv, line 3: label=2 must be from 0 to 1, the number of the right"
    with pytest.raises(ValueError, match=message):
        task().check(examples)
    with pytest.raises(ValueError, match=message):
        task().labels(examples)
    assert task().labels(examples[:1]) == ()
    unknown = [ChoiceExample("a", ("b", "c"), where="train.csv, line 2")]
    task().check(unknown)
    with pytest.raises(ValueError, match="^train.csv, line 2 has no label. To learn, "):
        task().labels(unknown)


def test_a_choice_is_a_row():
    examples = [
        ChoiceExample("a b", ("c", "d e"), label=1),
        ChoiceExample("f", ("g", "h"), "a b"),
    ]
    tokenized = tokenize(examples)
    assert [readable(tokenized, row) for row in range(4)] == [
        "[CLS] a b [SEP] c [SEP]",
        "[CLS] a b [SEP] d e [SEP]",
        "[CLS] f [SEP] a b g [SEP]",
        "[CLS] f [SEP] a b h [SEP]",
    ]
    assert tokenized.second.tolist() == [4, 4, 3, 3]
    assert tokenized.by_example["label"].tolist() == [1, -1]
    assert tokenized.by_example["label"].dtype == np.int32
    assert tokenized.example.tolist() == [0, 1] and len(tokenized) == 2
    assert tokenized.choices == 2 and tokenized.lengths.tolist() == [7, 7]
    assert tokenized.gather(np.array([1, -1]), 8)["tokens"].shape == (2, 2, 8)


MIXED = [
    ChoiceExample("a", ("b", "c", "d"), label=2),
    ChoiceExample("b", ("c", "d e f g h"), label=1),
    ChoiceExample("c", ("a", "b", "c", "d", "e"), label=4),
]


def scores_of(params, examples):
    tokenized = tokenize(examples)
    batch = jax.tree.map(jnp.asarray, tokenized.gather(np.arange(len(examples)), 16))
    return jax.jit(task(SMALL).scores)(params, batch), batch


@pytest.mark.slow
def test_questions_of_unlike_numbers_of_choices():
    """Probabilities and loss are those that each question has alone."""
    params = jax.jit(lambda: init_params(SMALL, jax.random.key(2)))()
    scores, batch = scores_of(params, MIXED)
    assert scores.shape == (3, 5) and batch["tokens"].shape == (3, 5, 16)
    rows = [{"probabilities": np.array(row)} for row in jax.nn.softmax(scores)]
    together = task().predict(SplitOutputs(Split(MIXED, tokenize(MIXED)), rows))
    losses = []
    for example, prediction in zip(MIXED, together, strict=True):
        alone, own_batch = scores_of(params, [example])
        expected = np.array(jax.nn.softmax(alone[0]))
        assert prediction["probabilities"] == pytest.approx(expected, abs=1e-6)
        assert prediction["choice"] == expected.argmax()
        losses.append(task().label_loss(alone, own_batch)[0])
    assert np.std(scores[0, :3]) > 0.1, "choices differ"
    loss, count = task().label_loss(scores, batch)
    assert count == 3 and float(loss) == pytest.approx(float(sum(losses)), rel=1e-6)

    def value(params):
        return task().label_loss(scores_of(params, MIXED)[0], batch)[0]

    gradients = jax.tree.leaves(jax.jit(jax.grad(value))(params))
    assert all(np.isfinite(gradient).all() for gradient in gradients)
    teacher = task().distillation_loss(scores, 2 * scores, batch, 2.0)[0]
    assert 0 < teacher < 10


def test_what_is_said_of_unlike_numbers_of_choices(tmp_path):
    split = Split(MIXED, tokenize(MIXED))
    assert task().warnings(split) == ["fewer than 5 choices: 2 of 3 questions"]
    name, chance = task().baseline(Splits(MIXED[:1], MIXED))
    assert name == "chance" and chance == pytest.approx((1 / 3 + 1 / 2 + 1 / 5) / 3)
    columns = "sent1,sent2,ending0,ending1,ending2,label"
    examples = read(tmp_path, f"{columns}\nx,y,a,b,c,2\nx,y,a,b,,1\n")
    assert [example.choices for example in examples] == [("a", "b", "c"), ("a", "b")]
    in_disorder = "label,ending10,ending2,ending1,sent2,sent1\n1,z,c,b,y,x\n"
    [example] = read(tmp_path, in_disorder)
    assert example.choices == ("b", "c", "z") and example.label == 1
    with pytest.raises(ValueError, match="line 2: ending1 is empty"):
        read(tmp_path, f"{columns}\nx,y,a,,c,2\n")
    missing = read(tmp_path, f"{columns}\nx,y,a,b,,2\n")
    with pytest.raises(ValueError, match="line 2: label=2 must be from 0 to 1"):
        task().check(missing)


def test_the_longer_text_is_cut_first():
    examples = [ChoiceExample("a b c d e f", ("g h", "g h a b c d e"))]
    tokenized = tokenize(examples, max_length=9)
    assert readable(tokenized, 0) == "[CLS] a b c d [SEP] g h [SEP]"
    assert readable(tokenized, 1) == "[CLS] a b c [SEP] g h a [SEP]"
    warnings = task(max_length=9).warnings(Split(examples, tokenized))
    assert warnings == [
        "cut to 9 tokens: 1 of 1 questions (100.0%); --data.max-length raises it, "
        "up to 512"
    ]
    assert task().warnings(Split(examples, tokenize(examples))) == []
    short = BertConfig.tiny(max_position_embeddings=8)
    tokenized = MultipleChoiceTask(ExamplesConfig(), short).tokenize(
        examples, TOKENIZER
    )
    assert tokenized.lengths.tolist() == [8]


def test_an_example_to_predict():
    row = TableRow({"context": "a", "choices": ["b", "c"], "question": "d"}, "line 1")
    example = task().example_without_label(row)
    assert example == ChoiceExample("a", ("b", "c"), "d", None, "line 1")
    assert task().has_label(ChoiceExample("a", ("b", "c"), label=0))
    assert task().group(example) == "a"
    values = {"sent1": "a", "sent2": "d", "ending0": "b", "ending1": "c", "label": "x"}
    assert task().example_without_label(TableRow(values, "line 1")) == example


def test_loss_is_summed_over_questions_with_a_label():
    scores = jnp.log(jnp.array([[0.5, 0.25, 0.25], [0.8, 0.1, 0.1], [1, 1, 1]]))
    batch = {"label": jnp.array([2, 0, -1])}
    total, count = task().label_loss(scores, batch)
    assert total == pytest.approx(np.log(4) - np.log(0.8), rel=1e-6)
    assert count == task().label_count(batch) == 2


def test_predictions_scores_and_the_file(tmp_path):
    scores = jnp.log(jnp.array([[0.2, 0.7, 0.1], [0.5, 0.3, 0.2], [0.1, 0.2, 0.7]]))
    probabilities = jax.jit(task().outputs)(scores)["probabilities"]
    examples = [
        ChoiceExample("a", ("b", "c", "d"), label=1),
        ChoiceExample("a", ("b", "c", "d"), label=2),
        ChoiceExample("a", ("b", "c", "d")),
    ]
    rows = [{"probabilities": np.asarray(row)} for row in probabilities]
    split = Split(examples, tokenize(examples))
    values = task().predict(SplitOutputs(split, rows))
    assert [value["choice"] for value in values] == [1, 0, 2]
    assert values[0]["probabilities"] == pytest.approx([0.2, 0.7, 0.1])
    assert json.loads(json.dumps(values)) == values
    predictions = Predictions(examples, values)
    assert task().official_scores(predictions) == {"accuracy": 0.5}
    assert task().write(predictions, tmp_path) == ["predictions.csv"]
    assert (tmp_path / "predictions.csv").read_bytes() == b"pred\n1\n0\n2\n"
    with pytest.raises(ValueError, match="have no label; there is nothing to score by"):
        task().official_scores(Predictions(examples[2:], values[2:]))


def test_baselines():
    def examples(*labels):
        return [ChoiceExample("a", ("b", "c", "d"), label=label) for label in labels]

    train = examples(2, 0, 2, 1)
    majority = task().baseline(Splits(train, examples(2, 2, 0)))
    assert majority == ("majority position (2)", 2 / 3)
    assert task().baseline(Splits(train, examples(0, 0, 1))) == ("chance", 1 / 3)
    first = task().baseline(Splits(examples(1, 0), examples(0)))
    assert first[0] == "majority position (0)"


TEXTS = st.lists(st.sampled_from(LETTERS), min_size=1, max_size=30).map(" ".join)


QUESTIONS = st.lists(
    st.tuples(TEXTS, st.lists(TEXTS, min_size=5, max_size=5), st.just("") | TEXTS),
    min_size=1,
    max_size=5,
)


@given(QUESTIONS, st.integers(2, 5), st.sampled_from([8, 16, 128]))
def test_rows_are_no_longer_than_max_length_and_ideal_outputs_score_1(
    drawn, number, length
):
    examples = [
        ChoiceExample(context, tuple(choices[:number]), question, len(context) % number)
        for context, choices, question in drawn
    ]
    tokenized = tokenize(examples, max_length=length)
    assert tokenized.lengths.max() <= length
    assert len(tokenized.second) == len(examples) * number
    ends = tokenized.tokens[tokenized.starts[1:] - 1]
    middles = tokenized.tokens[tokenized.starts[:-1] + tokenized.second - 1]
    assert (ends == TOKENIZER.sep_id).all() and (middles == TOKENIZER.sep_id).all()
    predictions = ideal_predictions(examples, tokenized)
    assert task().official_scores(predictions) == {"accuracy": 1.0}


@pytest.mark.skipif(not CODAH.exists(), reason="needs the CODAH file")
def test_ideal_outputs_on_real_data():
    codah = task(max_length=32)
    examples = codah.read(str(CODAH))
    assert len(examples) == 2776 and codah.labels(examples) == ()
    counts = [sum(example.label == i for example in examples) for i in range(4)]
    assert counts == [689, 684, 697, 706]
    tokenized = codah.tokenize(examples, TOKENIZER)
    predictions = ideal_predictions(examples, tokenized)
    assert codah.official_scores(predictions) == {"accuracy": 1.0}
    name, value = codah.baseline(Splits(examples, examples))
    assert name == "majority position (3)" and value == 706 / 2776


def test_a_damaged_first_row_does_not_say_what_the_file_is(tmp_path):
    row = '{"sent1": "a", "sent2": "", "ending0": "b", "ending1": "c", "label": 1}'
    (example,) = read(tmp_path, "{broken\n" + row, "a.jsonl", skip_damaged=True)
    assert (example.context, example.question, example.label) == ("a", "", 1)

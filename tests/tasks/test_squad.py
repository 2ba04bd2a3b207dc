"""Question answering as a task: what is learned, its loss and its scores."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from official_squad import official_scores
from squad_texts import CONTEXT, ask, perfect_outputs, qa, squad_json, tokenizer

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.config.model import ANSWERABLE_LABELS
from bert_jax.tasks.answers.task import QuestionAnsweringTask
from bert_jax.tasks.predictions import Predictions, Split, SplitOutputs, Splits

CONFIG = ExamplesConfig(max_length=64, max_query_length=8, document_stride=16)
MODEL = BertConfig(head="question_answering")
TASK = QuestionAnsweringTask(CONFIG, MODEL)
TASK2 = QuestionAnsweringTask(
    CONFIG, dataclasses.replace(MODEL, labels=ANSWERABLE_LABELS)
)
"""Trained on SQuAD 2.0, whose questions may be unanswerable."""
MISPLACED = dataclasses.replace(ask(id="m"), answers=(("Warsaw", 1),))
UNLABELLED = dataclasses.replace(ask(id="u"), answers=())


def test_labels_tell_whether_questions_may_be_unanswerable():
    assert TASK.labels([ask()]) == ()
    assert TASK.labels([ask(), ask(None, "q2"), MISPLACED]) == ANSWERABLE_LABELS


@pytest.mark.parametrize(
    ("examples", "options", "message"),
    [
        (
            [ask()],
            {"labels": ("a", "b")},
            "labels=a,b: question answering has no class",
        ),
        ([ask(), UNLABELLED], {}, "question 'u' has no \"answers\" to learn"),
        ([MISPLACED], {}, "none of 1 questions has an answer at its answer_start"),
        ([ask(None)], {}, "none of 1 questions has an answer at its answer_start"),
    ],
)
def test_what_cannot_be_learned(examples, options, message):
    task = QuestionAnsweringTask(dataclasses.replace(CONFIG, **options))
    with pytest.raises(ValueError, match=message):
        task.labels(examples)


def test_questions_of_one_article_are_held_out_together():
    examples = [ask(), ask(id="b"), dataclasses.replace(ask(), title="")]
    groups = [TASK.group(example) for example in examples]
    assert groups == ["Curie", "Curie", CONTEXT]


def test_unanswerable_questions_need_a_model_that_was_trained_on_some():
    TASK2.check([ask(), ask(None, "q2")])
    TASK.check([ask(), UNLABELLED])
    data = dataclasses.replace(CONFIG, validation="dev.json")
    message = "dev.json: question 'q2' is unanswerable, and the model was trained on"
    with pytest.raises(ValueError, match=message):
        QuestionAnsweringTask(data, MODEL).check([ask(), ask(None, "q2")])


def test_warnings_of_questions_that_are_left_out_or_cut():
    examples = [ask(), MISPLACED, ask(id="long", question="who " * 9), UNLABELLED]
    split = Split(examples, TASK.tokenize(examples, tokenizer()))
    assert TASK.warnings(split) == [
        "not trained on, since the answer is not at its answer_start: 1 of 4 questions "
        "(m); the answer stands 23 characters later (1)",
        "cut to 8 tokens: 1 of 4 questions (25.0%); --data.max-query-length raises it, "
        "up to 512",
    ]
    assert TASK.warnings(Split([ask()], TASK.tokenize([ask()], tokenizer()))) == []


def in_utf_16(text):
    return len(text.encode("utf-16-le")) // 2


EMOJI = "On \U0001f600 and \U0001f680 she was born in Warsaw."
ACCENTS = "Cafe\u0301s and re\u0301sume\u0301s of Warsaw."
LINES = "Born\nand raised\nin Warsaw."


@pytest.mark.parametrize(
    ("context", "answer", "start", "reason"),
    [
        (EMOJI, "Warsaw", in_utf_16(EMOJI[:-7]), "counts UTF-16 units, as JavaScript"),
        (EMOJI, "Warsaw", len(EMOJI[:-7].encode()), "counts bytes of UTF-8; count c"),
        (LINES, "Warsaw", LINES.index("W") + 2, r"as two characters \(CRLF\); keep"),
        (
            LINES.replace("\n", "\r\n"),
            "Warsaw",
            LINES.index("W"),
            "counts line ends as one character, not CRLF",
        ),
        (ACCENTS, "Warsaw", ACCENTS.index("W") - 3, r"the composed form \(NFC\); bri"),
        (ACCENTS, "r\u00e9sum\u00e9s", 10, r"the composed form \(NFC\); bring"),
        (
            "Stra\u00dfe, r\u00e9sum\u00e9s of Warsaw.",
            "Warsaw",
            len("Stra\u00dfe, resumes of ") + 2,
            r"the decomposed form \(NFD\)",
        ),
        ("A  B,\u00a0\n Warsaw", "Warsaw", 5, "counts several blanks as one"),
        (CONTEXT, "warsaw", 24, "counts rightly, but capitals differ"),
        (
            CONTEXT,
            "Warsaw",
            25,
            "1 characters earlier, as where counting began at 1 or",
        ),
        (CONTEXT, "Warsaw", 20, r"the answer stands 4 characters later \(1\)"),
        (CONTEXT, "Warsaw", -1, "answer_start is below 0; write where"),
        (CONTEXT, "Berlin", 24, "the context does not hold the answer; copy"),
        (CONTEXT, "Warsaw", 10**6, "the answer stands 999,976 characters earlier"),
    ],
)
def test_why_an_answer_is_misplaced(context, answer, start, reason):
    wrong = dataclasses.replace(ask(context=context), answers=((answer, start),))
    assert wrong.misplaced
    examples = [dataclasses.replace(wrong, id=f"w{i}") for i in range(9)]
    split = Split([*examples, ask()], TASK.tokenize([*examples, ask()], tokenizer()))
    (line,) = TASK.warnings(split)
    assert re.search(reason.removesuffix(r" \(1\)"), line) and len(line) < 300
    assert "9 of 10 questions (w0, w1, w2, w3, w4, …); " in line
    with pytest.raises(ValueError, match=reason) as error:
        TASK.labels([wrong])
    assert "\n" not in str(error.value)


def batch_of(labels, ends):
    return {"label": jnp.array(labels), "end": jnp.array(ends)}


def test_the_loss_by_hand():
    scores = np.zeros((1, 3, 2), np.float32)
    scores[0, :, 0] = np.log([1, 2, 5])
    scores[0, :, 1] = np.log([3, 6, 1])
    batch = batch_of([[1, 1]], [3])
    loss, count = TASK.label_loss(jnp.array(scores), batch)
    assert count == TASK.label_count(batch) == 1
    assert loss == pytest.approx(-(np.log(2 / 8) + np.log(6 / 10)) / 2, rel=1e-6)
    # The third token is padding now.
    loss, _ = TASK.label_loss(jnp.array(scores), batch_of([[1, 1]], [2]))
    assert loss == pytest.approx(-(np.log(2 / 3) + np.log(6 / 9)) / 2, rel=1e-6)


def test_rows_without_a_label_and_padding_do_not_count():
    scores = jax.random.normal(jax.random.key(0), (3, 8, 2))
    labels, ends = [[1, 4], [-1, -1], [2, 2]], [8, 8, 0]
    batch = batch_of(labels, ends)
    loss, count = TASK.label_loss(scores, batch)
    alone, one = TASK.label_loss(scores[:1], batch_of(labels[:1], ends[:1]))
    assert count == one == TASK.label_count(batch) == 1
    assert loss == pytest.approx(float(alone), rel=1e-6)
    gradient = jax.grad(lambda scores: TASK.label_loss(scores, batch)[0])(scores)
    assert np.abs(gradient[0]).max() > 0 and not np.any(gradient[1:])


def test_loss_and_predictions_do_not_depend_on_the_padded_length():
    examples = [ask(), ask("Paris", "q2")]
    split = Split(examples, TASK.tokenize(examples, tokenizer()))
    scores = jax.random.normal(jax.random.key(0), (2, 64, 2))
    predictions, losses = {}, {}
    for length in (32, 64):
        batch = split.tokenized.gather(np.arange(2), length)
        arrays = {name: jnp.asarray(values) for name, values in batch.items()}
        own = scores[:, :length]
        losses[length], _ = TASK.label_loss(own, arrays)
        outputs = TASK.outputs(own)
        assert {values.shape for values in outputs.values()} == {(2, length)}
        assert (batch["end"] < length).all(), "there is padding, with scores of its own"
        rows = [{name: np.asarray(v[i]) for name, v in outputs.items()} for i in (0, 1)]
        predictions[length] = TASK.predict(SplitOutputs(split, rows))
    assert predictions[32] == predictions[64]
    assert losses[32] == pytest.approx(float(losses[64]), rel=1e-6)


def perfect_predictions(examples, task):
    tokenized = task.tokenize(examples, tokenizer())
    outputs = SplitOutputs(Split(examples, tokenized), perfect_outputs(tokenized))
    return task.predict(outputs)


def test_scores_of_1_1():
    examples = [ask("Warsaw", "a"), ask("in Paris", "b"), MISPLACED]
    values = perfect_predictions(examples[:2], TASK)
    values.append(values[0] | {"id": "m", "answer": "Warsaw"})
    values[1] = values[1] | {"answer": "Paris"}
    scores = TASK.official_scores(Predictions(examples, values))
    # A misplaced answer is scored by its text. "Paris" has F1 2/3 with "in Paris".
    assert list(scores) == ["f1", "exact_match"]
    assert scores["exact_match"] == pytest.approx(200 / 3)
    assert scores["f1"] == pytest.approx((100 + 100 + 200 / 3) / 3)


def test_scores_of_2_0():
    examples = [ask("Warsaw", "a"), ask("Paris", "b"), ask(None, "c"), ask(None, "d")]
    values = perfect_predictions(examples, TASK2)
    assert [value["answer"] for value in values] == ["Warsaw", "Paris", "", ""]
    scores = TASK2.official_scores(Predictions(examples, values))
    assert list(scores) == [
        "f1", "exact_match", "HasAns_f1", "HasAns_exact_match", "NoAns_f1",
        "NoAns_exact_match", "best_f1", "best_f1_threshold", "best_exact",
        "best_exact_threshold",
    ]  # fmt: skip
    thresholds = {scores.pop("best_f1_threshold"), scores.pop("best_exact_threshold")}
    assert set(scores.values()) == {100.0}
    assert thresholds == {max(values[0]["null_odds"], values[1]["null_odds"])}


def test_the_best_threshold_is_found():
    """The unanswerable question's odds are below 0, and above the answerable one's."""
    examples = [ask("Warsaw", "a"), ask(None, "b")]
    first, second = perfect_predictions(examples, TASK2)
    first = first | {"null_odds": -5.0}
    second = second | {"answer": "Paris", "null_odds": -2.0}
    scores = TASK2.official_scores(Predictions(examples, [first, second]))
    assert scores["f1"] == 50 and scores["NoAns_f1"] == 0
    assert scores["best_f1"] == 100 and scores["best_f1_threshold"] == -5


@pytest.mark.parametrize("threshold", [-5.0, 0.0, 1.0, 5.0, 6.5, 1000.0])
def test_the_scores_are_those_of_the_answers_written(tmp_path, threshold):
    """Many questions have odds above 1, which the official script takes for a limit."""
    answers = ["Warsaw", "Paris", "She studied in Paris", None, None]
    examples = [ask(answers[i % 5], f"q{i}") for i in range(40)]
    tokenized = TASK2.tokenize(examples, tokenizer())
    generator = np.random.default_rng(1)
    outputs = perfect_outputs(tokenized)
    for row in outputs:
        row["start"][0] = generator.normal(-9, 9)
        row["start"][1:60] += generator.normal(0, 3, 59)
    split = SplitOutputs(Split(examples, tokenized), outputs)
    data = dataclasses.replace(CONFIG, null_threshold=threshold)
    task = QuestionAnsweringTask(data, TASK2.model)
    predictions = Predictions(examples, task.predict(split))
    task.write(predictions, tmp_path)
    fields = [
        [{"text": text, "answer_start": start} for text, start in example.answers]
        for example in examples
    ]
    qas = [
        qa(example.id, answers=a) for example, a in zip(examples, fields, strict=True)
    ]
    file = squad_json(tmp_path / "data.json", qas)
    official = official_scores(file, tmp_path / "predictions.json")
    scores = task.official_scores(predictions)
    assert scores | official == pytest.approx(scores)
    odds = [value["null_odds"] for value in predictions.values]
    assert sum(1 < x < 5 for x in odds) > 2 and sum(x > 6.5 for x in odds) > 2


def test_questions_without_answers_cannot_be_scored():
    with pytest.raises(ValueError, match="question 'u' has no \"answers\" to score by"):
        TASK.official_scores(Predictions([UNLABELLED], []))


def test_the_baseline_by_hand():
    """One sentence has the question's words; answers are as long as it is."""
    examples = [ask("She studied in Paris", "a", question="Where has she studied?")]
    name, value = TASK.baseline(Splits(examples, examples))
    assert name == "random span in the best-overlap sentence"
    assert value == 100
    # A word of four, of which one is right: the same in every call.
    one = [ask("Warsaw", "t")]
    values = {TASK.baseline(Splits(one, examples))[1] for _ in range(3)}
    assert len(values) == 1 and values.pop() == pytest.approx(40)


def test_the_baseline_where_most_questions_have_no_answer():
    examples = [ask("Paris", "a"), ask(None, "b"), ask(None, "c")]
    name, value = TASK.baseline(Splits(examples, examples))
    assert name == "no answer to any question" and value == pytest.approx(200 / 3)

"""Question answering as a task: what is learned, its loss and its scores."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from squad_texts import CONTEXT, ask, perfect_outputs, tokenizer

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.config.model import ANSWERABLE_LABELS
from bert_jax.tasks.finetuning_task import Predictions, Split, SplitOutputs, Splits
from bert_jax.tasks.squad import QuestionAnsweringTask

MODEL = BertConfig(head="question_answering")
MODEL2 = dataclasses.replace(MODEL, labels=ANSWERABLE_LABELS)
CONFIG = ExamplesConfig(max_length=64, max_query_length=8, document_stride=16)
MISPLACED = dataclasses.replace(ask(id="m"), answers=(("Warsaw", 1),))
UNLABELLED = dataclasses.replace(ask(id="u"), answers=())


def test_a_model_may_say_that_there_is_no_answer_if_it_was_taught_so():
    assert PROBLEM.labels([ask()], CONFIG) == ()
    assert (
        PROBLEM.labels([ask(), ask(None, "q2"), MISPLACED], CONFIG) == ANSWERABLE_LABELS
    )


@pytest.mark.parametrize(
    ("records", "options", "message"),
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
def test_what_cannot_be_learned(records, options, message):
    with pytest.raises(ValueError, match=message):
        PROBLEM.labels(records, dataclasses.replace(CONFIG, **options))


def test_questions_of_one_article_are_held_out_together():
    records = [ask(), ask(id="b"), dataclasses.replace(ask(), title="")]
    assert [PROBLEM.group(record) for record in records] == ["Curie", "Curie", CONTEXT]


def test_unanswerable_questions_need_a_model_that_knows_of_them():
    PROBLEM.check([ask(), ask(None, "q2")], MODEL2, "dev.json")
    PROBLEM.check([ask(), UNLABELLED], MODEL, "dev.json")
    message = "dev.json: question 'q2' is unanswerable, and the model was trained on"
    with pytest.raises(ValueError, match=message):
        PROBLEM.check([ask(), ask(None, "q2")], MODEL, "dev.json")


def test_what_is_left_out_is_said():
    records = [ask(), MISPLACED, ask(id="long", question="who " * 9), UNLABELLED]
    examples = encode(records, tokenizer(), MODEL, CONFIG)
    assert notices(records, examples, CONFIG) == [
        "not trained on, since the answer does not stand at its answer_start: "
        "1 of 4 questions: m",
        "cut to max_query_length=8 tokens: 1 of 4 questions",
    ]
    examples = encode([ask()], tokenizer(), MODEL, CONFIG)
    assert notices([ask()], examples, CONFIG) == []


def rows_of(labels, ends):
    return {"label": jnp.array(labels), "end": jnp.array(ends)}


def test_the_loss_by_hand():
    scores = np.zeros((1, 3, 2), np.float32)
    scores[0, :, 0] = np.log([1, 2, 5])
    scores[0, :, 1] = np.log([3, 6, 1])
    loss, count = PROBLEM.loss(MODEL, jnp.array(scores), rows_of([[1, 1]], [3]))
    assert count == 1
    assert loss == pytest.approx(-(np.log(2 / 8) + np.log(6 / 10)) / 2, rel=1e-6)
    # The third token is padding now.
    loss, _ = PROBLEM.loss(MODEL, jnp.array(scores), rows_of([[1, 1]], [2]))
    assert loss == pytest.approx(-(np.log(2 / 3) + np.log(6 / 9)) / 2, rel=1e-6)


def test_what_has_no_label_and_what_is_nobody_do_not_count():
    scores = jax.random.normal(jax.random.key(0), (3, 8, 2))
    labels, ends = [[1, 4], [-1, -1], [2, 2]], [8, 8, 0]
    loss, count = PROBLEM.loss(MODEL, scores, rows_of(labels, ends))
    alone, one = PROBLEM.loss(MODEL, scores[:1], rows_of(labels[:1], ends[:1]))
    assert count == one == 1 and loss == pytest.approx(float(alone), rel=1e-6)
    gradient = jax.grad(
        lambda scores: PROBLEM.loss(MODEL, scores, rows_of(labels, ends))[0]
    )(scores)
    assert np.abs(gradient[0]).max() > 0 and not np.any(gradient[1:])


def test_loss_and_outputs_do_not_depend_on_the_padded_length():
    records = [ask(), ask("Paris", "q2")]
    examples = encode(records, tokenizer(), MODEL, CONFIG)
    scores = jax.random.normal(jax.random.key(0), (2, 64, 2))
    found, losses = {}, {}
    for length in (32, 64):
        batch = examples.gather(np.arange(2), length)
        rows = {name: jnp.asarray(values) for name, values in batch.items()}
        part = scores[:, :length]
        losses[length], _ = PROBLEM.loss(MODEL, part, rows)
        outputs = PROBLEM.outputs(MODEL, part, rows)
        for values in outputs.values():
            assert values.shape == (2, length) and np.isfinite(values).all()
            assert (values[0, int(batch["end"][0]) :] < -1e8).all()
        each = [{name: np.asarray(v[i]) for name, v in outputs.items()} for i in (0, 1)]
        found[length] = PROBLEM.predict(records, examples, each, MODEL, CONFIG)
    assert found[32] == found[64]
    assert losses[32] == pytest.approx(float(losses[64]), rel=1e-6)


def predicted(records, model):
    examples = encode(records, tokenizer(), model, CONFIG)
    return PROBLEM.predict(records, examples, perfect_outputs(examples), model, CONFIG)


def test_scores_of_1_1():
    records = [ask("Warsaw", "a"), ask("in Paris", "b"), MISPLACED]
    found = predicted(records[:2], MODEL)
    found.append(found[0] | {"id": "m", "answer": "Warsaw"})
    found[1] = found[1] | {"answer": "Paris"}
    scores = PROBLEM.score(records, found, MODEL, CONFIG)
    # A misplaced answer is scored by its text. "Paris" has F1 2/3 with "in Paris".
    assert list(scores) == ["f1", "exact_match"]
    assert scores["exact_match"] == pytest.approx(200 / 3)
    assert scores["f1"] == pytest.approx((100 + 100 + 200 / 3) / 3)


def test_scores_of_2_0():
    records = [ask("Warsaw", "a"), ask("Paris", "b"), ask(None, "c"), ask(None, "d")]
    found = predicted(records, MODEL2)
    assert [prediction["answer"] for prediction in found] == ["Warsaw", "Paris", "", ""]
    scores = PROBLEM.score(records, found, MODEL2, CONFIG)
    assert list(scores) == [
        "f1", "exact_match", "HasAns_f1", "HasAns_exact_match", "NoAns_f1",
        "NoAns_exact_match", "best_f1", "best_f1_threshold", "best_exact",
        "best_exact_threshold",
    ]  # fmt: skip
    thresholds = {scores.pop("best_f1_threshold"), scores.pop("best_exact_threshold")}
    assert set(scores.values()) == {100.0}
    assert thresholds == {max(found[0]["null_odds"], found[1]["null_odds"])}


def test_the_best_threshold_is_found():
    """The unanswerable question's odds are below 0, and above the answerable one's."""
    records = [ask("Warsaw", "a"), ask(None, "b")]
    found = predicted(records, MODEL2)
    found = [
        found[0] | {"null_odds": -5.0},
        found[1] | {"answer": "Paris", "null_odds": -2.0},
    ]
    scores = PROBLEM.score(records, found, MODEL2, CONFIG)
    assert scores["f1"] == 50 and scores["NoAns_f1"] == 0
    assert scores["best_f1"] == 100 and scores["best_f1_threshold"] == -5


def test_questions_without_answers_cannot_be_scored():
    with pytest.raises(ValueError, match="question 'u' has no \"answers\" to score by"):
        PROBLEM.score([UNLABELLED], [], MODEL, CONFIG)


def test_the_baseline_by_hand():
    """One sentence has the question's words; answers are as long as it is."""
    records = [ask("She studied in Paris", "a", question="Where has she studied?")]
    name, value = PROBLEM.baseline(records, records)
    assert name == "random span in the best-overlap sentence"
    assert value == 100
    # A word of four, of which one is right: the same whenever it is drawn.
    one = [ask("Warsaw", "t")]
    values = {PROBLEM.baseline(one, records)[1] for _ in range(3)}
    assert len(values) == 1 and values.pop() == pytest.approx(40)


def test_the_baseline_where_most_questions_have_no_answer():
    records = [ask("Paris", "a"), ask(None, "b"), ask(None, "c")]
    name, value = PROBLEM.baseline(records, records)
    assert name == "no answer to any question" and value == pytest.approx(200 / 3)

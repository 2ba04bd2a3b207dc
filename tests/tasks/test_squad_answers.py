"""Answers of scores, by hand, by their properties, and on real questions."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
from etils import epath
from family_files import write_tokenizer
from hypothesis import given
from hypothesis import strategies as st
from squad_texts import ask, perfect_outputs, tokenizer

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.config.model import ANSWERABLE_LABELS
from bert_jax.formats.tokenizers import from_huggingface
from bert_jax.metrics.squad import answer_exact_match
from bert_jax.tasks.answers.rows import SquadExample, tokenize
from bert_jax.tasks.answers.spans import apply_null_threshold, predict
from bert_jax.tasks.answers.task import QuestionAnsweringTask
from bert_jax.tasks.predictions import Predictions, Split, SplitOutputs
from bert_jax.tasks.tagging.rows import sentence_from_text
from bert_jax.tasks.tagging.task import TokenClassificationTask
from bert_jax.tokenization.graphemes import whole_characters

TOKENIZER = tokenizer()
MODEL = BertConfig(head="question_answering")
MODEL2 = dataclasses.replace(MODEL, labels=ANSWERABLE_LABELS)
CONFIG = ExamplesConfig(max_length=64, max_query_length=8, document_stride=16)
# "ab cd ef" after "[CLS] who [SEP]" is six tokens, at 3 to 8.
EXAMPLE = ask("ab", context="ab cd ef", question="who")
FIRST = 3
XQUAD = Path(__file__).parents[3] / "shared" / "data" / "xquad" / "xquad.en.json"


def outputs_of(start, end, length=16):
    """Outputs of a row: the given scores by position, and low ones elsewhere."""
    outputs = {}
    for name, scores in (("start", start), ("end", end)):
        outputs[name] = np.full(length, -50, np.float32)
        for position, score in scores.items():
            outputs[name][position] = score
    return outputs


def answer(rows, model=MODEL, example=EXAMPLE, **options):
    """The prediction for one example from the outputs of its rows."""
    config = dataclasses.replace(CONFIG, **options)
    split = Split([example], tokenize([example], TOKENIZER, model, config))
    return predict(SplitOutputs(split, rows), model, config)[0]


def test_an_answer_by_hand():
    a, b, d = FIRST, FIRST + 1, FIRST + 3
    output = outputs_of({0: 1.0, a: 2.0, b: 1.0}, {0: 0.5, b: 3.0, d: 2.5})
    best = answer([output])
    assert best["answer"] == "ab" and (best["start"], best["end"]) == (0, 2)
    assert best["id"] == "q1" and best["null_odds"] == pytest.approx(1.5 - 5.0)
    texts = [entry["text"] for entry in best["nbest"][:4]]
    assert texts == ["ab", "ab cd", "b", "b cd"]
    assert [e["start_logit"] for e in best["nbest"][:4]] == [2, 2, 1, 1]
    assert [e["end_logit"] for e in best["nbest"][:4]] == [3, 2.5, 3, 2.5]
    weights = np.exp([5.0, 4.5, 4.0, 3.5])
    shares = [entry["probability"] for entry in best["nbest"][:4]]
    np.testing.assert_allclose(shares, weights / weights.sum(), rtol=1e-6)
    assert best["score"] == shares[0]
    assert "" not in [entry["text"] for entry in best["nbest"]]


def test_no_answer_is_one_of_the_best_of_a_model_that_may_say_so():
    a, b = FIRST, FIRST + 1
    output = outputs_of({0: 3.0, a: 2.0}, {0: 2.5, b: 3.0})
    assert answer([output])["answer"] == "ab"
    none = answer([output], MODEL2)
    assert (none["answer"], none["start"], none["end"]) == ("", None, None)
    assert none["null_odds"] == pytest.approx(0.5)
    assert [entry["text"] for entry in none["nbest"][:2]] == ["", "ab"]
    assert none["score"] == none["nbest"][0]["probability"]
    best = apply_null_threshold(none, 0.6)
    assert (best["answer"], best["start"], best["end"]) == ("ab", 0, 2)
    assert best["nbest"] == none["nbest"] and apply_null_threshold(best, 0.0) == none


MARKED = st.text(
    st.sampled_from("ae\u0301\u0302\u0327\u200d\u0903n\u1112\u1161\u11ab\ufe0f\u3099k"),
    min_size=1,
    max_size=6,
).map(lambda text: "k" + text)
"""Words of letters, marks, joiners and parts of syllables."""


@given(st.lists(MARKED, min_size=3, max_size=6), st.data())
def test_an_answer_has_the_marks_of_its_letters(words, data):
    """Tokens of an uncased model have no marks; the text of the answer does."""
    context = " ".join(words)
    first = data.draw(st.integers(0, len(words) - 1))
    last = data.draw(st.integers(first, len(words) - 1))
    start = len(" ".join(words[:first])) + (first > 0)
    gold = " ".join(words[first : last + 1])
    example = dataclasses.replace(ask(None, context=context), answers=((gold, start),))
    tokenized = tokenize([example], TOKENIZER, MODEL, CONFIG)
    found = predict(
        SplitOutputs(Split([example], tokenized), perfect_outputs(tokenized)),
        MODEL,
        CONFIG,
    )[0]
    assert found["answer"] == gold == context[found["start"] : found["end"]]


@pytest.mark.parametrize(
    ("text", "part", "whole"),
    [
        ("the cafe\u0301 is", "cafe", "cafe\u0301"),
        ("the e\u0301a is", "\u0301a", "e\u0301a"),
        ("\u1112\u1161\u11ab\u1100", "\u1161", "\u1112\u1161\u11ab"),
        ("\u0928\u094d\u0926\u0940", "\u0928", "\u0928\u094d"),
        ("\u0e01\u0e33", "\u0e01", "\u0e01\u0e33"),
        ("a\U0001f469\u200d\U0001f467b", "\U0001f469", "\U0001f469\u200d\U0001f467"),
        ("\U0001f44d\U0001f3fd", "\U0001f44d", "\U0001f44d\U0001f3fd"),
        ("\U0001f1e9\U0001f1ea\U0001f1eb", "\U0001f1ea", "\U0001f1e9\U0001f1ea"),
        ("#\ufe0f\u20e3 on", "#", "#\ufe0f\u20e3"),
        ("\u845b\U000e0100\u98fe", "\u845b", "\u845b\U000e0100"),
        # A non-joiner is no part of the letter before it.
        ("\u06a9\u062a\u0627\u0628\u200c\u0647\u0627", "\u0628", "\u0628"),
        ("\u4e2d\u56fd\uff21", "\u56fd", "\u56fd"),
        ("plain don't", "don", "don"),
    ],
)
def test_whole_characters(text, part, whole):
    start = text.index(part)
    first, last = whole_characters(text, start, start + len(part))
    assert text[first:last] == whole


def test_entities_have_the_marks_of_their_letters():
    """A variation selector after an ideograph is a word of its own."""
    sentence = sentence_from_text("in \u845b\U000e0100.")
    task = TokenClassificationTask(
        ExamplesConfig(), BertConfig(head="token_classification", labels=("B-X", "O"))
    )
    split = Split([sentence], task.tokenize([sentence], TOKENIZER))
    tags = np.array([1, 1, 0, 1, 1, 1])
    rows = [{"tag": tags, "probability": np.ones(6, np.float32)}]
    ((entity,),) = (
        value["entities"] for value in task.predict(SplitOutputs(split, rows))
    )
    assert entity["text"] == "\u845b\U000e0100" and entity["end"] == 5


def test_an_answer_that_does_not_end_before_it_starts_or_is_too_long():
    a = FIRST
    output = outputs_of({a: 1.0, a + 4: 3.0}, {a + 1: 3.0, a + 5: 2.0})
    assert answer([output])["answer"] == "ef"
    output = outputs_of({a: 3.0, a + 4: 1.0}, {a + 1: 1.0, a + 5: 3.0})
    assert answer([output], max_answer_length=6)["answer"] == "ab cd ef"
    assert answer([output], max_answer_length=5)["answer"] == "ab"


def test_only_the_best_starts_and_ends_are_combined():
    a = FIRST
    # The best start comes after the best end.
    output = outputs_of({a: 1.0, a + 4: 3.0}, {a + 1: 3.0, a + 5: 2.0})
    none = answer([output], num_best=1)
    assert none["answer"] == "" and none["nbest"][0]["text"] == ""
    assert none["null_odds"] == 0
    assert len(answer([output], num_best=2)["nbest"]) == 2


def test_question_and_padding_are_never_the_answer():
    output = outputs_of({1: 9.0, 14: 9.0, FIRST: 1.0}, {1: 9.0, 9: 9.0, FIRST + 1: 1.0})
    assert answer([output], num_best=1)["answer"] == "ab"


def test_a_text_is_once_among_the_best():
    example = ask("ab", context="ab cd ab", question="who")
    a = FIRST
    output = outputs_of({a: 1.0, a + 4: 2.0}, {a + 1: 1.0, a + 5: 2.0})
    best = answer([output], example=example)
    texts = [entry["text"] for entry in best["nbest"]]
    assert texts.count("ab") == 1 and (best["start"], best["end"]) == (6, 8)


def test_an_answer_has_no_white_space_around_it(tmp_path):
    """Byte-level BPE has tokens of white space alone."""
    write_tokenizer("Roberta", tmp_path)
    roberta = from_huggingface(epath.Path(tmp_path))
    example = ask("the", context="  the\tcat", question="a")
    split = Split([example], tokenize([example], roberta, MODEL, CONFIG))
    best = predict(SplitOutputs(split, [outputs_of({}, {})]), MODEL, CONFIG)[0]
    texts = [entry["text"] for entry in best["nbest"]]
    assert sorted(texts) == ["cat", "the", "the\tcat"]
    places = [slice(entry["start"], entry["end"]) for entry in best["nbest"]]
    assert [example.context[place] for place in places] == texts


def test_the_best_answers_of_all_windows():
    options = {"max_length": 8, "max_query_length": 1, "document_stride": 2}
    config = dataclasses.replace(CONFIG, **options)
    tokenized = tokenize([EXAMPLE], TOKENIZER, MODEL, config)
    assert len(tokenized) == 2
    # "c" is in both windows, at 5 and at 3: with more context in the first.
    max_context = [tokenized.token_values("max_context", i) for i in range(2)]
    assert max_context[0][5] and not max_context[1][3]
    high = outputs_of({0: 1.0, 3: 9.0}, {0: 1.0, 4: 9.0})
    low = outputs_of({0: 2.0, 5: 2.0}, {0: 2.5, 6: 2.0})
    outputs = SplitOutputs(Split([EXAMPLE], tokenized), [low, high])
    (best,) = predict(outputs, MODEL, config)
    assert best["answer"] == "cd" and best["nbest"][0]["start_logit"] == 2.0
    # The score of no answer is the lowest of the windows.
    assert best["null_odds"] == pytest.approx(2.0 - 4.0)


def test_an_empty_document_has_no_answer():
    example = ask(None, context="\x00")
    for model in (MODEL, MODEL2):
        none = answer([outputs_of({0: 1.0}, {0: 1.0})], model, example)
        assert none["answer"] == "" and none["score"] == 1.0
        assert len(none["nbest"]) == 1


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_scores_that_are_no_numbers(value):
    message = "question 'q1': the model's scores are not numbers"
    with pytest.raises(ValueError, match=message):
        answer([outputs_of({FIRST: value}, {FIRST: 1.0})])
    # Scores of padding are not read.
    output = outputs_of({12: value, FIRST: 1.0}, {FIRST: 1.0})
    assert answer([output])["answer"] == "a"


def best_by_search(example, tokenized, rows, config):
    """The texts of the best answers and their scores, from all pairs of all windows."""
    best = {}
    for i, output in enumerate(rows):
        offset = tokenized.token_values("offset", i)
        max_context = tokenized.token_values("max_context", i)
        document = [t for t in range(len(offset)) if offset[t, 0] >= 0]
        allowed = [t for t in document if max_context[t]]
        starts = sorted(allowed, key=lambda t: -output["start"][t])[: config.num_best]
        ends = sorted(document, key=lambda t: -output["end"][t])[: config.num_best]
        for start in starts:
            for end in ends:
                if start <= end < start + config.max_answer_length:
                    text = example.context[offset[start, 0] : offset[end, 1]]
                    total = float(output["start"][start]) + float(output["end"][end])
                    best[text] = max(total, best.get(text, -np.inf))
    order = sorted(best, key=lambda text: -best[text])[: config.num_best]
    return [(text, best[text]) for text in order]


@given(st.integers(0, 1 << 32), st.integers(1, 20), st.integers(1, 8))
def test_the_best_are_those_that_a_search_finds(seed, num_best, max_answer_length):
    options = {"max_length": 24, "max_query_length": 1, "document_stride": 7}
    limits = {"num_best": num_best, "max_answer_length": max_answer_length}
    config = dataclasses.replace(CONFIG, **options, **limits)
    example = ask("ab", context="ab cd ef, gh ij. ab ef gh, cd", question="who")
    tokenized = tokenize([example], TOKENIZER, MODEL2, config)
    assert len(tokenized) == 2
    generator = np.random.default_rng(seed)
    rows = [
        dict(zip(("start", "end"), generator.normal(size=(2, 24)), strict=True))
        for _ in range(len(tokenized))
    ]
    outputs = SplitOutputs(Split([example], tokenized), rows)
    (prediction,) = predict(outputs, MODEL2, config)
    expected = best_by_search(example, tokenized, rows, config)
    entries = [entry for entry in prediction["nbest"] if entry["text"]]
    assert [entry["text"] for entry in entries] == [text for text, _ in expected]
    totals = [entry["start_logit"] + entry["end_logit"] for entry in entries]
    np.testing.assert_allclose(totals, [total for _, total in expected])
    null = min(output["start"][0] + output["end"][0] for output in rows)
    if expected:
        assert prediction["null_odds"] == pytest.approx(null - expected[0][1])
        assert (prediction["answer"] == "") == (null > expected[0][1])


WORDS = st.lists(
    st.sampled_from(["paris", "Curie", "it's", "café", "x", "日本", "3.5", "ÖL"]),
    min_size=1,
    max_size=60,
)


def perfect_predictions(task, examples, tokenized):
    rows = perfect_outputs(tokenized)
    return task.predict(SplitOutputs(Split(examples, tokenized), rows))


@given(st.lists(WORDS, min_size=1, max_size=3), st.data())
def test_perfect_scores_give_back_the_answers(contexts, data):
    """Of answers that a window with the most context of their start holds."""
    pieces = tokenizer(["paris", "curie", "日", "本"])
    examples = []
    for number, words in enumerate(contexts):
        context = data.draw(st.sampled_from([" ", "  ", "\n"])).join(words)
        places = pieces.encode(context).offsets
        start = data.draw(st.integers(0, len(places) - 1))
        end = data.draw(st.integers(start, min(start + 3, len(places) - 1)))
        a, b = int(places[start, 0]), int(places[end, 1])
        answers = ((context[a:b], a),)
        examples.append(SquadExample(str(number), "", "who", context, answers))
    # Windows of 16 overlap by 8.
    config = ExamplesConfig(max_length=20, max_query_length=1, document_stride=8)
    task = QuestionAnsweringTask(config, MODEL)
    tokenized = task.tokenize(examples, pieces)
    predictions = perfect_predictions(task, examples, tokenized)
    for example, prediction in zip(examples, predictions, strict=True):
        assert [prediction["answer"]] == [text for text, _ in example.answers]
        span = example.context[prediction["start"] : prediction["end"]]
        assert span == prediction["answer"]
    assert (
        task.official_scores(Predictions(examples, predictions))["exact_match"] == 100
    )


@pytest.mark.skipif(not XQUAD.exists(), reason="XQuAD is not there")
@pytest.mark.parametrize("max_length", [384, 192])
def test_real_answers_survive_tokenizing_and_predicting(max_length):
    """All but one of 1,190, which ends inside a number that is one token."""
    config = ExamplesConfig(max_length=max_length, document_stride=96)
    task = QuestionAnsweringTask(config, MODEL)
    examples = task.read(str(XQUAD))
    text = " ".join(example.context for example in examples).lower()
    pieces = tokenizer(sorted(set(re.findall("[a-z]{2,}|[0-9]{2,}", text))))
    tokenized = task.tokenize(examples, pieces)
    assert len(tokenized) > len(examples)
    predictions = perfect_predictions(task, examples, tokenized)
    wrong = [
        example.id
        for example, prediction in zip(examples, predictions, strict=True)
        if not answer_exact_match(prediction["answer"], [example.answers[0][0]])
    ]
    assert wrong == ["5729e2316aef0514001550c5"]

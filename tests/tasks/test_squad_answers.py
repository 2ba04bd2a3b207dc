"""Answers of scores, by hand, by their properties, and on real questions."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from squad_texts import ask, perfect_outputs, tokenizer

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.config.model import ANSWERABLE_LABELS
from bert_jax.metrics.squad import answer_exact_match
from bert_jax.tasks.squad import score
from bert_jax.tasks.squad_answers import decide, predict
from bert_jax.tasks.squad_files import read
from bert_jax.tasks.squad_rows import Record, encode

TOKENIZER = tokenizer()
MODEL = BertConfig(head="question_answering")
MODEL2 = dataclasses.replace(MODEL, labels=ANSWERABLE_LABELS)
CONFIG = ExamplesConfig(max_length=64, max_query_length=8, document_stride=16)
# "ab cd ef" after "[CLS] who [SEP]" is six tokens, at 3 to 8.
RECORD = ask("ab", context="ab cd ef", question="who")
FIRST = 3
XQUAD = Path(__file__).parents[3] / "shared" / "data" / "xquad" / "xquad.en.json"


def scored(start, end, length=16):
    """Scores of a row, low where nothing is said; by place."""
    found = {}
    for name, values in (("start", start), ("end", end)):
        found[name] = np.full(length, -50, np.float32)
        for place, value in values.items():
            found[name][place] = value
    return found


def answers(outputs, model=MODEL, record=RECORD, **options):
    config = dataclasses.replace(CONFIG, **options)
    examples = encode([record], TOKENIZER, model, config)
    return predict([record], examples, outputs, model, config)[0]


def test_an_answer_by_hand():
    a, b, d = FIRST, FIRST + 1, FIRST + 3
    found = answers([scored({0: 1.0, a: 2.0, b: 1.0}, {0: 0.5, b: 3.0, d: 2.5})])
    assert found["answer"] == "ab" and (found["start"], found["end"]) == (0, 2)
    assert found["id"] == "q1" and found["null_odds"] == pytest.approx(1.5 - 5.0)
    texts = [entry["text"] for entry in found["nbest"][:4]]
    assert texts == ["ab", "ab cd", "b", "b cd"]
    assert [e["start_logit"] for e in found["nbest"][:4]] == [2, 2, 1, 1]
    assert [e["end_logit"] for e in found["nbest"][:4]] == [3, 2.5, 3, 2.5]
    weights = np.exp([5.0, 4.5, 4.0, 3.5])
    shares = [entry["probability"] for entry in found["nbest"][:4]]
    np.testing.assert_allclose(shares, weights / weights.sum(), rtol=1e-6)
    assert found["score"] == shares[0]
    assert "" not in [entry["text"] for entry in found["nbest"]]


def test_no_answer_is_one_of_the_best_of_a_model_that_may_say_so():
    a, b = FIRST, FIRST + 1
    output = scored({0: 3.0, a: 2.0}, {0: 2.5, b: 3.0})
    assert answers([output])["answer"] == "ab"
    found = answers([output], MODEL2)
    assert (found["answer"], found["start"], found["end"]) == ("", None, None)
    assert found["null_odds"] == pytest.approx(0.5)
    assert [entry["text"] for entry in found["nbest"][:2]] == ["", "ab"]
    assert found["score"] == found["nbest"][0]["probability"]
    again = decide(found, 0.6)
    assert (again["answer"], again["start"], again["end"]) == ("ab", 0, 2)
    assert again["nbest"] == found["nbest"] and decide(again, 0.0) == found


def test_an_answer_that_does_not_end_before_it_starts_or_is_too_long():
    a = FIRST
    output = scored({a: 1.0, a + 4: 3.0}, {a + 1: 3.0, a + 5: 2.0})
    assert answers([output])["answer"] == "ef"
    output = scored({a: 3.0, a + 4: 1.0}, {a + 1: 1.0, a + 5: 3.0})
    assert answers([output], max_answer_length=6)["answer"] == "ab cd ef"
    assert answers([output], max_answer_length=5)["answer"] == "ab"


def test_only_the_best_starts_and_ends_are_combined():
    a = FIRST
    # The best start comes after the best end.
    output = scored({a: 1.0, a + 4: 3.0}, {a + 1: 3.0, a + 5: 2.0})
    found = answers([output], num_best=1)
    assert found["answer"] == "" and found["nbest"][0]["text"] == ""
    assert found["null_odds"] == 0
    assert len(answers([output], num_best=2)["nbest"]) == 2


def test_question_and_padding_are_never_the_answer():
    output = scored({1: 9.0, 14: 9.0, FIRST: 1.0}, {1: 9.0, 9: 9.0, FIRST + 1: 1.0})
    assert answers([output], num_best=1)["answer"] == "ab"


def test_a_text_stands_once_among_the_best():
    record = ask("ab", context="ab cd ab", question="who")
    a = FIRST
    output = scored({a: 1.0, a + 4: 2.0}, {a + 1: 1.0, a + 5: 2.0})
    found = answers([output], record=record)
    texts = [entry["text"] for entry in found["nbest"]]
    assert texts.count("ab") == 1 and (found["start"], found["end"]) == (6, 8)


def test_windows_are_put_together():
    options = {"max_length": 8, "max_query_length": 1, "document_stride": 2}
    config = dataclasses.replace(CONFIG, **options)
    examples = encode([RECORD], TOKENIZER, MODEL, config)
    assert len(examples) == 2
    # "c" stands in both windows, at 5 and at 3: with more context in the first.
    most = [examples.token_values("max_context", i) for i in range(2)]
    assert most[0][5] and not most[1][3]
    high = scored({0: 1.0, 3: 9.0}, {0: 1.0, 4: 9.0})
    low = scored({0: 2.0, 5: 2.0}, {0: 2.5, 6: 2.0})
    found = predict([RECORD], examples, [low, high], MODEL, config)[0]
    assert found["answer"] == "cd" and found["nbest"][0]["start_logit"] == 2.0
    # No answer: the window that speaks most against it.
    assert found["null_odds"] == pytest.approx(2.0 - 4.0)


def test_an_empty_document_has_no_answer():
    record = ask(None, context="\x00")
    for model in (MODEL, MODEL2):
        found = answers([scored({0: 1.0}, {0: 1.0})], model, record)
        assert found["answer"] == "" and found["score"] == 1.0
        assert len(found["nbest"]) == 1


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_scores_that_are_no_numbers(value):
    message = "question 'q1': the model's scores are not numbers"
    with pytest.raises(ValueError, match=message):
        answers([scored({FIRST: value}, {FIRST: 1.0})])
    # Padding is not looked at.
    assert answers([scored({12: value, FIRST: 1.0}, {FIRST: 1.0})])["answer"] == "a"


def best_by_search(record, examples, outputs, config):
    """The texts of the best answers and their scores, from all pairs of all windows."""
    best = {}
    for i, output in enumerate(outputs):
        offset = examples.token_values("offset", i)
        document = [t for t in range(len(offset)) if offset[t, 0] >= 0]
        most = [t for t in document if examples.token_values("max_context", i)[t]]
        starts = sorted(most, key=lambda t: -output["start"][t])[: config.num_best]
        ends = sorted(document, key=lambda t: -output["end"][t])[: config.num_best]
        for start in starts:
            for end in ends:
                if start <= end < start + config.max_answer_length:
                    text = record.context[offset[start, 0] : offset[end, 1]]
                    total = float(output["start"][start]) + float(output["end"][end])
                    best[text] = max(total, best.get(text, -np.inf))
    order = sorted(best, key=lambda text: -best[text])[: config.num_best]
    return [(text, best[text]) for text in order]


@given(st.integers(0, 1 << 32), st.integers(1, 20), st.integers(1, 8))
def test_the_best_are_those_that_a_search_finds(seed, num_best, max_answer_length):
    options = {"max_length": 24, "max_query_length": 1, "document_stride": 7}
    limits = {"num_best": num_best, "max_answer_length": max_answer_length}
    config = dataclasses.replace(CONFIG, **options, **limits)
    record = ask("ab", context="ab cd ef, gh ij. ab ef gh, cd", question="who")
    examples = encode([record], TOKENIZER, MODEL2, config)
    assert len(examples) == 2
    generator = np.random.default_rng(seed)
    outputs = [
        dict(zip(("start", "end"), generator.normal(size=(2, 24)), strict=True))
        for _ in range(len(examples))
    ]
    found = predict([record], examples, outputs, MODEL2, config)[0]
    wanted = best_by_search(record, examples, outputs, config)
    entries = [entry for entry in found["nbest"] if entry["text"]]
    assert [entry["text"] for entry in entries] == [text for text, _ in wanted]
    totals = [entry["start_logit"] + entry["end_logit"] for entry in entries]
    np.testing.assert_allclose(totals, [total for _, total in wanted])
    null = min(output["start"][0] + output["end"][0] for output in outputs)
    if wanted:
        assert found["null_odds"] == pytest.approx(null - wanted[0][1])
        assert (found["answer"] == "") == (null > wanted[0][1])


WORDS = st.lists(
    st.sampled_from(["paris", "Curie", "it's", "café", "x", "日本", "3.5", "ÖL"]),
    min_size=1,
    max_size=60,
)


@given(st.lists(WORDS, min_size=1, max_size=3), st.data())
def test_perfect_scores_give_back_the_answers(contexts, data):
    """Of answers that a window with the most context of their start holds."""
    tokens = tokenizer(["paris", "curie", "日", "本"])
    records = []
    for number, words in enumerate(contexts):
        context = data.draw(st.sampled_from([" ", "  ", "\n"])).join(words)
        places = tokens.encode(context).offsets
        start = data.draw(st.integers(0, len(places) - 1))
        end = data.draw(st.integers(start, min(start + 3, len(places) - 1)))
        a, b = int(places[start, 0]), int(places[end, 1])
        answer = ((context[a:b], a),)
        records.append(Record(str(number), "", "who", context, answer))
    # Windows of 16 overlap by 8.
    config = ExamplesConfig(max_length=20, max_query_length=1, document_stride=8)
    examples = encode(records, tokens, MODEL, config)
    found = predict(records, examples, perfect_outputs(examples), MODEL, config)
    for record, prediction in zip(records, found, strict=True):
        assert [prediction["answer"]] == [text for text, _ in record.answers]
        span = record.context[prediction["start"] : prediction["end"]]
        assert span == prediction["answer"]
    assert score(records, found, MODEL, config)["exact_match"] == 100


@pytest.mark.skipif(not XQUAD.exists(), reason="XQuAD is not there")
@pytest.mark.parametrize("max_length", [384, 192])
def test_real_answers_survive_the_way_there_and_back(max_length):
    """All but one of 1,190, which ends inside a number that is one token."""
    config = ExamplesConfig(max_length=max_length, document_stride=96)
    records = read(str(XQUAD), config)
    text = " ".join(record.context for record in records).lower()
    tokens = tokenizer(sorted(set(re.findall("[a-z]{2,}|[0-9]{2,}", text))))
    examples = encode(records, tokens, MODEL, config)
    assert len(examples) > len(records)
    found = predict(records, examples, perfect_outputs(examples), MODEL, config)
    wrong = [
        record.id
        for record, prediction in zip(records, found, strict=True)
        if not answer_exact_match(prediction["answer"], [record.answers[0][0]])
    ]
    assert wrong == ["5729e2316aef0514001550c5"]

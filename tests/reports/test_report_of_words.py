"""What a report says of entities and plain labels of words, by hand."""

import numpy as np
import pytest
from predictions import report_of

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.metrics.entities import convert_tags
from bert_jax.reports.report import sections
from bert_jax.tasks.reporting.views import Examples, Table
from bert_jax.tasks.tagging.conll import Sentence
from bert_jax.tasks.tagging.entity_report import MAX_WORDS, NO_ENTITY
from bert_jax.tasks.tagging.task import TokenClassificationTask

LABELS = ("O", "B-LOC", "B-PER", "I-LOC", "I-PER")


def tagging_task(labels=LABELS):
    model = BertConfig.tiny(head="token_classification", labels=labels)
    return TokenClassificationTask(ExamplesConfig(), model)


def sentence(tags, scheme="IOB2", line=1):
    words = tuple(f"w{i}" for i in range(len(tags.split())))
    return Sentence(words, tuple(tags.split()), scheme, path="f.txt", line=line)


def tagged(tags, score=0.75):
    """A prediction as of the task, with one score for each entity."""
    names = tags.split()
    begins = [i for i, tag in enumerate(names) if tag.startswith("B")]
    return {"tags": names, "entities": [{"score": score} for _ in begins]}


GOLD = [
    "B-PER I-PER O B-LOC O",  # the person is too short, the place has another type
    "O B-LOC O O",  # missed, and a person elsewhere is spurious
    "B-LOC O O",  # right
]
PREDICTED = ["B-PER O O B-PER O", "O O O B-PER", "B-LOC O O"]


@pytest.fixture
def entities():
    own = [sentence(tags, line=10 * i) for i, tags in enumerate(GOLD, 1)]
    scores = (0.9, 0.8, 0.7)
    values = [tagged(*pair) for pair in zip(PREDICTED, scores, strict=True)]
    return report_of(tagging_task(), own, values)


def test_scores_by_type_are_the_official_ones(entities):
    assert entities["kind"] == "entities"
    for entry in entities["classes"]:
        assert entry["f1"] == entities["scores"][f"f1_{entry['label']}"]
    micro, scores = entities["averages"]["micro"], entities["scores"]
    assert {name: scores[name] for name in micro} == micro
    place, person = entities["classes"]
    assert (place["label"], place["support"], place["predicted"]) == ("LOC", 3, 1)
    assert place["precision"] == 1 and place["recall"] == pytest.approx(1 / 3)
    assert person["f1"] == 0


def test_types_with_missed_and_spurious_entities(entities):
    assert entities["confusion_matrix"] == {
        "labels": ["LOC", "PER", NO_ENTITY],
        # By gold type: a right place, one as a person, one missed; a person too short.
        "counts": [[1, 1, 1], [0, 1, 0], [0, 1, 0]],
    }
    assert entities["error_kinds"] == {
        "correct": 1,
        "type": 1,
        "boundaries": 1,
        "too short": 1,
        "missed": 1,
        "spurious": 1,
    }


def test_the_calibration_of_predicted_entities(entities):
    """Of 0.9, 0.9, 0.8 and 0.7, the last is correct."""
    error = entities["calibration"]["expected_calibration_error"]
    assert error == pytest.approx((2 * 0.9 + 0.8 + (1 - 0.7)) / 4)


def test_the_sentence_with_the_most_errors_comes_first(entities):
    """Two sentences have two errors each; in the first, the model is surer."""
    assert entities["num_wrong"] == 2
    assert [entry["index"] for entry in entities["worst"]] == [0, 1]
    assert [entry["where"] for entry in entities["worst"]] == [
        "f.txt, line 10",
        "f.txt, line 20",
    ]
    (part,) = sections(entities)[-1].parts
    assert isinstance(part, Examples)
    gold, predicted = part.items[0].passages
    spans = [(s.text, s.mark, s.label) for s in gold.spans if s.mark]
    assert spans == [("w0 w1", "gold", "PER"), ("w3", "gold", "LOC")]
    assert "".join(span.text for span in gold.spans) == "w0 w1 w2 w3 w4"
    spans = [(s.text, s.mark, s.label) for s in predicted.spans if s.mark]
    assert spans == [("w0", "wrong", "PER"), ("w3", "wrong", "PER")]
    assert part.items[1].confusions == [("LOC", NO_ENTITY), (NO_ENTITY, "PER")]


def test_the_scheme_of_the_file_does_not_matter(entities):
    own = [
        Sentence(
            sentence(tags).words,
            tuple(convert_tags(tags.split(), "IOBES")),
            "IOBES",
            path="f.txt",
        )
        for tags in GOLD
    ]
    values = [tagged(tags) for tags in PREDICTED]
    report = report_of(tagging_task(), own, values)
    for name in ("classes", "confusion_matrix", "error_kinds"):
        assert report[name] == entities[name]


def test_a_long_sentence_is_listed_from_its_first_error():
    tags = ["B-LOC"] + ["O"] * 998 + ["B-PER"]
    predicted = ["B-LOC"] + ["O"] * 299 + ["B-PER"] + ["O"] * 699
    own = sentence(" ".join(tags))
    report = report_of(tagging_task(), [own], [tagged(" ".join(predicted))])
    (entry,) = report["worst"]
    assert entry["words"] == [f"w{i}" for i in range(300, 300 + MAX_WORDS)]
    (listed,) = entry["entities"]
    assert listed["predicted"] == {"type": "PER", "start": 0, "end": 1}
    assert listed["gold"] is None and sections(report)


def test_no_entity_is_predicted():
    report = report_of(tagging_task(), [sentence(GOLD[0])], [tagged("O O O O O")])
    assert report["calibration"] is None and report["error_kinds"] == {"missed": 2}
    assert "calibration" not in [section.id for section in sections(report)]


def test_plain_labels_by_hand():
    labels = ("ADJ", "NOUN", "VERB")
    own = [sentence("NOUN VERB NOUN", None), sentence("ADJ NOUN", None, line=5)]
    predicted = ["NOUN VERB NOUN", "NOUN VERB"]
    values = [
        {"tags": tags.split(), "words": [{"score": 0.8}] * len(tags.split())}
        for tags in predicted
    ]
    report = report_of(tagging_task(labels), own, values)
    assert report["kind"] == "tags" and report["num_words"] == 5
    assert report["confusion_matrix"]["counts"] == [[0, 1, 0], [0, 2, 1], [0, 0, 1]]
    error = report["calibration"]["expected_calibration_error"]
    assert error == pytest.approx(0.8 - 3 / 5)
    assert report["num_wrong"] == 1
    (entry,) = report["worst"]
    assert entry["labels"] == ["ADJ", "NOUN"]
    assert entry["predictions"] == ["NOUN", "VERB"]
    (item,) = sections(report)[-1].parts[0].items
    marked = [(s.text, s.label) for s in item.passages[0].spans if s.mark]
    assert marked == [("w0", "ADJ → NOUN"), ("w1", "NOUN → VERB")]
    noun = np.array([e["recall"] for e in report["classes"] if e["label"] == "NOUN"])
    assert noun == pytest.approx(2 / 3)
    (table,) = sections(report)[1].parts
    assert isinstance(table, Table) and table.last_rows == 2

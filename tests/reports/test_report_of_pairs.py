"""What a report says of pairs of texts: with a label, to be found, or ranked."""

import json

import numpy as np
import pytest
from predictions import report_of

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.config.sentence_pairs import SentencePairsConfig
from bert_jax.data.examples import from_rows
from bert_jax.reports.report import ScoredSource, error_report, report_page, sections
from bert_jax.reports.terminal import print_report
from bert_jax.tasks.pairs.examples import PairExample, text_ids
from bert_jax.tasks.pairs.ranking import RELEVANCE, PairRankingTask
from bert_jax.tasks.pairs.retrieval import ranks_among
from bert_jax.tasks.pairs.vectors import ContrastivePairsTask
from bert_jax.tasks.predictions import Predictions, Split, SplitOutputs
from bert_jax.tasks.reporting.views import Chart, Table

ENCODER = BertConfig.tiny(head="encoder")
RANKER = BertConfig.tiny(
    head="sequence_classification", labels=(RELEVANCE,), problem_type="regression"
)


def scored(labels):
    return [
        PairExample((f"first {i}", f"second {i}"), label, f"f.csv, line {i + 2}")
        for i, label in enumerate(labels)
    ]


def is_shown(report, capsys):
    """As a page, in the terminal, and as JSON."""
    assert "first 0" in report_page(report) or "first" in report_page(report)
    print_report(report)
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    shown = capsys.readouterr().err
    assert "]()" not in shown  # a mark without a label
    return shown


def test_labelled_pairs_by_hand(capsys):
    """The labels are 0 to 5, the scores cosines; the last pair is out of order."""
    labels, scores = [0.0, 1.0, 3.0, 4.0, 5.0], [-0.1, 0.2, 0.5, 0.8, 0.1]
    values = [{"score": score} for score in scores]
    task = ContrastivePairsTask(ExamplesConfig(), ENCODER)
    report = report_of(task, scored(labels), values)
    assert (report["kind"], report["task"]) == ("scored_pairs", "sentence-pairs")
    assert report["points"] == {"label": labels, "score": scores}
    worst = report["worst"][0]
    assert (worst["index"], worst["where"]) == (4, "f.csv, line 6")
    assert (worst["label_place"], worst["score_place"]) == (1.0, 0.25)
    assert worst["texts"] == ["first 4", "second 4"]
    assert sum(entry["count"] for entry in report["by_range"]) == 5
    chart, table = sections(report)[1].parts
    assert isinstance(chart, Chart) and isinstance(table, Table)
    assert "Scores by label" in is_shown(report, capsys)


@pytest.mark.parametrize("labels", [[2.0], [2.0, 2.0, 2.0]])
def test_equal_labels(labels, capsys):
    task = ContrastivePairsTask(ExamplesConfig(), ENCODER)
    report = report_of(task, scored(labels), [{"score": 0.5} for _ in labels])
    assert sum(entry["count"] for entry in report["by_range"]) == len(labels)
    is_shown(report, capsys)


TEXTS = [("q0", "d0"), ("q1", "d1"), ("q0", "d2"), ("q2", "d1")]
"""q0 has two partners, and d1 belongs to two queries."""
NEAR = {
    "q0": (1, 0, 0), "d0": (0, 1, 0), "d2": (0.8, 0.6, 0),
    "q1": (0, 0, 1), "d1": (0.96, 0, 0.28),
    "q2": (0, 1, 0),
}  # fmt: skip


def test_the_rank_of_the_best_partner_by_hand():
    """d1 is the nearest to q0 (0.96, d2 0.8, d0 0) and to q1; d0 to q2, before d1."""
    examples = [PairExample(pair) for pair in TEXTS]
    vectors = np.array([[NEAR[text] for text in pair] for pair in TEXTS], np.float32)
    for block in (1, 1 << 20):
        q0, q1, other, q2 = ranks_among(vectors, text_ids(examples), block)
        assert other == {}
        assert q0["right_score"] == pytest.approx(0.8)
        assert q0["first_score"] == pytest.approx(0.96)
        assert (q0["rank"], q0["right"], q0["first"]) == (2, (2, 1), (1, 1))
        assert (q1["rank"], q1["right"], q1["first"]) == (1, (1, 1), (1, 1))
        assert (q2["rank"], q2["right"], q2["first"]) == (3, (3, 1), (0, 1))


def test_pairs_to_be_found(capsys):
    examples = [
        PairExample(pair, where=f"f.csv, line {i + 2}") for i, pair in enumerate(TEXTS)
    ]
    task = ContrastivePairsTask(ExamplesConfig(), ENCODER)
    vectors = np.array([[NEAR[text] for text in pair] for pair in TEXTS], np.float32)
    rankings = ranks_among(vectors, text_ids(examples))
    values = [{"score": 0.0} | ranking for ranking in rankings]
    predictions = Predictions(examples, values)
    source = ScoredSource("runs/b", "test.csv")
    report = error_report(task, predictions, {"ndcg@10": 0.5, "map": 0.5}, source)
    assert report["kind"] == "found_pairs" and report["num_queries"] == 3
    assert [entry["count"] for entry in report["ranks"]] == [1, 2, 0, 0, 0]
    first, second = report["worst"]
    assert (first["rank"], first["texts"], first["first_text"]) == (
        3,
        ["q2", "d1"],
        "d0",
    )
    assert second["texts"] == ["q0", "d2"], "the best partner"
    assert (second["where"], second["first_where"]) == (
        "f.csv, line 4",
        "f.csv, line 3",
    )
    shown = is_shown(report, capsys)
    assert "2 of 3 first texts are wrong" in shown
    assert "ranked first (f.csv, line 2): [d0]" in shown


def test_negatives_that_are_ranked_first(capsys):
    data = ExamplesConfig(sentence_pairs=SentencePairsConfig("rank"))
    task = PairRankingTask(data, RANKER)
    examples = [PairExample((f"first {i}", "b", "c", "d"), where="f") for i in range(3)]
    rows = [{"scores": np.array(s)} for s in ([3, 1, 2], [1, 1, 0], [1, 2, 3])]
    rows_of_3 = from_rows([([1, 2], 2)] * 9, np.arange(3, dtype=np.int32), choices=3)
    outputs = SplitOutputs(Split(examples, rows_of_3), rows)
    predictions = task.predict(outputs)
    rankings = task.rankings_among(outputs)
    assert [ranking["rank"] for ranking in rankings] == [1, 2, 3]
    assert [ranking["first"] for ranking in rankings] == [(0, 1), (1, 2), (2, 3)]
    values = [a | b for a, b in zip(predictions, rankings, strict=True)]
    report = report_of(task, examples, values)
    assert (report["kind"], report["task"]) == ("found_pairs", "sentence-pairs")
    assert [entry["first_text"] for entry in report["worst"]] == ["d", "c"]
    is_shown(report, capsys)


def test_vectors_that_are_no_numbers():
    task = ContrastivePairsTask(ExamplesConfig(), ENCODER)
    examples = [PairExample(pair) for pair in TEXTS]
    vectors = np.full((4, 2, 3), np.nan, np.float32)
    values = ranks_among(vectors, text_ids(examples))
    with pytest.raises(ValueError, match="training diverged"):
        error_report(task, Predictions(examples, values), {}, ScoredSource("a", "b"))

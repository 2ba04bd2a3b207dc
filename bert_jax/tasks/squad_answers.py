"""Start and end scores → the best answers, cut from the documents themselves.

As the code of 2018 chooses them (Devlin et al. 2018, §4.2 and §4.3), but that places
outside the document do not count among the best starts and ends, and that no text is
put together from tokens: each knows its place in the document.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.config.model import ANSWERABLE_LABELS
from bert_jax.data.examples import Examples
from bert_jax.tasks.finetuning_task import Prediction, RowOutputs, SplitOutputs
from bert_jax.tasks.squad_rows import SquadExample

Logits = tuple[Float64[np.ndarray, " _"], Float64[np.ndarray, " _"]]
"""Of the start and the end of an answer, at each of a row's tokens."""


@dataclasses.dataclass(frozen=True)
class Candidates:
    """K answers to one question, best first."""

    start: Int64[np.ndarray, " K"]
    """Characters of the document."""
    end: Int64[np.ndarray, " K"]
    start_logit: Float64[np.ndarray, " K"]
    end_logit: Float64[np.ndarray, " K"]


def predict(
    outputs: SplitOutputs, model: BertConfig, config: ExamplesConfig
) -> list[Prediction]:
    """Return the best answers to each question over all windows of its document.

    Args:
        outputs: with `start` and `end` [T] of each row, in logits.

    Returns:
        `id`; `answer`, "" for none; its probability `score` among the best; `start` and
        `end`, characters of the document, None for none; `null_odds`, by how much the
        score of no answer exceeds that of the best answer, in nats; and `nbest`.

    Raises:
        ValueError: a score is not a number.
    """
    examples, tokenized = outputs.split.examples, outputs.split.tokenized
    assert len(outputs.rows) == len(tokenized)
    bounds = np.searchsorted(tokenized.record, np.arange(len(examples) + 1))
    predictions = []
    for i, example in enumerate(examples):
        own = range(bounds[i], bounds[i + 1])
        logits = [_logits(example, tokenized, outputs.rows[row], row) for row in own]
        candidates = best_spans(tokenized, own, logits, config)
        # The score of no answer is the least over the windows.
        null = min(logits, key=lambda pair: pair[0][0] + pair[1][0])
        nulls = (float(null[0][0]), float(null[1][0]))
        predictions.append(_prediction(example, candidates, nulls, model, config))
    return predictions


def _logits(
    example: SquadExample, tokenized: Examples, output: RowOutputs, row: int
) -> Logits:
    """Start and end of the real tokens."""
    length = int(tokenized.starts[row + 1] - tokenized.starts[row])
    start, end = (output[name][:length].astype(np.float64) for name in ("start", "end"))
    if not (np.isfinite(start).all() and np.isfinite(end).all()):
        raise ValueError(
            f"question {example.id!r}: the model's scores are not numbers; "
            "its parameters are damaged, or training diverged."
        )
    return start, end


def best_spans(
    tokenized: Examples,
    windows: range,
    logits: Sequence[Logits],
    config: ExamplesConfig,
) -> Candidates:
    """Pairs of the `num_best` starts and ends of each window that may be answers.

    An answer starts where its window gives most context, ends in the document, not
    before its start, and is at most `max_answer_length` tokens long.
    """
    parts = []
    for i, (start, end) in zip(windows, logits, strict=True):
        offset = tokenized.token_values("offset", i)
        starts = _best(start, tokenized.token_values("max_context", i), config.num_best)
        ends = _best(end, offset[:, 0] >= 0, config.num_best)
        length = ends[None, :] - starts[:, None] + 1
        first, last = np.nonzero((length >= 1) & (length <= config.max_answer_length))
        a, b = starts[first], ends[last]
        parts.append((offset[a, 0], offset[b, 1], start[a], end[b]))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    order = np.argsort(-(columns[2] + columns[3]), kind="stable")
    first_char, last_char, start_logit, end_logit = (c[order] for c in columns)
    return Candidates(
        first_char.astype(np.int64), last_char.astype(np.int64), start_logit, end_logit
    )


def _best(
    scores: Float64[np.ndarray, " T"], allowed: np.ndarray, number: int
) -> Int64[np.ndarray, " K"]:
    """The allowed places with the highest scores, best first, of equals the first."""
    places = np.flatnonzero(allowed)
    return places[np.argsort(-scores[places], kind="stable")[:number]]


def _prediction(
    example: SquadExample,
    candidates: Candidates,
    nulls: tuple[float, float],
    model: BertConfig,
    config: ExamplesConfig,
) -> Prediction:
    entries = _distinct(example.context, candidates, config.num_best)
    none = _entry("", None, None, *nulls)
    null_odds = sum(nulls) - _total(entries[0]) if entries else 0.0
    # Without a candidate, as of an empty document, no answer is all that can be said.
    if model.labels == ANSWERABLE_LABELS or not entries:
        entries.append(none)
        entries.sort(key=_total, reverse=True)
    totals = np.array([_total(entry) for entry in entries])
    shares = np.exp(totals - totals.max())
    for entry, share in zip(entries, shares / shares.sum(), strict=True):
        entry["probability"] = float(share)
    prediction = {"id": example.id, "null_odds": null_odds, "nbest": entries}
    return apply_null_threshold(prediction, config.null_threshold)


def apply_null_threshold(prediction: Prediction, threshold: float) -> Prediction:
    """The prediction, with no answer where `null_odds` exceeds `threshold`.

    One of a model that was taught answers alone keeps its answer.
    """
    nbest = prediction["nbest"]
    none = next((entry for entry in nbest if not entry["text"]), None)
    best = next((entry for entry in nbest if entry["text"]), none)
    chosen = none if none and prediction["null_odds"] > threshold else best
    assert chosen is not None
    return {
        "id": prediction["id"],
        "answer": chosen["text"],
        "score": chosen["probability"],
        "start": chosen["start"],
        "end": chosen["end"],
        "null_odds": prediction["null_odds"],
        "nbest": nbest,
    }


def _distinct(
    context: str, candidates: Candidates, number: int
) -> list[dict[str, Any]]:
    """The best candidates of different texts."""
    found: dict[str, dict[str, Any]] = {}
    columns = dataclasses.astuple(candidates)
    for row in zip(*(column.tolist() for column in columns), strict=True):
        start, end, start_logit, end_logit = row
        text = context[start:end]
        if text and text not in found:
            found[text] = _entry(text, start, end, start_logit, end_logit)
            if len(found) == number:
                break
    return list(found.values())


def _entry(
    text: str, start: int | None, end: int | None, start_logit: float, end_logit: float
) -> dict[str, Any]:
    return {
        "text": text,
        "probability": 0.0,
        "start_logit": start_logit,
        "end_logit": end_logit,
        "start": start,
        "end": end,
    }


def _total(entry: dict[str, Any]) -> float:
    total: float = entry["start_logit"] + entry["end_logit"]
    return total

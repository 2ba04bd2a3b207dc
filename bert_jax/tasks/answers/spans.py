"""Choose the best answers from the scores of their starts and ends.

As in the code of 2018 (Devlin et al. 2018, §4.2 and §4.3), except for two things:
tokens outside the document are not among the best starts and ends, and the answer's
text is a slice of the document in whole characters, not joined from tokens.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float64, Int64

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.config.checks import require
from bert_jax.config.model import ANSWERABLE_LABELS
from bert_jax.data.examples import TokenizedExamples
from bert_jax.storage.files import JsonObject
from bert_jax.tasks.answers.rows import SquadExample
from bert_jax.tasks.predictions import Prediction, SplitOutputs
from bert_jax.tokenization.graphemes import whole_characters


def predict(
    outputs: SplitOutputs, model: BertConfig, config: ExamplesConfig
) -> list[Prediction]:
    """Return the best answers to each question over all windows of its document.

    Args:
        outputs: with the logits `start` and `end` [T] of each row.

    Returns:
        For each question its `id`; the `answer`, "" if there is none; its probability
        `score` among the best; `start` and `end`, characters of the document, None if
        there is no answer; `null_odds`, the score of no answer minus that of the best
        answer, in nats; and `nbest`.

    Raises:
        ValueError: a score is not finite.
    """
    examples, tokenized = outputs.split.examples, outputs.split.tokenized
    bounds = np.searchsorted(tokenized.example, np.arange(len(examples) + 1))
    predictions = []
    for i, example in enumerate(examples):
        windows = range(bounds[i], bounds[i + 1])
        logits = [_logits(example, outputs, row) for row in windows]
        spans = best_spans(tokenized, windows, logits, config)
        entries = _distinct(example.context, spans, config.num_best)
        # The score of no answer is that of [CLS], the lowest one of the windows.
        start, end = min(
            ((float(start[0]), float(end[0])) for start, end in logits), key=sum
        )
        null = _entry("", None, None, start, end)
        null_odds = _total(null) - _total(entries[0]) if entries else 0.0
        # Without any candidate, as for an empty document, predict no answer.
        if model.labels == ANSWERABLE_LABELS or not entries:
            entries.append(null)
            entries.sort(key=_total, reverse=True)
        totals = np.array([_total(entry) for entry in entries])
        weights = np.exp(totals - totals.max())
        for entry, probability in zip(entries, weights / weights.sum(), strict=True):
            entry["probability"] = float(probability)
        prediction = {"id": example.id, "null_odds": null_odds, "nbest": entries}
        predictions.append(apply_null_threshold(prediction, config.null_threshold))
    return predictions


def _logits(
    example: SquadExample, outputs: SplitOutputs, row: int
) -> list[Float64[np.ndarray, " _"]]:
    """Return the start and end logits of a row's real tokens."""
    starts, output = outputs.split.tokenized.starts, outputs.rows[row]
    length = int(starts[row + 1] - starts[row])
    logits = [output[name][:length].astype(np.float64) for name in ("start", "end")]
    if not np.isfinite(logits).all():
        raise ValueError(
            f"question {example.id!r}: the model's scores are not numbers; "
            "its parameters are damaged, or training diverged."
        )
    return logits


def best_spans(
    tokenized: TokenizedExamples,
    windows: range,
    logits: Sequence[Sequence[Float64[np.ndarray, " _"]]],
    config: ExamplesConfig,
) -> list[tuple[int, int, float, float]]:
    """Return the valid pairs of the `num_best` starts and ends of each window.

    For each, its first and last character and the logits of both. A start is valid only
    in the window that gives it the most context, and an end only within the document.
    An answer has from 1 to `max_answer_length` tokens.
    """
    spans = []
    for row, (start, end) in zip(windows, logits, strict=True):
        offset = tokenized.token_values("offset", row)
        max_context = tokenized.token_values("max_context", row)
        starts = _best_positions(start, max_context, config.num_best)
        ends = _best_positions(end, offset[:, 0] >= 0, config.num_best)
        # Every start with every end: [K, K] lengths, of which the valid pairs remain.
        length = ends[None, :] - starts[:, None] + 1
        i, j = np.nonzero((length >= 1) & (length <= config.max_answer_length))
        first, last = starts[i], ends[j]
        spans.append((offset[first, 0], offset[last, 1], start[first], end[last]))
    # All windows together, the highest sum of logits first.
    columns = [np.concatenate(column) for column in zip(*spans, strict=True)]
    order = np.argsort(-(columns[2] + columns[3]), kind="stable")
    return list(zip(*(column[order].tolist() for column in columns), strict=True))


def _best_positions(
    scores: Float64[np.ndarray, " T"], allowed: Bool[np.ndarray, " T"], num_best: int
) -> Int64[np.ndarray, " K"]:
    """Return the allowed positions with the highest scores, best first."""
    positions = np.flatnonzero(allowed)
    return positions[np.argsort(-scores[positions], kind="stable")[:num_best]]


def require_null_answers(model: BertConfig, what: str) -> None:
    """Raise ValueError unless a model may answer nothing, which `what` needs."""
    require(
        model.labels == ANSWERABLE_LABELS,
        f"{what}, and the model was trained on answerable questions alone; leave it "
        "out, or train on others too. A model of another library that was needs "
        '"id2label": {"0": "answerable", "1": "unanswerable"} in its config.json.',
    )


def apply_null_threshold(prediction: Prediction, threshold: float) -> Prediction:
    """Return the prediction, with no answer if `null_odds` exceeds `threshold`.

    If `nbest` has no empty answer, as of a model trained on SQuAD 1.1, the best answer
    stays.
    """
    nbest = prediction["nbest"]
    null = next((entry for entry in nbest if not entry["text"]), None)
    best = next((entry for entry in nbest if entry["text"]), null)
    chosen = null if null and prediction["null_odds"] > threshold else best
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
    context: str, spans: Sequence[tuple[int, int, float, float]], num_best: int
) -> list[JsonObject]:
    """Return the best spans of whole characters whose texts differ.

    White space around a text, which may be tokens of their own, is left out.
    """
    entries: dict[str, JsonObject] = {}
    for first, last, start_logit, end_logit in spans:
        start, end = whole_characters(context, first, last)
        start = end - len(context[start:end].lstrip())
        text = context[start:end].rstrip()
        end = start + len(text)
        if text and text not in entries:
            entries[text] = _entry(text, start, end, start_logit, end_logit)
            if len(entries) == num_best:
                break
    return list(entries.values())


def _entry(
    text: str, start: int | None, end: int | None, start_logit: float, end_logit: float
) -> JsonObject:
    return {
        "text": text,
        "probability": 0.0,
        "start_logit": start_logit,
        "end_logit": end_logit,
        "start": start,
        "end": end,
    }


def _total(entry: JsonObject) -> float:
    return float(entry["start_logit"] + entry["end_logit"])

"""The curves of a run: its scalars by step, thinned for a web page."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float, Int

from bert_jax.config import PretrainConfig, RunConfig
from bert_jax.storage.files import JsonObject
from bert_jax.tasks.predictions import without_repeats
from bert_jax.training.metrics_file import MetricsLine
from bert_jax.training.resume import fields_among

MAX_POINTS = 1000
"""Points of a curve; a browser draws them all, on a chart of half as many pixels."""

SECTIONS = ("Loss and scores", "Optimisation", "Throughput")


@dataclasses.dataclass(frozen=True)
class Subject:
    """What a chart shows."""

    title: str
    note: str = "A score on the validation examples."
    section: str = SECTIONS[0]
    percent: bool = False
    from_zero: bool = False
    """Whether the vertical axis begins at 0."""


_NATS = "in nats; lower is better."
_JUDGED = "Fraction of the pairs that the model judges correctly."
_fraction = functools.partial(Subject, percent=True)
_update = functools.partial(Subject, section="Optimisation")
_rate = functools.partial(Subject, section="Throughput", from_zero=True)
SUBJECTS = {
    "loss": Subject("Loss", "What training minimises; lower is better."),
    "mlm_loss": Subject(
        "Masked LM loss", f"Mean cross-entropy of the masked tokens, {_NATS}"
    ),
    "clm_loss": Subject(
        "Next token loss", f"Mean cross-entropy of each token, {_NATS}"
    ),
    "mlm_accuracy": _fraction(
        "Masked LM accuracy", "Fraction of the masked tokens that the model predicts."
    ),
    "clm_accuracy": _fraction(
        "Next token accuracy", "Fraction of the tokens that the model predicts."
    ),
    "nsp_loss": Subject(
        "Next sentence loss", f"Whether the second segment follows the first, {_NATS}"
    ),
    "sop_loss": Subject(
        "Sentence order loss", f"Whether the segments are in order, {_NATS}"
    ),
    "nsp_accuracy": _fraction("Next sentence accuracy", _JUDGED),
    "sop_accuracy": _fraction("Sentence order accuracy", _JUDGED),
    "bits_per_byte": Subject(
        "Bits per byte",
        "Cross-entropy of a byte of text, in bits; it can be compared between "
        "vocabularies, and lower is better.",
    ),
    "mlm_perplexity": Subject("Masked LM perplexity"),
    "clm_perplexity": Subject("Next token perplexity"),
    "bytes_per_token": Subject("Bytes per token"),
    "accuracy": _fraction("Accuracy"),
    "f1": Subject("F1"),
    "macro_f1": Subject("Macro F1"),
    "mcc": Subject("Matthews correlation"),
    "learning_rate": _update("Learning rate", "Of each logged step.", from_zero=True),
    "grad_norm": _update(
        "Gradient norm", "Before clipping; a larger gradient is scaled down."
    ),
    "skipped_in_a_row": _update(
        "Skipped updates",
        "Number of updates in a row that were skipped because the gradient was not "
        "finite.",
        from_zero=True,
    ),
    "tokens_per_second": _rate("Tokens per second", "Of all devices, without padding."),
    "mfu": _rate(
        "Model FLOPs utilisation",
        "Fraction of the devices' peak that the model's own operations use.",
        percent=True,
    ),
    "data_wait": _rate(
        "Waiting for data",
        "Fraction of the time in which the devices wait for the next batch.",
        percent=True,
    ),
}
"""The charts of known scalars, in this order; others follow those of their section."""
_PARTS = ("mlm_loss", "clm_loss", "nsp_loss", "sop_loss")
_NOT_DRAWN = ("mlm_perplexity", "clm_perplexity", "bytes_per_token")
"""Functions of another scalar, and a constant."""
_CHANCE = {"nsp_loss": math.log(2), "sop_loss": math.log(2)} | {
    "nsp_accuracy": 0.5,
    "sop_accuracy": 0.5,
}
_UNIGRAM_NOTE = "Unigram predicts each token by its frequency in the training rows."
_UNIGRAM, _LIMIT = "unigram", "limit of clipping"


def subject_of(scalar: str) -> Subject:
    """Return what a chart of a scalar shows; an unknown one is a score."""
    return SUBJECTS.get(scalar) or Subject(scalar.replace("_", " ").capitalize())


def charts(
    lines: Sequence[MetricsLine],
    reference: Mapping[str, tuple[str, float]],
    max_points: int = MAX_POINTS,
) -> list[JsonObject]:
    """Return a chart for each scalar that has values, as JSON.

    A chart has a name, title, note and section; curves, each with a name, steps, values
    and the number of `logged` points; and lines, each with a name and one value, which
    `reference` has by scalar.
    """
    lines = sorted(lines, key=lambda line: line.step)
    names = {name for line in lines for name in without_repeats(line.scalars)}
    names -= set(_NOT_DRAWN)
    parts = {name for name in names if name.endswith("_loss")}
    if len(parts) == 1 and parts <= set(_PARTS):  # a teacher's is another part
        names.discard("loss")  # it equals its only part
    known = [name for name in SUBJECTS if name in names]
    all_charts = [
        _chart(name, lines, reference.get(name), max_points)
        for name in [*known, *sorted(names - set(known))]
    ]
    not_empty = [chart for chart in all_charts if chart["curves"]]
    return sorted(not_empty, key=lambda chart: SECTIONS.index(chart["section"]))


def reference_lines(
    config: RunConfig, history: Sequence[JsonObject], baseline: Mapping[str, float]
) -> dict[str, tuple[str, float]]:
    """Return by scalar the name and value of the line that applies to its curves.

    A fork may have changed the objective, whose unigram is not that of the steps
    before, and the limit of clipping, of which no line is right for all steps. The
    `baseline` has the scores of the unigram, or none.
    """
    reference = {name: ("a coin", value) for name, value in _CHANCE.items()}
    changes = [entry.get("changed") for entry in history]
    listed = itertools.chain.from_iterable(n for n in changes if isinstance(n, list))
    if not fields_among(listed, ("optimizer.max_grad_norm",)):
        reference["grad_norm"] = (_LIMIT, config.optimizer.max_grad_norm)
    is_causal = isinstance(config, PretrainConfig) and config.objective == "causal_lm"
    objective = "clm" if is_causal else "mlm"
    scalars = {
        "unigram_loss": f"{objective}_loss",
        "unigram_accuracy": f"{objective}_accuracy",
        "unigram_bits_per_byte": "bits_per_byte",
    }
    unigram = {scalars[name]: (_UNIGRAM, value) for name, value in baseline.items()}
    return reference | unigram


def _chart(
    name: str,
    lines: Sequence[MetricsLine],
    reference: tuple[str, float] | None,
    max_points: int,
) -> JsonObject:
    """Return one chart; it has no curves if there is nothing to see."""
    subject = subject_of(name)
    if reference and reference[0] == _UNIGRAM:
        note = f"{subject.note} {_UNIGRAM_NOTE}"
        subject = dataclasses.replace(subject, note=note)
    curves = []
    for split in dict.fromkeys(line.split for line in lines):
        values = {
            line.step: line.scalars[name]
            for line in lines
            if line.split == split and name in line.scalars
        }
        finite = {step: v for step, v in values.items() if math.isfinite(v)}
        if finite and (name != "skipped_in_a_row" or any(finite.values())):
            steps, numbers = np.array(list(finite)), np.array(list(finite.values()))
            kept = thinned(numbers, max_points)
            curve = {
                "name": "training" if split == "train" else split,
                "steps": steps[kept].tolist(),
                "values": [float(f"{value:.6g}") for value in numbers[kept]],
                "logged": len(finite),
                "not_finite": len(values) - len(finite),
            }
            curves.append(curve)
    straight = []
    if reference and math.isfinite(reference[1]):
        straight = [{"name": reference[0], "value": reference[1]}]
    about = dataclasses.asdict(subject)
    return {"name": name, **about, "curves": curves, "lines": straight}


def thinned(values: Float[np.ndarray, " N"], max_points: int) -> Int[np.ndarray, " M"]:
    """Return the indices of at most `max_points` values.

    These are the first and the last, and between them the lowest and the highest of
    equal parts: no peak is lost.
    """
    indices = np.arange(len(values))
    if len(values) <= max_points:
        return indices
    chosen = {0, len(values) - 1}
    for part in np.array_split(indices[1:-1], (max_points - 2) // 2):
        chosen |= {int(part[values[part].argmin()]), int(part[values[part].argmax()])}
    return np.array(sorted(chosen))

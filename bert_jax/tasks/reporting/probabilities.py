"""Sections that several tasks have: calibration, and scores by threshold."""

import dataclasses
import shlex

import numpy as np
from jaxtyping import Bool, Float

from bert_jax.metrics.calibration import calibration
from bert_jax.metrics.threshold_curve import DEFAULT_THRESHOLD, threshold_curve
from bert_jax.storage.files import JsonObject
from bert_jax.tasks.reporting import views
from bert_jax.tasks.reporting.by_class import SCORES

LEAST_PROBABILITY = float(np.finfo(np.float32).tiny)
"""A smaller probability is 0 in float32, and its loss would be infinite."""


def negative_log(probabilities: Float[np.ndarray, "*N"]) -> Float[np.ndarray, "*N"]:
    """Return the losses of the probabilities of what is right, in nats."""
    return -np.log(np.maximum(probabilities, LEAST_PROBABILITY))


def calibration_of(
    probabilities: Float[np.ndarray, " N"], came_true: Bool[np.ndarray, " N"]
) -> JsonObject | None:
    """Return the calibration as JSON values; None if there is no probability.

    Raise ValueError if a probability is not from 0 to 1.
    """
    if not probabilities.size:
        return None
    c = calibration(probabilities, came_true)
    columns = (c.edges, c.edges[1:], c.counts, c.mean_probability, c.fraction_true)
    bins = [
        {
            "low": float(low),
            "high": float(high),
            "count": int(count),
            "mean_probability": float(mean) if count else None,
            "fraction_true": float(fraction) if count else None,
        }
        for low, high, count, mean, fraction in zip(*columns, strict=False)
    ]
    return {
        "expected_calibration_error": c.expected_error,
        "mean_difference": c.mean_difference,
        "count": int(probabilities.size),
        "bins": bins,
    }


def calibration_section(values: JsonObject, of: str, came_true: str) -> views.Section:
    """Return the section of a calibration.

    The probabilities are `of` something, as "the predicted class"; `came_true` is what
    happens to it, as "is right".
    """
    error, difference = values["expected_calibration_error"], values["mean_difference"]
    bins = [entry for entry in values["bins"] if entry["count"]]
    direction = "over" if difference > 0 else "under"
    means = [entry["mean_probability"] for entry in bins]
    fractions = [entry["fraction_true"] for entry in bins]
    edges = [values["bins"][0]["low"], *(entry["high"] for entry in values["bins"])]
    shares = [entry["count"] / values["count"] for entry in values["bins"]]
    chart = views.Chart(
        "Reliability",
        {"name": f"probability of {of}", "low": 0.0, "high": 1.0, "percent": True},
        curves=[{"name": came_true, "xs": means, "values": fractions, "dots": False}],
        bars={"name": "share of all", "edges": edges, "heights": shares},
        diagonal="perfectly calibrated",
        percent=True,
        limits=(0.0, 1.0),
        note="Below the diagonal, the model is surer than it is right.",
    )
    note = (
        f"Whether a probability of 0.8 means that {of} {came_true} in 80 of 100 cases. "
        f"The expected calibration error (ECE) is {error:.2%}: the mean distance "
        "between the mean probability of a bin and the fraction that came true, "
        f"weighted by the bins' counts, over {len(values['bins'])} bins of equal width "
        "(Naeini et al. 2015; Guo et al. 2017, eq. 3). On average, the model is "
        f"{direction}confident by {abs(difference):.2%}."
    )
    columns = [views.Column("probability"), views.Column("count", "whole")]
    columns += [views.Column(t, "percent") for t in ("mean probability", "came true")]
    ranges = [f"{entry['low']:.3g} to {entry['high']:.3g}" for entry in bins]
    counts = [entry["count"] for entry in bins]
    rows = [*zip(ranges, counts, means, fractions, strict=True)]
    table = views.Table("Bins", columns, rows, is_printed=False)
    return views.Section("calibration", "Calibration", note, [chart, table])


def threshold_of(
    probabilities: Float[np.ndarray, " N"], is_right: Bool[np.ndarray, " N"]
) -> JsonObject | None:
    """Return the scores by threshold as JSON values; None if nothing is right."""
    curve = threshold_curve(probabilities, is_right)
    if curve is None:
        return None
    grid = [dataclasses.asdict(scores) for scores in curve.grid]
    default = min(grid, key=lambda at: abs(at["threshold"] - DEFAULT_THRESHOLD))
    best = dataclasses.asdict(curve.best)
    return {"best": best, "default": default, "curve": grid}


def threshold_section(values: JsonObject, what: str, checkpoint: str) -> views.Section:
    """Return the section of scores by threshold.

    Args:
        what: is predicted at each threshold, as "The class 'yes' is predicted".
    """
    best, curve = values["best"], values["curve"]
    curves = []
    for name, title in SCORES.items():
        points = [at for at in curve if at[name] is not None]
        xs, ys = ([at[key] for at in points] for key in ("threshold", name))
        curves.append({"name": title, "xs": xs, "values": ys, "dots": False})
    threshold = f"{best['threshold']:.15g}"
    chart = views.Chart(
        "Score against threshold",
        {"name": "threshold", "low": 0.0, "high": 1.0, "percent": False},
        curves=curves,
        marks=[{"at": best["threshold"], "name": f"best F1 at {threshold}"}],
        percent=True,
        limits=(0.0, 1.0),
    )
    titles = SCORES | {"accuracy": "accuracy"}
    columns = [views.Column("threshold")]
    columns += [views.Column(title, "percent") for title in titles.values()]
    rows = [
        [f"{at['threshold']:.15g}", *(at[name] for name in titles)]
        for at in (values["default"], best)
    ]
    table = views.Table("The default, and the best F1", columns, rows)
    note = (
        f"{what} where its probability is at least the threshold. F1 is highest at "
        f"{threshold}; use it by `bert-jax predict {shlex.quote(checkpoint)} "
        f"--threshold {threshold}`. Choose it on validation data, and test it on other "
        "data: where it was chosen, its score is too good."
    )
    return views.Section("threshold", "Threshold", note, [chart, table])

"""Scores of classification and regression on host arrays, in float64.

Scores are fractions, not per cent; an undefined score (0/0) is 0. scikit-learn and
SciPy are imported inside the functions, since their import takes a second.
"""

import numpy as np
from jaxtyping import Bool, Float, Int

_NOISE = 2e-13
"""Smaller differences, relative to the largest value, count as rounding errors."""


def classification_scores(
    labels: Int[np.ndarray, " B"], predictions: Int[np.ndarray, " B"], num_classes: int
) -> dict[str, float]:
    """`accuracy`, `macro_f1`, `mcc` and, with two classes, `f1`, for one class each.

    Macro F1 is the mean over the classes that occur in labels or predictions. F1 is
    that of class 1, as in GLUE for MRPC and QQP (Wang et al. 2018, §3). MCC is
    Matthews' correlation (CoLA; for many classes Gorodkin 2004), and 0 if all labels or
    all predictions are of one class. Raise ValueError if there is no example, or a
    class outside 0…num_classes − 1.
    """
    from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

    _require_examples(labels)
    for name, classes in (("label", labels), ("prediction", predictions)):
        outside = classes[(classes < 0) | (classes >= num_classes)]
        if outside.size:
            raise ValueError(
                f"{name} {outside[0]} is not a class: there are num_classes="
                f"{num_classes}, from 0."
            )
    one_class = min(np.unique(labels).size, np.unique(predictions).size) == 1
    scores = {
        "accuracy": accuracy_score(labels, predictions),
        "macro_f1": f1_score(labels, predictions, average="macro", zero_division=0.0),
        "mcc": 0.0 if one_class else matthews_corrcoef(labels, predictions),
    }
    if num_classes == 2:
        scores["f1"] = f1_score(labels, predictions, zero_division=0.0)
    return {name: float(score) for name, score in scores.items()}


def regression_scores(
    labels: Float[np.ndarray, " B"], predictions: Float[np.ndarray, " B"]
) -> dict[str, float]:
    """`pearson` and `spearman` (STS-B), and `mean_squared_error` in squared units.

    Both correlations are 0 if labels or predictions are constant, up to rounding
    errors of float64; this includes a single example. Raise ValueError if there is no
    example, or a value is not finite.
    """
    from scipy.stats import pearsonr, rankdata

    _require_examples(labels)
    x, y = labels.astype(np.float64), predictions.astype(np.float64)
    for name, values in (("label", x), ("prediction", y)):
        if not np.isfinite(values).all():
            first = values[~np.isfinite(values)][0]
            raise ValueError(f"{name} {first} is not finite: no score is defined.")
    scores = {"pearson": 0.0, "spearman": 0.0}
    if all(np.ptp(v) > _NOISE * np.abs(v).max() for v in (x, y)):
        scores = {
            # Centred, since pearsonr warns if the mean is much larger than the spread.
            "pearson": float(pearsonr(x - x.mean(), y - y.mean()).statistic),
            "spearman": float(pearsonr(rankdata(x), rankdata(y)).statistic),
        }
    return {**scores, "mean_squared_error": float(np.mean((x - y) ** 2))}


def multi_label_scores(
    labels: Bool[np.ndarray, "B C"], predictions: Bool[np.ndarray, "B C"]
) -> dict[str, float]:
    """`micro_f1`, `macro_f1` and `exact_match` of examples with any number of classes.

    Macro F1 is the mean over all C classes; a class neither labelled nor predicted has
    0, as in scikit-learn. Exact match is the fraction of rows with every class correct.
    Raise ValueError if there is no example, or no class.
    """
    _require_examples(labels)
    # Not by scikit-learn, which reads a single column as two classes. For each class:
    # F1 = 2 · true positives / (labelled + predicted).
    true_positives = (labels & predictions).sum(axis=0)
    total = labels.sum(axis=0) + predictions.sum(axis=0)
    return {
        "micro_f1": float(2 * true_positives.sum() / max(total.sum(), 1)),
        "macro_f1": float(np.mean(2 * true_positives / np.maximum(total, 1))),
        "exact_match": float(np.mean((labels == predictions).all(axis=1))),
    }


def _require_examples(labels: np.ndarray) -> None:
    if labels.size == 0:
        raise ValueError(
            f"labels of shape {labels.shape} hold no example: no score is defined."
        )

"""Scores of classification and regression over host arrays, in float64.

A fraction and not a per cent. Where a score is undefined (0/0) it is 0, silently.
scikit-learn and SciPy are imported inside the functions: they take a second.
"""

import numpy as np
from jaxtyping import Bool, Float, Int

_NOISE = 2e-13
"""Values that differ by less, relative to the largest, differ by rounding alone."""


def classification_scores(
    labels: Int[np.ndarray, " B"], predictions: Int[np.ndarray, " B"], num_classes: int
) -> dict[str, float]:
    """Scores of one class an example: `accuracy`, `macro_f1`, `mcc`, and of two `f1`.

    Macro F1 is the mean over the classes that occur in labels or predictions, and F1
    that of class 1, as GLUE has it for MRPC and QQP (Wang et al. 2018, §3). MCC is
    Matthews' correlation (CoLA; of many classes Gorodkin 2004), and 0 where the labels
    or the predictions are all of one class.

    Raises ValueError without examples, and for a class outside 0…num_classes − 1.
    """
    from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

    _check_any(labels)
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

    Both correlations are 0 where labels or predictions are constant: of one example,
    or of any number that differ by no more than float64 rounds.

    Raises ValueError without examples, and for values that are not finite.
    """
    from scipy.stats import pearsonr, rankdata  # type: ignore[import-untyped]

    _check_any(labels)
    x, y = labels.astype(np.float64), predictions.astype(np.float64)
    for name, values in (("label", x), ("prediction", y)):
        if not np.isfinite(values).all():
            first = values[~np.isfinite(values)][0]
            raise ValueError(f"{name} {first} is not finite: no score is defined.")
    scores = {"pearson": 0.0, "spearman": 0.0}
    if not _is_constant(x) and not _is_constant(y):
        scores = {
            # Centred first: pearsonr warns where the mean dwarfs the spread.
            "pearson": float(pearsonr(x - x.mean(), y - y.mean()).statistic),
            "spearman": float(pearsonr(rankdata(x), rankdata(y)).statistic),
        }
    return {**scores, "mean_squared_error": float(np.mean((x - y) ** 2))}


def multi_label_scores(
    labels: Bool[np.ndarray, "B C"], predictions: Bool[np.ndarray, "B C"]
) -> dict[str, float]:
    """Scores of several classes an example: `micro_f1`, `macro_f1`, `exact_match`.

    Macro F1 is the mean over all C classes; a class neither labelled nor predicted
    has 0, as in scikit-learn. Exact match: the share of rows with every class right.

    Raises ValueError without examples or without classes.
    """
    _check_any(labels)
    # In NumPy: scikit-learn reads a single column as two classes.
    hits = (labels & predictions).sum(axis=0)
    total = labels.sum(axis=0) + predictions.sum(axis=0)
    return {
        "micro_f1": float(2 * hits.sum() / max(total.sum(), 1)),
        "macro_f1": float(np.mean(2 * hits / np.maximum(total, 1))),
        "exact_match": float(np.mean((labels == predictions).all(axis=1))),
    }


def _check_any(labels: np.ndarray) -> None:
    if labels.size == 0:
        raise ValueError(
            f"labels of shape {labels.shape} hold no example: no score is defined."
        )


def _is_constant(values: Float[np.ndarray, " B"]) -> bool:
    return bool(np.ptp(values) <= _NOISE * np.abs(values).max())

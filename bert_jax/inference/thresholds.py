"""Choose classes of texts by their probability: by a threshold, or the best few."""

import numpy as np

from bert_jax.config import BertConfig
from bert_jax.config.checks import require
from bert_jax.tasks.predictions import Prediction


def require_threshold(model: BertConfig, threshold: float) -> None:
    """Raise ValueError if a model has no use for a threshold, or it is no fraction."""
    require(0 <= threshold <= 1, f"threshold={threshold} must be from 0 to 1.")
    is_classifier = model.head == "sequence_classification"
    is_regression = model.problem_type == "regression"
    is_multi_label = model.problem_type == "multi_label_classification"
    require(
        is_classifier
        and not is_regression
        and (is_multi_label or len(model.labels) == 2),
        f"threshold={threshold} is for texts with two classes, or with any number of "
        f"classes each; this model has head={model.head}, "
        f"problem_type={model.problem_type} and {len(model.labels)} classes. Leave it "
        "out.",
    )


def apply_threshold(prediction: Prediction, threshold: float) -> Prediction:
    """Return a prediction of a text by a threshold of probability.

    With two classes, the second is predicted where it has at least that probability.
    With any number of classes each, all that have it are.
    """
    probabilities = prediction["probabilities"]
    if "labels" in prediction:
        chosen = [name for name, value in probabilities.items() if value >= threshold]
        return prediction | {"labels": chosen}
    first, second = probabilities
    label = second if probabilities[second] >= threshold else first
    return prediction | {"label": label}


def require_top_k(model: BertConfig, k: int) -> None:
    """Raise ValueError if a model has no classes of texts, or k is below 0."""
    is_count = isinstance(k, int | np.integer) and type(k) is not bool and k >= 0
    require(is_count, f"top_k={k!r:.80} must be a number of classes, or 0 for all.")
    has_classes = (
        model.head == "sequence_classification" and model.problem_type != "regression"
    )
    require(
        not k or has_classes,
        f"top_k={k} is for classes of texts, and this model has head={model.head} and "
        f"problem_type={model.problem_type}. Leave it out.",
    )


def most_probable(
    model: BertConfig, predictions: list[Prediction], k: int
) -> list[Prediction]:
    """Return predictions with the k most probable classes alone, the best first.

    Of equally probable ones the first stays; with k=0 all stay. Raise ValueError if `k`
    is below 0, or the model has no classes of texts.
    """
    require_top_k(model, k)
    if not k:
        return predictions
    results = []
    for prediction in predictions:
        values = prediction["probabilities"]
        names = sorted(values, key=lambda name: -values[name])[:k]
        best = {name: values[name] for name in names}
        results.append(prediction | {"probabilities": best})
    return results

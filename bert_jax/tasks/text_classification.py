"""Classes or numbers for texts and pairs of texts (Devlin et al. 2018, §4.1).

All tasks of GLUE, and a user's own table of texts.
"""

import collections
import csv
import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.data.examples import (
    TokenizedExamples,
    from_rows,
    is_truncated,
    join_pair,
    truncation_warnings,
)
from bert_jax.metrics.classification import (
    classification_scores,
    multi_label_scores,
    regression_scores,
)
from bert_jax.model.losses import Sum, cross_entropy, weighted_sum
from bert_jax.tasks.glue import GLUE, submission
from bert_jax.tasks.problem import Outputs, Prediction, Problem, Rows
from bert_jax.tasks.texts import (
    TextRecord,
    check,
    classes,
    classes_in,
    example_without_label,
    one_number,
    read,
)
from bert_jax.tokenization import Tokenizer


def encode(
    records: Sequence[TextRecord],
    tokenizer: Tokenizer,
    model: BertConfig,
    config: ExamplesConfig,
) -> TokenizedExamples:
    """One row a record, cut to `max_length`, the longer text of a pair first.

    Raises:
        ValueError: some records are pairs, and some are not.
    """
    for each in records:
        if len(each.texts) != len(records[0].texts):
            raise ValueError(
                f"{each.where} has {len(each.texts)} texts and {records[0].where} has "
                f"{len(records[0].texts)}; all rows must have as many."
            )
    most = min(config.max_length, model.max_position_embeddings)
    sides = [
        tokenizer.encode_batch([record.texts[i] for record in records])
        for i in range(len(records[0].texts))
    ]
    pairs = list(zip(*sides, strict=True))
    rows = [join_pair(tokenizer, *parts, max_length=most) for parts in pairs]
    of_each = {
        "cut": np.array([is_truncated(*parts, max_length=most) for parts in pairs])
    }
    if all(each.label is not None for each in records):
        of_each["label"] = label_array(records, model)
    return from_rows(rows, np.arange(len(records), dtype=np.int32), of_each)


def notices(
    records: Sequence[TextRecord], examples: TokenizedExamples, config: ExamplesConfig
) -> list[str]:
    """How many texts were cut."""
    return truncation_warnings(examples, "texts", config.max_length)


def label_array(records: Sequence[TextRecord], model: BertConfig) -> np.ndarray:
    """int32 [N] classes, int32 [N, C] yes or no, or float32 [N] numbers."""
    if model.problem_type == "regression":
        return np.array([each.label for each in records], np.float32)
    places = {name: i for i, name in enumerate(model.labels)}
    if model.problem_type == "single_label_classification":
        return np.array([places[str(each.label)] for each in records], np.int32)
    chosen = np.zeros((len(records), len(places)), np.int32)
    for row, each in enumerate(records):
        for name in classes_in(each):
            chosen[row, places[name]] = 1
    return chosen


def loss(model: BertConfig, scores: Array, rows: Rows) -> Sum:
    """Cross-entropy of the class, of each class by itself, or the squared error."""
    labels = rows["label"]
    if model.problem_type == "regression":
        known = ~jnp.isnan(labels)
        error = scores[:, 0] - jnp.where(known, labels, 0.0)
        return weighted_sum(error**2, known.astype(jnp.float32))
    weights = (labels >= 0).astype(jnp.float32)
    labels = jnp.maximum(labels, 0)
    if model.problem_type == "single_label_classification":
        return cross_entropy(scores, labels, weights)
    of_each = optax.sigmoid_binary_cross_entropy(scores, labels.astype(jnp.float32))
    return weighted_sum(of_each, weights)


def outputs(model: BertConfig, scores: Array, rows: Rows) -> dict[str, jax.Array]:
    """`values` [B, C]: probabilities, or the number."""
    if model.problem_type == "regression":
        return {"values": scores}
    if model.problem_type == "multi_label_classification":
        return {"values": jax.nn.sigmoid(scores)}
    return {"values": jax.nn.softmax(scores)}


def predict(
    records: Sequence[TextRecord],
    examples: TokenizedExamples,
    found: Sequence[Outputs],
    model: BertConfig,
    config: ExamplesConfig,
) -> list[Prediction]:
    """`label` and `probabilities`; `labels` and the same; or `value`."""
    return [_prediction(each["values"].astype(np.float64), model) for each in found]


def _prediction(values: np.ndarray, model: BertConfig) -> Prediction:
    if model.problem_type == "regression":
        return {"value": float(values[0])}
    shares = dict(zip(model.labels, values.tolist(), strict=True))
    if model.problem_type == "multi_label_classification":
        chosen = [name for name, share in shares.items() if share > 0.5]
        return {"labels": chosen, "probabilities": shares}
    return {"label": model.labels[int(values.argmax())], "probabilities": shares}


def score(
    records: Sequence[TextRecord],
    predictions: Sequence[Prediction],
    model: BertConfig,
    config: ExamplesConfig,
) -> dict[str, float]:
    """Scores of each group of records, those of a named group under its name too."""
    found: dict[str, float] = {}
    for group in dict.fromkeys(record.group for record in records):
        chosen = [i for i, record in enumerate(records) if record.group == group]
        scores = _scores(
            [records[i] for i in chosen], [predictions[i] for i in chosen], model
        )
        if config.glue:
            scores = {name: scores[name] for name in GLUE[config.glue].scores}
        found |= {
            f"{name}_{group}" if group else name: value
            for name, value in scores.items()
        }
    return found


def _scores(
    records: Sequence[TextRecord], predictions: Sequence[Prediction], model: BertConfig
) -> dict[str, float]:
    if model.problem_type == "regression":
        values = np.array([each["value"] for each in predictions])
        return regression_scores(np.array([each.label for each in records]), values)
    if model.problem_type == "single_label_classification":
        places = {name: i for i, name in enumerate(model.labels)}
        return classification_scores(
            np.array([places[str(each.label)] for each in records]),
            np.array([places[each["label"]] for each in predictions]),
            len(places),
        )
    known = [[name in classes_in(each) for name in model.labels] for each in records]
    said = [[name in each["labels"] for name in model.labels] for each in predictions]
    return multi_label_scores(np.array(known), np.array(said))


def write(
    records: Sequence[TextRecord],
    predictions: Sequence[Prediction],
    model: BertConfig,
    config: ExamplesConfig,
    directory: Path,
) -> list[str]:
    """Tables of index and prediction, as the server of GLUE takes them."""
    groups: dict[str, list[str]] = {}
    for record, prediction in zip(records, predictions, strict=True):
        name = (
            submission(config.glue, record.group) if config.glue else "predictions.tsv"
        )
        groups.setdefault(name, []).append(_cell(prediction, config))
    for name, cells in groups.items():
        with open(directory / name, "w", encoding="utf-8", newline="") as file:
            table = csv.writer(file, delimiter="\t", lineterminator="\n")
            table.writerow(["index", "prediction"])
            table.writerows(enumerate(cells))
    return list(groups)


def _cell(prediction: Prediction, config: ExamplesConfig) -> str:
    if "value" in prediction:
        return f"{prediction['value']:.4f}"
    if "labels" in prediction:
        return config.label_separator.join(prediction["labels"])
    return str(prediction["label"])


def majority(
    train: Sequence[TextRecord], validation: Sequence[TextRecord]
) -> tuple[str, float]:
    """The accuracy of naming always the commonest class, or set of classes."""
    counts = collections.Counter(record.label for record in train)
    commonest = counts.most_common(1)[0][0]
    hits = [record.label == commonest for record in validation]
    return "accuracy of the commonest label", float(np.mean(hits))


def constant(
    train: Sequence[TextRecord], validation: Sequence[TextRecord]
) -> tuple[str, float]:
    """A number that is always the same says nothing of another."""
    return "correlation of a constant", 0.0


TEXT_CLASSIFICATION = Problem(
    head="sequence_classification",
    read=functools.partial(read, number=False),
    labels=classes,
    check=check,
    encode=encode,
    loss=loss,
    outputs=outputs,
    predict=predict,
    score=score,
    write=write,
    baseline=majority,
    record=example_without_label,
    labelled=lambda record: record.label is not None,
    notices=notices,
)
TEXT_REGRESSION = dataclasses.replace(
    TEXT_CLASSIFICATION,
    read=functools.partial(read, number=True),
    labels=one_number,
    baseline=constant,
)

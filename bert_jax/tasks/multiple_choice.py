"""Multiple choice: which of a few endings follows (Devlin et al. 2018, §4.4)."""

import csv
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.data.examples import (
    TokenizedExamples,
    from_rows,
    is_truncated,
    join_pair,
    truncation_warnings,
)
from bert_jax.model.losses import Sum, cross_entropy
from bert_jax.tasks.choices import Choice, of_object, read
from bert_jax.tasks.problem import Outputs, Prediction, Problem, Rows
from bert_jax.tasks.tables import missing_column
from bert_jax.tokenization import Tokenizer


def labels(records: Sequence[Choice], config: ExamplesConfig) -> tuple[str, ...]:
    """None: a choice has a score, and no name."""
    for record in records:
        if record.label is None:
            column = config.label_column
            missing = f"{record.where} has no label."
            if record.columns and column not in record.columns:
                missing = missing_column(record.where, column, record.columns)
            raise ValueError(
                f"{missing} To learn, each row must have one; name its column by "
                "--data.label-column."
            )
        _check_range(record)
    return ()


def check(records: Sequence[Choice], model: BertConfig, path: str) -> None:
    """Raise ValueError where a label is the number of no choice."""
    for record in records:
        _check_range(record)


def _check_range(record: Choice) -> None:
    if record.label is not None and not 0 <= record.label < len(record.choices):
        raise ValueError(
            f"{record.where}: label={record.label} must be from 0 to "
            f"{len(record.choices) - 1}, the number of the right choice."
        )


def encode(
    records: Sequence[Choice],
    tokenizer: Tokenizer,
    model: BertConfig,
    config: ExamplesConfig,
) -> TokenizedExamples:
    """As `Problem.encode`: a row [CLS] context [SEP] choice [SEP] for each choice, with
    `label` by example, int32, and -1 where it is not known.

    The choice begins with the question, if there is one. What is longer than
    `max_length` is cut, the longer of the two first.
    """
    most = min(config.max_length, model.max_position_embeddings)
    contexts = tokenizer.encode_batch([record.context for record in records])
    endings = tokenizer.encode_batch(
        [
            f"{record.question} {choice}" if record.question else choice
            for record in records
            for choice in record.choices
        ]
    )
    number = len(records[0].choices)
    pairs = [(contexts[i // number], ending) for i, ending in enumerate(endings)]
    rows = [join_pair(tokenizer, *parts, max_length=most) for parts in pairs]
    cut = np.array([is_truncated(*parts, max_length=most) for parts in pairs], bool)
    known = [-1 if record.label is None else record.label for record in records]
    return from_rows(
        rows,
        np.arange(len(records), dtype=np.int32),
        by_example={
            "label": np.array(known, np.int32),
            "cut": np.any(cut.reshape(-1, number), axis=1),
        },
        choices=number,
    )


def notices(
    records: Sequence[Choice], examples: TokenizedExamples, config: ExamplesConfig
) -> list[str]:
    """How many questions were cut."""
    return truncation_warnings(examples, "questions", config.max_length)


def loss(model: BertConfig, scores: Float[Array, "B C"], rows: Rows) -> Sum:
    """Cross-entropy in nats over the questions with a label, and their number."""
    label = rows["label"]
    weights = (label >= 0).astype(jnp.float32)
    return cross_entropy(scores, jnp.maximum(label, 0), weights)


def outputs(
    model: BertConfig, scores: Float[Array, "B C"], rows: Rows
) -> dict[str, jax.Array]:
    """`probabilities` [B, C] of the choices."""
    return {"probabilities": jax.nn.softmax(scores)}


def predict(
    records: Sequence[Choice],
    examples: TokenizedExamples,
    outputs: Sequence[Outputs],
    model: BertConfig,
    config: ExamplesConfig,
) -> list[Prediction]:
    """The likeliest `choice`, from 0, and the `probabilities` of all."""
    found = [output["probabilities"] for output in outputs]
    return [
        {"choice": int(each.argmax()), "probabilities": each.tolist()} for each in found
    ]


def score(
    records: Sequence[Choice],
    predictions: Sequence[Prediction],
    model: BertConfig,
    config: ExamplesConfig,
) -> dict[str, float]:
    """`accuracy` over the questions with a label."""
    return {"accuracy": _accuracy(records, [each["choice"] for each in predictions])}


def _accuracy(records: Sequence[Choice], choices: Sequence[int]) -> float:
    hits = [
        record.label == choice
        for record, choice in zip(records, choices, strict=True)
        if record.label is not None
    ]
    if not hits:
        raise ValueError(
            f"{records[0].where} and all others have no label; there is nothing to "
            "score by."
        )
    return sum(hits) / len(hits)


def write(
    records: Sequence[Choice],
    predictions: Sequence[Prediction],
    model: BertConfig,
    config: ExamplesConfig,
    directory: Path,
) -> list[str]:
    """Write predictions.csv, what SWAG's leaderboard takes: a column `pred` with the
    number of the choice, from 0, a line for each row of the file and in its order."""
    name = "predictions.csv"
    with open(directory / name, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["pred"])
        writer.writerows([each["choice"]] for each in predictions)
    return [name]


def baseline(
    train: Sequence[Choice], validation: Sequence[Choice]
) -> tuple[str, float]:
    """Accuracy of a guess, or of the place that is right most often in training, if
    that is higher."""
    chance = 1 / len(validation[0].choices)
    counts = Counter(record.label for record in train if record.label is not None)
    if counts:
        place = min(counts, key=lambda label: (-counts[label], label))
        share = _accuracy(validation, [place] * len(validation))
        if share > chance:
            return f"majority position ({place})", share
    return "chance", chance


MULTIPLE_CHOICE = Problem(
    head="multiple_choice",
    read=read,
    labels=labels,
    check=check,
    encode=encode,
    loss=loss,
    outputs=outputs,
    predict=predict,
    score=score,
    write=write,
    baseline=baseline,
    record=lambda row, config: of_object(row, ""),  # its label is not looked at
    labelled=lambda record: record.label is not None,
    notices=notices,
    group=lambda record: record.context,
)

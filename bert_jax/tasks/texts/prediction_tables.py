"""Tables of predictions for texts: GLUE's submissions, and a table to read."""

import re
from collections.abc import Sequence

from bert_jax.tasks.predictions import Prediction
from bert_jax.tasks.texts.examples import TextExample, classes_of

_BREAKS = re.compile(r"\t|\r\n|\r|\n")


def submission_rows(predictions: Sequence[Prediction], separator: str) -> list[str]:
    """Return the lines of a table of index and prediction, as GLUE accepts them."""
    cells = (_predicted(prediction, separator) for prediction in predictions)
    return ["index\tprediction", *(table_line(i, cell) for i, cell in enumerate(cells))]


def readable_rows(
    examples: Sequence[TextExample], predictions: Sequence[Prediction], separator: str
) -> list[str]:
    """Return the lines of a table with probability, label and text beside a prediction.

    The probability is that of the predicted class, or of each one; a number has none.
    There are labels if the examples have them. The table has no quotes: a tab or a line
    break in a text is a space.
    """
    has_probability = any("probabilities" in values for values in predictions)
    has_label = any(example.label is not None for example in examples)
    num_texts = max((len(example.texts) for example in examples), default=1)
    columns = ["index", "prediction"]
    columns += ["probability"] * has_probability + ["label"] * has_label
    columns += ["text"] if num_texts == 1 else ["text_1", "text_2"]
    lines = ["\t".join(columns)]
    for i, (example, values) in enumerate(zip(examples, predictions, strict=True)):
        cells = [_predicted(values, separator)]
        if has_probability:
            cells.append(_probabilities(values, separator))
        if has_label:
            label = example.label
            is_number = isinstance(label, float)
            cells.append(
                f"{label:.15g}" if is_number else separator.join(classes_of(example))
            )
        lines.append(table_line(i, *cells, *example.texts))
    return lines


def table_line(index: int, *cells: str) -> str:
    """Return a line of a table without quotes: tabs and line breaks become spaces."""
    return "\t".join([str(index), *(_BREAKS.sub(" ", cell) for cell in cells)])


def _predicted(prediction: Prediction, separator: str) -> str:
    if "value" in prediction:
        value = prediction["value"]
        is_plain = value == 0 or 1e-2 <= abs(value) < 1e9
        exact = ".15g" if abs(value) >= 1e9 else ".9g"
        return f"{value:{'.4f' if is_plain else exact}}"
    if "labels" in prediction:
        return separator.join(prediction["labels"])
    return str(prediction["label"])


def _probabilities(prediction: Prediction, separator: str) -> str:
    probabilities = prediction["probabilities"]
    names = prediction.get("labels") or [prediction.get("label")]
    return separator.join(f"{probabilities[n]:.6g}" for n in names if n is not None)

"""What one kind of fine-tuning consists of, from its files to its score."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.config.model import Head
from bert_jax.data.examples import TokenizedExamples
from bert_jax.model.losses import Sum
from bert_jax.tasks.tables import Row
from bert_jax.tokenization import Tokenizer

Record = Any
"""One line, question or sentence of a file; a dataclass of the problem's own."""
Rows = Mapping[str, jax.Array]
"""A batch on the device, as `Examples.gather` makes it."""
Outputs = dict[str, np.ndarray]
"""What the model computed of one example."""
Prediction = dict[str, Any]
"""What is predicted of one record: JSON values under the names that users see."""


@dataclasses.dataclass(frozen=True)
class Problem:
    """Pure functions, but for `read` and `write`. No problem calls jit.

    The way of a file is: `read` → records; `encode` → examples; the model's scores;
    `outputs` on the device; `predict` → predictions; `score`, `write`.
    """

    head: Head
    """As `BertConfig.head`."""
    read: Callable[[str, ExamplesConfig], list[Record]]
    """File, or name of a part ("train", "validation", "test") of `config.path` →
    records, with labels where the file has them. Raises ValueError with the file's name
    and the line's number."""
    labels: Callable[[Sequence[Record], ExamplesConfig], tuple[str, ...]]
    """Training records → the classes, in order; empty where the head has none. Raises
    ValueError where nothing can be learned from them."""
    check: Callable[[Sequence[Record], BertConfig, str], None]
    """Records, model, file → ValueError where a label is none of the model's."""
    encode: Callable[
        [Sequence[Record], Tokenizer, BertConfig, ExamplesConfig], TokenizedExamples
    ]
    """Records → examples, one or more a record, in the records' order."""
    loss: Callable[[BertConfig, jax.Array, Rows], Sum]
    """The head's scores of a batch → total loss, and of how many."""
    outputs: Callable[[BertConfig, jax.Array, Rows], dict[str, jax.Array]]
    """The head's scores of a batch → what `predict` takes; arrays [B, …]."""
    predict: Callable[
        [
            Sequence[Record],
            TokenizedExamples,
            Sequence[Outputs],
            BertConfig,
            ExamplesConfig,
        ],
        list[Prediction],
    ]
    """Outputs of each example → a prediction for each record."""
    score: Callable[
        [Sequence[Record], Sequence[Prediction], BertConfig, ExamplesConfig],
        dict[str, float],
    ]
    """The official scores, from 0 to 1 unless they are not shares; the first is what
    the best checkpoint is chosen by."""
    write: Callable[
        [Sequence[Record], Sequence[Prediction], BertConfig, ExamplesConfig, Path],
        list[str],
    ]
    """Write the official prediction files into a directory; their names."""
    baseline: Callable[[Sequence[Record], Sequence[Record]], tuple[str, float]]
    """Training and validation records → what a model must beat: its name, and its value
    of the first score."""
    record: Callable[[Row, ExamplesConfig], Record]
    """A row of fields that a user asks about, without a label → a record."""
    labelled: Callable[[Record], bool]
    """Whether it is known what should be predicted of a record."""
    group: Callable[[Record], object] = id
    """Record → what records must have in common to be held out together."""
    notices: Callable[
        [Sequence[Record], TokenizedExamples, ExamplesConfig], list[str]
    ] = lambda records, examples, config: []
    """What was left out of the records' examples, or cut, a line each."""

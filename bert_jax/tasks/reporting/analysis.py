"""How the errors of one kind of prediction are analysed and shown."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from bert_jax.storage.files import JsonObject
from bert_jax.tasks.predictions import Predictions
from bert_jax.tasks.reporting.views import Section


@dataclasses.dataclass(frozen=True)
class Analysis:
    """An error report: as JSON values, and as sections to show."""

    analyse: Callable[[Any, Predictions], JsonObject]
    """Of a task and its predictions for examples with labels.

    Raises ValueError if a probability, score or number is not a number.
    """
    sections: Callable[[JsonObject], list[Section]]
    meanings: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """What scores are of, where they are not those of texts."""
    parts: str = "class"
    """What `f1_NAME` is of."""

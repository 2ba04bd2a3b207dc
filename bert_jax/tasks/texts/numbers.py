"""A number for a text."""

import dataclasses
from collections.abc import Sequence
from typing import final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.config.checks import SMALLEST_FLOAT32
from bert_jax.metrics.classification import regression_scores
from bert_jax.model.losses import Sum, weighted_sum
from bert_jax.tasks.predictions import Prediction
from bert_jax.tasks.task import DeviceBatch
from bert_jax.tasks.texts import number_report
from bert_jax.tasks.texts.examples import TextExample, require_labels
from bert_jax.tasks.texts.glue import GLUE
from bert_jax.tasks.texts.task import TextTask


@final
@dataclasses.dataclass(frozen=True)
class NumberTask(TextTask):
    """A number for each text or pair of texts."""

    name = "text-regression"
    problem_type = "regression"
    reads_numbers = True
    analyses = number_report.ANALYSES

    @classmethod
    def suits(cls, data: ExamplesConfig, model: BertConfig | None) -> bool:
        return model is None or model.problem_type == cls.problem_type

    def labels(self, examples: Sequence[TextExample]) -> tuple[str, ...]:
        """Return the name of the column of the numbers."""
        require_labels(examples, self.data)
        column, first = self.data.label_columns[0], examples[0]
        if len({example.label for example in examples}) < 2:
            raise ValueError(
                f"{first.where}: {column} is {first.label} in all {len(examples)} "
                "rows; there is nothing to learn."
            )
        return (GLUE[self.data.glue].label if self.data.glue else column,)

    def targets(self, examples: Sequence[TextExample]) -> tuple[float, float]:
        """Return mean and deviation of the numbers; those of GLUE stay (§4.1)."""
        if self.data.glue:
            return super().targets(examples)
        values = np.array([example.label for example in examples], np.float64)
        mean, deviation = float(values.mean()), float(values.std())
        # What is 0 in float32 cannot be in a configuration; (0, 1) is of older models.
        small = SMALLEST_FLOAT32
        mean = mean if abs(mean) >= small else 0.0
        deviation = max(deviation, small) if np.ptp(values) else 1.0
        if (mean, deviation) == (0, 1):
            deviation = float(np.nextafter(1, 2))
        return mean, deviation

    def label_warnings(self, examples: Sequence[TextExample]) -> list[str]:
        """Return none: numbers have no names."""
        return []

    @property
    def _targets(self) -> tuple[float, float]:
        return self.model.target_mean, self.model.target_deviation

    def _label_array(self, examples: Sequence[TextExample]) -> np.ndarray:
        """Return the float32 [N] numbers, in deviations of the targets."""
        numbers = np.array([example.label for example in examples], np.float64)
        mean, deviation = self._targets
        return ((numbers - mean) / deviation).astype(np.float32)

    def label_weights(self, batch: DeviceBatch) -> Float[Array, "..."]:
        return (~jnp.isnan(batch["label"])).astype(jnp.float32)

    def label_loss(self, scores: Array, batch: DeviceBatch) -> Sum:
        """Return the squared error in deviations of the targets."""
        weights = self.label_weights(batch)
        error = scores[:, 0] - jnp.where(weights > 0, batch["label"], 0.0)
        return weighted_sum(error**2, weights)

    def distillation_loss(
        self,
        scores: Array,
        teacher_scores: Array,
        batch: DeviceBatch,
        temperature: float,
    ) -> Sum:
        """Return the squared difference from the teacher's number."""
        difference = (scores - teacher_scores)[:, 0]
        return weighted_sum(difference**2, self.label_weights(batch))

    def outputs(self, scores: Array) -> dict[str, jax.Array]:
        """Return `values` [B, 1]: the number."""
        return {"values": scores}

    def _prediction(self, values: np.ndarray) -> Prediction:
        """Return the `value`."""
        mean, deviation = self._targets
        return {"value": mean + deviation * float(values[0])}

    def _scores(
        self, examples: Sequence[TextExample], values: Sequence[Prediction]
    ) -> dict[str, float]:
        predicted = np.array([value["value"] for value in values])
        gold = np.array([example.label for example in examples])
        scores = regression_scores(gold, predicted)
        if self._targets == (0.0, 1.0):  # also runs that began with this order
            return scores
        # 1 minus the error divided by that of the mean: at most 0 for a constant.
        error = scores["mean_squared_error"]
        variance = np.var(gold) if np.ptp(gold) else 0.0  # else it may be rounding
        r2 = 1 - error / float(variance) if variance else 0.0
        return {"r2": r2} | scores

    def _constant(self, examples: Sequence[TextExample]) -> tuple[str, float]:
        numbers = np.array([example.label for example in examples])
        return "mean_squared_error of the mean", float(np.var(numbers))

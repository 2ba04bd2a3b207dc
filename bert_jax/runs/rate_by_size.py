"""The learning rate of a fine-tuning that names none, by the size of the model."""

import dataclasses

from bert_jax.config import BertConfig, FinetuneConfig
from bert_jax.runs.finetuning_examples import say_on_primary
from bert_jax.training.resume import Resume

RATES = ((128, 1e-3),)
"""The largest width of the hidden states, and the rate that it learns most by; wider
models have the paper's. Measured in docs/finetuning.md."""


def with_rate(
    config: FinetuneConfig, model: BertConfig, resume: Resume | None
) -> FinetuneConfig:
    """Return the configuration with the rate for the size of the model; print it.

    One that names its rate stays as it is. A run that has begun keeps its own.
    """
    if not config.rate_by_size:
        return config
    rate = None
    if resume:
        rate = resume.config.get("optimizer", {}).get("peak_learning_rate")
    elif config.task != "sentence-pairs":  # its models are trained further
        rate = next((r for width, r in RATES if model.hidden_size <= width), None)
        if rate:
            line = f"Learning rate {rate:g}, for a model that is {model.hidden_size} "
            line += "wide; --optimizer.peak-learning-rate sets another."
            say_on_primary([line])
    if not isinstance(rate, float):
        return config
    optimizer = dataclasses.replace(config.optimizer, peak_learning_rate=rate)
    return dataclasses.replace(config, optimizer=optimizer)

"""The FLOPs of a training step.

Model FLOPs count the matrix products of the model's definition, and nothing that an
implementation adds (Chowdhery et al. 2022, appendix B).
"""

from bert_jax.config import BertConfig


def _encoder_flops(config: BertConfig, sequence_length: int) -> float:
    """Return the FLOPs of one row, forward and backward.

    Per token, a parameter costs 2 operations forward and 4 backward. Attention adds two
    products of T keys with D numbers per token and layer.
    """
    d, f, t = config.hidden_size, config.intermediate_size, sequence_length
    layer = 6 * (4 * d * d + 2 * d * f) + 12 * t * d
    return float(t * config.num_hidden_layers * layer)


def pretraining_flops(
    config: BertConfig, batch_size: int, sequence_length: int, predictions: int
) -> float:
    """Return the model FLOPs of one pretraining step, forward and backward.

    The masked-LM head computes only the predicted positions, the pooler one per row.
    """
    d = config.hidden_size
    head = 3 * prediction_flops(config)
    pooler = 6 * (d * d + 2 * d)
    row = _encoder_flops(config, sequence_length) + predictions * head + pooler
    return float(batch_size * row)


def prediction_flops(config: BertConfig) -> float:
    """Return the model FLOPs of the masked-LM head for one token, forward only."""
    d = config.hidden_size
    return float(2 * (d * d + d * config.vocab_size))


def encoding_flops(config: BertConfig, batch_size: int, sequence_length: int) -> float:
    """Return the model FLOPs of hidden states and pooled vectors, forward only."""
    pooler = 2 * config.hidden_size**2
    return batch_size * (_encoder_flops(config, sequence_length) / 3 + pooler)


def finetuning_flops(config: BertConfig, num_rows: int, sequence_length: int) -> float:
    """Return the model FLOPs of one fine-tuning step, without the head.

    The head takes less than a hundredth of them.
    """
    return num_rows * _encoder_flops(config, sequence_length)

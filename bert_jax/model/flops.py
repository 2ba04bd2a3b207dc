"""The FLOPs of a training step, and the peak FLOP/s of devices.

Model FLOPs count the matrix products of the model's definition, and nothing that an
implementation adds (Chowdhery et al. 2022, appendix B).
"""

from bert_jax.config import BertConfig

# Dense bfloat16 (or float16) FLOP/s from the vendors' data sheets, by the prefix of
# JAX's device kind.
_PEAKS: tuple[tuple[str, float], ...] = (
    ("NVIDIA H200", 989e12),
    ("NVIDIA H100 PCIe", 756e12),
    ("NVIDIA H100", 989e12),
    ("NVIDIA A100", 312e12),
    ("NVIDIA L4", 121e12),
    ("Tesla V100", 125e12),
    ("Tesla T4", 65e12),
    ("TPU7x", 1153.5e12),  # a chip has two devices
    ("TPU v6", 918e12),
    ("TPU v5p", 459e12),
    ("TPU v5 lite", 197e12),
    ("TPU v5", 459e12),
    ("TPU v4", 275e12),
    ("TPU v3", 123e12),
)


def peak_flops_per_second(device_kind: str) -> float | None:
    """Return the device's peak FLOP/s in bfloat16, or None if it is not known."""
    peaks = (peak for prefix, peak in _PEAKS if device_kind.startswith(prefix))
    return next(peaks, None)


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
    head = 6 * (d * d + d * config.vocab_size)
    pooler = 6 * (d * d + 2 * d)
    row = _encoder_flops(config, sequence_length) + predictions * head + pooler
    return float(batch_size * row)


def encoding_flops(config: BertConfig, batch_size: int, sequence_length: int) -> float:
    """Return the model FLOPs of hidden states and pooled vectors, forward only."""
    pooler = 2 * config.hidden_size**2
    return batch_size * (_encoder_flops(config, sequence_length) / 3 + pooler)


def finetuning_flops(config: BertConfig, num_rows: int, sequence_length: int) -> float:
    """Return the model FLOPs of one fine-tuning step, without the head.

    The head takes less than a hundredth of them.
    """
    return num_rows * _encoder_flops(config, sequence_length)

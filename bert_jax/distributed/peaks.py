"""The peak FLOP/s of devices."""

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

"""What the text of a compiled program says: its collectives, and a TPU's cycles."""

import collections
import math
import re

_COLLECTIVES = "all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute"
_ITEM_BYTES = {"pred": 1, "bf16": 2, "f16": 2}
"""Bytes of types whose names do not end in their number of bits."""
_CATEGORIES = {
    "heads and losses": r"masked_lm|pooler|next_sentence|jvp\(\)",
    "dropout": "[dD]ropout|random|threefry|rng",
    "LayerNorm": "layer_norm",
    "dense products": "/(query|key|value|output|in|out)/",
    "attention's products": "/attention/",
    "embeddings": "embeddings|_take|take_along_axis|gather|scatter",
    "GELU": "feed_forward|erf",
    "masking": "vmap",
}
"""Patterns of an operation's name in the program; the first match counts."""


def collectives(program: str) -> dict[str, tuple[int, int]]:
    """Return the number of each kind of collective, and the bytes of their results."""
    totals: dict[str, tuple[int, int]] = {}
    pattern = rf"= (.*?) ({_COLLECTIVES})(?:-start)?\("
    for result, kind in re.findall(pattern, program):
        count, size = totals.get(kind, (0, 0))
        totals[kind] = count + 1, size + _bytes_of(result)
    return totals


def _bytes_of(shapes: str) -> int:
    """Return the bytes of arrays such as `(f32[8,128]{1,0}, bf16[])`."""
    total = 0
    for dtype, sizes in re.findall(r"\b([a-z]+\d*)\[([\d,]*)\]", shapes):
        bits = re.search(r"\d+$", dtype)
        item = _ITEM_BYTES.get(dtype) or max(1, int(bits[0]) // 8 if bits else 1)
        total += item * math.prod(int(size) for size in sizes.split(",") if size)
    return total


def estimated_cycles(program: str) -> dict[str, int]:
    """Return the TPU compiler's estimate of cycles by category, the largest first.

    Only the entry computation counts. A fusion belongs to the category of its last
    operation. Collectives, scatters and the random generator have no estimate.
    """
    cycles: collections.Counter[str] = collections.Counter()
    for line in program[program.find("\nENTRY") :].splitlines():
        if estimate := re.search(r'"estimated_cycles":"(\d+)"', line):
            cycles[_category(line)] += int(estimate[1])
    return dict(cycles.most_common())


def _category(line: str) -> str:
    if re.search(r"= \S+ copy\(", line):
        return "copies"
    name = re.search(r'op_name="([^"]*)"', line)
    if name is None:
        return "other"
    if "shard_map" not in name[1] and "while" not in name[1]:
        return "update"
    matches = (c for c, pattern in _CATEGORIES.items() if re.search(pattern, name[1]))
    return next(matches, "other")


def attention_kernels(program: str) -> dict[str, int]:
    """Return how often a TPU program calls each kernel of attention.

    They are our own, and have no estimate in the program.
    """
    entry = program[program.find("\nENTRY") :]
    pattern = r'custom_call_target="tpu_custom_call".*op_name="[^"]*/attention_(\w+)/'
    return dict(collections.Counter(re.findall(pattern, entry)))

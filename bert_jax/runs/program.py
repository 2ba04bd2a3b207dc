"""What the text of a compiled program says: its collectives, and a TPU's cycles."""

import collections
import math
import re

_COLLECTIVES = (
    "(?:all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?"
    "|send"
)
_BETWEEN_SLICES = r'_xla_megascale_transfer_type="(\w+)"'
"""The kind of collective of a send from one slice of TPUs to the others."""
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
    """Return the number of each kind of collective, and the bytes of their results.

    A TPU's compiler runs a collective beside other operations: it repeats the
    instruction in the fusions of its start, of each of these operations and of its end.
    They have the same `chain_id`, and count as one. What is in a loop counts once.
    Between slices, XLA sends and receives by itself; these are kinds of their own.
    """
    totals: dict[str, tuple[int, int]] = {}
    chains: set[tuple[str, str]] = set()
    for result, kind, rest in re.findall(rf"= (.*?) ({_COLLECTIVES})\((.*)", program):
        if transfer := re.search(_BETWEEN_SLICES, rest):
            kind = f"{transfer[1].lower().replace('_', '-')} between slices"
        elif kind == "send":
            continue
        if chain := re.search(r'chain_id="(\d+)"', rest):
            if (kind, chain[1]) in chains:
                continue
            chains.add((kind, chain[1]))
        name = kind.removesuffix("-start")
        count, size = totals.get(name, (0, 0))
        totals[name] = count + 1, size + sum(_result_sizes(result, kind))
    return totals


def _result_sizes(shapes: str, kind: str) -> list[int]:
    """Return the bytes of each result of a collective.

    Shapes are as in `(f32[8,128]{1,0}, bf16[])`. Those of an asynchronous start are the
    operands and then the results, but for an all-reduce.
    """
    arrays = []
    for dtype, sizes in re.findall(r"\b([a-z]+\d*)\[([\d,]*)\]", shapes):
        bits = re.search(r"\d+$", dtype)
        item = _ITEM_BYTES.get(dtype) or max(1, int(bits[0]) // 8 if bits else 1)
        size = item * math.prod(int(size) for size in sizes.split(",") if size)
        arrays.append((f"{dtype}[{sizes}]", size))
    # Besides arrays, a send and a start have tokens and numbers of the runtime.
    is_start = kind.endswith("-start")
    if is_start or kind.endswith("between slices"):
        arrays = [array for array in arrays if array[0] not in ("u32[]", "token[]")]
    if is_start and kind != "all-reduce-start":
        arrays = arrays[len(arrays) // 2 :]
    return [size for _, size in arrays]


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

"""safetensors files, read by nothing that trusts them.

A file is the length of its header in eight bytes, the header as JSON, and the tensors'
bytes. Every number in it is checked before anything is read by it.
"""

import dataclasses
import math
from typing import Any

import numpy as np
from etils import epath
from jaxtyping import Float, Float32, UInt8

from bert_jax.formats.model_files import parse_object, read_object
from bert_jax.storage.files import require_regular_file

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLES = (
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "model.pt",
    "model.pth",
    "pytorch_model.pt",
)
MAX_HEADER_BYTES = 100_000_000
"""As in the safetensors library."""
ITEM_BYTES = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "U16": 2,
    "I16": 2,
    "F16": 2,
    "BF16": 2,
    "U32": 4,
    "I32": 4,
    "F32": 4,
    "U64": 8,
    "I64": 8,
    "F64": 8,
}
PARAMETER_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
"""What a parameter may be stored as, and its usual name."""

_MAX_DIMENSIONS = 32  # as many as every NumPy allows
_PICKLE = (
    "a pickle, which can run any program when it is read; make model.safetensors of "
    "it by torch.load(…, weights_only=True) and safetensors.torch.save_file, as "
    "docs/interop.md shows under Pickles."
)


@dataclasses.dataclass(frozen=True)
class Tensor:
    """One tensor's place in a file."""

    name: str
    path: epath.Path
    dtype: str
    shape: tuple[int, ...]
    begin: int
    """Offset of its first byte in the file."""
    size: int
    """In bytes."""

    def read_bytes(self) -> bytes:
        """Its bytes as they are stored, little-endian and in C order."""
        with self.path.open("rb") as file:
            file.seek(self.begin)
            return file.read(self.size)

    def read(self) -> Float32[np.ndarray, "..."]:
        """Its values as float32, which holds every float16 and bfloat16.

        Raises:
            ValueError: its dtype is no parameter's.
        """
        if self.dtype not in PARAMETER_DTYPES:
            raise ValueError(
                f"{self.path}: {self.name} has dtype {self.dtype}; a parameter must "
                f"have one of {', '.join(PARAMETER_DTYPES)}."
            )
        content = np.frombuffer(self.read_bytes(), np.uint8)
        return _as_float32(content, self.dtype).reshape(self.shape)


def _as_float32(
    content: UInt8[np.ndarray, " bytes"], dtype: str
) -> Float32[np.ndarray, " n"]:
    if dtype == "BF16":  # the upper half of a float32
        return (content.view("<u2").astype(np.uint32) << 16).view(np.float32)
    values: Float[np.ndarray, " n"] = content.view("<f4" if dtype == "F32" else "<f2")
    return values.astype(np.float32)


def open_tensors(path: epath.Path) -> tuple[list[str], list[Tensor]]:
    """A directory's files that hold tensors, and every tensor's place in them.

    Args:
        path: the directory, or one of those files or its index.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, or is none that can be read safely.
    """
    if path.is_file():
        if path.name.endswith(".index.json"):
            return _open_shards(path)
        return [path.name], read_header(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there; name a directory that is.")
    if (path / SINGLE).exists():
        return [SINGLE], read_header(path / SINGLE)
    if (path / INDEX).exists():
        return _open_shards(path / INDEX)
    pickles = [name for name in PICKLES if (path / name).exists()]
    if pickles:
        raise ValueError(f"{path / pickles[0]} is {_PICKLE}")
    raise FileNotFoundError(
        f"{path} holds neither {SINGLE} nor {INDEX}; name a directory that "
        "transformers' save_pretrained wrote."
    )


def _open_shards(index: epath.Path) -> tuple[list[str], list[Tensor]]:
    path = index.parent
    places = read_object(index).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise ValueError(f"{index} has no weight_map; fetch it again.")
    for file in places.values():
        if not isinstance(file, str) or file != epath.Path(file).name or not file:
            raise ValueError(
                f"{index} names the file {str(file)[:80]!r}; a shard must lie beside "
                "its index."
            )
    files = sorted(set(places.values()))
    missing = [name for name in files if not (path / name).is_file()]
    if missing:
        raise FileNotFoundError(
            f"{path} lacks {', '.join(missing)}, which {index.name} names; fetch it "
            "again."
        )
    tensors = [tensor for name in files for tensor in read_header(path / name)]
    found = {tensor.name: tensor.path.name for tensor in tensors}
    wrong = sorted(n for n in found.keys() | places.keys() if _differ(found, places, n))
    if wrong or len(found) < len(tensors):
        names = ", ".join(wrong) or "a tensor that stands in two"
        raise ValueError(
            f"{index} and its shards disagree on {names}; fetch them together."
        )
    return [index.name, *files], tensors


def _differ(found: dict[str, str], places: dict[str, str], name: str) -> bool:
    return found.get(name) != places.get(name)


def read_header(path: epath.Path) -> list[Tensor]:
    """The tensors of one file, in the order of their bytes.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not a whole safetensors file.
    """
    require_regular_file(path)
    size = path.stat().length
    with path.open("rb") as file:
        start = file.read(9)
        _refuse_others(path, start)
        length = int.from_bytes(start[:8], "little")
        if length > min(size - 8, MAX_HEADER_BYTES):
            raise ValueError(
                f"{path} says that its header has {length} bytes, of a file of {size}; "
                "it is cut off or damaged, so fetch it again."
            )
        file.seek(8)
        content = file.read(length)
    try:
        header = parse_object(content)
        header.pop("__metadata__", None)
        entries = (_entry(path, name, header[name], 8 + length) for name in header)
        tensors = sorted(entries, key=lambda tensor: (tensor.begin, tensor.size))
        _check_places(tensors, 8 + length, size)
    except ValueError as error:
        said = str(error).removesuffix(".")
        raise ValueError(f"{path}: the header {said}; fetch the file again.") from error
    return tensors


def _refuse_others(path: epath.Path, start: bytes) -> None:
    """Say what a file is that is no safetensors file."""
    if start[8:] == b"{":
        return
    if start.startswith((b"PK\x03\x04", b"\x80")):
        raise ValueError(f"{path} is {_PICKLE}")
    if start.startswith(b"version "):
        raise ValueError(f"{path} is a Git LFS pointer; fetch it by `git lfs pull`.")
    raise ValueError(
        f"{path} is not a safetensors file: no header begins at byte 8; fetch it again."
    )


def _entry(path: epath.Path, name: str, entry: Any, start: int) -> Tensor:
    """One entry of the header, checked by itself."""
    if not name.isprintable():
        raise ValueError(f"is damaged: {name[:40]!a} is no name of a tensor.")
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        rule = "must have dtype, shape and data_offsets"
        raise ValueError(f"is damaged: {name!r} {rule}.")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        known = ", ".join(ITEM_BYTES)
        raise ValueError(f"gives {name!r} the dtype {dtype!r}; it must be of {known}.")
    if not _whole_numbers(shape) or not _whole_numbers(offsets) or len(offsets) != 2:
        raise ValueError(
            f"is damaged: shape and data_offsets of {name!r} are {_short(shape)} and "
            f"{_short(offsets)}; they must be lists of whole numbers."
        )
    begin, end = offsets
    wanted = math.prod(shape) * ITEM_BYTES[dtype]
    if end - begin != wanted:
        raise ValueError(
            f"is damaged: {name!r}, {dtype} of shape {shape}, takes {wanted} bytes and "
            f"has data_offsets={offsets}."
        )
    return Tensor(name, path, dtype, tuple(shape), start + begin, wanted)


def _whole_numbers(values: Any) -> bool:
    """A list of few numbers, each of which a file's size could reach."""
    return (
        isinstance(values, list)
        and len(values) <= _MAX_DIMENSIONS
        and all(type(value) is int and 0 <= value < 1 << 63 for value in values)
    )


def _check_places(tensors: list[Tensor], start: int, size: int) -> None:
    """The tensors follow upon each other, and fill the file."""
    last = max(tensors, key=lambda tensor: tensor.begin + tensor.size, default=None)
    if last and last.begin > max(size, start + sum(tensor.size for tensor in tensors)):
        raise ValueError(
            f"is damaged: {last.name!r} begins at byte {last.begin} of a file of {size}"
        )
    for tensor in tensors:
        if tensor.begin != start:
            how = "overlaps another" if tensor.begin < start else "leaves a gap"
            raise ValueError(f"is damaged: {tensor.name!r} {how} at byte {start}.")
        start += tensor.size
    if start != size:
        raise ValueError(
            f"describes a file of {start} bytes and this one has {size}; it is cut off "
            "or damaged"
        )


def _short(value: Any) -> str:
    return repr(value)[:40]

"""Open safetensors files, and give the tensors the names that transformers uses today.

A model has one file, or shards with an index.
"""

import re
import tempfile
from collections.abc import Sequence

import numpy as np
from etils import epath
from safetensors import SafetensorError, safe_open

from bert_jax.formats.families import FamilyFormat
from bert_jax.formats.imported import Tensor
from bert_jax.formats.model_files import read_object, short_reason
from bert_jax.storage.atomic import is_address
from bert_jax.storage.files import require_regular_file

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
SHARDS = "model-*.safetensors"
_BIN = "pytorch_model.bin"
PICKLES = (_BIN, f"{_BIN}.index.json", "model.pt", "model.pth", "pytorch_model.pt")
TIED = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
"""Tensors that a file may hold as copies, and the original of each."""

_WRAPPERS = re.compile(r"^(module\.|_orig_mod\.)+")
"""Prefixes that DataParallel and torch.compile add to the names of the inner model."""
_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_PICKLE = (
    "a pickle, which can run any program when it is read; make model.safetensors from "
    "it by torch.load(…, weights_only=True) and safetensors.torch.save_file, as "
    "docs/interop.md shows under Pickles."
)


def open_tensors(
    path: epath.Path, family: FamilyFormat, architecture: str = ""
) -> tuple[list[str], dict[str, Tensor], str]:
    """Open the tensors of a model, given its directory, one of its files, or the index.

    Return the names of the files that hold them; the tensors by the names that BERT's
    classes with a head use today; and the prefix that was removed from each name.
    `architecture` is transformers' class, if the model's configuration names it.

    Raise FileNotFoundError if a file is missing, or ValueError if one is damaged or
    cannot be read safely, only some names have a wrapper's prefix, or two are the same.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; name a directory that does.")
    if path.is_dir():
        names = [name for name in (SINGLE, INDEX, *PICKLES) if (path / name).exists()]
        if not names:
            raise FileNotFoundError(
                f"{path} holds neither {SINGLE} nor {INDEX}; name a directory that "
                "transformers' save_pretrained wrote."
            )
        path /= names[0]
        if names[0] in PICKLES:
            raise ValueError(f"{path} is {_PICKLE}")
    if path.name.endswith(".index.json"):
        files, tensors = _open_shards(path)
    else:
        files, tensors = [path.name], open_file(path)
    prefix = _wrapper_prefix(path.parent, [tensor.name for tensor in tensors])
    names = [tensor.name.removeprefix(prefix) for tensor in tensors]
    renamed: dict[str, Tensor] = {}
    berts = bert_names(names, family, architecture)
    for tensor, name in zip(tensors, berts, strict=True):
        if renamed.setdefault(name, tensor) is not tensor:
            raise ValueError(
                f"{path.parent}: {renamed[name].name} and {tensor.name} are two "
                "tensors for one parameter; keep one."
            )
    return files, renamed, prefix


def _open_shards(index: epath.Path) -> tuple[list[str], list[Tensor]]:
    path = index.parent
    file_of = read_object(index).get("weight_map")
    if not isinstance(file_of, dict) or not file_of:
        raise ValueError(f"{index} has no weight_map; fetch it again.")
    for file in file_of.values():
        if not isinstance(file, str) or file != epath.Path(file).name or not file:
            raise ValueError(
                f"{index} names the file {str(file)[:80]!r}; a shard must be in the "
                "directory of its index."
            )
    files = sorted(set(file_of.values()))
    missing = [name for name in files if not (path / name).is_file()]
    if missing:
        raise FileNotFoundError(
            f"{path} lacks {', '.join(missing)}, which {index.name} names; fetch it "
            "again."
        )
    tensors = [tensor for name in files for tensor in open_file(path / name)]
    listed, stored = file_of.items(), {(t.name, t.path.name) for t in tensors}
    # A tensor that is stored in two shards differs from the index in one of them.
    if wrong := sorted({name for name, _ in listed ^ stored}):
        raise ValueError(
            f"{index} and its shards disagree on {', '.join(wrong)}; fetch them "
            "together."
        )
    return [index.name, *files], tensors


def open_file(path: epath.Path) -> list[Tensor]:
    """Open one file and return its tensors in the order of their bytes.

    Raise FileNotFoundError if there is no such file, ValueError if it is not a complete
    safetensors file.
    """
    require_regular_file(path)
    with path.open("rb") as opened:
        start = opened.read(9)
    if start[8:] != b"{":
        problem = "not a safetensors file: no header begins at byte 8; fetch it again."
        if start.startswith((b"PK\x03\x04", b"\x80")):
            problem = _PICKLE
        elif start.startswith(b"version "):
            problem = "a Git LFS pointer; fetch it by `git lfs pull`."
        raise ValueError(f"{path} is {problem}")
    try:
        file = _open(path)
    except SafetensorError as error:
        raise ValueError(
            f"{path} is damaged or cut off ({short_reason(error)}); fetch the file "
            "again."
        ) from error
    tensors = []
    for name in file.offset_keys():
        if not name.isprintable():
            raise ValueError(
                f"{path} is damaged: {name[:40]!a} is not the name of a tensor; fetch "
                "the file again."
            )
        entry = file.get_slice(name)
        dtype = _DTYPES.get(entry.get_dtype(), entry.get_dtype())
        shape = tuple(entry.get_shape())
        tensors.append(Tensor(path, name, shape, dtype, file.get_tensor))
    return tensors


def _open(path: epath.Path) -> safe_open:
    """Open the file; one in a bucket is copied first.

    The backend "pread" reads each tensor when it is requested. With a memory map, the
    library's default, SIGBUS ends the process if the file is truncated meanwhile.
    """
    if not is_address(path):
        return safe_open(path, "numpy", backend="pread")
    with tempfile.TemporaryDirectory() as directory:
        copy = path.copy(epath.Path(directory) / path.name)
        # It can still be read after its removal, since it is open.
        return safe_open(copy, "numpy", backend="pread")


def _wrapper_prefix(path: epath.Path, names: Sequence[str]) -> str:
    """Return the prefix of wrappers that every name has, or an empty string."""
    example_of: dict[str, str] = {}  # the first name with each prefix
    for name in names:
        example_of.setdefault(name.removesuffix(_WRAPPERS.sub("", name)), name)
    prefix = max(example_of, key=len, default="")
    if len(example_of) > 1:
        wrapped, other = example_of.pop(prefix), example_of.popitem()[1]
        raise ValueError(
            f"{path} holds {wrapped} and {other}: {prefix!r} comes from DataParallel "
            "or torch.compile around a model, and only some of the names have it; save "
            "the state of the model inside."
        )
    return prefix


def bert_names(
    names: Sequence[str], family: FamilyFormat, architecture: str
) -> list[str]:
    """Return the names of tensors in BERT's classes with a head, as they are today."""
    head = family.head_of.get(architecture.removeprefix(family.class_name), "")
    if any(name.startswith("classifier.out_proj.") for name in names):
        head = "sequence_classification"
    # Files of the class without a head have no prefix.
    if not any(name.startswith(f"{family.prefix}.") for name in names):
        of_encoder = ("embeddings.", "encoder.", "transformer.", "pooler.")
        names = [
            f"{family.prefix}.{name}" if name.startswith(of_encoder) else name
            for name in names
        ]
    names = [family.rename_to_bert(name, head) for name in names]
    names = [re.sub(r"(?<=\.LayerNorm\.)gamma$", "weight", name) for name in names]
    return [re.sub(r"(?<=\.LayerNorm\.)beta$", "bias", name) for name in names]


def pop_tied_copies(
    path: epath.Path, tensors: dict[str, Tensor]
) -> list[tuple[str, str]]:
    """Remove the copies of tied tensors; return the names of original and copy.

    If only the copy is stored, it takes the place of the original. Raise ValueError if
    a copy differs from its original.
    """
    copies = []
    for name, original in TIED.items():
        if name not in tensors:
            continue
        copy = tensors.pop(name)
        other = tensors.setdefault(original, copy)
        if other is copy:
            continue
        same = (copy.dtype, copy.shape) == (other.dtype, other.shape)
        if not same or not np.array_equal(copy.read(), other.read(), equal_nan=True):
            raise ValueError(
                f"{path}: {copy.name} differs from {other.name}; bert_jax has one "
                "array for both, so such a model cannot be imported."
            )
        copies.append((original, copy.name))
    return copies

"""Open safetensors files: one file, or shards with an index."""

import tempfile

from etils import epath
from safetensors import SafetensorError, safe_open

from bert_jax.formats.imported import Tensor
from bert_jax.formats.model_files import read_object, short_reason
from bert_jax.storage.atomic import is_address
from bert_jax.storage.files import require_regular_file

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLES = (
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "model.pt",
    "model.pth",
    "pytorch_model.pt",
)

_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_PICKLE = (
    "a pickle, which can run any program when it is read; make model.safetensors from "
    "it by torch.load(…, weights_only=True) and safetensors.torch.save_file, as "
    "docs/interop.md shows under Pickles."
)


def open_tensors(path: epath.Path) -> tuple[list[str], list[Tensor]]:
    """Return the names of the files that hold a model's tensors, and the tensors.

    Args:
        path: the directory, or one of those files or its index.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, or cannot be read safely.
    """
    if path.is_file():
        if path.name.endswith(".index.json"):
            return _open_shards(path)
        return [path.name], open_file(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; name a directory that does.")
    if (path / SINGLE).exists():
        return [SINGLE], open_file(path / SINGLE)
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

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not a complete safetensors file.
    """
    require_regular_file(path)
    with path.open("rb") as start:
        _require_safetensors(path, start.read(9))
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


def _require_safetensors(path: epath.Path, start: bytes) -> None:
    """Raise ValueError if a file that begins with `start` is of another format."""
    if start[8:] == b"{":
        return
    if start.startswith((b"PK\x03\x04", b"\x80")):
        raise ValueError(f"{path} is {_PICKLE}")
    if start.startswith(b"version "):
        raise ValueError(f"{path} is a Git LFS pointer; fetch it by `git lfs pull`.")
    raise ValueError(
        f"{path} is not a safetensors file: no header begins at byte 8; fetch it again."
    )


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

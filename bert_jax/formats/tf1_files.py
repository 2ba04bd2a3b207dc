"""Find TensorFlow's checkpoints and open them."""

import dataclasses
import importlib.util
import re

from etils import epath

from bert_jax.formats.imported import Tensor
from bert_jax.formats.model_files import short_reason
from bert_jax.storage.quiet_tensorflow import quiet_tensorflow

RELEASED = "bert_model.ckpt"
"""The checkpoint's name in the released models; training writes model.ckpt-STEP."""
INDEX = ".index"

_SUFFIX = re.compile(r"\.(index|meta|data-\d+-of-\d+)$")
_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """An open checkpoint, whose tensors are not read yet."""

    prefix: epath.Path
    """The path of its files without `.index` and `.data-…`."""
    data_files: list[str]
    """The names of the files with the tensors' bytes."""
    tensors: dict[str, Tensor]


def is_tf1(path: epath.Path) -> bool:
    """Whether `path` is, or holds, a checkpoint of TensorFlow."""
    try:
        find_prefix(path)
    except FileNotFoundError:
        return False
    return True


def find_prefix(path: epath.Path) -> epath.Path:
    """Return the prefix of the checkpoint that `path` names.

    In a directory, this is the released checkpoint, or else the newest one.

    Raises:
        FileNotFoundError: there is none.
    """
    if not path.is_dir():
        prefix = path.with_name(_SUFFIX.sub("", path.name))
        if not prefix.with_name(prefix.name + INDEX).exists():
            raise FileNotFoundError(
                f"{prefix}{INDEX} is missing; name a directory with {RELEASED}{INDEX}, "
                "or a checkpoint's path without its ending."
            )
        return prefix
    # Not glob: a bracket in the directory's own name would be a pattern.
    names = [file.name for file in path.iterdir()]
    stems = [name.removesuffix(INDEX) for name in names if name.endswith(INDEX)]
    if not stems:
        raise FileNotFoundError(
            f"{path} holds no *{INDEX} file; name a directory with {RELEASED}{INDEX}."
        )
    for stem in (RELEASED, _newest(path / "checkpoint")):
        if stem in stems:
            return path / stem
    return path / max(stems, key=_step)


def _newest(path: epath.Path) -> str:
    """Return the newest checkpoint according to TensorFlow's file `checkpoint`."""
    text = path.read_bytes().decode(errors="replace") if path.exists() else ""
    match = re.search(r'^model_checkpoint_path: "(.*)"', text, re.MULTILINE)
    # The file may name a directory on the machine that trained the model.
    return match[1].replace("\\", "/").split("/")[-1] if match else ""


def _step(stem: str) -> tuple[int, str]:
    match = re.search(r"-(\d+)$", stem)
    return (int(match[1]) if match else -1), stem


def open_checkpoint(prefix: epath.Path) -> Checkpoint:
    """Open the checkpoint with this prefix.

    Raises:
        FileNotFoundError: the file with the tensors is missing.
        ValueError: the index is damaged, or of an object-based checkpoint of
            TensorFlow 2; TensorFlow is missing, or cannot open such a path.
    """
    if importlib.util.find_spec("tensorflow") is None:
        raise ValueError(
            f"{prefix} is read by TensorFlow, which is missing; `pip install "
            "tensorflow-cpu`, or import on another machine."
        )
    if set(str(prefix)) & set("[]*?"):
        raise ValueError(
            f"{prefix} has one of []*? in its path, which TensorFlow takes for a "
            "pattern; rename it."
        )
    tf = quiet_tensorflow()
    try:
        reader = tf.train.load_checkpoint(str(prefix))
        shapes = reader.get_variable_to_shape_map()
        dtypes = reader.get_variable_to_dtype_map()
    except Exception as error:  # TensorFlow raises many classes, some of them builtin
        raise ValueError(
            f"{prefix}{INDEX} is damaged or no TensorFlow checkpoint "
            f"({short_reason(error)}); fetch it again."
        ) from error
    if _OBJECT_GRAPH in shapes:
        raise ValueError(
            f"{prefix} is a checkpoint of TensorFlow 2's objects; name one that the "
            "code of 2018 (google-research/bert) wrote."
        )
    start = f"{prefix.name}.data-"
    names = (path.name for path in prefix.parent.iterdir())
    files = sorted(name for name in names if name.startswith(start))
    if not files:
        raise FileNotFoundError(
            f"{prefix}.data-00000-of-00001 is missing; put it beside {INDEX}."
        )
    path = prefix.with_name(files[0] if len(files) == 1 else f"{start}*")
    tensors = {
        name: Tensor(path, name, tuple(shape), dtypes[name].name, reader.get_tensor)
        for name, shape in shapes.items()
    }
    return Checkpoint(prefix, files, tensors)

"""TensorFlow's checkpoints: which one a path means, and what lies in it."""

import dataclasses
import importlib.util
import re
from typing import Any

import numpy as np
from etils import epath
from jaxtyping import Float32

from bert_jax.data.pipeline import quiet_tensorflow

RELEASED = "bert_model.ckpt"
"""What the released models call their tensors; training writes model.ckpt-STEP."""
INDEX = ".index"

_PART = re.compile(r"\.(index|meta|data-\d+-of-\d+)$")
_OBJECTS = "_CHECKPOINTABLE_OBJECT_GRAPH"


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """The tensors of a checkpoint, none of them read yet."""

    prefix: epath.Path
    """The files' path up to `.index` and `.data-…`."""
    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, str]
    _reader: Any

    def read(self, name: str) -> Float32[np.ndarray, "..."]:
        """One tensor, its checksum verified.

        Raises:
            ValueError: the file that holds it is damaged.
        """
        try:
            return np.asarray(self._reader.get_tensor(name), np.float32)
        except Exception as error:  # many kinds; a short file is an IndexError
            raise ValueError(
                f"{self._data_file()} is damaged: {name} cannot be read "
                f"({_short(error)}); fetch it again."
            ) from error

    def data_files(self) -> list[str]:
        """Names of the files with the tensors' bytes."""
        start = f"{self.prefix.name}.data-"
        names = (path.name for path in self.prefix.parent.iterdir())
        return sorted(name for name in names if name.startswith(start))

    def _data_file(self) -> str:
        names = self.data_files()
        return str(
            self.prefix.with_name(names[0])
            if len(names) == 1
            else f"{self.prefix}.data-*"
        )


def is_tf1(path: epath.Path) -> bool:
    """Whether `path` is, or holds, a checkpoint of TensorFlow."""
    try:
        find_prefix(path)
    except FileNotFoundError:
        return False
    return True


def find_prefix(path: epath.Path) -> epath.Path:
    """The checkpoint that `path` means: one, a directory's released one, or newest.

    Raises:
        FileNotFoundError: there is none.
    """
    if not path.is_dir():
        prefix = path.with_name(_PART.sub("", path.name))
        if not prefix.with_name(prefix.name + INDEX).exists():
            raise FileNotFoundError(
                f"{prefix}{INDEX} is missing; name a directory with {RELEASED}{INDEX}, "
                "or a checkpoint's path without its ending."
            )
        return prefix
    # Not by glob, to which a bracket in the directory's own name would be a pattern.
    names = [file.name for file in path.iterdir()]
    stems = [name.removesuffix(INDEX) for name in names if name.endswith(INDEX)]
    if not stems:
        raise FileNotFoundError(
            f"{path} holds no *{INDEX} file; name a directory with {RELEASED}{INDEX}."
        )
    for stem in (RELEASED, _listed(path / "checkpoint")):
        if stem in stems:
            return path / stem
    return path / max(stems, key=_step)


def _listed(path: epath.Path) -> str:
    """The checkpoint that TensorFlow's file `checkpoint` calls the newest."""
    text = path.read_bytes().decode(errors="replace") if path.exists() else ""
    match = re.search(r'^model_checkpoint_path: "(.*)"', text, re.MULTILINE)
    # The path may be of the machine that trained.
    return match[1].replace("\\", "/").split("/")[-1] if match else ""


def _step(stem: str) -> tuple[int, str]:
    match = re.search(r"-(\d+)$", stem)
    return (int(match[1]) if match else -1), stem


def open_checkpoint(prefix: epath.Path) -> Checkpoint:
    """The names, shapes and dtypes of a checkpoint's tensors.

    Raises:
        FileNotFoundError: the tensors' own file is missing.
        ValueError: the index is damaged, or of TensorFlow 2's objects; TensorFlow is
            missing, or cannot open such a path.
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
    except Exception as error:  # TensorFlow's are of many kinds, some of them builtin
        raise ValueError(
            f"{prefix}{INDEX} is damaged or no TensorFlow checkpoint "
            f"({_short(error)}); fetch it again."
        ) from error
    if _OBJECTS in shapes:
        raise ValueError(
            f"{prefix} is a checkpoint of TensorFlow 2's objects; name one that the "
            "code of 2018 (google-research/bert) wrote."
        )
    checkpoint = Checkpoint(
        prefix=prefix,
        shapes={name: tuple(shapes[name]) for name in sorted(shapes)},
        dtypes={name: dtype.name for name, dtype in dtypes.items()},
        _reader=reader,
    )
    if not checkpoint.data_files():
        raise FileNotFoundError(
            f"{prefix}.data-00000-of-00001 is missing; put it beside {INDEX}."
        )
    return checkpoint


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:160]

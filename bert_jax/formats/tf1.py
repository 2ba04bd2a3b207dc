"""Read models that the TensorFlow code of 2018 (google-research/bert) wrote."""

import importlib.util
import re

from etils import epath

from bert_jax.config import BertConfig
from bert_jax.formats.families import BERT
from bert_jax.formats.huggingface_config import SIZES, keys_left_over, read_bert_config
from bert_jax.formats.imported import (
    Imported,
    SourceLibrary,
    Tensor,
    match_tensors,
    read_parameters,
)
from bert_jax.formats.model_files import read_object, read_object_or_empty, short_reason
from bert_jax.formats.names import names_of
from bert_jax.storage.files import located
from bert_jax.storage.manifest import describe_files
from bert_jax.storage.quiet_tensorflow import quiet_tensorflow
from bert_jax.tokenization import Tokenizer

CONFIG, VOCABULARY = "bert_config.json", "vocab.txt"
TOKENIZER = "tokenizer_config.json"
RELEASED = "bert_model.ckpt"
"""The checkpoint's name in the released models; training writes model.ckpt-STEP."""
INDEX = ".index"

_SUFFIX = re.compile(r"\.(index|meta|data-\d+-of-\d+)$")
_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_LIBRARY = SourceLibrary(
    "tf1",
    CONFIG,
    ignored=re.compile(
        # The state of the optimizer.
        r"global_step|beta[12]_power|.*/(adam_[mv]|Adam|Adam_1)"
        # Every model of the original has a pooler, which some heads do not use.
        r"|bert/pooler/dense/(kernel|bias)"
    ),
    allow_extra="`bert-jax convert import --allow-extra`",
)


def read_tf1(path: epath.Path, allow_extra: bool = False) -> Imported:
    """Read a checkpoint of the original code; every tensor is used or left over.

    Args:
        path: a directory with a released model (bert_model.ckpt.*) or with step
            checkpoints (the newest is read), or one checkpoint's path without
            `.index`; bert_config.json and vocab.txt are beside it.
        allow_extra: ignore tensors that the model does not have.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, the files do not belong together, or it is
            unknown whether the vocabulary is cased; or TensorFlow is missing, or
            cannot open such a path. The message is one line.
    """
    prefix = find_prefix(path)
    data_files, tensors = _open_checkpoint(prefix)
    folder = prefix.parent
    for name in (CONFIG, VOCABULARY):
        if not (folder / name).exists():
            raise FileNotFoundError(
                f"{folder / name} is missing; copy it there from the model that "
                "training began with."
            )
    values = read_object(folder / CONFIG)
    if absent := [name for name in SIZES if name not in values]:
        raise ValueError(
            f"{folder / CONFIG} lacks {', '.join(absent)}; use the complete file."
        )
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    head, num_labels = _head(shapes)
    named = values | {"architectures": [BERT.class_of(head)], "num_labels": num_labels}
    config = read_bert_config(folder / CONFIG, named, shapes)
    pooler = any(name.startswith("bert/pooler/") for name in tensors)
    matches, left_over = match_tensors(
        prefix, config, tensors, names_of(config, pooler), _LIBRARY, allow_extra
    )
    tokenizer = _read_tokenizer(folder, config)
    optional = [TOKENIZER] if (folder / TOKENIZER).exists() else []
    files = [CONFIG, VOCABULARY, prefix.name + INDEX, *data_files, *optional]
    return Imported(
        config=config,
        params=read_parameters(prefix, config, matches),
        tokenizer=tokenizer,
        leaves=tuple(matches),
        fresh=(),
        left_over=tuple(left_over),
        sources=tuple(describe_files(folder, files)),
        config_left_over=keys_left_over(values),
    )


def is_tf1(path: epath.Path) -> bool:
    """Whether `path` is, or holds, a checkpoint of TensorFlow."""
    try:
        find_prefix(path)
    except FileNotFoundError:
        return False
    return True


def find_prefix(path: epath.Path) -> epath.Path:
    """Return the prefix of the checkpoint that `path` names.

    In a directory, this is the released checkpoint, or else the newest one. Raise
    FileNotFoundError if there is none.
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
    # TensorFlow's file `checkpoint` may name a directory on another machine.
    latest = path / "checkpoint"
    text = latest.read_bytes().decode(errors="replace") if latest.exists() else ""
    match = re.search(r'^model_checkpoint_path: "(.*)"', text, re.MULTILINE)
    newest = match[1].replace("\\", "/").split("/")[-1] if match else ""
    for stem in (RELEASED, newest):
        if stem in stems:
            return path / stem
    return path / max(stems, key=_step)


def _step(stem: str) -> tuple[int, str]:
    match = re.search(r"-(\d+)$", stem)
    return (int(match[1]) if match else -1), stem


def _open_checkpoint(prefix: epath.Path) -> tuple[list[str], dict[str, Tensor]]:
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
    return files, tensors


def _head(shapes: dict[str, tuple[int, ...]]) -> tuple[str, int]:
    """Return the head that the tensors belong to, and its number of classes."""

    def has(start: str) -> bool:
        return any(name.startswith(start) for name in shapes)

    if has("cls/squad/"):
        return "question_answering", 2
    for name in ("output_weights", "output_bias"):
        if name in shapes:
            return "sequence_classification", (*shapes[name], 0)[0]
    if has("cls/seq_relationship/") and has("cls/predictions/"):
        return "pretraining", 2
    return ("masked_lm" if has("cls/predictions/") else "encoder"), 2


def _read_tokenizer(folder: epath.Path, config: BertConfig) -> Tokenizer:
    path = folder / VOCABULARY
    with located(path):
        settings = {"kind": "wordpiece", "cased": _is_cased(folder)}
        tokenizer = Tokenizer(settings, path.read_bytes())
    if tokenizer.vocab_size != config.vocab_size:
        raise ValueError(
            f"{path} has {tokenizer.vocab_size} tokens and the table of embeddings "
            f"{config.vocab_size} rows; use the vocabulary that the model was trained "
            "with."
        )
    return tokenizer


def _is_cased(folder: epath.Path) -> bool:
    """Whether the vocabulary is cased, which the original's own files do not say."""
    path = folder / TOKENIZER
    values = read_object_or_empty(path)
    if isinstance(values.get("cased"), bool):
        return bool(values["cased"])
    if isinstance(values.get("do_lower_case"), bool):
        return not values["do_lower_case"]
    # Google's directories are named, for example, uncased_L-12_H-768_A-12.
    name = folder.resolve().name.lower()
    words = set(re.findall(r"(?<![a-z])(?:un)?cased(?![a-z])", name))
    if len(words) != 1:
        raise ValueError(
            "nothing says whether the vocabulary is cased (the names of Google's "
            f'directories do); write {{"do_lower_case": true}} into {path}, or false '
            "if it is cased."
        )
    return words == {"cased"}

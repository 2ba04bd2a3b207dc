"""Read and write the settings by which a model makes one vector per text.

These are the files of sentence-transformers: `modules.json` lists the modules that
follow the model, and each module has a directory with a `config.json`.
"""

import dataclasses
import os
from typing import Literal

from etils import epath

from bert_jax.config import BertConfig
from bert_jax.config.checks import require_types
from bert_jax.formats.model_files import read_object, read_object_or_empty, read_values
from bert_jax.storage.files import JsonObject, write_json
from bert_jax.storage.manifest import escapes, is_confined

Pooling = Literal["mean", "cls"]

MODULES, POOLING_CONFIG = "modules.json", "1_Pooling/config.json"
GENERAL_CONFIG = "config_sentence_transformers.json"
TRANSFORMER_CONFIG = "sentence_bert_config.json"
EMBEDDING_FILES = (MODULES, POOLING_CONFIG, GENERAL_CONFIG, TRANSFORMER_CONFIG)
_MODULES = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]
"""The supported modules, of which the last is optional, and their directories."""
_MODE_OF_FLAG = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""Keys of files before version 5.4, and the mode that each enables."""


@dataclasses.dataclass(frozen=True)
class Embedding:
    """The defaults of `Predictor.embed`."""

    pooling: Pooling = "mean"
    """The mean of the real tokens' hidden states, or the hidden state of [CLS]."""
    normalize: bool = False
    """Whether vectors are divided by their L2 norm."""
    unsupported: str = ""
    """What the model's files require and bert_jax does not compute."""
    max_tokens: int | None = None
    """Texts are cut to this length, with [CLS] and [SEP]; None: they are not cut."""

    def __post_init__(self) -> None:
        require_types(self)

    def chosen(self, pooling: str | None, normalize: bool | None) -> tuple[str, bool]:
        """Return the arguments; for each None, what the model's files say.

        Raises:
            ValueError: `pooling` is unknown; or an argument is None, and the files need
                what the library does not compute.
        """
        if self.unsupported and (pooling is None or normalize is None):
            raise ValueError(
                f"The model's files require {self.unsupported}, which embed does not "
                "compute; pass both pooling and normalize for another vector."
            )
        pooling = self.pooling if pooling is None else pooling
        if pooling not in ("mean", "cls"):
            raise ValueError(f"pooling={pooling!r:.80} must be 'mean' or 'cls'.")
        return pooling, self.normalize if normalize is None else normalize


def model_directory(root: epath.Path) -> epath.Path:
    """Return the directory of the model's own files.

    That is `root`, or the directory of the first module in its `modules.json`.

    Raises:
        ValueError: that file is damaged, or names a directory outside of `root`.
    """
    if (root / "config.json").exists() or not (root / MODULES).exists():
        return root
    modules = _read_modules(root / MODULES)
    return root / modules[0][1] if modules[:1] and modules[0][1] else root


def embedding_files(root: epath.Path) -> list[str]:
    """Return the files of sentence-transformers that a model's directory holds."""
    if not (root / MODULES).exists():
        return []
    names = [GENERAL_CONFIG]
    configs = (TRANSFORMER_CONFIG, "config.json")
    for (_, path), name in zip(_read_modules(root / MODULES), configs, strict=False):
        names.append(os.path.join(path, name))
    return [MODULES, *(name for name in names if (root / name).exists())]


def read_embedding(
    directory: epath.Path, cased: bool, positions: int
) -> Embedding | None:
    """Return how a model makes vectors; None if its files do not specify it.

    Args:
        directory: the root, which holds `modules.json`.
        cased: whether the tokenizer keeps case.
        positions: the maximum number of tokens of the model.

    Raises:
        FileNotFoundError: a file that `modules.json` names is missing.
        ValueError: a file is damaged.
    """
    path = directory / MODULES
    if not path.exists():
        return _embedding_of_parent(directory.absolute())
    modules = _read_modules(path)
    kinds = [kind for kind, _ in modules]
    supported = [kind for kind, _ in _MODULES]
    if kinds not in (supported, supported[:2]):
        listed = ", ".join(f"{kind} in {module!r}" for kind, module in modules)
        return Embedding(unsupported=f"the modules {listed}")
    modes = _pooling_modes(directory / modules[1][1] / "config.json")
    general = read_object_or_empty(directory / GENERAL_CONFIG)
    folder = directory / modules[0][1]
    own = read_object_or_empty(folder / TRANSFORMER_CONFIG)
    tokenizer = read_object_or_empty(folder / "tokenizer_config.json")
    unsupported = _unsupported_changes(general, own, tokenizer, cased)
    if modes not in (["mean"], ["cls"]):
        unsupported.append(f"pooling by {' and '.join(modes)}")
    if unsupported:
        return Embedding(unsupported=" and ".join(unsupported))
    pooling: Pooling = "mean" if modes == ["mean"] else "cls"
    limit = _max_tokens(own, tokenizer, positions, directory)
    return Embedding(pooling, normalize=kinds == supported, max_tokens=limit)


def _embedding_of_parent(directory: epath.Path) -> Embedding | None:
    """Return an unsupported Embedding if the directory is a module of its parent's."""
    path = directory.parent / MODULES
    modules = _read_modules(path) if path.exists() else []
    if directory.name not in [module for _, module in modules]:
        return None
    remedy = f"load {directory.parent} to have it"
    return Embedding(unsupported=f"what {path} lists ({remedy})")


def _max_tokens(
    own: JsonObject, tokenizer: JsonObject, positions: int, path: epath.Path
) -> int:
    """Return the length to which sentence-transformers cuts a text."""
    limit = own.get("max_seq_length")
    if limit is None:
        limit = tokenizer.get("model_max_length", positions)
    if type(limit) not in (int, float) or not limit > 2:
        raise ValueError(
            f"{path}: max_seq_length={limit!r:.80} must be a number of tokens greater "
            f"than 2; correct {TRANSFORMER_CONFIG}, or model_max_length in "
            "tokenizer_config.json."
        )
    return int(min(limit, positions))


def write_embedding(
    embedding: Embedding, directory: epath.Path, config: BertConfig
) -> None:
    """Write the files with which sentence-transformers makes the same vectors.

    Args:
        directory: that of the model's own files.
    """
    listed = []
    for i, (kind, path) in enumerate(_MODULES if embedding.normalize else _MODULES[:2]):
        cls = f"sentence_transformers.models.{kind}"
        listed.append({"idx": i, "name": str(i), "path": path, "type": cls})
    write_json(listed, directory / MODULES)
    (directory / POOLING_CONFIG).parent.mkdir()
    modes = {flag: mode == embedding.pooling for flag, mode in _MODE_OF_FLAG.items()}
    width = {"word_embedding_dimension": config.hidden_size}
    write_json(width | modes, directory / POOLING_CONFIG)
    max_tokens = embedding.max_tokens or config.max_position_embeddings
    limits = {"max_seq_length": max_tokens, "do_lower_case": False}
    write_json(limits, directory / TRANSFORMER_CONFIG)


def _read_modules(path: epath.Path) -> list[tuple[str, str]]:
    """Return the class and the directory of each module in a `modules.json`."""
    values = read_values(path)
    modules = []
    for entry in values if isinstance(values, list) else [None]:
        fields = entry if isinstance(entry, dict) else {}
        kind, directory = fields.get("type"), fields.get("path")
        if not isinstance(kind, str) or not isinstance(directory, str):
            raise ValueError(
                f"{path} must be a list of modules, each with a type and a path; "
                "fetch it again."
            )
        root = path.parent
        confined = is_confined(directory) and not escapes(root, root / directory)
        if directory and not confined:
            raise ValueError(
                f"{path} names {directory!r:.80}, outside of {root}; move the module's "
                "files below it, and correct the path."
            )
        package, _, name = kind.rpartition(".")
        # A class of another package may compute anything, so its full name is kept.
        is_known = package.split(".")[0] == "sentence_transformers"
        modules.append((name if is_known else kind, directory))
    return modules


def _pooling_modes(path: epath.Path) -> list[str]:
    """Return the modes whose vectors are concatenated; the default is the mean."""
    if not path.exists():
        raise FileNotFoundError(
            f"{path} is missing, which configures the pooling; fetch it again."
        )
    values = read_object(path)
    value = values.get("pooling_mode")
    if value is None:
        enabled = [mode for flag, mode in _MODE_OF_FLAG.items() if values.get(flag)]
        value = enabled or ["mean"]
    modes = [value] if isinstance(value, str) else value
    if not isinstance(modes, list) or not all(isinstance(mode, str) for mode in modes):
        raise ValueError(
            f"{path}: pooling_mode={value!r} must be a name; correct the file."
        )
    return modes


def _unsupported_changes(
    general: JsonObject, own: JsonObject, tokenizer: JsonObject, cased: bool
) -> list[str]:
    """Return the changes to a text before tokenization that bert_jax does not make."""
    changes = []
    name, prompts = general.get("default_prompt_name"), general.get("prompts") or {}
    known = isinstance(name, str) and isinstance(prompts, dict)
    if name is not None and (not known or prompts.get(name)):
        changes.append(f"the prompt {name!r} before each text")
    if own.get("do_lower_case") and cased:
        changes.append("lower case of a cased vocabulary")
    if tokenizer.get("truncation_side") not in (None, "right"):
        changes.append("long texts cut off at their beginning")
    return changes

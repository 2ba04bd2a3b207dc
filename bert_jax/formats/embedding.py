"""How a model makes one vector of a text, as sentence-transformers' files say it.

`modules.json` lists what follows upon the model; each module has a directory with a
`config.json` of its own.
"""

import dataclasses
import json
import os
from typing import Any, Literal

from etils import epath

from bert_jax.config import BertConfig
from bert_jax.config.checks import require_types
from bert_jax.formats.model_files import read_object, read_values
from bert_jax.storage.files import write_json
from bert_jax.storage.manifest import is_confined, leaves

Pooling = Literal["mean", "cls"]

MODULES, POOLING_CONFIG = "modules.json", "1_Pooling/config.json"
OTHERS = ("config_sentence_transformers.json", "sentence_bert_config.json")
_FIRST = [("Transformer", ""), ("Pooling", "1_Pooling")]
_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""Keys of files before version 5.4, and the modes that they switch on."""


@dataclasses.dataclass(frozen=True)
class Embedding:
    """What `Predictor.embed` does where nobody says otherwise."""

    pooling: Pooling = "mean"
    """The mean of the real tokens' hidden states, or that of [CLS]."""
    normalize: bool = False
    """Whether vectors are divided by their L2 norm."""
    unsupported: str = ""
    """What the model's files ask for beyond that, which we do not compute."""
    max_tokens: int | None = None
    """Where a text is cut off, [CLS] and [SEP] among them; None: it never is."""

    def __post_init__(self) -> None:
        require_types(self)


def model_directory(root: epath.Path) -> epath.Path:
    """Where the model's own files lie: `root`, or what its `modules.json` names first.

    Raises:
        ValueError: that file is damaged, or names a directory outside of `root`.
    """
    if (root / "config.json").exists() or not (root / MODULES).exists():
        return root
    modules = _modules(root / MODULES)
    return root / modules[0][1] if modules[:1] and modules[0][1] else root


def embedding_files(root: epath.Path) -> list[str]:
    """Which of sentence-transformers' files a model's directory holds."""
    if not (root / MODULES).exists():
        return []
    places = [place for _, place in _modules(root / MODULES)]
    names = [OTHERS[0], *(os.path.join(place, OTHERS[1]) for place in places[:1])]
    names += [os.path.join(place, "config.json") for place in places[1:2]]
    return [MODULES, *(name for name in names if (root / name).exists())]


def read_embedding(
    directory: epath.Path, cased: bool, positions: int
) -> Embedding | None:
    """What a model's directory says of its vectors; None where it says nothing.

    Args:
        directory: the root, where `modules.json` lies.
        cased: whether the tokenizer keeps case.
        positions: as many tokens as the model takes.

    Raises:
        FileNotFoundError: a file that `modules.json` names is missing.
        ValueError: a file is damaged.
    """
    path = directory / MODULES
    if not path.exists():
        above = directory.absolute().parent / MODULES
        places = [place for _, place in _modules(above)] if above.exists() else []
        named = directory.absolute().name in places
        asked = f"what {above} lists (load {above.parent} to have it)"
        return Embedding(unsupported=asked) if named else None
    modules = _modules(path)
    kinds = [kind for kind, _ in modules]
    normalize = kinds[2:] == ["Normalize"]
    if kinds[:2] != [kind for kind, _ in _FIRST] or (kinds[2:] and not normalize):
        listed = ", ".join(f"{kind} in {place!r}" for kind, place in modules)
        return Embedding(unsupported=f"the modules {listed}")
    modes = _pooling_modes(directory / modules[1][1] / "config.json")
    general, own, tokenizer = (
        read_object(file) if file.exists() else {}
        for file in (
            directory / OTHERS[0],
            directory / modules[0][1] / OTHERS[1],
            directory / modules[0][1] / "tokenizer_config.json",
        )
    )
    changes = _changes_to_texts(general, own, tokenizer, cased)
    if modes not in (["mean"], ["cls"]):
        changes.append(f"pooling by {' and '.join(modes)}")
    if changes:
        return Embedding(unsupported=" and ".join(changes))
    pooling: Pooling = "mean" if modes == ["mean"] else "cls"
    limit = _max_tokens(own, tokenizer, positions, directory)
    return Embedding(pooling, normalize, max_tokens=limit)


def _max_tokens(
    own: dict[str, Any], tokenizer: dict[str, Any], positions: int, path: epath.Path
) -> int:
    """Where the library cuts a text off."""
    limit = own.get("max_seq_length")
    if limit is None:
        limit = tokenizer.get("model_max_length", positions)
    if type(limit) not in (int, float) or not limit > 2:
        raise ValueError(
            f"{path}: max_seq_length={limit!r:.80} must be a number of tokens greater "
            f"than 2; mend {OTHERS[1]}, or model_max_length in tokenizer_config.json."
        )
    return int(min(limit, positions))


def write_embedding(
    embedding: Embedding, directory: epath.Path, config: BertConfig
) -> None:
    """Write the files by which sentence-transformers makes the same vectors.

    Args:
        directory: where the model's own files lie.
    """
    modules = _FIRST + [("Normalize", "2_Normalize")] * embedding.normalize
    listed = [
        {
            "idx": i,
            "name": str(i),
            "path": path,
            "type": f"sentence_transformers.models.{kind}",
        }
        for i, (kind, path) in enumerate(modules)
    ]
    (directory / MODULES).write_text(json.dumps(listed, indent=2) + "\n")
    (directory / POOLING_CONFIG).parent.mkdir()
    modes = {key: mode == embedding.pooling for key, mode in _FLAGS.items()}
    width = {"word_embedding_dimension": config.hidden_size}
    write_json(width | modes, directory / POOLING_CONFIG)
    longest = embedding.max_tokens or config.max_position_embeddings
    limits = {"max_seq_length": longest, "do_lower_case": False}
    write_json(limits, directory / OTHERS[1])


def _modules(path: epath.Path) -> list[tuple[str, str]]:
    """The class and directory of each module in turn."""
    listed = read_values(path)
    found = []
    for entry in listed if isinstance(listed, list) else [None]:
        kind, place = (
            (entry.get("type"), entry.get("path"))
            if isinstance(entry, dict)
            else (None, None)
        )
        if not isinstance(kind, str) or not isinstance(place, str):
            raise ValueError(
                f"{path} must be a list of modules, each with a type and a path; "
                "fetch it again."
            )
        _check_place(path, place)
        package, _, name = kind.rpartition(".")
        ours = package.split(".")[0] == "sentence_transformers"
        # A class of the model's own may compute anything, whatever it is called.
        found.append((name if ours else kind, place))
    return found


def _check_place(path: epath.Path, place: str) -> None:
    """Refuse a directory that is not the one of `path`, nor below it."""
    root = path.parent
    if place and (not is_confined(place) or leaves(root, root / place)):
        raise ValueError(
            f"{path} names {place!r:.80}, outside of {root}; put the module's files "
            "below it, and its path there."
        )


def _pooling_modes(path: epath.Path) -> list[str]:
    """The modes whose vectors are joined; as there, the mean where none is named."""
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing, and pools; fetch it again.")
    values = read_object(path)
    said: Any = values.get("pooling_mode")
    if said is None:
        said = [mode for key, mode in _FLAGS.items() if values.get(key)] or ["mean"]
    modes = [said] if isinstance(said, str) else said
    if not isinstance(modes, list) or not all(isinstance(mode, str) for mode in modes):
        raise ValueError(
            f"{path}: pooling_mode={said!r} must be a name; mend the file."
        )
    return modes


def _changes_to_texts(
    general: dict[str, Any],
    own: dict[str, Any],
    tokenizer: dict[str, Any],
    cased: bool,
) -> list[str]:
    """What happens to a text there before it becomes ids, that we do not do."""
    found = []
    name, prompts = general.get("default_prompt_name"), general.get("prompts") or {}
    known = isinstance(name, str) and isinstance(prompts, dict)
    if name is not None and (not known or prompts.get(name)):
        found.append(f"the prompt {name!r} before each text")
    if own.get("do_lower_case") and cased:
        found.append("lower case of a cased vocabulary")
    if tokenizer.get("truncation_side") not in (None, "right"):
        found.append("long texts cut off at their beginning")
    return found

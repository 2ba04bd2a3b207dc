"""How a model makes one vector of a text, as sentence-transformers' files say it.

`modules.json` lists what follows upon the model; each module has a directory with a
`config.json` of its own.
"""

import dataclasses
import json
from typing import Any, Literal

from etils import epath

from bert_jax.checks import require_types
from bert_jax.config import BertConfig
from bert_jax.config_json import write_json
from bert_jax.convert.model_files import read_json

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

    def __post_init__(self) -> None:
        require_types(self)


def embedding_files(directory: epath.Path) -> list[str]:
    """Which of sentence-transformers' files a model's directory holds."""
    if not (directory / MODULES).exists():
        return []
    names = (POOLING_CONFIG, *OTHERS)
    return [MODULES, *(name for name in names if (directory / name).exists())]


def read_embedding(directory: epath.Path, cased: bool) -> Embedding | None:
    """What a model's directory says of its vectors; None where it says nothing.

    Args:
        cased: whether the tokenizer keeps case.

    Raises:
        FileNotFoundError: a file that `modules.json` names is missing.
        ValueError: a file is damaged.
    """
    path = directory / MODULES
    if not path.exists():
        above = directory.absolute().parent / MODULES
        places = [place for _, place in _modules(above)] if above.exists() else []
        named = directory.absolute().name in places
        return Embedding(unsupported=f"what {above} lists") if named else None
    modules = _modules(path)
    normalize = [kind for kind, _ in modules[2:]] == ["Normalize"]
    if modules[:2] != _FIRST or (modules[2:] and not normalize):
        listed = ", ".join(f"{kind} in {place!r}" for kind, place in modules)
        return Embedding(unsupported=f"the modules {listed}")
    modes = _pooling_modes(directory / POOLING_CONFIG)
    asked = _changes_to_texts(directory, cased)
    if modes not in (["mean"], ["cls"]):
        asked.append(f"pooling by {' and '.join(modes)}")
    if asked:
        return Embedding(unsupported=" and ".join(asked))
    return Embedding("mean" if modes == ["mean"] else "cls", normalize)


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
    longest = config.max_position_embeddings
    limits = {"max_seq_length": longest, "do_lower_case": False}
    write_json(limits, directory / OTHERS[1])


def _modules(path: epath.Path) -> list[tuple[str, str]]:
    """The class and directory of each module in turn."""
    try:
        listed = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}; fetch it again.") from error
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
        package, _, name = kind.rpartition(".")
        ours = package.split(".")[0] == "sentence_transformers"
        # A class of the model's own may compute anything, whatever it is called.
        found.append((name if ours else kind, place))
    return found


def _pooling_modes(path: epath.Path) -> list[str]:
    """The modes whose vectors are joined; as there, the mean where none is named."""
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing, and pools; fetch it again.")
    values = read_json(path)
    said: Any = values.get("pooling_mode")
    if said is None:
        said = [mode for key, mode in _FLAGS.items() if values.get(key)] or ["mean"]
    modes = [said] if isinstance(said, str) else said
    if not isinstance(modes, list) or not all(isinstance(mode, str) for mode in modes):
        raise ValueError(
            f"{path}: pooling_mode={said!r} must be a name; mend the file."
        )
    return modes


def _changes_to_texts(directory: epath.Path, cased: bool) -> list[str]:
    """What happens to a text there before the tokenizer sees it."""
    general, own = (
        read_json(directory / name) if (directory / name).exists() else {}
        for name in OTHERS
    )
    found = []
    name, prompts = general.get("default_prompt_name"), general.get("prompts") or {}
    if name is not None and (not isinstance(prompts, dict) or prompts.get(name)):
        found.append(f"the prompt {name!r} before each text")
    if own.get("do_lower_case") and cased:
        found.append("lower case of a cased vocabulary")
    return found

"""Read and write the settings by which a model makes one vector per text.

These are the files of sentence-transformers: `modules.json` lists the modules that
follow the model, and each module has a directory with a `config.json`.
"""

import contextlib
import os
from collections.abc import Sequence
from typing import Any, get_args

from etils import epath

from bert_jax.config import BertConfig
from bert_jax.config.embedding import Embedding, Pooling, Similarity
from bert_jax.formats.model_files import read_object, read_object_or_empty, read_values
from bert_jax.storage.files import JsonObject, write_json
from bert_jax.storage.manifest import escapes, is_confined

MODULES, POOLING_CONFIG = "modules.json", "1_Pooling/config.json"
GENERAL_CONFIG = "config_sentence_transformers.json"
TRANSFORMER_CONFIGS = tuple(
    f"sentence_{name}_config.json"
    for name in "bert roberta distilbert camembert albert xlm-roberta xlnet".split()
)
"""Names of one file, of which sentence-transformers reads the first that is there."""
TOKENIZER_CONFIG = "tokenizer_config.json"
_NO_LIMIT = 10**6
"""Tokens; transformers writes 1e30 for a tokenizer without a limit."""
EMBEDDING_FILES = (MODULES, POOLING_CONFIG, GENERAL_CONFIG, *TRANSFORMER_CONFIGS)
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


def model_directory(root: epath.Path) -> epath.Path:
    """Return the directory of the model's own files.

    That is `root`, or the directory of the first module in its `modules.json`. Raise
    ValueError if that file is damaged, or names a directory outside of `root`.
    """
    if (root / "config.json").exists() or not (root / MODULES).exists():
        return root
    modules = _read_modules(root / MODULES)
    return root / modules[0][1] if modules[:1] and modules[0][1] else root


def embedding_files(root: epath.Path) -> list[str]:
    """Return the files of sentence-transformers that a model's directory holds."""
    if not (root / MODULES).exists():
        return []
    modules = _read_modules(root / MODULES)
    names = [GENERAL_CONFIG]
    names += [os.path.join(p, _own_config(root / p).name) for _, p in modules[:1]]
    names += [os.path.join(path, "config.json") for _, path in modules[1:2]]
    return [MODULES, *(name for name in names if (root / name).exists())]


def _own_config(directory: epath.Path) -> epath.Path:
    """Return the file of sentence-transformers beside a model, which may be absent."""
    paths = [directory / name for name in TRANSFORMER_CONFIGS]
    return next((path for path in paths if path.exists()), paths[0])


def read_embedding(
    directory: epath.Path, cased: bool, positions: int
) -> Embedding | None:
    """Return how a model makes vectors; None if its files do not specify it.

    The `directory` holds `modules.json`; the tokenizer may keep case, and the model
    takes `positions` tokens. Raise FileNotFoundError if a file that `modules.json`
    names is missing, or ValueError if one is damaged.
    """
    if not (directory / MODULES).exists():
        directory = directory.absolute()
        path = directory.parent / MODULES
        modules = _read_modules(path) if path.exists() else []
        if directory.name not in [module for _, module in modules]:
            return None
        remedy = f"load {directory.parent} to have it"
        return Embedding(unsupported=f"what {path} lists ({remedy})")
    modules = _read_modules(directory / MODULES)
    kinds, supported = [kind for kind, _ in modules], [kind for kind, _ in _MODULES]
    if kinds in (supported, supported[:2]):
        return _embedding_of(directory, modules, cased, positions)
    listed = ", ".join(f"{kind} in {module!r}" for kind, module in modules)
    if kinds[:2] == supported[:2]:
        # What is damaged of a model whose vectors are not computed does not matter.
        with contextlib.suppress(ValueError, FileNotFoundError):
            others = [f"the modules {listed}"]
            return _embedding_of(directory, modules, cased, positions, others)
    return Embedding(unsupported=f"the modules {listed}")


def _embedding_of(
    directory: epath.Path,
    modules: Sequence[tuple[str, str]],
    cased: bool,
    positions: int,
    others: Sequence[str] = (),
) -> Embedding:
    """Return the vectors of a model, then a pooling, and perhaps a normalization."""
    modes, pool_prompt = _pooling(directory / modules[1][1] / "config.json")
    general = read_object_or_empty(directory / GENERAL_CONFIG)
    folder = directory / modules[0][1]
    own = read_object_or_empty(_own_config(folder))
    tokenizer = read_object_or_empty(folder / TOKENIZER_CONFIG)
    unsupported = []  # changes to a text that bert_jax does not make
    if own.get("do_lower_case") and cased:
        unsupported.append("lower case of a cased vocabulary")
    if tokenizer.get("truncation_side") not in (None, "right"):
        unsupported.append("long texts cut off at their beginning")
    if modes not in (["mean"], ["cls"]):
        unsupported.append(f"pooling by {' and '.join(modes)}")
    pooling: Pooling = "cls" if modes == ["cls"] else "mean"
    prompts = _prompts(general, directory / GENERAL_CONFIG)
    max_tokens = _max_tokens(own, tokenizer, positions, directory)
    similarity: Similarity | None = general.get("similarity_fn_name")
    if similarity not in (None, *get_args(Similarity)):
        raise ValueError(
            f"{directory / GENERAL_CONFIG}: similarity_fn_name={similarity!r:.80} must "
            f"be one of {', '.join(get_args(Similarity))}; correct the file."
        )
    return Embedding(
        pooling,
        normalize=len(modules) == len(_MODULES),
        unsupported=" and ".join([*unsupported, *others]),
        max_tokens=max_tokens,
        prompt_names=tuple(prompts),
        prompt_texts=tuple(prompts.values()),
        default_prompt=general.get("default_prompt_name") or "",
        pool_prompt=pool_prompt,
        similarity=similarity or "cosine",  # as in the library
    )


def _prompts(general: JsonObject, path: epath.Path) -> dict[str, str]:
    prompts = general.get("prompts") or {}
    texts = prompts.values() if isinstance(prompts, dict) else [prompts]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(
            f"{path}: prompts={prompts!r:.80} must be an object of texts by name; "
            "correct the file."
        )
    default = general.get("default_prompt_name")
    is_known = isinstance(default, str) and default in prompts
    if default is not None and not is_known:
        raise ValueError(
            f"{path}: default_prompt_name={default!r:.80} is none of its prompts "
            f"({', '.join(prompts) or 'there are none'}); correct the file."
        )
    return prompts


def _max_tokens(
    own: JsonObject, tokenizer: JsonObject, positions: int, path: epath.Path
) -> int:
    """Return the length to which sentence-transformers cuts a text."""
    limits = own.get("max_seq_length"), _tokenizer_limit(tokenizer), positions
    limit = next(limit for limit in limits if limit is not None)
    if type(limit) not in (int, float) or not limit > 2:
        raise ValueError(
            f"{path}: max_seq_length={limit!r:.80} must be a number of tokens greater "
            f"than 2; correct {TRANSFORMER_CONFIGS[0]}, or model_max_length in "
            "tokenizer_config.json."
        )
    return int(min(limit, positions))


def _tokenizer_limit(tokenizer: JsonObject) -> Any:
    # max_len is its name of 2019.
    return tokenizer.get("model_max_length", tokenizer.get("max_len"))


def stated_length(root: epath.Path) -> int:
    """Return the length to which a model's files say to cut texts; 0: they do not."""
    directory = model_directory(root)
    own = read_object_or_empty(_own_config(directory))
    tokenizer = read_object_or_empty(directory / TOKENIZER_CONFIG)
    for limit in (own.get("max_seq_length"), _tokenizer_limit(tokenizer)):
        if isinstance(limit, int | float) and 2 < limit < _NO_LIMIT:
            return int(limit)
    return 0


def write_embedding(
    embedding: Embedding, directory: epath.Path, config: BertConfig
) -> None:
    """Write the files with which sentence-transformers makes the same vectors."""
    listed = []
    for i, (kind, path) in enumerate(_MODULES if embedding.normalize else _MODULES[:2]):
        cls = f"sentence_transformers.models.{kind}"
        listed.append({"idx": i, "name": str(i), "path": path, "type": cls})
    write_json(listed, directory / MODULES)
    (directory / POOLING_CONFIG).parent.mkdir()
    modes = {flag: mode == embedding.pooling for flag, mode in _MODE_OF_FLAG.items()}
    own = {
        "word_embedding_dimension": config.hidden_size,
        "include_prompt": embedding.pool_prompt,
    }
    write_json(own | modes, directory / POOLING_CONFIG)
    max_tokens = embedding.max_tokens or config.max_position_embeddings
    limits = {"max_seq_length": max_tokens, "do_lower_case": False}
    write_json(limits, directory / TRANSFORMER_CONFIGS[0])
    general: JsonObject = {"similarity_fn_name": embedding.similarity}
    if embedding.prompt_names:
        default = embedding.default_prompt or None
        general |= {"prompts": embedding.prompts, "default_prompt_name": default}
    write_json(general, directory / GENERAL_CONFIG)


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


def _pooling(path: epath.Path) -> tuple[list[str], bool]:
    """Return the modes whose vectors are concatenated, and whether prompts are pooled.

    The defaults are the mean, and true.
    """
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
    pool_prompt = values.get("include_prompt", True)
    if not isinstance(pool_prompt, bool):
        raise ValueError(
            f"{path}: include_prompt={pool_prompt!r:.80} must be true or false; "
            "correct the file."
        )
    return modes, pool_prompt

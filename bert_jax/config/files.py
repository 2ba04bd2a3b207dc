"""Read configuration files: Python, or the JSON that a run writes.

A file of the package's `configs/` can be named: bert-base-128 is bert_base_128.py.
"""

import ast
import json
import os
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, get_args

from bert_jax.config.checks import did_you_mean, quoted
from bert_jax.config.finetuning import FinetuneConfig, TaskName
from bert_jax.config.serialization import from_dict

HISTORY = "history"
"""The key of the history of a run in its config.json."""

CONFIGS = Path(__file__).parents[1] / "configs"
"""The configurations that are installed with the package."""

TASKS: tuple[str, ...] = get_args(TaskName)

ConfigT = TypeVar("ConfigT")


def named_configs() -> dict[str, Path]:
    """Return the configurations of the package by name, with hyphens."""
    files = sorted(CONFIGS.glob("*.py"))
    return {path.stem.replace("_", "-"): path for path in files}


def read_purpose(path: Path) -> tuple[str, tuple[str, ...]]:
    """Return the first line of a configuration's docstring, and the verbs it names.

    The file is not executed.
    """
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    lines = docstring.splitlines() or [""]
    return lines[0], tuple(re.findall(r"^ *bert-jax (\w+) configs/", docstring, re.M))


def is_named(name: str) -> bool:
    """Return whether the package has a configuration of that name."""
    return name.replace("_", "-") in named_configs()


def load_config(path: str, config_class: type[ConfigT]) -> ConfigT:
    """Return the configuration of a Python file, or of the config.json of a run.

    A Python file binds it to the name `config`; a path may be the name of one of the
    package. Raise ValueError if the file is missing, fails, exits, or holds no
    `config_class`.
    """
    if not Path(path).is_file():
        named, name = named_configs(), path.replace("_", "-")
        if name not in named:
            stem = Path(path).stem.replace("_", "-")
            hint = did_you_mean(stem, tuple(named)) or "."
            raise ValueError(
                f"{path} is not a file; name a configuration file, or one that "
                f"`bert-jax configs` lists{hint}"
            )
        path = str(named[name])
    if path.endswith(".json"):
        return _load_json(path, config_class)
    try:
        config = runpy.run_path(path).get("config")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit too: the run has not started
        reason = f"{type(error).__name__}: {error}".rstrip(": ")
        end = " Correct it." if reason.endswith((".", "?")) else "; correct it."
        raise ValueError(f"{path} fails: {reason}{end}") from error
    if not isinstance(config, config_class):
        raise ValueError(
            f"{path} must bind the name config to a {config_class.__name__}."
        )
    return config


def given_config(
    config: object, config_class: type[ConfigT], read: Callable[[str], ConfigT]
) -> ConfigT:
    """Return a configuration as it is, and what `read` makes of a name or a path.

    Raise ValueError if it is none of these, or where `read` does.
    """
    if isinstance(config, str | os.PathLike):
        config = read(os.fspath(config))
    if not isinstance(config, config_class):
        raise ValueError(
            f"config={config!r:.80} must be a {config_class.__name__}, or the name or "
            "the file of one."
        )
    return config


def finetuning_config(name: str) -> FinetuneConfig:
    """Return the paper's configuration for a task, or the configuration in a file.

    Raise ValueError if there is none, the file fails, or is of pretraining.
    """
    if name.endswith((".py", ".json")) or is_named(name):
        return load_config(name, FinetuneConfig)
    if name not in TASKS:
        hint = did_you_mean(name, (*TASKS, *named_configs())) or "."
        raise ValueError(
            f"{name!r} is neither a task ({', '.join(TASKS)}) nor a configuration, "
            f"as `bert-jax configs` lists{hint}"
        )
    config = FinetuneConfig(task=name, rate_by_size=True)  # type: ignore[arg-type]
    if name == "question-answering":  # Devlin et al. 2018, §4.2, and its code
        return config.changed(num_epochs=2.0)
    return config


def _object_of_unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values: dict[str, object] = {}
    for name, value in pairs:
        if name in values:
            raise ValueError(f"the key {quoted(name)} occurs twice in an object")
        values[name] = value
    return values


def _load_json(path: str, config_class: type[ConfigT]) -> ConfigT:
    try:
        content = Path(path).read_bytes()
        values = json.loads(content, object_pairs_hook=_object_of_unique_keys)
        if not isinstance(values, dict):
            raise ValueError(f"it holds {quoted(values)}, not a JSON object")
        for name in (HISTORY, "embedding"):  # of a run, and of a model that was saved
            values.pop(name, None)
        return from_dict(config_class, values)
    except (ValueError, TypeError, RecursionError) as error:
        reason = " ".join(str(error).split())
        end = "" if reason.endswith((".", "?")) else "."
        raise ValueError(
            f"{path} holds no {config_class.__name__}: {reason}{end} Name the "
            "config.json of a run, or a Python file."
        ) from error

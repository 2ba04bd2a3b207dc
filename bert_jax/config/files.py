"""Read configuration files: Python, or the JSON that a run writes."""

import json
import runpy
from pathlib import Path
from typing import TypeVar

from bert_jax.config.checks import quoted
from bert_jax.config.serialization import from_dict

HISTORY = "history"
"""The key of the history of a run in its config.json."""

ConfigT = TypeVar("ConfigT")


def load_config(path: str, config_class: type[ConfigT]) -> ConfigT:
    """Return the configuration of a Python file, or of the config.json of a run.

    A Python file binds it to the name `config`.

    Raises:
        ValueError: the file is missing, fails, exits, or holds no `config_class`.
    """
    if not Path(path).is_file():
        raise ValueError(f"{path} is not a file; name a configuration file.")
    if path.endswith(".json"):
        return _load_json(path, config_class)
    try:
        config = runpy.run_path(path).get("config")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit too: the run has not started
        reason = f"{type(error).__name__}: {error}".rstrip(": ")
        raise ValueError(f"{path} fails: {reason}; correct it.") from error
    if not isinstance(config, config_class):
        raise ValueError(
            f"{path} must bind the name config to a {config_class.__name__}."
        )
    return config


def _load_json(path: str, config_class: type[ConfigT]) -> ConfigT:
    try:
        values = json.loads(Path(path).read_bytes())
        if not isinstance(values, dict):
            raise ValueError(f"it holds {quoted(values)}, not a JSON object")
        values.pop(HISTORY, None)
        return from_dict(config_class, values)
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{path} holds no {config_class.__name__}: {' '.join(str(error).split())}"
            f"{'' if str(error).endswith('.') else '.'} Name the config.json of a run, "
            "or a Python file."
        ) from error

"""Read configuration files, which are Python."""

import runpy
from pathlib import Path
from typing import TypeVar

ConfigT = TypeVar("ConfigT")


def load_config(path: str, config_class: type[ConfigT]) -> ConfigT:
    """Return the object that a configuration file binds to the name `config`.

    Raises:
        ValueError: it is missing, fails, exits, or binds no `config_class`.
    """
    if not Path(path).is_file():
        raise ValueError(f"{path} is not a file; name a configuration file.")
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

"""The files that replace those of a fine-tuning."""

import dataclasses
from collections.abc import Sequence

from etils import epath

from bert_jax.cli.command import option_value
from bert_jax.config import ExamplesConfig
from bert_jax.config.checks import require


def with_other_files(
    data: ExamplesConfig, arguments: Sequence[str], verb: str
) -> ExamplesConfig:
    """Return the settings without the files that others are given for.

    Raises:
        ValueError: more than one argument names what to use.
    """
    places = ["--data.validation", "--data.test", "--data.path"]
    places += ["--input"] * (verb == "evaluate")
    values = {name: option_value(arguments, name) for name in places}
    named = {name: value for name, value in values.items() if value is not None}
    require(
        len(named) < 2,
        f"{' and '.join(named)} each name what to use; give one of them.",
    )
    was_directory = bool(data.path or data.glue)
    if named:
        data = dataclasses.replace(data, train="", validation="", test="")
    file = named.get("--input", "")
    if file.startswith("tfds:") or (
        was_directory and file and epath.Path(file).is_dir()
    ):
        return dataclasses.replace(data, path=file)
    if named and "--data.path" not in named:
        data = dataclasses.replace(data, path="", glue="")
    return dataclasses.replace(data, validation=file, test=file) if file else data

"""`bert-jax configs`."""

import ast
import dataclasses
import re
from pathlib import Path

from bert_jax.config.files import named_configs
from bert_jax.terminal.messages import say


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConfigsOptions:
    """List the configurations of the package. `pretrain` and `finetune` take a name or
    the path of a file; --print-config shows the values.
    """


def configs(options: ConfigsOptions) -> None:
    del options
    files = named_configs()
    width = max(map(len, files))
    for verb in ("pretrain", "finetune"):
        say(f"bert-jax {verb} NAME")
        for name, path in files.items():
            purpose, verbs = read_purpose(path)
            if verb in verbs:
                say(f"  {name:{width}}  {purpose}")


def read_purpose(path: Path) -> tuple[str, tuple[str, ...]]:
    """Return the first line of a configuration's docstring, and the verbs it names.

    The file is not executed.
    """
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    lines = docstring.splitlines() or [""]
    return lines[0], tuple(re.findall(r"^ *bert-jax (\w+) configs/", docstring, re.M))

"""What the maintainers' tools import of the package is there."""

import ast
import importlib
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.mark.parametrize(
    "path", sorted(TOOLS.rglob("*.py")), ids=lambda path: path.name
)
def test_what_a_tool_imports_of_the_package_is_there(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        module = (isinstance(node, ast.ImportFrom) and node.module) or ""
        if module.partition(".")[0] == "bert_jax":
            found = importlib.import_module(module)
            for name in (alias.name for alias in node.names):
                assert hasattr(found, name) or importlib.import_module(
                    f"{module}.{name}"
                )

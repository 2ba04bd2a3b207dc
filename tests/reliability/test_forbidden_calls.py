"""No way by which data could run a program: what the package may not call.

Configuration files are the stated exception: `config/files.py` runs them, by runpy.
"""

import ast
from pathlib import Path

import pytest

import bert_jax

MODULES = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal"}
CALLS = {
    "eval",
    "exec",
    "os.system",
    "os.popen",
    "yaml.load",
    "yaml.unsafe_load",
    "yaml.full_load",
    "joblib.load",
    "torch.load",
    "tempfile.mktemp",
    "pandas.read_pickle",
    "runpy.run_path",
    "runpy.run_module",
    "subprocess.getoutput",
    "subprocess.getstatusoutput",
}
KEYWORDS = {"allow_pickle", "shell"}
"""Arguments that may not be True, nor unknown before the program runs."""
EXCEPTIONS = {("config/files.py", "runpy.run_path")}


def full_names(tree: ast.AST) -> dict[str, str]:
    """What each imported name means, as `np` means numpy."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                names[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def dotted(node: ast.AST, names: dict[str, str]) -> str:
    """A name as it would be written without any `as`; empty for what is no name."""
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        holder = dotted(node.value, names)
        return f"{holder}.{node.attr}" if holder else ""
    return ""


def forbidden(source: str) -> list[str]:
    """What a program's text uses that it may not."""
    tree = ast.parse(source)
    names = full_names(tree)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [a.name for a in node.names if a.name.split(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom):
            if (node.module or "").split(".")[0] in MODULES:
                found.append(str(node.module))
        elif isinstance(node, ast.Name | ast.Attribute):
            # Not calls alone: a function may be handed on and called elsewhere.
            name = dotted(node, names).removeprefix("builtins.")
            found += [name] * (name in CALLS)
        elif isinstance(node, ast.Constant) and node.value in MODULES:
            found.append(f"the word {node.value!r}")  # for importlib
        elif isinstance(node, ast.keyword) and node.arg in KEYWORDS:
            off = isinstance(node.value, ast.Constant) and node.value.value is False
            found += [node.arg] * (not off)
    return found


SAMPLES = {
    "import pickle": "pickle",
    "import cPickle as p": "cPickle",
    "from pickle import loads": "pickle",
    "import dill": "dill",
    "importlib.import_module('pickle')": "the word 'pickle'",
    "eval(text)": "eval",
    "exec(text)": "exec",
    "import builtins\nbuiltins.eval(text)": "eval",
    "list(map(eval, lines))": "eval",
    "import yaml\nyaml.load(file)": "yaml.load",
    "from yaml import load\nload(file)": "yaml.load",
    "import torch\ntorch.load(path)": "torch.load",
    "import torch as t\nt.load(path)": "torch.load",
    "import joblib\njoblib.load(path)": "joblib.load",
    "import numpy as np\nnp.load(path, allow_pickle=True)": "allow_pickle",
    "import numpy as np\nnp.load(path, allow_pickle=trust)": "allow_pickle",
    "import subprocess\nsubprocess.run(text, shell=True)": "shell",
    "import os\nos.system(text)": "os.system",
    "from os import system\nsystem(text)": "os.system",
    "import tempfile\ntempfile.mktemp()": "tempfile.mktemp",
    "import runpy\nrunpy.run_path(path)": "runpy.run_path",
}


@pytest.mark.parametrize("source", SAMPLES)
def test_each_is_found(source):
    assert SAMPLES[source] in forbidden(source)


def test_what_is_like_them_is_not():
    good = "np.load(path, allow_pickle=False)\nmodel.eval()\nyaml.safe_load(file)\n"
    assert not forbidden(good + "evaluate(text)\nsubprocess.run(words, shell=False)")


def test_the_package_has_none_of_them(record_row):
    folder = Path(bert_jax.__file__).parent
    files = sorted(folder.rglob("*.py"))
    found = {
        (str(path.relative_to(folder)), name)
        for path in files
        for name in forbidden(path.read_text())
    }
    assert found == EXCEPTIONS
    record_row("AST: nothing that runs data", len(files), "none", "none found")

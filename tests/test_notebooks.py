"""The notebooks of examples/: well-formed, with small outputs, and they run."""

import ast
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from run_helpers import flags_for_one_device

import bert_jax

NOTEBOOKS = sorted(
    (Path(__file__).parent.parent / "examples/notebooks").glob("*.ipynb")
)
SECONDS = 1800
"""For one cell, on a busy machine."""

pytestmark = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def cells(path: Path, kind: str = "code") -> list[dict[str, Any]]:
    content = json.loads(path.read_text(encoding="utf-8"))
    return [cell for cell in content["cells"] if cell["cell_type"] == kind]


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def test_it_is_a_notebook_of_format_4(path):
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content["nbformat"] == 4 and content["nbformat_minor"] >= 5
    assert content["metadata"]["kernelspec"]["name"] == "python3"
    ids = [cell["id"] for cell in content["cells"]]
    assert len(set(ids)) == len(ids)
    nbformat = pytest.importorskip("nbformat", reason="the extra notebooks")
    nbformat.validate(nbformat.read(path, as_version=4))


def test_it_is_stored_with_small_outputs(path):
    """A reader sees what it prints and draws, and nothing of a machine or an error."""
    outputs = [output for cell in cells(path) for output in cell["outputs"]]
    pictures = [out for out in outputs if "image/png" in out.get("data", {})]
    assert len(pictures) >= 3
    assert not any(out["output_type"] == "error" for out in outputs)
    text = json.dumps(outputs)
    assert not re.search(r"/tmp/|/home/|/root/|Warning|WARNING|Traceback", text)
    assert path.stat().st_size < 200_000


def test_it_teaches(path):
    """It begins with a title, and there is text before most of the code."""
    content = json.loads(path.read_text(encoding="utf-8"))
    first = content["cells"][0]
    assert first["cell_type"] == "markdown" and source(first).startswith("# ")
    assert "offline" in source(first)
    assert len(cells(path, "markdown")) >= 0.6 * len(cells(path))
    text = "\n".join(source(cell) for cell in cells(path, "markdown"))
    if path.stem != "pretrain_language":
        assert "hf:google-bert/bert-base-uncased" in text
    for link in re.findall(r"\]\(([\w./]+)\)", text):
        assert (path.parent / link).exists(), link


def test_its_code_compiles_and_uses_public_names(path):
    """Nothing of `bert_jax` but what `bert_jax.__all__` has."""
    code = "\n".join(source(cell) for cell in cells(path))
    tree = ast.parse(code)
    compile(tree, path.name, "exec")
    used = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            assert not any(name.startswith("bert_jax.") for name in names)
        elif isinstance(node, ast.ImportFrom):
            assert not (node.module or "").startswith("bert_jax")
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == "bert_jax":
                used.add(node.attr)
    assert len(used) >= 5 and used <= set(bert_jax.__all__)
    assert max(map(len, code.splitlines())) <= 100


@pytest.mark.slow
def test_it_runs(path, tmp_path):
    """In a kernel of its own, in an empty directory, without a network."""
    nbformat = pytest.importorskip("nbformat", reason="the extra notebooks")
    nbclient = pytest.importorskip("nbclient", reason="the extra notebooks")
    pytest.importorskip("ipykernel", reason="the extra notebooks")
    notebook = nbformat.read(path, as_version=4)
    root = str(Path(__file__).parent.parent)
    environment = os.environ | {
        "PYTHONPATH": root,
        # As users have it. Eight devices on two busy cores can wait for each other in a
        # sum over devices until XLA ends the process after 40 s.
        "XLA_FLAGS": flags_for_one_device(),
        "HF_HUB_OFFLINE": "1",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    }
    client = nbclient.NotebookClient(
        notebook,
        timeout=SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    )
    client.execute(env=environment)
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", ())]
    pictures = [out for out in outputs if "image/png" in out.get("data", {})]
    assert len(pictures) >= 3
    assert not any(out["output_type"] == "error" for out in outputs)

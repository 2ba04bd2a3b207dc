"""The rooms of the package, each above what it imports, and what stays out of them."""

import ast
import functools
import graphlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "bert_jax"

# The core, from the ground up: a room, and the rooms below that it imports from.
ROOMS = {
    "terminal": "",
    "storage": "terminal",
    "config": "",
    "tokenization": "storage",
    "tables": "terminal storage",
    "data": "terminal storage tables config tokenization",
    "model": "config",
    "masking": "config model",
    "metrics": "",
    "distributed": "terminal storage config",
    "checkpoints": "storage config distributed",
    "formats": "storage config tokenization model",
    "pretrained": "storage config tokenization model checkpoints formats",
    "tasks": "storage tables config tokenization data model masking metrics",
    "reports": "terminal storage tasks",
    "training": "terminal storage tables config tokenization data model distributed "
    "checkpoints tasks",
    "inference": "terminal storage tables config tokenization data model metrics "
    "pretrained tasks reports",
    "runs": "terminal storage tables config tokenization data model distributed "
    "checkpoints pretrained tasks training inference",
    "cli": "terminal storage config data distributed tasks reports training "
    "inference runs",
    "__main__": "terminal cli",
}
APPS = "benchmark convert corpus demo dry_run experiments inspect run_page".split()
"""Each imports rooms of the core, and no other application."""
ENTRANCES = {("inference.predictor", "apps.convert.save")}
"""Besides `cli`, what of the core names an application: `Predictor.save`."""
NO_JAX = ("terminal", "storage", "config", "tokenization", "tables", "data", "metrics")
"""Rooms that import neither JAX nor Flax, at the top of a file or inside a function."""
JAX = {"jax", "jaxlib", "flax", "optax", "orbax", "chex"}
TENSORFLOW = {"tensorflow", "tensorflow_datasets", "keras"}


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for path in PACKAGE.rglob("*.py")}


def room_of(name: str) -> str:
    """The top folder or file of a module; what begins a process is one room.

    Each application is a room of its own.
    """
    if name.endswith("__main__") or name == "benchmark":
        return "__main__"
    return ".".join(name.split(".")[: 1 + name.startswith("apps.")])


@functools.cache
def imports(path: Path) -> set[str]:
    """Every module and name that a file imports, inside functions too."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            assert node.module
            names.add(node.module)
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func):
            names |= {a.value for a in node.args if isinstance(a, ast.Constant)}
    return names


def modules_of_ours(name: str) -> set[str]:
    """The modules of the package that a module imports."""
    ours = {module.removeprefix("bert_jax.") for module in imports(FILES[name])}
    return (ours & set(FILES)) - {"", name}


MODULES = sorted(set(FILES) - {""})


def test_the_table_goes_from_the_ground_up():
    below: set[str] = set()
    for room, imported in ROOMS.items():
        assert set(imported.split()) <= below, f"{room} imports from above itself"
        below.add(room)
    apps = {"apps", *(f"apps.{name}" for name in APPS)}
    assert {room_of(name) for name in MODULES} == set(ROOMS) | apps


@functools.cache
def arrows_between_rooms() -> set[tuple[str, str]]:
    return {
        (name, module)
        for name in MODULES
        for module in modules_of_ours(name)
        if room_of(module) != room_of(name)
    } - ENTRANCES


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_what_the_table_says(room):
    arrows = {
        (name, module)
        for name, module in arrows_between_rooms()
        if room_of(name) == room
    }
    actual = {room_of(module) for _, module in arrows}
    if room in ("cli", "__main__"):
        actual = {name for name in actual if not name.startswith("apps")}
    assert actual == set(ROOMS[room].split()), sorted(arrows)


def test_an_application_imports_the_core_and_no_other_one():
    between = {
        (name, module)
        for name, module in arrows_between_rooms()
        if name.startswith("apps.") and module.startswith("apps")
    }
    assert not between


def test_what_of_the_core_names_an_application_does_so():
    assert all(module in modules_of_ours(name) for name, module in ENTRANCES)


def test_no_modules_import_each_other():
    graph = {name: modules_of_ours(name) for name in MODULES}
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError


def test_libraries_stay_where_they_belong():
    """JAX above some rooms, and TensorFlow in two files."""
    wrong = set()
    for name in MODULES:
        roots = {module.split(".")[0] for module in imports(FILES[name])}
        forbidden = set(JAX) if room_of(name) in NO_JAX else set()
        if name not in ("storage.quiet_tensorflow", "data.structured"):
            forbidden |= TENSORFLOW
        wrong |= {(name, root) for root in roots & forbidden}
    assert not wrong


def test_files_and_functions_stay_small():
    """A file has one idea: mostly at most 300 lines, never more than 400."""
    long = {}
    for name in MODULES:
        text = FILES[name].read_text()
        if len(text.splitlines()) > 400:
            long[name] = len(text.splitlines())
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and node.name != "fit":
                last = node.end_lineno
                assert last is not None
                docstring = (ast.get_docstring(node) or "").splitlines()
                lines = last - node.lineno + 1 - len(docstring)
                if lines > 40:
                    long[f"{name}.{node.name}"] = lines
    assert not long


@pytest.mark.parametrize(
    "path",
    sorted(path for path in PACKAGE.rglob("*") if path.suffix in (".html", ".js")),
    ids=lambda path: path.name,
)
def test_pages_and_scripts_stay_small(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


def test_few_files_lie_at_the_top():
    names = {path.name for path in PACKAGE.glob("*.py")}
    assert names == {"__init__.py", "__main__.py", "benchmark.py", "pretrained.py"}


def test_the_architecture_page_names_every_room_and_files_that_exist():
    text = (PACKAGE.parent / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"`([a-z_]+/|[a-z_]+\.py)`", text))
    top = {name.rstrip("/").removesuffix(".py") for name in named}
    assert set(ROOMS) - {"__main__"} <= top
    assert set(APPS) <= top
    files = set(re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.(?:py|json))`", text))
    assert len(files) > 20
    for name in files:
        assert (PACKAGE / name).exists() or (PACKAGE.parent / name).exists(), name


def test_importing_the_package_loads_neither_jax_nor_tensorflow():
    code = (
        "import sys, bert_jax;"
        "print([m for m in ('jax', 'tensorflow') if m in sys.modules])"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert output.stdout.strip() == "[]"


def test_public_names_are_all_there():
    import bert_jax

    for name in bert_jax.__all__:
        assert getattr(bert_jax, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = bert_jax.nothing

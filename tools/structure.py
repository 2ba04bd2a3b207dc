"""The package's structure in numbers, beside the bars that they are to keep.

python tools/structure.py                  # the table, in Markdown
python tools/structure.py --list splats    # the places that a number counts
python tools/structure.py --package ../other/bert_jax
"""

import argparse
import ast
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "bert_jax"
APPS = {"apps"}
"""The room that holds the applications of the core."""
MAX_PARAMETERS = 6
VARIADIC = set(
    "zip map max min print chain union intersection partial add_row attrgetter P "
    "reshape broadcast_to zeros ones empty full transpose".split()
)
"""Functions of others that take a sequence of any length so."""

Place = tuple[Path, int, str]


def parse(package: Path) -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in sorted(package.rglob("*.py"))}


def room_of(path: Path) -> str:
    """The top folder or file; what begins a process is one room."""
    room = path.with_suffix("").parts[0]
    return "__main__" if room == "benchmark" else room


def nodes(trees: dict[Path, ast.Module]) -> Iterator[tuple[Path, ast.AST]]:
    for path, tree in trees.items():
        for node in ast.walk(tree):
            yield path, node


def name_of(call: ast.Call) -> str:
    """The last word of what is called."""
    function = call.func
    return (
        function.attr if isinstance(function, ast.Attribute) else ast.unparse(function)
    )


def variadic(trees: dict[Path, ast.Module]) -> set[str]:
    """The names of the package's functions and of others with a parameter *parts."""
    return VARIADIC | {
        node.name
        for _, node in nodes(trees)
        if isinstance(node, ast.FunctionDef) and node.args.vararg
    }


def splats(trees: dict[Path, ast.Module]) -> Iterator[Place]:
    """Calls f(*parts) of functions that take a fixed number of arguments.

    Where a function passes on a parameter *parts of its own, it is not counted.
    """
    names = variadic(trees)
    passed_on = {
        (id(call), f"{function.args.vararg.arg}")
        for _, function in nodes(trees)
        if isinstance(function, ast.FunctionDef | ast.Lambda) and function.args.vararg
        for call in ast.walk(function)
    }
    for path, node in nodes(trees):
        if not isinstance(node, ast.Call) or name_of(node) in names:
            continue
        spread = [ast.unparse(a.value) for a in node.args if isinstance(a, ast.Starred)]
        if any(
            not value.endswith("shape") and (id(node), value) not in passed_on
            for value in spread
        ):
            yield path, node.lineno, ast.unparse(node)[:70]


def wide_functions(trees: dict[Path, ast.Module]) -> Iterator[Place]:
    for path, node in nodes(trees):
        if isinstance(node, ast.FunctionDef):
            given = node.args
            names = [a.arg for a in given.posonlyargs + given.args + given.kwonlyargs]
            number = len(names) - (names[:1] in (["self"], ["cls"]))
            if number > MAX_PARAMETERS:
                yield path, node.lineno, f"{node.name}: {number} parameters"


def replaces(trees: dict[Path, ast.Module]) -> Iterator[Place]:
    for path, node in nodes(trees):
        if isinstance(node, ast.Call) and (
            ast.unparse(node.func) in ("dataclasses.replace", "replace")
        ):
            yield path, node.lineno, ast.unparse(node)[:70]


def types(trees: dict[Path, ast.Module]) -> Iterator[Place]:
    """Classes, and aliases and type variables at the top of a file."""
    for path, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                yield path, node.lineno, node.name
            elif isinstance(node, ast.Assign) and is_alias(node):
                yield path, node.lineno, ast.unparse(node.targets[0])


def is_alias(node: ast.Assign) -> bool:
    name, value = node.targets[0], node.value
    if not isinstance(name, ast.Name) or not name.id.strip("_")[:1].isupper():
        return False
    if name.id.isupper() and len(name.id) > 1:  # a constant
        return False
    return isinstance(value, ast.Subscript | ast.Name | ast.BinOp | ast.Attribute)


def twice(trees: dict[Path, ast.Module]) -> Iterator[Place]:
    places = defaultdict(list)
    for path, line, name in types(trees):
        places[name.lstrip("_")].append((path, line, name))
    for name in sorted(places):
        if len({path for path, _, _ in places[name]}) > 1:
            yield from places[name]


def concepts(trees: dict[Path, ast.Module]) -> Iterator[Place]:
    """Dataclasses, abstract classes, named tuples, protocols and aliases."""
    for path, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.Assign) and is_alias(node):
                yield path, node.lineno, ast.unparse(node.targets[0])
            elif isinstance(node, ast.ClassDef):
                marks = map(ast.unparse, node.decorator_list + node.bases)
                text = " ".join(marks)
                words = ("dataclass", "ABC", "NamedTuple", "Protocol", "TypedDict")
                if any(word in text for word in words):
                    yield path, node.lineno, node.name


def modules_of(trees: dict[Path, ast.Module]) -> set[str]:
    return {
        ".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in trees
    }


def imports(trees: dict[Path, ast.Module]) -> Iterator[tuple[Path, int, str]]:
    """What a file imports of the package, without the package's name."""
    known = modules_of(trees)
    for path, node in nodes(trees):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            names.append(node.module)
        for name in names:
            name = name.removeprefix("bert_jax.")
            if name in known:
                yield path, node.lineno, name


def arrows(trees: dict[Path, ast.Module]) -> Iterator[Place]:
    seen = set()
    for path, line, name in imports(trees):
        arrow = room_of(path), name.partition(".")[0]
        if arrow[0] != arrow[1] and arrow not in seen and "__init__" not in arrow:
            seen.add(arrow)
            yield path, line, " → ".join(arrow)


def core_arrows(trees: dict[Path, ast.Module]) -> Iterator[Place]:
    for path, line, arrow in arrows(trees):
        if not set(arrow.split(" → ")) & APPS:
            yield path, line, arrow


def hidden_imports(trees: dict[Path, ast.Module]) -> Iterator[Place]:
    """Calls of import_module with the whole name of a module of the package."""
    for path, node in nodes(trees):
        if isinstance(node, ast.Call) and name_of(node) == "import_module":
            name = node.args[0]
            if isinstance(name, ast.Constant) and "bert_jax" in str(name.value):
                yield path, node.lineno, str(name.value)


def short_files(trees: dict[Path, ast.Module]) -> Iterator[Place]:
    """Files under 60 lines that one other file imports, and that no user imports."""
    importers = defaultdict(set)
    for path, _, name in imports(trees):
        importers[name].add(path)
    for path, tree in trees.items():
        name = ".".join(path.with_suffix("").parts)
        length = max((node.end_lineno or 0 for node in tree.body), default=0)
        users = {"__init__.py", "__main__.py"} & {
            file.name for file in (path, *importers[name])
        }
        if length < 60 and len(importers[name]) == 1 and not users:
            importer = importers[name].pop()
            yield path, 1, f"{length} lines, for {importer}"


LISTS = {
    "splats": splats,
    "wide": wide_functions,
    "replaces": replaces,
    "twice": twice,
    "concepts": concepts,
    "arrows": arrows,
    "core-arrows": core_arrows,
    "hidden": hidden_imports,
    "short": short_files,
}


DENSE = [
    Path(f"{name}.py")
    for name in (
        "training/gradients training/compared_gradient training/loop training/step "
        "training/optimizer training/muon distributed/sharding data/packing "
        "masking/batch masking/units model/layers model/attention "
        "model/attention_blocks model/tpu_attention"
    ).split()
]
"""Gradients, the loop, sharding, packing, masking and fused attention."""


def comment_share(package: Path, paths: list[Path]) -> float:
    """Return the share of the files' lines that hold a comment."""
    comments = lines = 0
    for path in paths:
        with tokenize.open(package / path) as file:
            rows = {
                (token.start[0], token.type == tokenize.COMMENT)
                for token in tokenize.generate_tokens(file.readline)
            }
        comments += sum(is_comment for _, is_comment in rows)
        lines += len((package / path).read_text().splitlines())
    return comments / max(lines, 1)


def table(
    package: Path, trees: dict[Path, ast.Module]
) -> Iterator[tuple[str, str, str]]:
    """The rows of the table: what is counted, how many, and the bar."""
    lengths = {p: len((package / p).read_text().splitlines()) for p in trees}
    core = [path for path in trees if room_of(path) not in APPS]
    rooms = {room_of(path) for path in trees} - {"__init__"}
    number = {name: len(list(count(trees))) for name, count in LISTS.items()}
    yield "package lines", f"{sum(lengths.values()):,}", "≤ 40,000"
    yield "package files", f"{len(trees)}", ""
    yield "core lines", f"{sum(lengths[path] for path in core):,}", "≤ 30,000"
    yield "core files", f"{len(core)}", "≤ 200"
    yield "calls with `*parts` outside zip, map, shapes", f"{number['splats']}", "0"
    yield "functions with 7 or more parameters", f"{number['wide']}", "≤ 5"
    yield "`dataclasses.replace`", f"{number['replaces']}", "≤ 50"
    names = {name.lstrip("_") for _, _, name in twice(trees)}
    yield "type names defined twice", f"{len(names)}", "0"
    yield "hidden imports", f"{number['hidden']}", "0"
    yield f"arrows between {len(rooms)} rooms", f"{number['arrows']}", ""
    yield "arrows between core rooms", f"{number['core-arrows']}", "≤ 85"
    yield "concepts", f"{number['concepts']}", "≤ 200"
    yield "files under 60 lines with one importer", f"{number['short']}", "0"
    yield "comment lines", f"{comment_share(package, list(trees)):.1%}", ""
    yield "… where it is dense", f"{comment_share(package, DENSE):.1%}", "≥ 3 %"


def main() -> None:
    parser = argparse.ArgumentParser(description="The package's structure in numbers.")
    parser.add_argument("--list", choices=sorted(LISTS), help="places of a number")
    parser.add_argument("--package", type=Path, default=PACKAGE)
    options = parser.parse_args()
    package = options.package
    trees = {path.relative_to(package): tree for path, tree in parse(package).items()}
    if options.list:
        for path, line, text in LISTS[options.list](trees):
            print(f"{path}:{line}: {text}")
        return
    print("| | now | bar |\n|---|---|---|")
    for row in table(package, trees):
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()

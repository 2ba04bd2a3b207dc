"""Retired words and names do not come back (docs/architecture.md, Glossary)."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
CODE = sorted((ROOT / "bert_jax").rglob("*.py"))
TEXTS = [*CODE, *sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]

IDENTIFIERS = """
first_before_others from_first is_first where_rows_lie near_each_other place_of_host
row_shards written_out spread_out all_but_gathered add_over_rows choose_ladder _GRAIN
most_pairs share_rows require_ours whole_directory newest_whole best_whole open_model
""".split()
"""Replaced by the names of a reader who greps for primary, shard, bucket, atomic…"""
WORDS = ("nobody", "whoever", "anew", "merit", "left to chance")
NAMES = """
told said found each whole asked aside speaks elsewhere telling labelled notices merit
Silence Part Learning Order Tuning Problem Record Finding
""".split()
"""No variable, parameter, function or class has one of these names."""
FUNCTIONS = "together draw begin locate by".split()
"""No function has one of these names."""
KEY_OF_0_1_0 = 'SCORE_KEY_OF_0_1_0 = "merit"'
"""Checkpoints of version 0.1.0 stay readable."""


def test_no_retired_word_is_used():
    words = "|".join(map(re.escape, (*IDENTIFIERS, *WORDS)))
    pattern = re.compile(rf"(?<!\w)(?:{words})(?!\w)", re.IGNORECASE)
    found = {}
    for path in TEXTS:
        text = path.read_text(encoding="utf-8").replace(KEY_OF_0_1_0, "")
        if matches := pattern.findall(text):
            found[str(path.relative_to(ROOT))] = matches
    assert not found


def names_in(tree: ast.AST) -> set[str]:
    """Every name that a module binds."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name if node.name not in FUNCTIONS else f"def {node.name}")
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def test_no_retired_name_is_bound():
    retired = {*NAMES, *(f"def {name}" for name in FUNCTIONS)}
    found = {}
    for path in CODE:
        if names := names_in(ast.parse(path.read_text())) & retired:
            found[str(path.relative_to(ROOT))] = names
    assert not found

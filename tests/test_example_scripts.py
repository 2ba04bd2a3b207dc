"""The scripts of examples/ run, and are short enough to read at once."""

import importlib.util
import types
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def load(name: str) -> types.ModuleType:
    path = EXAMPLES / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"example_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda p: p.name)
def test_an_example_has_at_most_sixty_lines(path):
    assert len(path.read_text().splitlines()) <= 60


def test_a_loop_of_ones_own_learns(dataset):
    losses = load("own_loop").main(str(dataset.path), 12)
    assert len(losses) == 12 and sum(losses[-3:]) < sum(losses[:3])


def test_an_objective_of_ones_own_is_trained_and_resumed(dataset, tmp_path):
    example = load("own_objective")
    scores = example.main(str(dataset.path), tmp_path / "run", 4)
    assert scores["replaced_accuracy"] > 0.5
    assert scores["loss"] == scores["replaced_loss"]
    assert (tmp_path / "run" / "checkpoints" / "4" / "manifest.json").exists()
    again = example.main(str(dataset.path), tmp_path / "run", 4)
    assert again == scores, "the finished run is not trained again"

"""The scripts of examples/ run, and are short enough to read at once."""

import importlib.util
import types
from pathlib import Path

import jax
import numpy as np
import pytest

import bert_jax

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


@pytest.mark.slow
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


def test_a_run_of_ones_own_that_never_evaluates_is_refused(dataset, tmp_path):
    example = load("own_objective")
    config = bert_jax.RunConfig(eval_every=0)
    task = example.ReplacedTokens(dataset, config)
    with pytest.raises(ValueError, match="eval_every=0 must be"):
        bert_jax.fit(task, config, tmp_path, dataset.tokenizer)


def test_a_mask_does_not_depend_on_the_rows_beside_it(dataset):
    """So that devices, which each hold some of the rows, mask them alike."""
    tokenizer = dataset.tokenizer
    ids = {"mask_token_id": tokenizer.mask_id, "vocab_size": tokenizer.vocab_size}
    masking = bert_jax.MaskingConfig(**ids)
    batch = bert_jax.DatasetBatches(dataset, 8, seed=0).training(0)
    half = {name: values[4:] for name, values in batch.items()}
    key = jax.random.key(0)
    one, other = (
        bert_jax.mask_by_row(key, jax.device_put(rows), masking)
        for rows in (batch, half)
    )
    np.testing.assert_array_equal(one.inputs.input_ids[4:], other.inputs.input_ids)

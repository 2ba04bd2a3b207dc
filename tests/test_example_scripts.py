"""The scripts of examples/ run, and are short enough to read at once."""

import ast
import importlib.util
import json
import random
import re
import types
from pathlib import Path

import jax
import numpy as np
import pytest
from small_world import OBJECTS, SUBJECTS, VERBS

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


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda p: p.name)
def test_an_example_says_what_it_does_and_how_to_run_it(path):
    tree = ast.parse(path.read_text())
    docstring = ast.get_docstring(tree)
    assert docstring and f"python examples/{path.name} --" in docstring
    (main,) = (
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name == "main"
    )
    required = len(main.args.args) - len(main.args.defaults)
    for argument in main.args.args[:required]:
        assert f"--{argument.arg}" in docstring


def test_the_page_lists_every_example():
    page = (EXAMPLES / "README.md").read_text()
    named = set(re.findall(r"\]\(([\w/]+\.(?:py|ipynb))\)", page))
    files = [*EXAMPLES.glob("*.py"), *EXAMPLES.glob("notebooks/*.ipynb")]
    assert named == {path.relative_to(EXAMPLES).as_posix() for path in files}


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> list[str]:
    """Training and validation files: who does it says the class."""
    folder, generator = tmp_path_factory.mktemp("tables"), random.Random(0)
    paths = []
    for name, size in (("train", 64), ("validation", 32)):
        lines = ["text,label"]
        for _ in range(size):
            subject = generator.choice(("judge", "baker"))
            verb, thing = generator.choice(VERBS), generator.choice(OBJECTS)
            lines.append(f"The {subject} {verb} the {thing}.,{subject}")
        paths.append(str(folder / f"{name}.csv"))
        Path(paths[-1]).write_text("\n".join(lines) + "\n")
    return paths


@pytest.mark.slow
def test_a_head_of_ones_own_learns(pretrained, tables):
    example = load("own_head")
    untrained = example.main(str(pretrained), *tables, steps=0, length=32)
    trained = example.main(str(pretrained), *tables, steps=150, length=32)
    assert untrained["accuracy"] < 0.8
    assert trained["accuracy"] > untrained["accuracy"] + 0.15


def test_nearest_neighbours_of_texts(pretrained, tmp_path):
    example = load("embeddings")
    texts = [f"The {who} reads the {what}." for who in SUBJECTS for what in OBJECTS]
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n\n")
    arguments = str(pretrained), str(tmp_path / "texts.txt"), (texts[7], texts[40])
    cache = str(tmp_path / "vectors.npy")
    found = example.main(*arguments, k=3, cache=cache)
    assert [len(pairs) for pairs in found] == [3, 3]
    for query, pairs in zip(arguments[2], found, strict=True):
        assert pairs[0] == (query, pytest.approx(1, abs=1e-5))
        assert 1 > pairs[1][1] >= pairs[2][1] > -1
    np.save(cache, np.roll(np.load(cache), 1, axis=0))
    shifted = example.main(*arguments, k=3, cache=cache)
    assert shifted[0][0][0] == texts[8], "the vectors of the cache are used"
    centered = example.main(*arguments, k=len(texts), center=True)
    assert np.mean([cosine for _, cosine in centered[0]]) < 0.3
    assert np.mean([c for _, c in example.main(*arguments, k=64)[0]]) > 0.3


@pytest.mark.slow
def test_pretraining_is_continued_on_text_of_a_domain(
    pretrained, corpus, tables, tmp_path
):
    example = load("domain_adaptation")
    options = {"num_steps": 40, "sequence_length": 32, "batch_size": 8}
    text = str(corpus / "a.txt")
    arguments = str(pretrained), text, *tables, str(tmp_path / "run")
    scores = example.main(*arguments, **options, num_epochs=1.0)
    assert list(scores) == ["pretraining", "original", "adapted"]
    before = bert_jax.load(pretrained)
    after = bert_jax.load(tmp_path / "run" / "adapted")
    assert before.config == after.config
    assert not np.array_equal(
        before.params["encoder"]["embeddings"]["token"]["embedding"],
        after.params["encoder"]["embeddings"]["token"]["embedding"],
    )
    for name in ("original", "adapted"):
        config = json.loads(
            (tmp_path / "run" / f"finetuned_{name}/config.json").read_text()
        )
        source = (
            str(pretrained) if name == "original" else str(tmp_path / "run/adapted")
        )
        assert config["init_from"] == source and 0 <= scores[name]["accuracy"] <= 1
    assert example.main(*arguments, **options, num_epochs=1.0) == scores, "resumed"


@pytest.mark.slow
def test_a_loop_of_ones_own_learns(dataset):
    losses = load("own_loop").main(str(dataset.path), num_steps=12)
    assert len(losses) == 12 and sum(losses[-3:]) < sum(losses[:3])


@pytest.mark.slow
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


@pytest.mark.slow
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

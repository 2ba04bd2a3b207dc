"""`evaluate` and `predict` of sentence pairs beside `embed` and SciPy."""

import csv
import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import scipy.stats
from etils import epath
from small_world import OBJECTS, PLACES, SUBJECTS, VERBS

import bert_jax
from bert_jax.apps.convert.receipts import write_imported
from bert_jax.cli.main import main
from bert_jax.config import ExamplesConfig, FinetuneConfig, MeshConfig
from bert_jax.config.embedding import Embedding
from bert_jax.config.sentence_pairs import SentencePairsConfig
from bert_jax.formats.imported import Imported
from bert_jax.inference.evaluation import evaluate
from bert_jax.metrics.retrieval import retrieval_scores
from bert_jax.pretrained import load_pretrained
from bert_jax.runs.finetuning import finetune

NAMES = ("query", "document")
PROMPTS = {"prompt_names": NAMES, "prompt_texts": ("the judge: ", "in the garden ")}
CASES = {
    "no prompt": Embedding("mean", normalize=True),
    "cls": Embedding("cls"),
    "prompts of two sides": Embedding("mean", **PROMPTS),
    "a default prompt": Embedding("mean", default_prompt="query", **PROMPTS),
    "a default prompt that is not pooled": Embedding(
        "mean", default_prompt="query", pool_prompt=False, **PROMPTS
    ),
    "cls after the prompt": Embedding(
        "cls", default_prompt="document", pool_prompt=False, **PROMPTS
    ),
    "texts are cut": Embedding("mean", max_tokens=6),
}
QUICK = ("no prompt", "a default prompt that is not pooled")


def sentence(generator: random.Random) -> str:
    subject, verb = generator.choice(SUBJECTS), generator.choice(VERBS)
    thing, place = generator.choice(OBJECTS), generator.choice(PLACES)
    return f"The {subject} {verb} the {thing} in the {place}."


@pytest.fixture(scope="module")
def pairs() -> list[tuple[str, str, float]]:
    generator = random.Random(5)
    return [
        (sentence(generator), sentence(generator), generator.uniform(0, 5))
        for _ in range(40)
    ]


@pytest.fixture(scope="module")
def file(pairs: Any, tmp_path_factory: Any) -> str:
    path = tmp_path_factory.mktemp("pairs") / "sts.csv"
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerows([("sentence1", "sentence2", "label"), *pairs])
    return str(path)


@pytest.fixture(scope="module")
def unlabelled(file: str, tmp_path_factory: Any) -> str:
    path = tmp_path_factory.mktemp("pairs") / "pairs.csv"
    with open(file, newline="") as stream, path.open("w", newline="") as other:
        csv.writer(other).writerows(row[:2] for row in csv.reader(stream))
    return str(path)


@pytest.fixture
def model_of(encoder_checkpoint: Any, tmp_path: Any) -> Any:
    """Writes an encoder of large random weights, whose files say how to embed."""

    def write(embedding: Embedding) -> str:
        model = load_pretrained(str(encoder_checkpoint))
        config = dataclasses.replace(model.config, head="encoder")
        params = jax.tree.map(lambda leaf: 5 * np.asarray(leaf), model.params)
        params = {"encoder": params["encoder"]}
        found = Imported(config, params, model.tokenizer, (), (), (), (), embedding)
        write_imported(found, epath.Path(tmp_path / "model"))
        return str(tmp_path / "model")

    return write


def predicted(capsys: Any, model: str, file: str, *options: str) -> list[float]:
    arguments = ["predict", "--model", model, "--input", file, *options]
    assert main(arguments) == 0
    output, _ = capsys.readouterr()
    return [json.loads(line)["score"] for line in output.splitlines()]


def test_single_texts_are_for_other_verbs(model_of, tmp_path, refused):
    (tmp_path / "texts.csv").write_text("text,other\na judge,x\n")
    command = ["predict", model_of(Embedding()), "--input", str(tmp_path / "texts.csv")]
    error = refused(*command)
    assert "has the columns text, other, and this model compares two texts" in error
    assert "`bert-jax embed`" in error and "`bert-jax search`" in error


def without_itself(indices: Any, first: Any, second: Any) -> dict[int, list[int]]:
    """The second texts found for each first one; it does not find an equal text."""
    return {
        i: [j for j in found if j == i or first[i] != second[j]]
        for i, found in enumerate(indices.tolist())
    }


def cosines(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return (first * second).sum(axis=1) / norms


@pytest.mark.parametrize(
    "embedding",
    [
        pytest.param(embedding, id=name, marks=[pytest.mark.slow] * (name not in QUICK))
        for name, embedding in CASES.items()
    ],
)
def test_scored_pairs_have_the_vectors_of_embed(
    embedding, model_of, pairs, file, tmp_path, capsys
):
    """Spearman's and Pearson's correlation, and the scores of both verbs."""
    model = model_of(embedding)
    bert = bert_jax.load(model)
    first, second, gold = zip(*pairs, strict=True)
    expected = cosines(bert.embed(first), bert.embed(second))
    data = ExamplesConfig(validation=file)
    scores, _ = evaluate(model, data, tmp_path / "scores")
    by_scipy = {
        "spearman": scipy.stats.spearmanr(expected, gold)[0],
        "pearson": scipy.stats.pearsonr(expected, gold)[0],
    }
    constant = {"baseline: correlation of a constant": 0.0}
    assert scores == pytest.approx(by_scipy | constant, abs=1e-4)
    with (tmp_path / "scores" / "predictions.tsv").open() as stream:
        rows = list(csv.DictReader(stream, delimiter="\t"))
    written = [float(row["score"]) for row in rows]
    # Cosines have the rounding of float32.
    np.testing.assert_allclose(written, expected, atol=3e-6)
    np.testing.assert_allclose(predicted(capsys, model, file), expected, atol=2e-6)


def test_unlabelled_pairs_have_the_prompts_of_their_sides(
    model_of, pairs, file, unlabelled, tmp_path, capsys
):
    """They are to be found, as in training; objective=cosine has one prompt for all."""
    embedding = Embedding("mean", pool_prompt=False, **PROMPTS)
    model = model_of(embedding)
    bert = bert_jax.load(model)
    first, second, _ = map(list, zip(*pairs, strict=True))
    queries = bert.embed(first, prompt="query")
    documents = bert.embed(second, prompt="document")
    expected = cosines(queries, documents)
    plain = cosines(bert.embed(first), bert.embed(second))
    assert np.abs(expected - plain).max() > 1e-3
    found = predicted(capsys, model, unlabelled)
    np.testing.assert_allclose(found, expected, atol=2e-6)
    option = "--data.sentence-pairs.objective", "cosine"
    same = predicted(capsys, model, unlabelled, *option)
    np.testing.assert_allclose(same, plain, atol=2e-6)
    (tmp_path / "a.csv").write_text(Path(file).read_text().replace("label", "score", 1))
    scored = predicted(
        capsys, model, str(tmp_path / "a.csv"), "--label-column", "score"
    )
    np.testing.assert_allclose(scored, plain, atol=2e-6)
    hits = bert.search(first, second, len(second))
    scores, _ = evaluate(model, ExamplesConfig(validation=unlabelled))
    assert len(set(first)) == len(first) and len(set(second)) == len(second)
    rankings = without_itself(hits.indices, first, second)
    assert any(len(found) < len(second) for found in rankings.values())
    right = {i: {i: 1} for i in rankings}
    ranked = retrieval_scores(rankings, right)
    depth = {name: scores[name] for name in ("ndcg@10", "mrr@10", "recall@10")}
    # Two scores that are equal but for rounding may be ranked either way: 4.5e-4 here.
    assert depth == pytest.approx({name: ranked[name] for name in depth}, abs=2e-3)


def test_pairs_have_the_similarity_of_a_search(model_of, pairs, unlabelled, capsys):
    """The dot product, where the model's files say it."""
    model = model_of(Embedding("mean", similarity="dot"))
    first, second, _ = map(list, zip(*pairs, strict=True))
    expected = np.diagonal(bert_jax.load(model).similarity(first, second))
    assert np.abs(expected).max() > 2
    found = predicted(capsys, model, unlabelled)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_the_loss_is_of_cosines_whatever_compares_texts(model_of, unlabelled):
    """As in training, whose temperature it has."""
    data = ExamplesConfig(validation=unlabelled)
    model = load_pretrained(model_of(Embedding("mean")))
    cosine, _ = evaluate(model, data)
    embedding = Embedding("mean", similarity="dot")
    dot, _ = evaluate(dataclasses.replace(model, embedding=embedding), data)
    assert dot["map"] != cosine["map"] and 0 < cosine["loss"] < 10
    assert dot["loss"] == pytest.approx(cosine["loss"], rel=1e-5)


def test_what_embed_does_not_compute_is_not_scored(model_of, file, refused):
    model = model_of(Embedding(unsupported="pooling by max"))
    bert = bert_jax.load(model)
    with pytest.raises(ValueError, match="files require pooling by max"):
        bert.embed(["door"])
    checkpoint = ("--model", model)
    for arguments in (
        ("evaluate", *checkpoint, "--input", file),
        ("predict", *checkpoint, "--input", file),
    ):
        error = refused(*list(arguments))
        assert "files require pooling by max, which is not computed" in error
        assert "\n" not in error
    own = SentencePairsConfig(pooling="cls")
    data = ExamplesConfig(validation=file, sentence_pairs=own)
    scores, _ = evaluate(model, data)
    assert -1 <= scores["spearman"] <= 1


def test_a_prompt_that_leaves_no_room_is_refused(model_of, file):
    long = dataclasses.replace(
        CASES["a default prompt"], prompt_texts=("judge " * 30, "")
    )
    with pytest.raises(ValueError, match="has .* tokens, and texts are cut to 32"):
        evaluate(model_of(long), ExamplesConfig(validation=file))


@pytest.mark.slow
def test_a_prompt_that_is_not_pooled_is_trained_with(model_of, unlabelled, tmp_path):
    """The run's own scores are those of a search by the trained model."""
    embedding = dataclasses.replace(CASES["a default prompt"], pool_prompt=False)
    data = ExamplesConfig(train=unlabelled, validation=unlabelled, max_length=32)
    config = FinetuneConfig(
        task="sentence-pairs",
        data=data,
        init_from=model_of(embedding),
        batch_size=8,
        microbatches=2,
        num_steps=2,
        mesh=MeshConfig(data=1),
    )
    scores = finetune(config, tmp_path / "run")
    bert = bert_jax.load(tmp_path / "run")
    own = dataclasses.replace(embedding, normalize=True, max_tokens=32)
    assert bert.embedding == own
    with open(unlabelled, newline="") as stream:
        _, *rows = csv.reader(stream)
    first, second = map(list, zip(*rows, strict=True))
    hits = bert.search(first, second, len(second))
    rankings = without_itself(hits.indices, first, second)
    found = retrieval_scores(rankings, {i: {i: 1} for i in rankings})
    assert scores["ndcg@10"] == pytest.approx(found["ndcg@10"], abs=1e-6)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    (line,) = [json.loads(text) for text in lines if '"train"' in text][-1:]
    assert line["negatives"] == 7


@pytest.mark.parametrize("kind", ["scored_pairs", "found_pairs"])
def test_a_report_of_the_errors(kind, model_of, file, unlabelled, tmp_path, capsys):
    model = model_of(CASES["no prompt"])
    source = file if kind == "scored_pairs" else unlabelled
    page = tmp_path / "report.html"
    files = ["--input", source, "--output", str(page)]
    assert main(["evaluate", "--model", model, *files]) == 0
    scores = json.loads(capsys.readouterr().out.splitlines()[0])
    report = json.loads(page.with_suffix(".json").read_text())
    assert report["kind"] == kind
    assert report["scores"] | report["baseline"] == pytest.approx(scores, abs=1e-3)
    assert report["num_examples"] == 40 and page.stat().st_size > 10_000
    if kind == "found_pairs":
        right = report["ranks"][0]["count"] / report["num_queries"]
        assert right == pytest.approx(report["scores"]["recall@1"])


def test_evaluate_says_how_many_texts_are_not_compared_with_themselves(
    model_of, tmp_path, capsys
):
    path = tmp_path / "pairs.csv"
    path.write_text("anchor,positive\na judge,a door\na door,a judge\na road,a river\n")
    command = ["evaluate", "--model", model_of(CASES["no prompt"])]
    assert main([*command, "--input", str(path)]) == 0
    output, error = capsys.readouterr()
    assert "since they belong to other texts: 2 of 3 first texts" in error
    assert json.loads(output.splitlines()[0])["recall@100"] == 1.0


def test_another_similarity_is_not_taken_for_the_cosine(model_of, unlabelled):
    model = model_of(Embedding("mean", similarity="euclidean"))
    with pytest.raises(ValueError, match="require similarity=euclidean, and only cosi"):
        evaluate(load_pretrained(model), ExamplesConfig(validation=unlabelled))

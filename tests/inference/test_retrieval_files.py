"""Search and reranking of a user's files, from the command line."""

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest
from etils import epath
from small_world import OBJECTS, PLACES, SUBJECTS

import bert_jax
from bert_jax.apps.convert.receipts import write_imported
from bert_jax.cli.main import main
from bert_jax.config import ExamplesConfig, FinetuneConfig
from bert_jax.config.serialization import to_dict
from bert_jax.formats.imported import Imported
from bert_jax.inference.retrieval_files import (
    read_collection,
    read_judgements,
    read_run,
)
from bert_jax.model.bert import init_params
from bert_jax.pretrained import load_pretrained, write_checkpoint


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Twelve texts, three queries, and judgements that name what does not exist."""
    folder = tmp_path_factory.mktemp("beir")
    (folder / "qrels").mkdir()
    texts = [f"The {SUBJECTS[i % 8]} in the {PLACES[i // 2]}." for i in range(12)]
    corpus = [
        {"_id": f"d{i}", "title": OBJECTS[i % 8] if i % 2 else "", "text": text}
        for i, text in enumerate(texts)
    ]
    lines(folder / "corpus.jsonl", corpus)
    queries = [{"_id": f"q{i}", "text": texts[3 * i]} for i in range(4)]
    lines(folder / "queries.jsonl", queries)
    (folder / "qrels" / "test.tsv").write_text(
        "query-id\tcorpus-id\tscore\nq0\td0\t2\nq0\td5\t1\nq2\td6\t1\nq2\td1\t0\n"
        "nobody\td1\t1\nq2\tmissing\t1\n"
    )
    return folder


@pytest.fixture(scope="module")
def reranker(pretrained, tmp_path_factory):
    """A cross-encoder as seed 0 draws it."""
    model = load_pretrained(str(pretrained))
    config = dataclasses.replace(
        model.config,
        head="sequence_classification",
        labels=("relevance",),
        problem_type="regression",
    )
    params = jax.jit(lambda: init_params(config, jax.random.key(0)))()
    params = jax.tree.map(np.asarray, params)
    output = tmp_path_factory.mktemp("reranker") / "model"
    found = Imported(config, params, model.tokenizer, (), (), (), ())
    write_imported(found, epath.Path(output))
    return output


def run(capsys, *arguments):
    code = main(["search", *map(str, arguments), "--overwrite"])
    output, error = capsys.readouterr()
    assert code == 0, error
    scores = [line for line in output.splitlines() if line.startswith("{")]
    return json.loads(scores[-1]) if scores else {}, error


def test_a_search_is_scored_and_written(folder, pretrained, tmp_path, capsys):
    path = tmp_path / "found.trec"
    options = ("--input", folder, "--model", pretrained, "--k", 5, "--output", path)
    scores, error = run(capsys, *options)
    assert "1 unknown queries (nobody), left out" in error
    assert "1 unknown documents (missing), left out" in error
    bert = bert_jax.load(pretrained)
    collection = read_collection(folder, "test")
    assert list(collection.queries) == ["q0", "q2"], "the judged ones"
    texts = list(collection.corpus.values())
    assert texts[1].startswith(OBJECTS[1]), "the title stands first"
    hits = bert.search(list(collection.queries.values()), texts, 5)
    rankings = read_run(path)
    for query, rows in zip(("q0", "q2"), hits.indices, strict=True):
        assert list(rankings[query]) == [f"d{i}" for i in rows]
    assert scores["mrr@10"] == 1.0, "each text is nearest to itself"
    assert 0 < scores["ndcg@10"] < 1 or scores["recall@10"] == 1.0


@pytest.mark.usefixtures("no_hidden_transfers")
def test_a_list_is_ranked_again(folder, reranker, tmp_path, capsys):
    path, again = tmp_path / "first.run", tmp_path / "second.run"
    path.write_text(
        "".join(f"q0 Q0 d{i} {i} {10 - i} bm25\n" for i in range(4))
        + "q2 Q0 d6 1 3 bm25\nq2 Q0 lost 2 2 bm25\nq1 Q0 d6 1 3 x\nother Q0 d6 1 3 x\n"
    )
    options = ("--input", folder, "--run", path, "--reranker", reranker, "--k", 3)
    _, error = run(capsys, *options, "--output", again)
    assert "first.run: 1 unknown documents (lost), left out" in error
    assert "first.run: 1 queries that are not judged (q1), left out" in error
    assert "first.run: 1 unknown queries (other), left out" in error
    assert "test.tsv: 2 queries that are not judged (q1, q3), left out" in error
    first, second = read_run(path), read_run(again)
    assert set(second["q0"]) == set(list(first["q0"])[:3])
    bert, collection = bert_jax.load(reranker), read_collection(folder, "test")
    pairs = [(collection.queries["q0"], collection.corpus[d]) for d in second["q0"]]
    values = [value["value"] for value in bert.classify(pairs)]
    assert values == sorted(values, reverse=True)
    np.testing.assert_allclose(list(second["q0"].values()), values, atol=2e-6)


def test_a_model_of_single_texts_ranks_nothing(folder, reranker, tmp_path, refused):
    model, path = load_pretrained(str(reranker)), tmp_path / "single"
    data = ExamplesConfig(num_texts=1)
    run = FinetuneConfig(task="text-regression", data=data, model=model.config)
    write_checkpoint(model, {}, epath.Path(path), to_dict(run))
    error = refused("search", "--run", "a", "--input", folder, "--reranker", path)
    assert "1 outputs, learned from single texts; a reranker has a sequence" in error


def test_a_number_far_from_0_is_written_in_full(reranker, tmp_path, capsys):
    model = load_pretrained(str(reranker))
    far = {"target_mean": 1.7e9, "target_deviation": 2.0}
    config = dataclasses.replace(model.config, **far)
    model = dataclasses.replace(model, config=config)
    write_checkpoint(model, {}, epath.Path(tmp_path / "far"))
    pairs = [(f"The {subject}.", "A place.") for subject in SUBJECTS[:4]]
    rows = [{"sentence1": a, "sentence2": b} for a, b in pairs]
    lines(tmp_path / "pairs.jsonl", rows)
    source = str(tmp_path / "pairs.jsonl")
    assert main(["predict", str(tmp_path / "far"), "--input", source]) == 0
    printed = map(json.loads, capsys.readouterr().out.splitlines())
    near = [value["value"] for value in bert_jax.load(reranker).classify(pairs)]
    found = [(row["value"] - 1.7e9) / 2 for row in printed]
    np.testing.assert_allclose(found, near, atol=1e-6)


def test_documents_that_are_cut_are_counted(pretrained, reranker, tmp_path, capsys):
    texts = [f"{place} " * (40 if i % 2 else 1) for i, place in enumerate(PLACES[:4])]
    ids = [{"_id": f"d{i}", "text": text} for i, text in enumerate(texts)]
    lines(tmp_path / "corpus.jsonl", ids)
    lines(tmp_path / "queries.jsonl", [{"_id": "q", "text": PLACES[0]}])
    line = "cut to 32 tokens: 2 of 4 {} (50.0%); the model takes no more"
    options = ["--input", tmp_path, "--model", pretrained, "--reranker", reranker]
    for kept in ([], ["--corpus-vectors", tmp_path / "vectors"]):
        _, error = run(capsys, *options, *kept)
        for what in ("corpus: " + line.format("texts"), line.format("pairs")):
            assert error.count(what) == 1, error


def test_without_judgements_the_lists_are_written(folder, pretrained, tmp_path, capsys):
    for name in ("corpus.jsonl", "queries.jsonl"):
        (tmp_path / name).write_text((folder / name).read_text())
    path = tmp_path / "found.trec"
    options = ("--input", tmp_path, "--model", pretrained, "--output", path)
    scores, error = run(capsys, *options)
    assert not scores and "no judgements" in error
    assert len(read_run(path)) == 4, "all queries"


def test_the_vectors_of_a_corpus_are_kept(folder, pretrained, tmp_path, capsys):
    kept, path = tmp_path / "vectors", tmp_path / "found.trec"
    options = ["--input", folder, "--model", pretrained, "--output", path]
    expected, _ = run(capsys, *options)
    options += ["--corpus-vectors", kept]
    found, _ = run(capsys, *options)
    assert found == expected
    vectors = np.load(kept / "corpus.npy")
    assert vectors.shape == (12, 16) and vectors.dtype == np.float32
    # They are read, and not made again.
    np.save(kept / "corpus.npy", vectors[::-1])
    other, _ = run(capsys, *options)
    assert other["mrr@10"] < expected["mrr@10"]
    # A search that was killed after the record begins again.
    (kept / "corpus.npy").unlink()
    assert run(capsys, *options)[0] == expected
    np.testing.assert_array_equal(np.load(kept / "corpus.npy"), vectors)


def test_vectors_of_something_else_are_refused(
    folder, pretrained, encoder_checkpoint, tmp_path, capsys, refused
):
    def other(model, source, *more):
        options = ("--input", source, "--model", model, *more)
        return refused("search", *options, "--corpus-vectors", kept)

    kept = tmp_path / "vectors"
    run(capsys, "--input", folder, "--model", pretrained, "--corpus-vectors", kept)
    message = f"{kept} was written with another "
    assert message + "model;" in other(encoder_checkpoint, folder)
    error = other(pretrained, folder, "--corpus-prompt", "the: ")
    assert message + "prompt; repeat the options, or choose another --corpus-v" in error
    changed = tmp_path / "changed"
    shutil.copytree(folder, changed)
    with (changed / "corpus.jsonl").open("a") as file:
        file.write('{"_id": "new", "text": "door"}\n')
    assert message + "corpus;" in other(pretrained, changed)
    kept = folder
    assert "is not a directory of such outputs" in other(pretrained, folder)


def test_documents_of_equal_score_are_ordered_as_by_trec_eval(
    folder, pretrained, reranker, tmp_path, capsys
):
    """By falling id, not in the order of the corpus; scores are those of the file."""
    texts = ["door", *["The judge in the garden."] * 3, "river"]
    rows = [{"_id": f"d{i}", "text": text} for i, text in enumerate(texts)]
    lines(tmp_path / "corpus.jsonl", rows)
    lines(tmp_path / "queries.jsonl", [{"_id": "q", "text": texts[2]}])
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text("q\td1\t1\n")
    found, again = tmp_path / "found.trec", tmp_path / "again.trec"
    for path, options in (
        (found, ("--model", pretrained)),
        (again, ("--run", found, "--reranker", reranker)),
    ):
        scores, _ = run(capsys, "--input", tmp_path, *options, "--output", path)
        fields = [line.split() for line in path.read_text().splitlines()]
        in_order = sorted(fields, key=lambda f: (float(f[4]), f[2]), reverse=True)
        names = [f[2] for f in in_order]
        assert list(read_run(path)["q"]) == names == [f[2] for f in fields]
        assert names.index("d1") == names.index("d3") + 2
        # Four digits are printed.
        assert scores["mrr@10"] == pytest.approx(1 / (names.index("d1") + 1), abs=1e-4)


def test_a_query_does_not_find_itself(folder, pretrained, reranker, tmp_path, capsys):
    """As in BEIR, where a document of the query's id is the query (ArguAna, Quora)."""
    (tmp_path / "corpus.jsonl").symlink_to(folder / "corpus.jsonl")
    texts = [json.loads(text) for text in (folder / "corpus.jsonl").open()]
    queries = [{"_id": "q0", "text": "door"}, {"_id": "d3", "text": texts[3]["text"]}]
    lines(tmp_path / "queries.jsonl", queries)
    path = tmp_path / "found.trec"
    options = ["--input", tmp_path, "--model", pretrained, "--output", path, "--k", 4]
    _, error = run(capsys, *options)
    found = read_run(path)
    assert "1 queries (d3) that are documents, too, do not find themselves" in error
    assert "d3" not in found["d3"] and len(found["d3"]) == 4 == len(found["q0"])
    _, error = run(capsys, *options, "--no-ignore-identical-ids")
    everything = read_run(path)
    assert "themselves" not in error
    assert next(iter(everything["d3"])) == "d3"
    assert list(everything["d3"])[1:] == list(found["d3"])[:3]
    # Nor does it stay in a first list.
    first, again = tmp_path / "first.run", tmp_path / "again.trec"
    first.write_text("".join(f"d3 Q0 d{i} 1 {9 - i} x\n" for i in (3, 5, 6)))
    options = ["--run", first, "--reranker", reranker, "--k", 2, "--output", again]
    run(capsys, "--input", tmp_path, *options)
    assert set(read_run(again)["d3"]) == {"d5", "d6"}


def test_a_memory_map_must_be_of_the_model(
    folder, pretrained, encoder_checkpoint, tmp_path
):
    """The record that `embed` writes beside its vectors is compared."""
    arguments = ["--input", str(folder / "corpus.jsonl"), "--output"]
    for name, model in (("own", pretrained), ("other", encoder_checkpoint)):
        output = str(tmp_path / name)
        assert main(["embed", "--model", str(model), *arguments, output]) == 0
    own, other = (
        np.load(tmp_path / name / "corpus.npy", mmap_mode="r")
        for name in ("own", "other")
    )
    assert own.shape == other.shape
    bert = bert_jax.load(pretrained)
    assert bert.search(["door"], own, 2).indices.shape == (1, 2)
    for search in (
        lambda: bert.search(["door"], other, 2),
        lambda: bert.similarity(["door"], other[:2]),
    ):
        with pytest.raises(ValueError, match="other/job.json says .* another model; m"):
            search()
    with pytest.raises(ValueError, match="made with another prompt ''; make"):
        bert.search(["door"], own, 2, corpus_prompt="the: ")
    # In memory, nothing says what made them.
    assert bert.search(["door"], np.array(other), 2).indices.shape == (1, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "Pass --model, which makes the vectors"),
        (("--run", "a.run"), "--run needs --reranker"),
        (
            ("--run", "a", "--reranker", "b", "--corpus-vectors", "c"),
            "--corpus-vectors has no effect with --run",
        ),
        (
            ("--run", "a", "--reranker", "b", "--query-prompt", "c: "),
            "--query-prompt has no effect with --run",
        ),
        (("--model", "{model}", "--reranker", "{model}"), "a reranker has a sequence"),
        (("--model", "{model}", "--split", "dev"), "name a split that"),
        (
            ("--model", "{model}", "--text-column", "body", "--delimiter", ";"),
            "delimiter, text_column: without effect with --input",
        ),
        (("--model", "{model}", "--k", "0"), "k=0 must be at least 1"),
        (("--model", "{model}", "--output", "a.json"), "must end in"),
    ],
)
def test_what_is_refused(folder, pretrained, options, message, capsys):
    arguments = [option.format(model=pretrained) for option in options]
    assert main(["search", "--input", str(folder), *arguments]) == 2
    error = capsys.readouterr().err.strip().splitlines()
    assert len(error) == 1 and message in error[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("q d\n", "line 1 has 2 fields; it must have three"),
        ("q\td\tx\n", "line 1: grade 'x' must be a whole number"),
        ("q\td\t--5\n", "line 1: grade '--5' must be a whole number"),
        (f"q\td\t{'9' * 400}\n", "line 1: grade '99999.* must be a whole number"),
        ("q\td\t1\nq\td\t0\n", "line 2 judges d for q again"),
    ],
)
def test_damaged_judgements(tmp_path, text, message):
    path = tmp_path / "test.tsv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_judgements(path)


def test_the_four_columns_of_trec(tmp_path):
    path = tmp_path / "test.tsv"
    path.write_text("q 0 d 1\nq 0 e 0\n")
    assert read_judgements(path) == {"q": {"d": 1, "e": 0}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("q Q0 d 1 0.5\n", "line 1 has 5 fields; it must have six"),
        ("q Q0 d 1 nan x\n", "line 1 has the score 'nan', which is no number"),
        ("q Q0 d 1 1 x\nq Q0 d 2 0 x\n", "line 2 lists d for q again"),
    ],
)
def test_damaged_lists(tmp_path, text, message):
    path = tmp_path / "a.run"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_run(path)


@pytest.mark.parametrize(
    ("corpus", "message"),
    [
        ('{"_id": "a", "text": "x"}\n{"_id": "a", "text": "y"}\n', "'a' stands twice"),
        ('{"_id": "a b", "text": "x"}\n', "'a b' must be a word"),
        ('{"_id": "a"}\n', "has no text"),
        ('{"_id": "a", "text": 3}\n', "text=3 must be a text"),
        ("", "has no lines"),
    ],
)
def test_damaged_corpora(folder, tmp_path, corpus, message):
    (tmp_path / "corpus.jsonl").write_text(corpus)
    with pytest.raises(ValueError, match=message):
        read_collection(tmp_path, "test")


@pytest.mark.parametrize("text", [" ", None])
def test_queries_without_text_are_named(text, folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "beir")
    lines(copy / "queries.jsonl", [{"_id": "q0", "text": text}])
    (note, *_) = read_collection(copy, "test").notes
    assert note.endswith("queries.jsonl: 1 queries (q0) without text.")


def test_queries_search_the_rows_of_a_file(pretrained, tmp_path, capsys):
    texts = ["The judge finds the door.", "", "The clerk hides the river, and more."]
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n")
    table = "id,body\n1,The judge finds the door.\n2,The clerk hides the river.\n"
    (tmp_path / "table.csv").write_text(table)
    queries = ["--query", texts[0], "--query", "river"]
    for name, *options in (["texts.txt"], ["table.csv", "--text-column", "body"]):
        corpus = str(tmp_path / name)
        assert (
            main(["search", str(pretrained), *queries, "--corpus", corpus, *options])
            == 0
        )
        printed = capsys.readouterr()
        lines = [line for line in printed.out.split("\n") if "empty rows" not in line]
        assert lines[0] == texts[0] and "river" in lines
        similarity, row, *words = lines[1].split()
        assert (float(similarity), row) == (pytest.approx(1, abs=1e-3), "1")
        assert " ".join(words) == texts[0]
        assert ("1 empty rows are left out" in printed.out) == (name == "texts.txt")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "search needs --query TEXT with --corpus FILE, or --input DIRECTORY"),
        (("--query", "a"), "--query and --corpus need each other"),
        (("--corpus", "texts.txt"), "--query and --corpus need"),
        (("--query", " ", "--corpus", "table.csv"), "query is empty; give a text"),
        (
            ("--query", "a", "--corpus", "b.txt", "--split", "dev"),
            "split: without effect",
        ),
        (("--query", "a", "--corpus", "table.csv"), "columns are id, body."),
    ],
)
def test_a_search_of_nothing_is_refused(
    pretrained, tmp_path, refused, options, message
):
    (tmp_path / "table.csv").write_text("id,body\n1,door\n")
    options = [str(tmp_path / o) if o == "table.csv" else o for o in options]
    error = refused("search", str(pretrained), *options)
    assert message in error and "\n" not in error

"""A model over the files of a corpus: every kind of file, resuming, damage, engines."""

import gzip
import io
import json
import os
import subprocess
import sys
from csv import DictReader
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.dataset import dataset
from small_world import SUBJECTS

from bert_jax.apps.corpus.corpus import FilesProgress
from bert_jax.apps.corpus.shard_outputs import EmbedShards, PredictShards
from bert_jax.apps.corpus.shards import find_shards, with_absolute_path
from bert_jax.cli.main import main
from bert_jax.config import ExamplesConfig
from bert_jax.inference.predictor import load
from bert_jax.inference.row_predictions import Request
from bert_jax.storage.file_lock import lock_file
from bert_jax.terminal.progress import format_duration

TEXTS = {
    name: [f"The {SUBJECTS[i % 2]} reads {i} in the {name}." for i in range(size)]
    for name, size in {"a": 5, "b": 40, "c": 3, "d": 7, "e": 9}.items()
}


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> Path:
    """The same columns in five kinds of files."""
    folder = tmp_path_factory.mktemp("corpus")
    rows = {
        name: [{"id": f"{name}{i}", "review": text} for i, text in enumerate(texts)]
        for name, texts in TEXTS.items()
    }
    lines = {n: "".join(json.dumps(r) + "\n" for r in own) for n, own in rows.items()}
    (folder / "a.jsonl").write_text(lines["a"])
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(lines["b"].encode()))
    packed = pa.compress(lines["c"].encode(), codec="zstd", asbytes=True)
    (folder / "c.jsonl.zst").write_bytes(packed)
    pq.write_table(pa.Table.from_pylist(rows["d"]), folder / "d.parquet")
    (folder / "e.csv").write_text(
        "id,review\n" + "".join(f"{r['id']},{r['review']}\n" for r in rows["e"])
    )
    return folder


@pytest.fixture(scope="module")
def model(classifier) -> Path:
    return classifier


def predict(model: Path, shards: Path, output: Path, *options: str) -> int:
    where = ("--model", str(model), "--input", str(shards / "*"))
    return main(["predict", *where, "--output", str(output), *options])


BY_BEAM = ("--engine", "beam", "--", "--runner=BundleBasedDirectRunner")


def predict_by_beam(model: Path, shards: Path, output: Path, *options: str):
    """In a process of its own: Beam warns of much, and here warnings are errors."""
    pytest.importorskip("apache_beam")
    where = ("--model", str(model), "--input", str(shards / "*"))
    command = [sys.executable, "-m", "bert_jax", "predict", *where]
    return subprocess.run(
        [*command, "--output", str(output), *options, *BY_BEAM],
        capture_output=True,
        text=True,
    )


def embed_by_beam(model: Path, shards: Path, output: Path, *options: str):
    """As `predict_by_beam`."""
    pytest.importorskip("apache_beam")
    where = ("--model", str(model), "--input", str(shards / "*"))
    command = [sys.executable, "-m", "bert_jax", "embed", *where]
    return subprocess.run(
        [*command, "--output", str(output), *options, *BY_BEAM],
        capture_output=True,
        text=True,
    )


def outputs(directory: Path) -> dict[str, bytes]:
    """Every file of an output directory, the hidden ones too.

    Of the record of the job, the times of the inputs are left out.
    """
    files = {path.name: path.read_bytes() for path in directory.iterdir()}
    if "job.json" in files:
        record = json.loads(files["job.json"])
        sizes = {name: size for name, (size, _) in record.pop("inputs").items()}
        files["job.json"] = json.dumps([record, sizes]).encode()
    return files


@pytest.fixture(scope="module")
def predicted(model, shards, tmp_path_factory) -> Path:
    output = tmp_path_factory.mktemp("predicted") / "out"
    assert predict(model, shards, output) == 0
    return output


def test_each_file_has_the_predictions_of_its_rows(model, predicted):
    classify = load(model).classify
    names = {f"{name}.jsonl" for name in TEXTS} | {"job.json"}
    assert set(outputs(predicted)) == names
    for name, texts in TEXTS.items():
        lines = (predicted / f"{name}.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in lines]
        assert [row["id"] for row in rows] == [f"{name}{i}" for i in range(len(texts))]
        expected = classify(texts)
        assert [row["label"] for row in rows] == [p["label"] for p in expected]
        for row, value in zip(rows, expected, strict=True):
            assert row["probabilities"] == pytest.approx(value["probabilities"])


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_the_kind_of_the_outputs_is_an_option(
    model, shards, predicted, kind, tmp_path, capsys
):
    assert predict(model, shards, tmp_path / "out", "--format", kind) == 0
    assert "out: 5 files were written.\n" in capsys.readouterr().out
    table = tmp_path / "out" / f"d.{kind}"
    if kind == "parquet":
        found = pq.read_table(table).column("id").to_pylist()
    else:
        found = [line.split(",")[0] for line in table.read_text().splitlines()[1:]]
    assert found == [f"d{i}" for i in range(7)]


def test_the_same_command_writes_what_is_missing(
    model, shards, predicted, tmp_path, capsys
):
    output = tmp_path / "out"
    output.mkdir()
    for name in ("job.json", "a.jsonl", "d.jsonl"):
        (output / name).write_bytes((predicted / name).read_bytes())
    before = (output / "a.jsonl").stat().st_mtime_ns
    assert predict(model, shards, output) == 0
    printed = capsys.readouterr().out
    assert "2 of 5 files are there already." in printed
    assert "3 files were written." in printed
    assert (output / "a.jsonl").stat().st_mtime_ns == before
    assert outputs(output) == outputs(predicted)


def test_other_options_need_another_directory(model, shards, predicted, capsys):
    kept = outputs(predicted)
    assert predict(model, shards, predicted, "--columns", "*") == 2
    assert "was written with another columns; repeat" in capsys.readouterr().err
    other = ["embed", "--model", str(model), "--input", str(shards / "*")]
    assert main([*other, "--output", str(predicted)]) == 2
    assert outputs(predicted) == kept


@pytest.mark.slow
def test_the_bytes_by_beam_are_the_same(model, shards, predicted, tmp_path):
    output = tmp_path / "out"
    result = predict_by_beam(model, shards, output)
    assert result.returncode == 0, result.stderr
    assert outputs(output) == outputs(predicted)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_the_bytes_of_tables_by_beam_are_the_same(kind, model, shards, tmp_path):
    options = ("--format", kind)
    assert predict(model, shards, tmp_path / "local", *options) == 0
    result = predict_by_beam(model, shards, tmp_path / "beam", *options)
    assert result.returncode == 0, result.stderr
    assert outputs(tmp_path / "beam") == outputs(tmp_path / "local")


@pytest.mark.slow
def test_the_bytes_of_embeddings_by_beam_are_the_same(model, shards, tmp_path):
    options = ["--text-column", "review"]
    where = ["--model", str(model), "--input", str(shards / "*")]
    local = tmp_path / "local"
    assert main(["embed", *where, "--output", str(local), *options]) == 0
    result = embed_by_beam(model, shards, tmp_path / "beam", *options)
    assert result.returncode == 0, result.stderr
    assert outputs(tmp_path / "beam") == outputs(local)


@pytest.fixture
def damaged(shards, tmp_path) -> Path:
    """Of the five files two cannot be read."""
    folder = tmp_path / "damaged"
    folder.mkdir()
    for path in shards.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    packed = (shards / "b.jsonl.gz").read_bytes()
    (folder / "b.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    (folder / "d.parquet").write_bytes(b"PAR1 and nothing else PAR1")
    return folder


def check_left_out(damaged: Path, out: str, err: str, output: Path, whole) -> None:
    """Two files are left out, and the others have their bytes."""
    assert "3 files were written; 2 were left out." in out
    for name in ("b.jsonl.gz", "d.parquet"):
        assert f"Left out: {damaged / name} is damaged" in err
    found = outputs(output)
    assert set(whole) - set(found) == {"b.jsonl", "d.jsonl"}
    assert set(found) - set(whole) == {"b.damaged", "d.damaged"}
    assert all(found[f"{name}.jsonl"] == whole[f"{name}.jsonl"] for name in "ace")


@pytest.mark.slow
def test_damaged_files_are_left_out_by_beam_too(model, predicted, damaged, tmp_path):
    output = tmp_path / "out"
    result = predict_by_beam(model, damaged, output, "--skip-damaged")
    assert result.returncode == 0, result.stderr
    check_left_out(damaged, result.stdout, result.stderr, output, outputs(predicted))


def test_damaged_files_are_named_and_may_be_left_out(
    model, shards, predicted, damaged, tmp_path, capsys
):
    output, whole = tmp_path / "out", outputs(predicted)
    assert predict(model, damaged, output) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert f"{damaged / 'b.jsonl.gz'} is damaged or not gzip" in line
    assert "pass --skip-damaged" in line
    assert "So it is with 2 of 5 files" in line
    assert not output.exists(), "it is refused before anything is computed"
    assert predict(model, damaged, output, "--skip-damaged") == 0
    captured = capsys.readouterr()
    check_left_out(damaged, captured.out, captured.err, output, whole)
    # Once they are repaired, the same command completes the work.
    for name in ("b.jsonl.gz", "d.parquet"):
        (damaged / name).write_bytes((shards / name).read_bytes())
    assert predict(model, damaged, output) == 0
    assert outputs(output) == whole


def test_if_no_file_can_be_read_it_is_an_error(model, tmp_path, capsys):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"other": "column"}\n')
    assert predict(model, tmp_path / "in", tmp_path / "out", "--skip-damaged") == 2
    message = capsys.readouterr().err
    assert "None of 1 files can be read" in message and "has no review" in message


def test_a_mistyped_column_leaves_nothing(model, shards, tmp_path, refused):
    command = ["embed", "--model", str(model), "--input", str(shards / "*")]
    command += ["--output", str(tmp_path / "out"), "--text-column"]
    line = refused(*command, "revue")
    assert "has no revue; its columns are id, review" in line
    assert "Name the column by --text-column" in line and "--skip" not in line
    assert not (tmp_path / "out").exists()
    (tmp_path / "out").mkdir()
    assert main([*command, "revue"]) == 2
    assert not list((tmp_path / "out").iterdir())
    assert main([*command, "review"]) == 0


@pytest.mark.parametrize("verb", ["predict", "features"])
def test_the_input_is_not_replaced(verb, model, shards, tmp_path, refused):
    name = {"predict": "a.csv", "features": "a.jsonl"}[verb]
    content = {"predict": "review\nThe tea\n", "features": "The tea\n"}[verb]
    (tmp_path / name).write_text(content)
    (tmp_path / f"link-{name}").symlink_to(tmp_path / name)
    option = {"predict": "--model", "features": "--model"}[verb]
    command = [verb, option, str(model), "--input", str(tmp_path / name), "--output"]
    for output in (name, f"link-{name}"):
        assert "is the input; it would be lost" in refused(
            *command, str(tmp_path / output)
        )
    assert (tmp_path / name).read_text() == content


@pytest.mark.parametrize("name", ["out.npy", "out.parquet"])
def test_vectors_need_a_directory(name, model, shards, tmp_path, refused):
    command = ["embed", "--model", str(model), "--input", str(shards / "*")]
    assert "must be a directory, with an .npy file" in refused(
        *command, "--output", str(tmp_path / name)
    )
    assert not (tmp_path / name).exists()


def test_progress_over_files(shards):
    files = find_shards([str(shards)], Path("out"))
    progress = FilesProgress(files)
    progress.advance(30)
    assert progress.line(10.0) == "0/5 files, 30 rows, 3/s"
    progress.end_file()
    sizes = [Path(file.path).stat().st_size for file in files]
    left = format_duration(10.0 * sum(sizes[1:]) / sizes[0])
    assert progress.line(10.0) == f"1/5 files, 30 rows, 3/s, {left} left"


def test_vectors_of_each_text_in_order(model, shards, tmp_path):
    command = ["embed", "--model", str(model), "--input", str(shards / "*")]
    command += ["--text-column", "review", "--normalize", "True"]
    assert main([*command, "--output", str(tmp_path / "out")]) == 0
    predictor = load(model)
    for name, texts in TEXTS.items():
        found = np.load(tmp_path / "out" / f"{name}.npy")
        assert found.dtype == np.float32
        expected = predictor.embed(texts, normalize=True)
        np.testing.assert_allclose(found, expected, atol=1e-6)
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.jsonl", '{"review": "a"}\nlue": 3}\n', "a.jsonl, line 2"),
        ("a.jsonl", '"a text"\n', "a.jsonl, line 1"),
        ("a.json", '[{"review": "a"}]\n', "is one JSON value; write an object a line"),
        ("a.jsonl.gz", "", "a.jsonl.gz is damaged or not gzip (it is empty)"),
    ],
)
def test_torn_lines_are_no_texts(model, tmp_path, capsys, name, content, says):
    (tmp_path / name).write_text(content)
    assert predict(model, tmp_path, tmp_path / "out") == 2
    assert says in capsys.readouterr().err


def test_braces_are_text_and_the_last_lines_may_be_blank(model, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("one\n{{Infobox}}\n\n \n")
    assert predict(model, tmp_path / "in", tmp_path / "out") == 0
    assert len((tmp_path / "out" / "a.jsonl").read_text().splitlines()) == 2


def test_other_bits_and_forms_are_another_job(model, shards, predicted, capsys):
    kept = outputs(predicted)
    for option in (("--format", "csv"), ("--batch-size", "7")):
        assert predict(model, shards, predicted, *option) == 2
        assert "was written with another " in capsys.readouterr().err
    assert outputs(predicted) == kept


def test_vectors_by_another_delimiter_are_another_job(model, tmp_path, capsys):
    (tmp_path / "a.csv").write_text("text;n,m\nA cat.;1,2\n")
    command = ["embed", "--model", str(model), "--input", str(tmp_path / "a.csv")]
    command += ["--output", str(tmp_path / "out"), "--delimiter"]
    assert main([*command, ";"]) == main([*command, ";"]) == 0
    assert main([*command, ","]) == 2
    assert "was written with another delimiter; repeat" in capsys.readouterr().err


def test_outputs_are_no_inputs_and_changed_inputs_are_done_again(model, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"review": "a"}\n')
    for _ in range(2):
        assert predict(model, tmp_path, tmp_path / "out") == 0
    assert set(outputs(tmp_path / "out")) == {"a.jsonl", "job.json"}
    before = (tmp_path / "out" / "a.jsonl").stat()
    (tmp_path / "a.jsonl").write_text('{"review": "a"}\n{"review": "b"}\n')
    os.utime(tmp_path / "a.jsonl", ns=(before.st_mtime_ns + 1, before.st_mtime_ns + 1))
    assert predict(model, tmp_path, tmp_path / "out") == 0
    assert len((tmp_path / "out" / "a.jsonl").read_text().splitlines()) == 2


def test_long_texts_are_cut(model, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"review": "' + "fox " * 500 + '"}\n')
    command = ["embed", "--model", str(model), "--input", str(tmp_path / "a.jsonl")]
    command += ["--text-column", "review", "--output", str(tmp_path / "out")]
    assert main(command) == 0
    assert len(np.load(tmp_path / "out" / "a.npy")) == 1


def test_two_files_of_one_name_are_refused(model, tmp_path, capsys):
    for name in ("a.jsonl", "a.csv"):
        (tmp_path / name).write_text("review\n")
    assert predict(model, tmp_path, tmp_path / "out" / "x") == 2
    assert "would both be written as a; rename" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_files_without_rows_have_outputs_without_rows(model, tmp_path):
    source = tmp_path / "in"
    source.mkdir()
    (source / "a.jsonl").write_text("\n")
    (source / "b.CSV").write_text("review\n")
    (source / "c.txt").write_bytes(b"")
    empty = pa.table({"review": pa.array([], pa.string())})
    pq.write_table(empty, source / "d.parquet")
    (source / "e.jsonl.gz").write_bytes(gzip.compress(b""))
    (source / "f.csv").write_bytes(b"")
    (source / "g.CSV").write_text("review\nThe judge reads.\n")
    for kind in ("jsonl", "csv", "parquet"):
        assert predict(model, source, tmp_path / kind, "--format", kind) == 0
        assert len(outputs(tmp_path / kind)) == 8
    for name in "abcef":
        assert (tmp_path / "jsonl" / f"{name}.jsonl").read_bytes() == b""
        assert (tmp_path / "csv" / f"{name}.csv").read_bytes() == b""
        assert pq.read_table(tmp_path / "parquet" / f"{name}.parquet").num_rows == 0
    assert len((tmp_path / "jsonl" / "g.jsonl").read_text().splitlines()) == 1
    command = ["embed", "--model", str(model), "--input", str(source / "*.parquet")]
    command += ["--text-column", "review", "--output", str(tmp_path / "vectors")]
    assert main(command) == 0
    assert np.load(tmp_path / "vectors" / "d.npy").shape == (0, 16)


def test_numbers_that_json_does_not_have_become_null(model, tmp_path):
    values = [float("nan"), float("inf"), 0.5]
    nested = [[{"v": value}] for value in values]
    table = {"review": ["a", "b", "c"], "n": values, "nested": nested}
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    assert predict(model, tmp_path, tmp_path / "out", "--columns", "*") == 0
    text = (tmp_path / "out" / "a.jsonl").read_text()
    rows = [json.loads(line, parse_constant=pytest.fail) for line in text.splitlines()]
    assert [row["n"] for row in rows] == [None, None, 0.5]
    assert [row["nested"][0]["v"] for row in rows] == [None, None, 0.5]


def test_one_process_writes_and_removes_what_a_killed_one_left(
    model, shards, predicted, tmp_path, capsys
):
    output = tmp_path / "out"
    output.mkdir()
    left = ("job.json.0123abcd.tmp", "b.jsonl.0123abcd.tmp")
    (output / left[0]).write_text("{")  # killed before it had begun
    (output / ".lock").touch()
    with (output / ".lock").open("w") as file:
        lock_file(file, output)
        assert predict(model, shards, output) == 2
        message = f"output={output} is being written by another process; wait for it"
        assert message in capsys.readouterr().err
    assert predict(model, shards, output) == 0
    (output / left[1]).write_text("{")
    (output / "b.jsonl").unlink()
    assert predict(model, shards, output) == 0
    assert outputs(output) == outputs(predicted)


def test_workers_find_the_files_from_other_directories(
    model, shards, tmp_path, monkeypatch
):
    monkeypatch.chdir(model.parent)
    (shard,) = find_shards([os.path.relpath(shards / "a.jsonl")], tmp_path)
    assert with_absolute_path(shard).path == str(shards / "a.jsonl")
    jobs = [EmbedShards(name).with_absolute_paths() for name in ("run", "hf:a/b")]
    assert [job.model for job in jobs] == [str(model), "hf:a/b"]
    request = Request("run", "", ExamplesConfig(), batch_size=2)
    assert PredictShards(request).with_absolute_paths().request.checkpoint == str(model)


def test_one_file_may_be_packed(model, shards, tmp_path, capsys, refused):
    """By its name alone, without a directory as output."""
    where = ["predict", "--model", str(model), "--input"]
    upper = tmp_path / "E.CSV"
    upper.write_bytes((shards / "e.csv").read_bytes())
    names = {
        shards / "b.jsonl.gz": 40,
        shards / "c.jsonl.zst": 3,
        shards / "d.parquet": 7,
    } | {upper: 9}
    for path, count in names.items():
        assert main([*where, str(path)]) == 0
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        name = path.name[0].lower()
        assert [row["id"] for row in rows] == [f"{name}{i}" for i in range(count)]
        output = ["--output", str(tmp_path / "out.JSONL"), "--overwrite"]
        assert main([*where, str(path), *output]) == 0
        written = (tmp_path / "out.JSONL").read_text().splitlines()
        assert [json.loads(line) for line in written] == rows
        assert f"{count} predictions of {path}" in capsys.readouterr().out
    (tmp_path / "a.jsonl.bz2").touch()
    assert "is of an unsupported kind; unpack it" in refused(
        *where, str(tmp_path / "a.jsonl.bz2")
    )


def test_tables_of_all_files_are_read_as_one(model, tmp_path):
    """By the recipe of docs/finetuning.md: types follow the values of each file."""
    source, output = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    for name, values in {"a": [], "b": [None], "c": [1], "d": [1.5]}.items():
        rows = [{"review": name, "n": value} for value in values]
        (source / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert predict(model, source, output, "--format", "parquet", "--columns", "n") == 0
    files = sorted(map(str, output.glob("*.parquet")))
    schemas = [pq.read_schema(file) for file in files]
    schema = pa.unify_schemas(schemas, promote_options="permissive")
    table = dataset(files, schema=schema).to_table()
    assert table.column("n").to_pylist() == [None, 1.0, 1.5]
    assert table.column("label").null_count == 0


DAMAGED_ROWS = [
    {"id": 1, "review": "The judge reads."},
    {"id": 2, "review": ""},
    {"id": 3},
    {"id": 4, "review": None},
    {"id": 5, "review": "The \ud83d reads."},
    {"id": "\ud83d", "review": "The judge reads."},
    {"id": 7, "review": "The king reads."},
]
GOOD = [True, False, False, False, False, False, True]


@pytest.fixture
def with_damaged_rows(tmp_path) -> Path:
    """A corpus of two files, one of them with five damaged rows."""
    folder = tmp_path / "rows"
    folder.mkdir()
    (folder / "a.txt").write_text("The judge reads.\nThe king reads.\n")
    lines = [json.dumps(row) for row in DAMAGED_ROWS]
    (folder / "b.jsonl").write_text("\n".join(lines) + "\n")
    return folder


REASON = "b.jsonl, line 2: review is empty; write a text, or drop it. So 5 of 7 rows"


@pytest.mark.parametrize("verb", ["a file", "a directory", "vectors"])
def test_damaged_rows_are_refused_before_any_is_computed(
    verb, model, with_damaged_rows, tmp_path, capsys
):
    source, output = str(with_damaged_rows / "*"), str(tmp_path / "out")
    command = ["predict", "--model", str(model)]
    if verb == "a file":
        source, output = str(with_damaged_rows / "b.jsonl"), f"{output}.jsonl"
    if verb == "vectors":
        command = ["embed", "--model", str(model), "--text-column", "review"]
    assert main([*command, "--input", source, "--output", output]) == 2
    printed, error = capsys.readouterr()
    number = REASON.replace("5 of 7", "4 of 7") if verb == "vectors" else REASON
    assert f"{number} cannot be used; correct them, or leave them out" in error
    assert "by --skip-damaged" in error
    assert printed == "" and list(tmp_path.iterdir()) == [with_damaged_rows]


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_a_damaged_row_has_null_for_a_prediction(
    kind, model, with_damaged_rows, tmp_path, capsys
):
    """In its place, so that predictions and rows can be put side by side."""
    options = ("--format", kind, "--skip-damaged")
    assert predict(model, with_damaged_rows, tmp_path / "out", *options) == 0
    assert f"{REASON} cannot be used" not in (error := capsys.readouterr().err)
    assert "b.jsonl: 5 of 7 rows cannot be used, and have null for a predic" in error
    table = tmp_path / "out" / f"b.{kind}"
    one = ["predict", "--model", str(model), "--skip-damaged", "--input"]
    one += [str(with_damaged_rows / "b.jsonl"), "--output"]
    assert main([*one, str(tmp_path / f"b.{kind}")]) == 0
    assert (tmp_path / f"b.{kind}").read_bytes() == table.read_bytes()
    if kind == "jsonl":
        rows = [json.loads(line) for line in table.read_text().splitlines()]
        assert rows[1]["probabilities"] == dict.fromkeys(rows[0]["probabilities"])
        assert [row["id"] for row in rows] == [1, 2, 3, 4, 5, None, 7]
    elif kind == "parquet":
        rows = pq.read_table(table).to_pylist()
    else:
        with table.open(newline="") as file:
            rows = [{k: v or None for k, v in row.items()} for row in DictReader(file)]
    assert [row["label"] is not None for row in rows] == GOOD


def test_a_damaged_row_without_an_id_has_no_other_columns(model, tmp_path, capsys):
    (tmp_path / "a.csv").write_text("review,who\nGood.,me\n,you\n")
    where = ["predict", "--model", str(model), "--input", str(tmp_path / "a.csv")]
    assert main([*where, "--skip-damaged"]) == 0
    good, damaged = map(json.loads, capsys.readouterr().out.splitlines())
    assert list(damaged) == list(good) == ["label", "probabilities"]


def test_a_row_without_text_has_nan_for_a_vector(
    model, with_damaged_rows, tmp_path, capsys
):
    command = ["embed", "--model", str(model), "--text-column", "review"]
    command += ["--input", str(with_damaged_rows / "*"), "--skip-damaged"]
    assert main([*command, "--output", str(tmp_path / "out")]) == 0
    assert "4 of 7 rows cannot be used, and have NaN" in capsys.readouterr().err
    vectors = np.load(tmp_path / "out" / "b.npy")
    assert vectors.shape[0] == 7
    known = np.isfinite(vectors).all(axis=1)
    assert known.tolist() == [True, False, False, False, False, True, True]


def test_the_first_rows_may_all_be_damaged(model, tmp_path, capsys, refused):
    """More than are in memory at a time, before the fields of any are known."""
    (tmp_path / "a.csv").write_text(
        "review,n\n" + "one,2,3\n" * 1500 + "The judge reads.,1\n"
    )
    command = ["predict", "--model", str(model), "--input", f"{tmp_path}/a.csv"]
    error = refused(*command)
    assert (
        "a.csv, line 2 has 3 fields; the header has 2: review, n. So 1,500 of" in error
    )
    assert main([*command, "--skip-damaged", "--columns", "n"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == 1501
    assert rows[0] == {"n": "2", **dict.fromkeys(rows[0].keys() - {"n"})} | {
        "probabilities": dict.fromkeys(rows[-1]["probabilities"])
    }
    assert rows[-1]["n"] == "1" and rows[-1]["label"]
    (tmp_path / "a.csv").write_text("review,n\n" + "one,2,3\n" * 9)
    assert "So 9 of 9 rows cannot be used." in refused(*command, "--skip-damaged")


def test_lines_of_standard_input_are_refused_one_by_one(model, monkeypatch, capsys):
    typed = '{"review": "The judge reads."}\n\n{"review": "The king reads."}\n'
    for option in ((), ("--skip-damaged",)):
        stdin = io.TextIOWrapper(io.BytesIO(typed.encode()))
        monkeypatch.setattr(sys, "stdin", stdin)
        code = main(["predict", "--model", str(model), *option])
        printed, error = capsys.readouterr()
        if not option:
            assert code == 2 and printed == ""
            assert "standard input, line 2: review is empty" in error
            assert "--skip-damaged leaves such rows out" in error
    assert code == 0
    labels = [json.loads(line)["label"] for line in printed.splitlines()]
    assert labels[0] and labels[1] is None and labels[2]
    assert "standard input: 1 of 3 rows cannot be used" in error


@pytest.mark.parametrize("verb", ["predict", "embed"])
def test_an_older_file_of_other_content_is_computed_again(
    verb, model, tmp_path, capsys
):
    """A copy that keeps its time, of the same size: neither says that it is new."""
    source = tmp_path / "a.jsonl"
    option = {"predict": "--model", "embed": "--model"}[verb]
    command = [verb, option, str(model), "--input", str(source)]
    command += ["--output", str(tmp_path / "out")]
    command += ["--text-column", "review"] * (verb == "embed")
    results = []
    for text, time in (("judge", 2), ("baker", 1), ("baker", 1)):
        source.write_text(f'{{"review": "The {text} reads."}}\n')
        os.utime(source, ns=(time * 10**18, time * 10**18))
        assert main(command) == 0
        (output,) = set((tmp_path / "out").iterdir()) - {tmp_path / "out" / "job.json"}
        results.append(output.read_bytes())
    assert results[0] != results[1] == results[2]
    assert "1 of 1 files are there already" in capsys.readouterr().out


def test_a_directory_of_an_older_version_is_continued(model, shards, tmp_path, capsys):
    """Its record has neither the marks of the inputs nor newer options."""
    output = tmp_path / "out"
    assert predict(model, shards, output) == 0
    record = json.loads((output / "job.json").read_text())
    del record["inputs"], record["data"]["delimiter"], record["data"]["skip_damaged"]
    (output / "job.json").write_text(json.dumps(record))
    (output / "a.jsonl").unlink()
    capsys.readouterr()
    assert predict(model, shards, output) == 0
    printed = capsys.readouterr().out
    assert "4 of 5 files are there already." in printed
    assert set(json.loads((output / "job.json").read_text())["inputs"]) == set("abcde")

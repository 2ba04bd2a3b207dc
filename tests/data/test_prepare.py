import dataclasses
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from bert_jax.config import PrepareConfig
from bert_jax.data import chunks
from bert_jax.data.chunks import DEFAULT_LAYOUT, Layout, assign_shards
from bert_jax.data.dataset_manifest import SPLITS
from bert_jax.data.prepare import prepare as prepare_dataset
from bert_jax.data.records import open_dataset
from bert_jax.storage.manifest import MANIFEST, DamagedError
from bert_jax.tokenization import SPECIAL_TOKENS, Tokenizer

SPECIAL = list(SPECIAL_TOKENS)
LAYOUT = Layout(chunk_bytes=4000, shard_bytes=10_000)
WORDS = [f"w{n}" for n in range(50)] + [f"s{n}" for n in range(100)]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tokenizer")
    tokens = [*SPECIAL, *WORDS, "[", "]", "mask", "."]
    Tokenizer(
        {"kind": "wordpiece", "cased": False},
        "".join(token + "\n" for token in tokens).encode(),
    ).save(directory)
    return directory


def write_corpus(folder, sources=10, documents=8, sentences=12):
    """Files whose every sentence begins with the source's own word."""
    rng = np.random.default_rng(0)
    folder.mkdir(exist_ok=True)
    for source in range(sources):
        text = ""
        for _ in range(documents):
            for words in rng.integers(0, 50, (sentences, 6)):
                text += f"s{source} " + " ".join(f"w{w}" for w in words) + "\n"
            text += "\n"
        (folder / f"{source:03d}.txt").write_text(text)
    return folder


prepare = functools.partial(prepare_dataset, layout=LAYOUT)


@pytest.fixture
def config(tmp_path, tokenizer):
    write_corpus(tmp_path / "text")
    return PrepareConfig(
        input=(str(tmp_path / "text" / "*.txt"),),
        tokenizer=str(tokenizer),
        output=str(tmp_path / "data"),
        sequence_length=32,
        sentences="lines",
        validation_fraction=0.1,
        workers=1,
    )


def change(config, **changes):
    return PrepareConfig(**(vars(config) | changes))


def contents(directory):
    root = Path(directory)
    paths = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


def silent(line):
    pass


def test_the_dataset_is_as_its_manifest_says(config):
    manifest = prepare(config, silent)
    dataset = open_dataset(config.output, verify=True)
    assert dataset.manifest == json.loads(json.dumps(manifest))
    assert not (Path(config.output) / chunks.UNFINISHED).exists()
    assert dataset.tokenizer.fingerprint == manifest["tokenizer"]["fingerprint"]
    assert sum(manifest["counts"][s]["documents"] for s in SPLITS) == 80
    assert sum(manifest["counts"][s]["sentences"] for s in SPLITS) == 960
    for split in SPLITS:
        rows, counts = getattr(dataset, split), manifest["counts"][split]
        every = rows.gather(np.arange(len(rows)))
        assert counts["pairs"] == len(rows) > 10
        assert counts["tokens"] == every["end"].sum()
        assert counts["tokens"] == (every["tokens"] != 0).sum()
        assert counts["padding"] == (every["tokens"] == 0).sum()
        assert counts["random_pairs"] == (every["next_sentence_label"] == 1).sum()
        share = counts["random_pairs"] / counts["pairs"]
        assert counts["random_share"] == pytest.approx(share, abs=1e-6)
        check_rows(every)
    assert config.output not in json.dumps(manifest)
    assert [source["name"] for source in manifest["sources"]][:2] == [
        "000.txt",
        "001.txt",
    ]


def check_rows(rows):
    """[CLS] A [SEP] B [SEP] and nothing special elsewhere."""
    cls_id, sep_id = SPECIAL.index("[CLS]"), SPECIAL.index("[SEP]")
    for row in rows:
        (first,), (second,), (end,) = row["first"], row["second"], row["end"]
        places = {int(first): cls_id, second - 1: sep_id, end - 1: sep_id}
        for place, token in enumerate(row["tokens"][:end].tolist()):
            assert token == places.get(place, max(token, len(SPECIAL)))
        assert 1 < second - 1 < end - 2


def test_the_same_bytes_whatever_the_workers(config, tmp_path):
    prepare(config, silent)
    other = change(config, output=str(tmp_path / "other"), workers=2)
    prepare(other, silent)
    assert contents(other.output) == contents(config.output)
    assert len(list(Path(other.output).glob("*.npy"))) == 3


def test_the_bytes_hang_on_the_seed_and_not_on_where_the_text_lies(config, tmp_path):
    prepare(config, silent)
    moved = (tmp_path / "text").rename(tmp_path / "moved")
    same = change(config, input=(str(moved / "*"),), output=str(tmp_path / "same"))
    prepare(same, silent)
    assert contents(same.output) == contents(config.output)
    other = change(same, seed=1, output=str(tmp_path / "other"))
    prepare(other, silent)
    assert contents(other.output) != contents(config.output)


PREPARE = """
import json, sys
from bert_jax.config import PrepareConfig
from bert_jax.data.chunks import DEFAULT_LAYOUT, Layout, assign_shards
from bert_jax.data.prepare import prepare

if __name__ == "__main__":
    values, layout = map(json.loads, sys.argv[1:])
    as_given = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    config = PrepareConfig(**as_given)
    print("ready", flush=True)
    prepare(config, layout=Layout(**layout))
"""


@pytest.fixture
def process(tmp_path):
    """Starts `prepare` as a process, which has read its modules when this returns."""
    script = tmp_path / "script.py"
    script.write_text(PREPARE)

    def start(config):
        values = json.dumps(vars(config)), json.dumps(vars(LAYOUT))
        process = subprocess.Popen(
            [sys.executable, str(script), *values],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.getcwd()},
        )
        assert process.stdout.readline() == "ready\n"
        return process

    return start


def kill_when(process, condition):
    """SIGKILL, as soon as the condition holds."""
    with process:
        while not condition():
            assert process.poll() is None, "it ended before"
            time.sleep(0.001)
        process.kill()


def unfinished(config, pattern):
    return list((Path(config.output) / chunks.UNFINISHED).glob(pattern))


def test_a_killed_run_is_continued_to_the_same_bytes(config, process, tmp_path):
    whole = change(config, output=str(tmp_path / "whole"))
    prepare(whole, silent)
    kill_when(process(config), lambda: len(unfinished(config, "*.json")) > 6)
    with pytest.raises(FileNotFoundError, match="absent or unfinished"):
        open_dataset(config.output)
    # One of the chunks is damaged meanwhile: it must be made again, not believed.
    number = len(unfinished(config, "train-*.json"))
    first = sorted(Path(config.output).glob("*.npy"))[0]
    content = bytearray(first.read_bytes())
    content[300] ^= 1
    first.write_bytes(content)
    lines = []
    prepare(config, lines.append)
    assert 0 < int(lines[0].split(" of ")[0]) < number
    assert contents(config.output) == contents(whole.output)


def test_a_run_killed_while_it_wrote_the_manifest_leaves_no_other_file(
    config, tmp_path
):
    whole = change(config, output=str(tmp_path / "whole"))
    prepare(whole, silent)
    path = put_in_the_way(config, "train-000002")
    with pytest.raises(OSError, match="Is a directory"):
        prepare(config, silent)
    path.rmdir()
    (Path(config.output) / f"{MANIFEST}.0123abcd.tmp").write_text("half of it")
    prepare(config, silent)
    assert contents(config.output) == contents(whole.output)


def test_killed_at_any_moment_it_goes_on_to_the_same_bytes(config, process, tmp_path):
    """Also within a write: chunks and shards are cut off, or are there twice."""
    whole = change(config, output=str(tmp_path / "whole"))
    start = time.monotonic()
    prepare(whole, silent)
    seconds = time.monotonic() - start
    generator, kills = np.random.default_rng(0), 0
    for workers in (1, 1, 1, 2, 1, 1):
        running = process(change(config, workers=workers))
        with running:
            time.sleep(generator.uniform(0, seconds * (1 if workers == 1 else 3) / 2))
            kills += running.poll() is None
            running.kill()
        if (Path(config.output) / MANIFEST).exists():
            shutil.rmtree(config.output)
        if rows := unfinished(config, "*.rows"):
            rows[0].write_bytes(rows[0].read_bytes()[:-1])
        for path in list(Path(config.output).glob("*.npy"))[1:2]:
            path.write_bytes(path.read_bytes() + b"half a chunk")
    assert kills >= 3
    prepare(config, silent)
    assert contents(config.output) == contents(whole.output)
    assert not (Path(config.output) / chunks.UNFINISHED).exists()


def test_a_second_process_at_the_same_output_is_refused(config, process):
    with process(config) as running:
        # The lock was taken before the plan was written.
        while not unfinished(config, "plan.json"):
            assert running.poll() is None, "it ended before"
            time.sleep(0.001)
        os.kill(running.pid, signal.SIGSTOP)
        try:
            with pytest.raises(FileExistsError, match="written by another process"):
                prepare(config, silent)
        finally:
            os.kill(running.pid, signal.SIGCONT)
        assert running.wait() == 0
    open_dataset(config.output, verify=True)


def put_in_the_way(config, name):
    """A directory where a chunk's rows are to be written: the chunk fails."""
    path = Path(config.output) / chunks.UNFINISHED / f"{name}.rows"
    path.mkdir(parents=True)
    (path.parent / "lock").touch()
    return path


def test_an_unfinished_output_is_not_continued_otherwise(config, tmp_path):
    put_in_the_way(config, "train-000002")
    with pytest.raises(OSError, match="Is a directory"):
        prepare(config, silent)
    with pytest.raises(
        FileExistsError, match="started with other options: seed=0 .* 3 now"
    ):
        prepare(change(config, seed=3), silent)
    with pytest.raises(FileExistsError, match="sequence_length=32 before, 64 now. Rem"):
        prepare(change(config, sequence_length=64), silent)
    with pytest.raises(FileExistsError, match="layout.shard_bytes=10000 before, 9 now"):
        prepare_dataset(config, silent, dataclasses.replace(LAYOUT, shard_bytes=9))
    (tmp_path / "text" / "000.txt").write_text("s1\n\ns2\n")
    with pytest.raises(
        FileExistsError, match="started with other options: other sources"
    ):
        prepare(config, silent)


def test_a_shard_that_is_removed_meanwhile_is_not_filled_with_zeros(config):
    def remove(line):
        for path in Path(config.output).glob("train-*.npy"):
            path.unlink()

    with pytest.raises(FileNotFoundError, match=r"train-\d+-of-\d+\.npy"):
        prepare(config, remove)
    prepare(config, silent)
    open_dataset(config.output, verify=True)


@pytest.mark.parametrize(
    ("change_plan", "says"),
    [
        (lambda plan: plan[: len(plan) // 2], "plan.json is damaged; remove"),
        (lambda plan: "[]", "plan.json is damaged; remove"),
        (
            lambda plan: json.dumps(
                {k: v for k, v in json.loads(plan).items() if k != "layout"}
            ),
            "was started by version 0.1.0, which wrote smaller shards; finish it",
        ),
    ],
)
def test_what_cannot_be_continued_is_said(config, change_plan, says):
    put_in_the_way(config, "train-000002")
    with pytest.raises(OSError, match="Is a directory"):
        prepare(config, silent)
    (plan,) = unfinished(config, "plan.json")
    plan.write_text(change_plan(plan.read_text()))
    with pytest.raises((DamagedError, FileExistsError), match=says):
        prepare(config, silent)


NOTE_BEFORE_REPORTS = '{"rows": 2, "sha256": "0", "counts": {}, "dropped": {}}'


@pytest.mark.parametrize(
    "note", ["", "[]", '{"rows": -1}', "[" * 100_000, "null", NOTE_BEFORE_REPORTS]
)
def test_a_chunk_whose_note_is_damaged_is_made_again(config, tmp_path, note):
    whole = change(config, output=str(tmp_path / "whole"))
    prepare(whole, silent)
    path = put_in_the_way(config, "train-000003")
    with pytest.raises(OSError, match="Is a directory"):
        prepare(config, silent)
    path.rmdir()
    unfinished(config, "train-000001.json")[0].write_text(note)
    lines = []
    prepare(config, lines.append)
    assert lines[0].startswith("1 of ")
    assert contents(config.output) == contents(whole.output)


def test_rows_are_the_same_whatever_the_size_of_shards(config, tmp_path):
    manifest = prepare(config, silent)
    other = change(config, output=str(tmp_path / "other"))
    one = prepare_dataset(other, silent, Layout(chunk_bytes=4000))
    assert [s["path"] for s in one["shards"]] == [
        "train-00000-of-00001.npy",
        "validation-00000-of-00001.npy",
    ]
    assert len(manifest["shards"]) == 3
    assert one["counts"] == manifest["counts"]
    few, many = open_dataset(other.output), open_dataset(config.output)
    for split in SPLITS:
        numbers = np.arange(len(getattr(few, split)))
        rows = [getattr(d, split).gather(numbers) for d in (few, many)]
        assert len(numbers) == len(getattr(many, split))
        assert rows[0].tobytes() == rows[1].tobytes()


def test_a2_the_papers_corpus_makes_few_shards():
    """3,300 million words, 18 GB in chunks of 4 MiB; no text is needed to count."""
    sizes = np.full(18_000_000_000 // (1 << 22), 1 << 22)
    numbers = assign_shards(sizes, DEFAULT_LAYOUT.shard_bytes)
    assert len(sizes) > 4000 and numbers[-1] + 1 == 8
    assert set(np.bincount(numbers)) <= {536, 537}
    forty = assign_shards(np.tile(sizes, 40), DEFAULT_LAYOUT.shard_bytes)
    assert forty[-1] + 1 < 400
    assert assign_shards(np.array([5, 5, 50, 5]), 10).tolist() == [0, 0, 1, 2]
    assert assign_shards(np.array([5, 5]), 1 << 40).tolist() == [0, 0]
    assert assign_shards(np.array([], np.int64), 10).tolist() == []


def test_a_finished_dataset_is_left_as_it_is(config):
    manifest = prepare(config, silent)
    before = {path: path.stat().st_mtime_ns for path in Path(config.output).iterdir()}
    lines = []
    assert prepare(change(config, workers=2), lines.append) == manifest
    assert lines == [f"{config.output} is already complete."]
    assert before == {p: p.stat().st_mtime_ns for p in Path(config.output).iterdir()}
    with pytest.raises(FileExistsError, match="validation_fraction=0.1 before, 0.2"):
        prepare(change(config, validation_fraction=0.2), silent)
    next(Path(config.output).glob("*.npy")).unlink()
    with pytest.raises(DamagedError, match="npy is missing"):
        prepare(config, silent)


def test_an_output_that_holds_something_else_is_refused(config):
    Path(config.output).mkdir()
    prepared = Path(config.output) / "thesis.txt"
    prepared.write_text("mine")
    with pytest.raises(FileExistsError, match="exists and is not a dataset"):
        prepare(config, silent)
    assert contents(config.output) == {"thesis.txt": b"mine"}


def test_negatives_come_from_all_over_the_corpus(config, tmp_path):
    text = write_corpus(tmp_path / "hundred", sources=100, documents=4)
    layout = Layout(chunk_bytes=40_000, shard_bytes=40_000)
    prepare_dataset(change(config, input=(str(text / "*.txt"),)), silent, layout)
    train = open_dataset(config.output).train
    assert len(open_dataset(config.output).manifest["shards"]) >= 4
    rows = train.gather(np.arange(len(train)))
    base = len(SPECIAL) + 50

    def source(tokens):
        return [token for token in tokens if base <= token < base + 100]

    crossing = []
    for row in rows:
        (second,), (end,), (label,) = (
            row[name] for name in ("second", "end", "next_sentence_label")
        )
        first_sources = source(row["tokens"][:second].tolist())
        second_sources = source(row["tokens"][second:end].tolist())
        if first_sources and second_sources:  # else truncation cut them off
            same = first_sources[0] == second_sources[0]
            if label:
                crossing.append(not same)
            else:
                assert same
    assert len(crossing) > 300
    assert np.mean(crossing) >= 0.95


def test_no_document_is_in_both_splits(config, tmp_path):
    text = tmp_path / "text"
    for path in text.iterdir():
        path.unlink()
    for number in range(100):  # every document has a word of its own
        (text / f"{number}.txt").write_text(f"s{number} w1 w2\ns{number} w3\n" * 4)
    prepare(config, silent)
    dataset = open_dataset(config.output)
    seen = [
        set(rows.gather(np.arange(len(rows)))["tokens"].ravel().tolist())
        for rows in (dataset.train, dataset.validation)
    ]
    base = len(SPECIAL) + 50
    train, validation = ({t for t in s if base <= t < base + 100} for s in seen)
    assert not train & validation
    assert len(train | validation) == 100
    assert 4 <= len(validation) <= 20


@pytest.mark.parametrize("text", ["[MASK] w1 [CLS] w2\n[SEP] [PAD]\n[UNK] w3\n"])
def test_special_tokens_written_in_a_corpus_are_plain_text(config, tmp_path, text):
    (tmp_path / "text" / "000.txt").write_text((text * 4 + "\n") * 8)
    prepare(config, silent)
    train = open_dataset(config.output).train
    rows = train.gather(np.arange(len(train)))
    assert not (rows["tokens"] == SPECIAL.index("[MASK]")).any()
    mask = len(SPECIAL) + len(WORDS) + 2
    assert (rows["tokens"] == mask).any()
    unknown = SPECIAL.index("[UNK]")
    rows["tokens"][rows["tokens"] == unknown] = mask  # "cls" is no word here
    check_rows(rows)


def test_what_is_dropped_is_counted(config, tmp_path):
    (tmp_path / "text" / "000.txt").write_bytes(
        b"\x01\n\nw1 \xff\xfe\nw2\n\x02\n\nw3\nw4\n"
    )
    dropped = prepare(change(config, strict=False), silent)["dropped"]
    assert dropped["documents without a token"] == 1
    assert dropped["sentences without a token"] == 2
    assert dropped["undecodable bytes"] == 2


def test_prose_is_split_into_sentences(config, tmp_path):
    for path in (tmp_path / "text").iterdir():
        path.write_text(("W1 w2. W3 w4. W5.\n" * 3 + "\n") * 4)
    manifest = prepare(change(config, sentences="split"), silent)
    assert sum(manifest["counts"][s]["sentences"] for s in SPLITS) == 360


def test_missing_input_is_named(config):
    with pytest.raises(FileNotFoundError, match=r"'nowhere/\*.txt' matches no file"):
        prepare(change(config, input=("nowhere/*.txt",)), silent)
    assert not Path(config.output).exists()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "holds no text"),
        (" \n\n \n", "holds no text"),
        ("w1\nw2\n", "single document.*separate documents by a blank line"),
        ("w1\n\nw2\n\nw3", "of 3 documents does not leave.*set it to 0"),
    ],
)
def test_too_little_input_is_an_error_and_leaves_nothing(config, tmp_path, text, error):
    path = tmp_path / "little.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=error):
        prepare(change(config, input=(str(path),)), silent)
    assert not Path(config.output).exists()


def test_four_documents_are_enough_for_two_of_validation(config, tmp_path):
    path = tmp_path / "little.txt"
    path.write_text("w1\nw2\n\nw3\nw4\n\nw5\nw6\n\nw7\nw8\n")
    few = change(config, input=(str(path),), validation_fraction=0.01)
    counts = prepare(few, silent)["counts"]
    assert [counts[split]["documents"] for split in SPLITS] == [2, 2]


def test_two_documents_are_enough_without_validation(config, tmp_path):
    path = tmp_path / "little.txt"
    path.write_text("w1\nw2\n\nw3\nw4\n")
    few = change(config, input=(str(path),), validation_fraction=0.0)
    assert list(prepare(few, silent)["counts"]) == ["train"]
    assert len(open_dataset(config.output).validation) == 0


def children(pid):
    """The processes that a process has started."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in path.read_text().split()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_a_worker_that_dies_fails_the_run_cleanly(config, process, tmp_path):
    """As one does that the kernel ends for want of memory."""
    text = write_corpus(tmp_path / "more", sources=60)
    config = change(config, input=(str(text / "*.txt"),), workers=2)
    with process(config) as running:
        while len(unfinished(config, "*.json")) < 3:
            assert running.poll() is None
            time.sleep(0.001)
        for child in children(running.pid):
            command = Path(f"/proc/{child}/cmdline").read_bytes()
            if b"spawn_main" in command:
                os.kill(child, signal.SIGKILL)
        assert running.wait() != 0
    assert not (Path(config.output) / MANIFEST).exists()
    prepare(config, silent)
    open_dataset(config.output, verify=True)


def test_chunks_are_of_even_size_and_hold_two_documents():
    length = np.array([1000] * 10 + [9000] * 3)
    order = np.arange(13)

    def cut(order):
        return chunks.split_into_chunks(order, length, 4000)

    parts = [part.tolist() for part in cut(order)]
    assert parts == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10], [11, 12]]
    # A remainder of half a chunk stands alone; a smaller one joins the last.
    assert [len(p) for p in cut(order[:10])] == [4, 4, 2]
    assert [len(p) for p in cut(order[:9])] == [4, 5]
    assert [len(p) for p in cut(order[:2])] == [2]
    assert cut(order[:0]) == []

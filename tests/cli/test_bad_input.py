"""What users bring: each case one line and an exit code, and nothing half-written.

Text that is odd but text is taken, and what is lost of it is counted.
"""

import dataclasses
import gzip
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from bert_jax.cli.main import main
from bert_jax.data.records import open_dataset
from bert_jax.tokenization import SPECIAL_TOKENS, Tokenizer

PLAIN = "".join(
    f"The judge reads the letter number {i}. The clerk opens the door.\n"
    "The baker hides a candle in the tower.\n\n"
    for i in range(12)
)
BAD_BYTE = PLAIN.encode().replace(b"baker", b"b\xff\xfeker", 1)


@dataclasses.dataclass(frozen=True)
class Case:
    """A file, more options, and what the one line on standard error says."""

    name: str
    content: bytes
    says: str
    options: tuple[str, ...] = ()


def records(*lines: str) -> bytes:
    good = json.dumps({"text": "The judge reads. The clerk writes."})
    return "\n".join([good, good, good, *lines]).encode()


def parquet(values: list[object]) -> bytes:
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table({"text": values}), sink)
    return bytes(sink.getvalue())


REFUSED = [
    Case("a.txt", BAD_BYTE, "a.txt: byte 0xff at 68 is not UTF-8", ("--strict",)),
    Case("a.txt.gz", gzip.compress(BAD_BYTE), "a.txt.gz: byte 0xff at"),
    Case("a.txt", b" \n\n\t\n", "a.txt holds no text"),
    Case("a.txt", b"", "a.txt holds no text"),
    Case("a.txt", b"The only sentence.\n", "a.txt is a single document"),
    Case("a.txt", b"One.\n\nTwo.\n\nThree.\n", "of 3 documents does not leave"),
    Case("a.txt.gz", gzip.compress(PLAIN.encode())[:-20], "a.txt.gz is damaged or not"),
    Case("a.txt.zst", PLAIN.encode(), "a.txt.zst is damaged or not zstd"),
    Case("a.jsonl", records("{nonsense"), "a.jsonl:4: not JSON"),
    Case("a.jsonl", records("[1]"), "a.jsonl:4: not an object"),
    Case("a.jsonl", records('{"body": "b"}'), "a.jsonl:4: there is no 'text', but bod"),
    Case("a.jsonl", records('{"text": 3}'), "a.jsonl:4: 'text' holds a number"),
    Case("a.jsonl", records('{"text": "\\ud800"}'), "a.jsonl:4: 'text'"),
    Case("a.parquet", parquet([1, 2]), "a.parquet: column 'text' must be a string"),
    Case("a.parquet", b"PAR1 nonsense", "a.parquet is damaged or not Parquet"),
    Case("a.parquet", parquet(["a"]), "there is no 'body'", ("--text-column", "body")),
    Case("a.tar.gz", b"", "a.tar.gz' is of an unsupported kind"),
    Case("a.txt", PLAIN.encode(), "language='xx' is not", ("--language", "xx")),
    Case("a.txt", PLAIN.encode(), "weights has 2 numbers", ("--weights", "1", "2")),
    Case("a.txt", PLAIN.encode(), "weights: 0.0 must be", ("--weights", "0")),
    Case("a.txt", PLAIN.encode(), "repeats=0 must be", ("--repeats", "0")),
    Case("a.txt", PLAIN.encode(), "pass --engine beam", ("--", "--runner=X")),
]


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str]:
    """Exit code and standard error."""
    code = main([str(argument) for argument in arguments])
    return code, capsys.readouterr().err


def prepare(
    capsys: pytest.CaptureFixture[str],
    text: str | Path,
    tokenizer: Path,
    output: Path,
    *options: str,
) -> tuple[int, str]:
    ours = ("--input", text, "--tokenizer", tokenizer, "--output", output)
    size = ("--sequence-length", "32", "--workers", "1")
    return run(capsys, "prepare", *ours, *size, *options)


def assert_refused(code: int, error: str, says: str) -> None:
    assert code == 2, error
    assert error.startswith("bert-jax: ") and error.count("\n") == 1, error
    assert says in error


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: f"{case.name}: {case.says}")
def test_refused(case, capsys, tmp_path, tokenizer_directory):
    text, output = tmp_path / case.name, tmp_path / "out"
    text.write_bytes(case.content)
    found = prepare(capsys, text, tokenizer_directory, output, *case.options)
    assert_refused(*found, case.says)
    assert [path.name for path in tmp_path.iterdir()] == [case.name]


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("http://example.org/a.txt", "is an address; download it first"),
        ("nothing/*.txt", "matches no file"),
        ("tfds:no_such_set", "tfds:no_such_set cannot be found"),
        ("/proc/self/mem", "Input/output error"),  # a file that nobody can read
    ],
)
def test_refused_inputs(entry, says, capsys, tmp_path, tokenizer_directory):
    output = tmp_path / "out"
    found = prepare(capsys, entry, tokenizer_directory, output)
    assert_refused(*found, says)
    assert not output.exists()


@pytest.mark.parametrize("verb", ["vocab", "prepare"])
def test_an_output_that_cannot_be_made(verb, capsys, tmp_path, tokenizer_directory):
    text = tmp_path / "a.txt"
    text.write_text(PLAIN)
    arguments = ["--input", text, "--output", "/proc/nothing/out"]
    if verb == "prepare":
        arguments += ["--tokenizer", tokenizer_directory]
    else:
        arguments += ["--vocab-size", "60"]
    assert_refused(*run(capsys, verb, *arguments), "/proc/nothing")


def test_a_full_disk_leaves_nothing_that_reads_as_finished(
    capsys, tmp_path, tokenizer_directory
):
    """A limit on the size of files stands for a full disk: a write comes back short."""
    text, output = tmp_path / "a.txt", tmp_path / "out"
    text.write_text(PLAIN * 30)
    ours = ["--input", str(text), "--tokenizer", str(tokenizer_directory)]
    ours += ["--output", str(output), "--sequence-length", "32", "--workers", "1"]
    command = [sys.executable, "-m", "bert_jax", "prepare", *ours]
    # Python would keep half of a compiled module.
    limited = 'ulimit -f 16; PYTHONDONTWRITEBYTECODE=1 exec "$@"'
    done = subprocess.run(
        ["bash", "-c", limited, "bash", *command],
        capture_output=True,
        text=True,
    )
    says = "cannot be written: File too large; free space there, and give the same"
    assert_refused(done.returncode, done.stderr, says)
    assert f"{output}/unfinished/train-000000.rows" in done.stderr
    assert not (output / "manifest.json").exists()
    with pytest.raises(FileNotFoundError, match="absent or unfinished"):
        open_dataset(output)
    code, error = prepare(capsys, text, tokenizer_directory, output)
    assert code == 0 and error.startswith("warning: [UNK] is 11.5% of the tokens")
    open_dataset(output, verify=True)


def broken(directory: Path, change: Callable[[str], str]) -> None:
    path = directory / "vocab.txt"
    path.write_text(change(path.read_text()))


def garbage(directory: Path) -> None:
    config = json.loads((directory / "tokenizer_config.json").read_text())
    config["kind"] = "unigram"
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    (directory / "tokenizer.model").write_bytes(b"\x00garbage")


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda d: broken(d, lambda t: t + "[CLS]\n"), "repeats '[CLS]' of line 3"),
        (lambda d: broken(d, lambda t: t + "\nx\n"), "is blank; each line must hold"),
        (lambda d: broken(d, lambda t: t.replace("[UNK]\n", "")), "lacks [UNK]"),
        (lambda d: (d / "vocab.txt").unlink(), "vocab.txt is missing"),
        (lambda d: (d / "tokenizer_config.json").write_text("{"), "tokenizer_config"),
        (garbage, "tokenizer.model: is not a sentencepiece model"),
    ],
)
def test_broken_vocabularies(damage, says, capsys, tmp_path, tokenizer_directory):
    text, directory = tmp_path / "a.txt", tmp_path / "vocabulary"
    text.write_text(PLAIN)
    shutil.copytree(tokenizer_directory, directory)
    damage(directory)
    assert_refused(*prepare(capsys, text, directory, tmp_path / "out"), says)
    assert not (tmp_path / "out").exists()


def test_ids_beyond_the_vocabulary(capsys, tmp_path, tokenizer_directory, monkeypatch):
    text, output = tmp_path / "a.txt", tmp_path / "out"
    text.write_text(PLAIN)
    encode = Tokenizer.encode_batch

    def one_too_large(self: Tokenizer, texts: list[str]) -> list[list[int]]:
        return [[*ids, self.vocab_size] for ids in encode(self, texts)]

    monkeypatch.setattr(Tokenizer, "encode_batch", one_too_large)
    found = prepare(capsys, text, tokenizer_directory, output)
    assert_refused(*found, "the tokenizer gave id 160, but has 160 ids")
    assert not (output / "manifest.json").exists()


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("--masking.rate=1.0", "rate=1.0 must be between 0 and 1"),
        ("--masking.mask-share=1.1", "mask_share=1.1 must be from 0 to 1"),
        ("--masking.random-share=0.3", "must add up to at most 1"),
        ("--masking.span-probability=0", "span_probability=0.0 must be above 0"),
        ("--masking.max-span=0", "max_span=0 must be"),
        ("--mesh.fsdp=0", "fsdp=0 must be"),
        ("--mesh.tensor=8", "mesh.tensor=8 does not divide model.num_attention_heads"),
        ("--microbatches=0", "microbatches=0 must be"),
        ("--num-steps=-1", "num_steps=-1 must be"),
        ("--seed=-1", "seed=-1 must be from 0"),
    ],
)
def test_options_out_of_range(option, says, capsys, tmp_path):
    workdir = tmp_path / "run"
    found = run(capsys, "pretrain", option, "--workdir", workdir)
    assert_refused(*found, says)
    assert not workdir.exists()


def rows_of(capsys, tmp_path, tokenizer, content: bytes, name="a.txt", *more):
    """The training rows that a file gives, and what was dropped of it."""
    number = len(list(tmp_path.iterdir()))
    folder = tmp_path / str(number)
    folder.mkdir()
    (folder / name).write_bytes(content)
    options = ("--validation-fraction", "0", *more)
    code, error = prepare(capsys, folder / name, tokenizer, folder / "out", *options)
    assert code == 0 and "Traceback" not in error
    dataset = open_dataset(folder / "out", verify=True)
    rows = dataset.train.gather(np.arange(len(dataset.train)))
    return rows, dataset.manifest["dropped"]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: b"\xef\xbb\xbf" + text,
        lambda text: text.replace(b"\n", b"\r\n"),
        lambda text: text.replace(b"\n", b"\r"),
        lambda text: text.replace(b"judge", b"ju\x00dge"),
        lambda text: text.replace(b"judge reads", "judge\u2028reads".encode()),
        lambda text: b"\n \n\n" + text.replace(b"\n\n", b"\n \t\n\n"),
    ],
    ids=["BOM", "CRLF", "CR", "NUL", "U+2028", "blanks"],
)
def test_odd_text_gives_the_rows_of_plain_text(
    change, capsys, tmp_path, tokenizer_directory
):
    plain, _ = rows_of(capsys, tmp_path, tokenizer_directory, PLAIN.encode())
    odd, dropped = rows_of(
        capsys, tmp_path, tokenizer_directory, change(PLAIN.encode())
    )
    np.testing.assert_array_equal(odd, plain)
    assert "undecodable bytes" not in dropped


def test_what_is_not_utf8_is_counted(capsys, tmp_path, tokenizer_directory):
    given = capsys, tmp_path, tokenizer_directory
    _, dropped = rows_of(*given, BAD_BYTE, "a.txt", "--no-strict")
    assert dropped["undecodable bytes"] == 2
    surrogates = records('{"text": "A lone \\ud800 half. And more."}')
    found = rows_of(*given, surrogates, "a.jsonl", "--no-strict")
    assert found[1]["undecodable bytes"] > 0


def test_special_names_in_text_are_plain_text(capsys, tmp_path, tokenizer_directory):
    text = PLAIN.replace("judge", "[MASK] [CLS] [SEP] ##s ## [PAD]").encode()
    rows, _ = rows_of(capsys, tmp_path, tokenizer_directory, text)
    ids = Tokenizer.load(tokenizer_directory).special_ids
    assert not (rows["tokens"] == ids["[MASK]"]).any()
    for row in rows:
        end = row["end"][0]
        inside = np.delete(row["tokens"][:end], [0, row["second"][0] - 1, end - 1])
        for name in SPECIAL_TOKENS:
            assert name == "[UNK]" or not (inside == ids[name]).any(), name


@pytest.mark.slow
def test_monstrous_text_is_taken(capsys, tmp_path, tokenizer_directory):
    """A line of 5 MB, a word of 1 MB, 100,000 accents on one letter."""
    line = "The judge reads the letter. " * (5_000_000 // 28)
    accents = "e" + "\u0301" * 100_000
    text = "\n\n".join([line, "x" * 1_000_000, f"An {accents} here.", PLAIN])
    rows, dropped = rows_of(capsys, tmp_path, tokenizer_directory, text.encode())
    unknown = Tokenizer.load(tokenizer_directory).unk_id
    assert (rows["tokens"] == unknown).sum() >= 1, "the word of 1 MB"
    assert int(rows["end"].sum()) > 1_000_000
    assert "undecodable bytes" not in dropped


def test_fewer_rows_than_a_batch(capsys, tmp_path, small_config):
    arguments = ["--data.path", small_config.data.path, "--batch-size", "4000"]
    arguments += ["--data.sequence-length", "32", "--model.vocab-size", "160"]
    found = run(capsys, "pretrain", *arguments, "--workdir", tmp_path / "run")
    assert_refused(*found, "training rows, fewer than batch_size=4000")
    assert not (tmp_path / "run").exists()


GOOD = "text,label\n" + "".join(
    f"The {who} reads.,{who}\n" for who in ("judge", "clerk") * 10
)
FILE = ("--data.train", "train.csv")


@dataclasses.dataclass(frozen=True)
class Tuning:
    """A training file, the rest of a `finetune` command, and what its line says."""

    says: str
    content: str = GOOD
    task: str = "text-classification"
    options: tuple[str, ...] = ()
    files: tuple[str, ...] = FILE
    validation: str = ""


UNKNOWN = "text,label\nThe judge sells.,judge\nThe clerk sells.,baker\n"
UNTUNED = [
    Tuning("'text-clasification' is neither a task (text-", task="text-clasification"),
    Tuning("none.py is not a file; name a configuration", task="none.py"),
    Tuning("init_from is empty; pass --init-from with", options=("--init-from", "")),
    Tuning(
        "nowhere does not exist; name a workdir", options=("--init-from", "nowhere")
    ),
    Tuning("data.train is empty; pass --data.train", files=()),
    Tuning("none.csv is not a file", files=("--data.train", "none.csv")),
    Tuning(
        "model.hidden_size=32 but",
        options=("--model.hidden-size", "32", "--model.num-attention-heads", "1"),
    ),
    Tuning("data.max_length=64 but the model has 32", options=()),
    Tuning(
        "train.csv, line 2 has no reveiw; its columns are text, label.",
        options=("--text-column", "reveiw"),
    ),
    Tuning(
        "train.csv, line 3 has no lable; its columns are text, label. Did you",
        options=("--label-column", "lable"),
    ),
    Tuning(
        "train.csv, line 2 has the columns body, label; name those",
        content=GOOD.replace("text,", "body,"),
    ),
    Tuning("train.csv, line 22 has 3 fields; the header", GOOD + "one, two,judge\n"),
    Tuning("train.csv, line 22: unexpected end of data", GOOD + '"half,judge\n'),
    Tuning("train.csv, line 22: text is empty", GOOD + " ,judge\n"),
    Tuning("train.csv, line 22: label is empty", GOOD + "The judge sells.,\n"),
    Tuning("label is 'judge' in all", GOOD.replace(",clerk", ",judge")),
    Tuning("train.csv has no rows", "text,label\n"),
    Tuning("train.csv has no rows", ""),
    Tuning("leaves 1 of 1 examples to learn from and 0 to score", "text,label\na,b\n"),
    Tuning("label='judge' must be a finite", task="text-regression"),
    Tuning(
        "dev.csv, line 3: 'baker' is none of the classes that the model has (clerk",
        files=(*FILE, "--data.validation", "dev.csv"),
        validation=UNKNOWN,
    ),
    Tuning(
        "dev.csv, line 3 has 1 fields",
        files=(*FILE, "--data.validation", "dev.csv"),
        validation="text,label\nThe judge.,judge\nThe clerk.\n",
    ),
    Tuning(
        "no task of GLUE is named; name one",
        files=("--data.path", "."),
    ),
    Tuning(
        "has neither RTE/train.tsv nor train.tsv",
        task="rte",
        files=("--data.path", "."),
    ),
]


@pytest.mark.parametrize("case", UNTUNED, ids=lambda case: case.says)
def test_refused_fine_tuning(case, capsys, tmp_path, monkeypatch, encoder_checkpoint):
    monkeypatch.chdir(tmp_path)
    Path("train.csv").write_text(case.content)
    if case.validation:
        Path("dev.csv").write_text(case.validation)
    before = sorted(tmp_path.iterdir())
    length = "64" if "max_length=64" in case.says else "32"
    usual = ("--init-from", encoder_checkpoint, "--data.max-length", length)
    usual += ("--workdir", "run", "--batch-size", "8", "--mesh.data", "1")
    found = run(capsys, "finetune", case.task, *case.files, *usual, *case.options)
    assert_refused(*found, case.says)
    assert sorted(tmp_path.iterdir()) == before, "nothing half-written"


@pytest.mark.parametrize("arguments", [(), ("--workdir", "run")])
def test_fine_tuning_without_a_task(arguments, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = run(capsys, "finetune", *arguments)
    assert_refused(*found, "finetune needs a task or a configuration first, as in")
    assert_refused(*run(capsys, "finetune", "mrpc"), "--workdir is missing")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("verb", ["evaluate", "predict"])
def test_a_model_that_was_never_fine_tuned(verb, capsys, tmp_path, encoder_checkpoint):
    text = tmp_path / "a.csv"
    text.write_text(GOOD)
    where = ("--model", encoder_checkpoint)
    found = run(capsys, verb, *where, "--input", text)
    assert_refused(*found, "belongs to no task; fine-tune it by `bert-jax finetune`")
    found = run(capsys, verb, "--model", tmp_path / "none", "--input", text)
    assert_refused(*found, "none does not exist; name a workdir")

"""Text that is odd but text is taken, and what is lost of it is counted.

What is refused stands in the table of `tests/reliability/bad_input`.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from texts_to_prepare import BAD_BYTE, PLAIN, records

from bert_jax.cli.main import main
from bert_jax.data.records import open_dataset
from bert_jax.tokenization import SPECIAL_TOKENS, Tokenizer


def prepare(
    capsys: pytest.CaptureFixture[str],
    text: str | Path,
    tokenizer: Path,
    output: Path,
    *options: str,
) -> tuple[int, str]:
    """Exit code and standard error."""
    ours = ("--input", text, "--tokenizer", tokenizer, "--output", output)
    size = ("--sequence-length", "32", "--workers", "1")
    code = main(["prepare", *(str(word) for word in (*ours, *size, *options))])
    return code, capsys.readouterr().err


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
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("bert-jax: ") and done.stderr.count("\n") == 1
    assert says in done.stderr
    assert f"{output}/unfinished/train-000000.rows" in done.stderr
    assert not (output / "manifest.json").exists()
    with pytest.raises(FileNotFoundError, match="absent or unfinished"):
        open_dataset(output)
    code, error = prepare(capsys, text, tokenizer_directory, output)
    assert code == 0 and error.startswith("warning: [UNK] is 11.5% of the tokens")
    open_dataset(output, verify=True)


def test_ids_beyond_the_vocabulary(refused, tmp_path, tokenizer_directory, monkeypatch):
    text, output = tmp_path / "a.txt", tmp_path / "out"
    text.write_text(PLAIN)
    encode = Tokenizer.encode_batch

    def one_too_large(self: Tokenizer, texts: list[str]) -> list[list[int]]:
        return [[*ids, self.vocab_size] for ids in encode(self, texts)]

    monkeypatch.setattr(Tokenizer, "encode_batch", one_too_large)
    ours = ("--input", text, "--tokenizer", tokenizer_directory, "--output", output)
    error = refused("prepare", *ours, "--sequence-length", "32", "--workers", "1")
    assert "the tokenizer gave id 160, but has 160 ids" in error
    assert not (output / "manifest.json").exists()


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

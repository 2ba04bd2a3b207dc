"""Bad inputs: text to prepare, and the vocabulary to prepare it with."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pyarrow.parquet
from bad_case import Case
from task_commands import Command, file
from text_commands import prepare, vocab, with_vocabulary
from texts_to_prepare import BAD_BYTE, PLAIN, records


def prepare_file(name: str, content: bytes, *options: str) -> Command:
    return lambda world: prepare(world, *options, input=file(world, name, content))


def parquet(values: list[object]) -> bytes:
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table({"text": values}), sink)
    return bytes(sink.getvalue())


SAID = {
    "not-utf-8": (
        "a.txt: byte 0xff at 68 is not UTF-8",
        prepare_file("a.txt", BAD_BYTE, "--strict"),
    ),
    "not-utf-8-compressed": (
        "a.txt.gz: byte 0xff at",
        prepare_file("a.txt.gz", gzip.compress(BAD_BYTE)),
    ),
    "blank": ("a.txt holds no text", prepare_file("a.txt", b" \n\n\t\n")),
    "empty": ("a.txt holds no text", prepare_file("a.txt", b"")),
    "one-document": (
        "a.txt is a single document",
        prepare_file("a.txt", b"The only sentence.\n"),
    ),
    "three-documents": (
        "of 3 documents does not leave",
        prepare_file("a.txt", b"One.\n\nTwo.\n\nThree.\n"),
    ),
    "gzip-cut": (
        "a.txt.gz is damaged or not",
        prepare_file("a.txt.gz", gzip.compress(PLAIN.encode())[:-20]),
    ),
    "no-zstd": (
        "a.txt.zst is damaged or not zstd",
        prepare_file("a.txt.zst", PLAIN.encode()),
    ),
    "no-json": ("a.jsonl:4: not JSON", prepare_file("a.jsonl", records("{nonsense"))),
    "list": ("a.jsonl:4: not an object", prepare_file("a.jsonl", records("[1]"))),
    "no-field": (
        "a.jsonl:4: there is no 'text', but bod",
        prepare_file("a.jsonl", records('{"body": "b"}')),
    ),
    "number": (
        "a.jsonl:4: 'text' holds a number",
        prepare_file("a.jsonl", records('{"text": 3}')),
    ),
    "surrogate": (
        "a.jsonl:4: 'text'",
        prepare_file("a.jsonl", records('{"text": "\\ud800"}')),
    ),
    "parquet-of-numbers": (
        "a.parquet: column 'text' must be a string",
        prepare_file("a.parquet", parquet([1, 2])),
    ),
    "no-parquet": (
        "a.parquet is damaged or not Parquet",
        prepare_file("a.parquet", b"PAR1 nonsense"),
    ),
    "no-column": (
        "there is no 'body'",
        prepare_file("a.parquet", parquet(["a"]), "--text-column", "body"),
    ),
    "archive": ("a.tar.gz' is of an unsupported kind", prepare_file("a.tar.gz", b"")),
    **{
        name: (says, prepare_file("a.txt", PLAIN.encode(), *options))
        for name, (says, *options) in {
            "language": ("language='xx' is not", "--language", "xx"),
            "language-of-lines": (
                "language=de has no effect with sentences=lines",
                *("--language", "de", "--sentences", "lines"),
            ),
            "field-of-text": (
                "text_field=body has no effect with text files",
                *("--text-column", "body"),
            ),
            "workers-of-beam": (
                "workers=2 has no effect with engine=beam",
                *("--workers", "2", "--engine", "beam"),
            ),
            "weights": ("weights has 2 numbers", "--weights", "1", "2"),
            "weight-of-none": ("weights: 0.0 must be", "--weights", "0"),
            "repeats": ("repeats=0 must be", "--repeats", "0"),
            "beam-options": ("pass --engine beam", "--", "--runner=X"),
        }.items()
    },
    **{
        name: (says, lambda world, entry=entry: prepare(world, input=entry))
        for name, (says, entry) in {
            "address": ("is an address; download it first", "http://example.org/a.txt"),
            "pattern": ("matches no file", "nothing/*.txt"),
            "tfds": ("tfds:no_such_set cannot be found", "tfds:no_such_set"),
            # A file that nobody can read.
            "unreadable": ("Input/output error", "/proc/self/mem"),
        }.items()
    },
}


def in_vocabulary(change: Callable[[str], str]) -> Command:
    def damage(folder: Path) -> None:
        path = folder / "vocab.txt"
        path.write_text(change(path.read_text()))

    return with_vocabulary(damage)


def no_sentencepiece_model(folder: Path) -> None:
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["kind"] = "unigram"
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "tokenizer.model").write_bytes(b"\x00garbage")


VOCABULARIES = {
    "repeated-token": (
        "repeats '[CLS]' of line 3",
        in_vocabulary(lambda text: text + "[CLS]\n"),
    ),
    "blank-line": (
        "is blank; each line must hold",
        in_vocabulary(lambda text: text + "\nx\n"),
    ),
    "no-unknown-token": (
        "lacks [UNK]",
        in_vocabulary(lambda text: text.replace("[UNK]\n", "")),
    ),
    "no-file": (
        "vocab.txt is missing",
        with_vocabulary(lambda folder: (folder / "vocab.txt").unlink()),
    ),
    "half-a-setting": (
        "tokenizer_config",
        with_vocabulary(lambda d: (d / "tokenizer_config.json").write_text("{")),
    ),
    "no-sentencepiece": (
        "tokenizer.model: is not a sentencepiece model",
        with_vocabulary(no_sentencepiece_model),
    ),
}
CASES = [
    *[Case(f"text-{name}", make, (says,)) for name, (says, make) in SAID.items()],
    *[
        Case(
            f"output-of-{verb.__name__}",
            lambda world, verb=verb: verb(world, output="/proc/nothing/out"),
            ("/proc/nothing", "choose another output"),
        )
        for verb in (vocab, prepare)
    ],
    *[
        Case(f"vocabulary-{name}", make, (says,))
        for name, (says, make) in VOCABULARIES.items()
    ],
]

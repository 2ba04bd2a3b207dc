"""Bad inputs: text, tokenizers, vocabularies, datasets."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bad_case import Case, World
from text_commands import prepare, vocab, with_vocabulary


def pipe(world: World) -> str:
    path = world.folder / "text.txt"
    os.mkfifo(path)
    return str(path)


def with_tokenizer(name: str, content: bytes | None) -> Callable[[World], list[str]]:
    """`prepare` with a tokenizer one of whose files is `content`; None: a pipe."""

    def damage(folder: Path) -> None:
        (folder / name).unlink()
        if content is None:
            os.mkfifo(folder / name)
        else:
            (folder / name).write_bytes(content)

    return with_vocabulary(damage)


def with_setting(name: str, value: Any) -> Callable[[World], list[str]]:
    config = {"kind": "wordpiece", "cased": False, name: value}
    return with_tokenizer("tokenizer_config.json", json.dumps(config).encode())


def hugging_face(world: World) -> list[str]:
    folder = world.folder / "bert"
    folder.mkdir()
    (folder / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "BertTokenizer"}'
    )
    return prepare(world, tokenizer=str(folder))


def hugging_face_model(world: World) -> list[str]:
    command = with_tokenizer("tokenizer_config.json", b'{"do_lower_case": true}')(world)
    folder = Path(command[command.index("--tokenizer") + 1])
    (folder / "config.json").write_text('{"model_type": "bert"}')
    return command


def of_dataset(damage: Callable[[Path], None]) -> Callable[[World], list[str]]:
    """`inspect` of a copy of the dataset, damaged."""

    def command(world: World) -> list[str]:
        folder = world.folder / "rows"
        shutil.copytree(world.dataset, folder)
        damage(folder)
        return ["inspect", str(folder)]

    return command


def of_manifest(damage: Callable[[dict[str, Any]], object]) -> Case | Any:
    """`inspect` of a dataset whose manifest, as of 0.1.0, has no checksum."""

    def change(folder: Path) -> None:
        path = folder / "manifest.json"
        manifest = json.loads(path.read_text())
        for name in ("checksum", "text"):
            del manifest[name]
        damage(manifest)
        path.write_text(json.dumps(manifest))

    return of_dataset(change)


def shard(folder: Path) -> Path:
    return next(folder.glob("train-*.npy"))


def in_header(old: bytes, new: bytes) -> Callable[[World], list[str]]:
    def change(folder: Path) -> None:
        path = shard(folder)
        content = path.read_bytes()
        assert old in content[:400] and len(old) == len(new)
        path.write_bytes(content.replace(old, new, 1))

    return of_dataset(change)


def replaced_by_pipe(name: str) -> Callable[[World], list[str]]:
    def change(folder: Path) -> None:
        path = next(folder.glob(name))
        path.unlink()
        os.mkfifo(path)

    return of_dataset(change)


def bad_name(world: World) -> list[str]:
    """A name of German that an ASCII locale cannot spell."""
    path = world.folder / "größe.txt"
    path.write_text("Der Satz.\n")
    return prepare(world, input=str(path))


SETTINGS = {
    "max_input_chars_per_word": ("x", None, -1, 0, 1e30, True),
    "strip_accents": (1.0, "yes", 3),
    "cased": (1, None, "false"),
    "kind": ("word", 3, []),
}
OPTIONS: dict[str, tuple[tuple[dict[str, str], tuple[str, ...]], ...]] = {
    "prepare": (
        ({"weights": "1e308"}, ("1e+308", "lower it")),
        ({"weights": "1e-300"}, ("1e-300", "at least")),
        ({"weights": "1e30"}, ("1e+30", "10000 passes", "lower")),
        ({"weights": "1e-9"}, ("1e-09", "at least 1e-6")),
        ({"weights": "-1"}, ("-1", "greater than 0")),
        ({"weights": "nan"}, ("nan", "finite")),
        ({"repeats": "20000"}, ("repeats=20000", "10000 passes")),
        ({"repeats": "-1"}, ("repeats=-1",)),
        ({"sequence_length": "7"}, ("sequence_length=7", "from 8 to 65535")),
        ({"sequence_length": "65536"}, ("from 8 to 65535",)),
        ({"validation_fraction": "1"}, ("validation_fraction=1.0", "less than 1")),
        ({"validation_fraction": "-0.1"}, ("at least 0",)),
        ({"short_sequence_probability": "2"}, ("short_sequence_probability=2.0",)),
        ({"workers": "-1"}, ("workers=-1", "at least 0")),
        ({"seed": "4294967296"}, ("seed=4294967296", "4294967295")),
        ({"language": "english"}, ("'english'", "ISO 639-1")),
        ({"input": "/dev/zero"}, ("/dev/zero", "not a regular file", "name a file")),
        ({"input": "gs://bucket/a.txt"}, ("is an address", "download it")),
        ({"input": "none/*.txt"}, ("matches no file",)),
        ({"tokenizer": "none"}, ("none is not a directory", "bert-jax vocab")),
        ({"output": "gs://bucket/out"}, ("not a local directory",)),
    ),
    "vocab": (
        ({"vocab_size": "0"}, ("vocab_size=0",)),
        ({"vocab_size": "6"}, ("vocab_size=6", "use at least")),
        ({"vocab_size": "20000000"}, ("at most 16777216",)),
        ({"sample_sentences": "0"}, ("sample_sentences=0",)),
        ({"tfds_split": "test"}, ("tfds_split=test has no effect with an input",)),
        ({"seed": "-1"}, ("seed=-1",)),
        ({"input": "/dev/zero"}, ("/dev/zero", "not a regular file")),
        ({"output": "gs://bucket/out"}, ("not a local directory",)),
    ),
}
FOR_VERB = {"prepare": prepare, "vocab": vocab}
MANIFESTS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "no-sequence-length": (lambda m: m.pop("sequence_length"), "sequence_length"),
    "sequence-length": (lambda m: m.update(sequence_length=33), "sequence_length=33"),
    "no-sha256": (lambda m: m["shards"][0].pop("sha256"), "sha256"),
    "no-rows": (lambda m: m["shards"][0].pop("rows"), "rows or split"),
    "no-split": (lambda m: m["shards"][0].pop("split"), "rows or split"),
    "rows": (lambda m: m["shards"][0].update(rows=-1), "rows or split"),
    "path": (lambda m: m["shards"][0].update(path="../a"), "outside"),
    "row": (lambda m: m.update(row=[["tokens", "|O", [32]]]), "dtype of a row"),
    "pairs": (lambda m: m.update(pairs="nsq"), "pairs='nsq'"),
    "shards": (lambda m: m.update(shards={}), "shards"),
    "counts": (lambda m: m["counts"]["train"].update(tokens=1), "tokens and padding"),
    "stray": (lambda m: m.update(stray=1), "altered"),
    "format-version": (lambda m: m.update(format_version=9), "format version 9"),
}

CASES = [
    *[
        Case(
            f"D-{verb}-{'-'.join(changes)}-{number}",
            lambda world, verb=verb, changes=changes: FOR_VERB[verb](world, **changes),
            says,
        )
        for verb, rows in OPTIONS.items()
        for number, (changes, says) in enumerate(rows)
    ],
    *[
        Case(f"D-tokenizer-{name}-{value!r}", with_setting(name, value), (name, "must"))
        for name, values in SETTINGS.items()
        for value in values
    ],
    *[
        Case(f"A3-dataset-manifest-{name}", of_manifest(damage), ("manifest", says))
        if name != "format-version"
        else Case(f"A3-dataset-manifest-{name}", of_manifest(damage), (says, "again"))
        for name, (damage, says) in MANIFESTS.items()
    ],
    Case("C2-prepare-pipe", lambda world: prepare(world, input=pipe(world)), ("pipe",)),
    Case("C2-vocab-pipe", lambda world: vocab(world, input=pipe(world)), ("pipe",)),
    Case("C2-manifest-pipe", replaced_by_pipe("manifest.json"), ("not a regular",)),
    Case("C2-shard-pipe", replaced_by_pipe("train-*.npy"), ("not a regular",)),
    Case("E-hugging-face", hugging_face, ("Hugging Face", "convert import")),
    Case("E-hugging-face-model", hugging_face_model, ("Hugging Face", "name CKPT")),
    Case(
        "E-tokenizer-of-the-hub",
        lambda world: prepare(world, tokenizer="hf:owner/model"),
        ("run `bert-jax convert import hf:owner/model", "then name CKPT"),
    ),
    Case(
        "E-locale",
        bad_name,
        ("txt", "single document"),
        environment={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        process=True,
    ),
    Case(
        "D-tokenizer-deep",
        with_tokenizer("tokenizer_config.json", b"[" * 100_000),
        ("tokenizer_config.json", "JSON"),
    ),
    Case(
        "C2-tokenizer-pipe",
        with_tokenizer("tokenizer_config.json", None),
        ("tokenizer_config.json", "not a file"),
    ),
    Case("C2-vocabulary-pipe", with_tokenizer("vocab.txt", None), ("vocab.txt",)),
    Case(
        "D-vocabulary-empty", with_tokenizer("vocab.txt", b""), ("vocab.txt", "blank")
    ),
    Case(
        "D-vocabulary-without-specials",
        with_tokenizer("vocab.txt", b"a\nb\n"),
        ("vocab.txt", "lacks [PAD]"),
    ),
    Case(
        "D-vocabulary-twice",
        with_tokenizer("vocab.txt", b"a\nb\na\n"),
        ("vocab.txt", "line 3 repeats 'a' of line 1"),
    ),
    Case("D-header-token", in_header(b"(", b"["), ("is not a shard", "again")),
    Case("D-header-syntax", in_header(b"False", b"Fal e"), ("is not a shard",)),
    Case("D-header-magic", in_header(b"NUMPY", b"NUMPX"), ("is not a shard",)),
    Case("D-header-version", in_header(b"Y\x01", b"Y\x09"), ("is not a shard",)),
    Case("D-header-object", in_header(b"'<u2'", b"'|O' "), ("holds other rows",)),
]

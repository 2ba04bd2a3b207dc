"""Bad inputs: datasets, workdirs and models whose files are damaged."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_files
from bad_case import Case, World

Change = Callable[[Path], None]
"""Damages the file it is given."""


def write(text: str | bytes) -> Change:
    """Other content."""

    def change(path: Path) -> None:
        path.write_bytes(text.encode() if isinstance(text, str) else text)

    return change


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def link(path: Path) -> None:
    outside = path.parents[1] / "outside"
    path.rename(outside)
    path.symlink_to(outside)


def values(**changes: Any) -> Change:
    """A JSON object with other values, as of 0.1.0; None takes a key away."""

    def change(path: Path) -> None:
        content = json.loads(path.read_text()) | changes
        for name in ("checksum", "text"):
            content.pop(name, None)
        kept = {name: value for name, value in content.items() if value is not None}
        path.write_text(json.dumps(kept))

    return change


def damaged(what: str, file: str, change: Change, *options: str) -> Callable[..., Any]:
    """`inspect` of a copy in which one file was changed; `what` is the world's."""

    def command(world: World) -> list[str]:
        copy = world.folder / what
        shutil.copytree(getattr(world, what), copy)
        for path in copy.glob(file):
            change(path)
        return ["inspect", str(copy), *options]

    return command


def model(file: str, change: Change, shards: bool = False) -> Callable[..., Any]:
    """`inspect` of a model of Hugging Face's with one file changed."""

    def command(world: World) -> list[str]:
        files = huggingface_files.stored("BertForPreTraining")
        write_files = files.write_shards if shards else files.write
        copy = write_files(world.folder / "model")
        path = copy / file
        path.touch()
        change(path)
        return ["inspect", str(copy)]

    return command


def runs(content: Any) -> Callable[[World], list[str]]:
    """`inspect` of a directory of several runs."""

    def command(world: World) -> list[str]:
        (world.folder / "runs").mkdir()
        (world.folder / "runs" / "runs.json").write_text(json.dumps(content))
        return ["inspect", str(world.folder / "runs")]

    return command


def empty_directory(world: World) -> list[str]:
    (world.folder / "empty").mkdir()
    return ["inspect", str(world.folder / "empty")]


def both_checkpoints(world: World) -> list[str]:
    command: list[str] = damaged("run", "checkpoints/*/config.json", cut)(world)
    return command


def step(change: Change, file: str = "manifest.json") -> Callable[..., Any]:
    """`inspect` of one checkpoint of a workdir, by its own path."""

    def command(world: World) -> list[str]:
        damaged("run", f"checkpoints/10/{file}", change)(world)
        return ["inspect", str(world.folder / "run" / "checkpoints" / "10")]

    return command


SMALL = """
    --model.num-hidden-layers 1 --model.hidden-size 16 --model.num-attention-heads 1
    --model.intermediate-size 64 --model.max-position-embeddings 32
    --model.vocab-size 160 --data.sequence-length 32 --batch-size 8 --num-steps 10
    --optimizer.warmup-steps 2 --mesh.data 1
""".split()


def pretrain(change: Change, file: str) -> Callable[..., Any]:
    """A run over a damaged dataset."""

    def command(world: World) -> list[str]:
        _, path = damaged("dataset", file, change)(world)
        workdir = str(world.folder / "new")
        return ["pretrain", "--workdir", workdir, "--data.path", path, *SMALL]

    return command


def resume(change: Change, file: str = "config.json") -> Callable[..., Any]:
    """A run that goes on in a damaged workdir."""

    def command(world: World) -> list[str]:
        _, workdir = damaged("run", file, change)(world)
        data = str(world.dataset)
        return ["pretrain", "--workdir", workdir, "--data.path", data, *SMALL]

    return command


def import_tf1(world: World) -> list[str]:
    source = world.folder / "uncased"
    source.mkdir()
    (source / "bert_model.ckpt.index").write_bytes(b"nonsense")
    output = str(world.folder / "output")
    return ["convert", "import", "--from", "tf1", str(source), "--output", output]


def label_with_nul(world: World) -> list[str]:
    path = world.folder / "train.csv"
    path.write_text("text,label\nThe judge reads.,a\0b\nThe clerk reads.,c\n")
    data = ["--data.train", str(path), "--workdir", str(world.folder / "run")]
    task = ["finetune", "text-classification", "--init-from", str(world.encoder)]
    return [*task, *data, "--data.max-length", "32"]


def altered_export(path: Path) -> None:
    sha256 = "0" * 64
    entry = {"path": "model.safetensors", "size": 1, "sha256": sha256}
    path.write_text(json.dumps({"files": [entry]}))


RUN = {"name": "a", "setting": "s", "seed": 0, "scores": {"accuracy": 1.0}}
DEEP = "[" * 100_000
SHARD, MANIFEST, TENSORS = "train-*.npy", "manifest.json", "model.safetensors"
INDEX = "model.safetensors.index.json"
OUTSIDE = [{"path": "../x", "size": 1, "sha256": "0" * 64}]

INSPECTED: list[tuple[str, Callable[[World], list[str]], tuple[str, ...]]] = [
    ("missing", lambda w: ["inspect", str(w.folder / "no")], ("no",)),
    ("a-file", lambda w: ["inspect", str(w.table)], ("is not a directory",)),
    ("empty", empty_directory, ("/empty holds no complete checkpoint",)),
    # Datasets.
    ("dataset-list", damaged("dataset", MANIFEST, write("[]")), ("not a JSON obj",)),
    ("dataset-null", damaged("dataset", MANIFEST, write("null")), ("not a JSON obj",)),
    ("dataset-empty", damaged("dataset", MANIFEST, write("")), ("is not JSON",)),
    ("dataset-cut", damaged("dataset", MANIFEST, cut), ("is not JSON",)),
    ("dataset-deep", damaged("dataset", MANIFEST, write(DEEP)), ("is not JSON",)),
    ("dataset-flip", damaged("dataset", MANIFEST, flip), (MANIFEST,)),
    ("dataset-fifo", damaged("dataset", MANIFEST, fifo), ("not a regular file",)),
    ("dataset-folder", damaged("dataset", MANIFEST, folder), ("not a regular file",)),
    (
        "dataset-version",
        damaged("dataset", MANIFEST, values(format_version=9)),
        ("format version 9", "prepare it again"),
    ),
    ("shard-removed", damaged("dataset", SHARD, os.unlink), ("train-00000", "missing")),
    ("shard-cut", damaged("dataset", SHARD, cut), ("bytes instead of",)),
    ("shard-flip", damaged("dataset", SHARD, flip, "--verify"), ("another sha256",)),
    ("shard-link", damaged("dataset", SHARD, link, "--verify"), ("link to outside",)),
    # Workdirs and checkpoints.
    ("config-list", resume(write("[]")), ("run/config.json",)),
    ("config-null", resume(write("null")), ("run/config.json",)),
    ("config-cut", resume(cut), ("run/config.json",)),
    ("config-fifo", resume(fifo), ("run/config.json", "regular file")),
    ("config-deep", resume(write(DEEP)), ("run/config.json",)),
    ("resume-damaged", resume(cut, "checkpoints/*/config.json"), ("10/config.json",)),
    ("both-damaged", both_checkpoints, ("No checkpoint in", "10/config.json")),
    ("step-list", step(write("[]")), ("checkpoints/10/manifest.json",)),
    ("step-flip", step(flip), ("checkpoints/10/manifest.json",)),
    (
        "step-outside",
        step(values(files=OUTSIDE, selection_score=None)),
        ("'../x'", "outside of"),
    ),
    ("step-fifo", step(fifo), ("checkpoints/10/manifest.json", "regular file")),
    ("step-unfinished", step(os.unlink), ("checkpoints/10", "unfinished")),
    ("step-config", step(cut, "config.json"), ("10/config.json has",)),
    ("step-vocabulary", step(flip, "tokenizer/vocab.txt"), ("another sha256",)),
    (
        "imported-flip",
        damaged("encoder", "conversion.json", flip),
        ("conversion.json has another sha256", "Restore"),
    ),
    # Directories of several runs.
    ("runs-list", runs([]), ("runs.json", "not a JSON object")),
    ("runs-none", runs({"config": {}}), ("must have runs",)),
    (
        "runs-outside",
        runs({"config": {}, "best": "../x", "runs": [RUN | {"name": "../x"}]}),
        ("runs.json lists", "'../x'"),
    ),
    (
        "runs-best",
        runs({"config": {}, "best": "b", "runs": [RUN]}),
        ("calls 'b' the best, which is none of its runs",),
    ),
    (
        "runs-scores",
        runs({"config": {}, "best": "a", "runs": [RUN | {"scores": {"x": "1"}}]}),
        ("runs.json lists", "scores"),
    ),
    # Models of other libraries.
    ("tensors-cut", model(TENSORS, cut), (TENSORS, "cut off")),
    ("tensors-empty", model(TENSORS, write("")), (TENSORS, "not a safetensors")),
    ("tensors-length", model(TENSORS, write(b"\xff" * 8 + b"{}")), ("too large",)),
    ("tensors-lfs", model(TENSORS, write("version https://")), ("git lfs pull",)),
    ("tensors-pickle", model(TENSORS, write(b"PK\3\4" + b"0" * 99)), ("a pickle",)),
    (
        "index-outside",
        model(INDEX, values(weight_map={"a": "../x"}), shards=True),
        ("'../x'", "in the directory of its index"),
    ),
    (
        "index-list",
        model(INDEX, write("[]"), shards=True),
        (INDEX, "not a JSON object"),
    ),
    (
        "model-config",
        model("config.json", write("[]")),
        ("config.json", "not a JSON object"),
    ),
    ("model-deep", model("config.json", write(DEEP)), ("config.json", "too deep")),
    ("model-vocabulary", model("vocab.txt", os.unlink), ("vocab.txt",)),
    ("export-altered", model("conversion.json", altered_export), ("another sha256",)),
]

CASES = [
    *(Case(f"G-damage-{name}", command, says) for name, command, says in INSPECTED),
    Case("G-label-nul", label_with_nul, ("train.csv, line 2: label holds a NUL",)),
    Case("G-damage-tf1-index", import_tf1, ("bert_model.ckpt.index is damaged",)),
    *(
        Case(f"G-damage-pretrain-{name}", pretrain(change, file), (says,))
        for name, change, file, says in [
            ("no-manifest", os.unlink, MANIFEST, "`bert-jax prepare`"),
            ("manifest-flip", flip, MANIFEST, MANIFEST),
            ("shard-flip", flip, SHARD, "another sha256"),
            ("tokenizer-flip", flip, "tokenizer/vocab.txt", "another sha256"),
            ("shard-fifo", fifo, SHARD, SHARD[:6]),
        ]
    ),
]

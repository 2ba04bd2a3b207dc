"""Every reader of files, the file it reads, and the public way in to it."""

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import specimens
from bad_case import run_here
from etils import epath
from mutations import (
    Mutation,
    damage_bytes,
    damage_json,
    damage_json_lines,
    damage_lines,
    damage_npy,
    damage_safetensors,
)

from bert_jax.config import (
    BertConfig,
    ExamplesConfig,
    OptimizerConfig,
    RunConfig,
)
from bert_jax.config.finetuning import TaskName
from bert_jax.data.example_cache import cached_examples
from bert_jax.formats.sentencepiece_files import read_model
from bert_jax.runs.sweeps import finetune_runs
from bert_jax.storage.manifest import MANIFEST, read_manifest, write_manifest
from bert_jax.tasks.kinds import finetuning_task
from bert_jax.tasks.predictions import Split
from bert_jax.tokenization import Tokenizer
from bert_jax.training.report import Report
from bert_jax.training.score_table import runs_lines

RUN = RunConfig(
    num_steps=10, log_examples=True, optimizer=OptimizerConfig(warmup_steps=0)
)
Read = Callable[[Path, int], None]
"""Reads a directory of files; takes the number of the mutant too."""


@dataclasses.dataclass(frozen=True)
class Reader:
    """What is damaged, how, and who then reads it."""

    folder: str
    """Of the specimens: what is copied."""
    file: str
    """In there: what is damaged."""
    damage: Mutation
    read: Read
    resign: Callable[[Path, Path], None] | None = None
    """Makes the checksums agree with the damaged file, of every second mutant."""


class RefusedError(ValueError):
    """The command line's one line; the file was refused."""


def command(*arguments: str | Path) -> None:
    """Run the command line.

    Raises:
        RefusedError: it ended with exit code 2, and said why in one line.
    """
    code, error = run_here([str(argument) for argument in arguments])
    if code == 0:
        return
    assert code == 2, f"exit code {code}: {error[:2000]!a}"
    assert error.startswith("bert-jax: "), error[:2000]
    assert error.count("\n") == 1, error[:2000]
    assert error[:-1].isprintable(), f"{error[:2000]!a}"
    raise RefusedError(error)


def inspect(folder: Path, number: int) -> None:
    """All that is in a dataset, a workdir or a model."""
    command("inspect", folder)


def inspect_or_verify(folder: Path, number: int) -> None:
    """The same, at every third with the checksums of all files."""
    command("inspect", folder, *["--verify"] * (number % 3 == 0))


def plan_or_inspect(folder: Path, number: int) -> None:
    """What a run that goes on in the workdir would do; or what is in it."""
    if number % 2:
        return inspect(folder, number)
    dataset = folder.parent / "dataset"
    if not dataset.exists():
        shutil.copytree(folder.parents[2] / "specimens" / "dataset", dataset)
    values = json.loads((folder / "checkpoints/10/config.json").read_text())
    options = [f"--data.path={dataset}", "--num-steps=10", "--dry-run"]
    for name in ("num_hidden_layers", "hidden_size", "num_attention_heads"):
        options.append(f"--model.{name.replace('_', '-')}={values['model'][name]}")
    for name in ("vocab_size", "intermediate_size", "max_position_embeddings"):
        options.append(f"--model.{name.replace('_', '-')}={values['model'][name]}")
    sizes = ["--data.sequence-length=32", "--batch-size=8", "--mesh.data=1"]
    sizes.append("--optimizer.warmup-steps=2")
    command("pretrain", f"--workdir={folder}", *options, *sizes)


def sweep(folder: Path, number: int) -> None:
    """The best of several runs, or all of them gone on with."""
    if number % 2:
        return inspect(folder, number)
    original = folder.parents[2] / "specimens" / folder.name
    config = specimens.sweep_config(original)
    try:
        list(runs_lines(finetune_runs(config, folder, seeds=2)))
    except FileNotFoundError as error:
        # A run that the file no longer lists would begin, from a model that is gone.
        if not str(error).startswith("gone does not exist"):
            raise


def tokenize(folder: Path, number: int) -> None:
    """A tokenizer, and texts there and back."""
    tokenizer = Tokenizer.load(folder)
    for text in specimens.SENTENCES:
        tokenizer.decode(tokenizer.encode(text).ids)
    tokenizer.encode_batch(specimens.SENTENCES)
    if tokenizer.kind != "wordpiece":
        read_model(tokenizer.files["tokenizer.model"])


def import_tf1(folder: Path, number: int) -> None:
    """A model of the code of 2018, as a checkpoint of ours."""
    output = folder.parent / "imported"
    shutil.rmtree(output, ignore_errors=True)
    command("convert", "import", "--from", "tf1", folder, "--output", output)


def use_cache(folder: Path, number: int) -> None:
    """Tokenized examples that an earlier run kept; what is damaged is made again."""
    made = specimens.EXAMPLES
    found = cached_examples(epath.Path(folder), "key", lambda: made)
    assert repr(found) == repr(made), found


def report(folder: Path, number: int) -> None:
    """The files of a run's scores, gone on with."""
    with Report(epath.Path(folder), 8, RUN) as log:
        log.write(9, "train", {"loss": 1.0})


def read_examples(name: TaskName, file: str) -> Read:
    """The examples of a file, and the rows that a model would get."""

    def read(folder: Path, number: int) -> None:
        data = ExamplesConfig(
            train=str(folder / file),
            label_column="number" if name == "text-regression" else "label",
            max_length=16,
            max_query_length=4,
            document_stride=4,
        )
        task = finetuning_task(name, data)
        examples = task.read(data.train)
        head: dict[str, Any] = {"head": task.head, "labels": task.labels(examples)}
        if name == "text-regression":
            head["problem_type"] = "regression"
        task = finetuning_task(name, data, BertConfig.miniature(1, 16, **head))
        task.check(examples)
        tokenizer = Tokenizer.load(folder.parents[2] / "specimens" / "wordpiece")
        task.warnings(Split(examples, task.tokenize(examples, tokenizer)))

    return read


def resign_manifest(root: Path, manifest: Path) -> None:
    """Give a damaged manifest the checksum of what it now holds, if it is JSON."""
    try:
        values = json.loads(manifest.read_bytes())
    except (ValueError, RecursionError):
        return
    if isinstance(values, dict):
        values.pop("checksum", None)
        write_manifest(values, epath.Path(manifest.parent))


def resign_file(root: Path, file: Path) -> None:
    """Make the manifest of the nearest directory above say what the file now is."""
    holder = next(p for p in file.parents if (p / MANIFEST).exists())
    values = read_manifest(epath.Path(holder))
    content, name = file.read_bytes(), str(file.relative_to(holder))

    def update(part: Any) -> None:
        if isinstance(part, dict) and part.get("path") == name:
            digest = hashlib.sha256(content).hexdigest()
            part.update(size=len(content), sha256=digest)
        for inner in part.values() if isinstance(part, dict) else part:
            if isinstance(inner, (dict, list)):
                update(inner)

    update(values)
    write_manifest(values, epath.Path(holder))


_HF = "tokenizer_config.json"
_STEP = "checkpoints/10/"
READERS = {
    "checkpoint-manifest": Reader(
        "run", _STEP + MANIFEST, damage_json, inspect_or_verify, resign_manifest
    ),
    "dataset-manifest": Reader(
        "dataset", MANIFEST, damage_json, inspect_or_verify, resign_manifest
    ),
    "npy": Reader(
        "dataset", "train-00000-of-*.npy", damage_npy, inspect_or_verify, resign_file
    ),
    "runs": Reader("sweep", "runs.json", damage_json, sweep),
    "workdir-config": Reader("run", "config.json", damage_json, plan_or_inspect),
    "checkpoint-config": Reader(
        "run", _STEP + "config.json", damage_json, inspect, resign_file
    ),
    "imported-config": Reader(
        "encoder", "config.json", damage_json, inspect, resign_file
    ),
    "vocabulary": Reader("wordpiece", "vocab.txt", damage_lines, tokenize),
    "tokenizer-config": Reader("wordpiece", _HF, damage_json, tokenize),
    "sentencepiece": Reader("unigram", "tokenizer.model", damage_bytes, tokenize),
    "huggingface-vocabulary": Reader("model", "vocab.txt", damage_lines, inspect),
    "huggingface-tokenizer": Reader("model", "tokenizer.json", damage_json, inspect),
    "huggingface-tokenizer-config": Reader("model", _HF, damage_json, inspect),
    "huggingface-config": Reader("model", "config.json", damage_json, inspect),
    "safetensors": Reader("model", "model.safetensors", damage_safetensors, inspect),
    "safetensors-index": Reader(
        "shards", "model.safetensors.index.json", damage_json, inspect
    ),
    "tf1-index": Reader(
        "uncased_tf1", "bert_model.ckpt.index", damage_bytes, import_tf1
    ),
    "tf1-config": Reader("uncased_tf1", "bert_config.json", damage_json, import_tf1),
    "conll": Reader(
        "tasks",
        "train.conll",
        damage_lines,
        read_examples("token-classification", "train.conll"),
    ),
    "conll-jsonl": Reader(
        "tasks",
        "tags.jsonl",
        damage_json_lines,
        read_examples("token-classification", "tags.jsonl"),
    ),
    "squad": Reader(
        "tasks",
        "train.json",
        damage_json,
        read_examples("question-answering", "train.json"),
    ),
    "csv": Reader(
        "tasks",
        "train.csv",
        damage_lines,
        read_examples("text-classification", "train.csv"),
    ),
    "tsv": Reader(
        "tasks",
        "train.tsv",
        damage_lines,
        read_examples("text-regression", "train.tsv"),
    ),
    "jsonl": Reader(
        "tasks",
        "train.jsonl",
        damage_json_lines,
        read_examples("text-classification", "train.jsonl"),
    ),
    "choices": Reader(
        "tasks",
        "choices.jsonl",
        damage_json_lines,
        read_examples("multiple-choice", "choices.jsonl"),
    ),
    "example-cache": Reader("cache", "key.npz", damage_bytes, use_cache),
    "metrics": Reader("run", "metrics.jsonl", damage_json_lines, report),
}
"""Each by its name. `run` and `dataset` are what `bert-jax` itself wrote."""

"""What is in a dataset or a model, and whether it is whole."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from etils import epath

from bert_jax.checkpoints.steps import (
    CHECKPOINTS,
    list_steps,
    read_step_manifest,
    selection_score_of,
    verify_checkpoint,
)
from bert_jax.config import BertConfig
from bert_jax.config.serialization import differences, to_dict
from bert_jax.data.records import Dataset, open_dataset
from bert_jax.distributed.mesh import path_name
from bert_jax.pretrained import as_directory, load_pretrained
from bert_jax.storage.manifest import MANIFEST, DamagedError, read_manifest
from bert_jax.storage.runs_file import RUNS, read_runs_file
from bert_jax.tokenization import Tokenizer

_ROWS_SHOWN, _TOKENS_SHOWN = 3, 24
_MEANINGS = {
    "nsp": {0: "follows", 1: "random", -1: "none"},
    "sop": {0: "in order", 1: "swapped", -1: "none"},
    "none": {-1: "none"},
}


def inspect(path: str, checksums: bool = False) -> Iterator[str]:
    """Lines that tell what `path` holds.

    Args:
        path: a dataset, a workdir, a checkpoint, or a directory of Hugging Face's
            files, or hf:OWNER/NAME@REVISION.
        checksums: compare every file of a dataset with its sha256; a model's are
            always compared. Of a workdir all checkpoints are.

    Raises:
        FileNotFoundError: there is none of these.
        DamagedError: it is not whole.
        ValueError: it is of none of these kinds.
    """
    directory = as_directory(path)
    if not directory.is_dir():
        raise FileNotFoundError(f"{path} is not a directory; name one to look into.")
    if (directory / MANIFEST).exists() and "shards" in read_manifest(directory):
        yield from dataset_lines(open_dataset(directory, verify=checksums))
        if checksums:
            yield "every file has the sha256 of the manifest"
        return
    if list_steps(directory / CHECKPOINTS):
        yield from workdir_lines(directory, checksums)
    elif (directory / RUNS).exists():
        yield from runs_lines(directory)
    yield from model_lines(path)


def dataset_lines(dataset: Dataset) -> Iterator[str]:
    """Options, counts, the row, and a few rows as text."""
    manifest = dataset.manifest
    yield f"dataset {dataset.path}, fingerprint {dataset.fingerprint}"
    yield tokenizer_line(dataset.tokenizer)
    for name, value in manifest["options"].items():
        yield f"{name}: {value}"
    yield f"pairs: {manifest['pairs']}"
    for name, kind, shape in manifest["row"]:
        yield f"row {name}: {np.dtype(kind)} {shape}"
    for split, counts in manifest["counts"].items():
        told = ", ".join(f"{name} {value:,}" for name, value in counts.items())
        rows = len(getattr(dataset, split))
        yield f"{split}: rows {rows:,}, {told}"
    for what, number in manifest["dropped"].items():
        yield f"dropped: {what} {number:,}"
    sources, shards = len(manifest["sources"]), len(manifest["shards"])
    yield f"sources: {sources}, shards: {shards}"
    numbers = np.arange(min(_ROWS_SHOWN, len(dataset.train)))
    for number, row in enumerate(dataset.train.gather(numbers)):
        yield f"training row {number}:"
        yield from row_lines(row, dataset)


def row_lines(row: Any, dataset: Dataset) -> Iterator[str]:
    """The pairs of a row, their beginnings only."""
    meanings = _MEANINGS[dataset.manifest["pairs"]]
    for first, second, end, label in zip(
        row["first"],
        row["second"],
        row["end"],
        row["next_sentence_label"],
        strict=True,
    ):
        if not end:
            continue
        for part, (start, stop) in enumerate(((first, second), (second, end))):
            ids = row["tokens"][start:stop].tolist()
            more = " …" if len(ids) > _TOKENS_SHOWN else ""
            text = " ".join(dataset.tokenizer.tokens(ids[:_TOKENS_SHOWN]))
            if ids:
                yield f"  {'second' if part else 'first'}: {text}{more}"
        yield f"  second segment: {meanings[int(label)]}"


def tokenizer_line(tokenizer: Tokenizer) -> str:
    """Kind, size, casing."""
    cased = "cased" if tokenizer.cased else "uncased"
    return f"tokenizer: {tokenizer.kind}, {tokenizer.vocab_size:,} tokens, {cased}"


def workdir_lines(directory: epath.Path, checksums: bool) -> Iterator[str]:
    """Each checkpoint, and whether it is whole."""
    for step in list_steps(directory / CHECKPOINTS):
        place = directory / CHECKPOINTS / str(step)
        try:
            manifest = (
                verify_checkpoint(place) if checksums else read_step_manifest(place)
            )
            score = selection_score_of(manifest)
            told = "whole" if checksums else "finished"
            told += "" if score is None else f", score {score:.6g}"
        except (DamagedError, FileNotFoundError) as error:
            told = str(error)
        yield f"checkpoint {step}: {told}"


def runs_lines(directory: epath.Path) -> Iterator[str]:
    """Each of several runs, the best marked."""
    told = read_runs_file(directory)
    for run in told["runs"]:
        scores = ", ".join(f"{k} {v:.4f}" for k, v in run["scores"].items())
        best = ", the best" if run["name"] == told["best"] else ""
        yield f"run {run['name']}{best}: {scores}"


def model_lines(path: str) -> Iterator[str]:
    """Configuration, tokenizer and parameters of the model that `load` would load."""
    model = load_pretrained(path)
    whole = (model.directory / MANIFEST).exists()
    yield f"model {model.directory}" + ", every file verified" * whole
    yield tokenizer_line(model.tokenizer)
    for name, usual, value in differences(to_dict(BertConfig()), to_dict(model.config)):
        yield f"{name}: {value} (base has {usual})" if usual else f"{name}: {value}"
    leaves = jax.tree_util.tree_leaves_with_path(model.params)
    for place, leaf in leaves:
        yield f"{path_name(place)}  {list(leaf.shape)} {leaf.dtype}"
    yield f"parameters: {sum(leaf.size for _, leaf in leaves):,}"

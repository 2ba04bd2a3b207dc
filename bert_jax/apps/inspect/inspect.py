"""Describe a dataset, a workdir or a model, and verify its files."""

from collections.abc import Iterator

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
from bert_jax.data.pairs import LABEL_MEANINGS
from bert_jax.data.records import Dataset, open_dataset
from bert_jax.data.text_report import TextReport
from bert_jax.distributed.sharding import path_name
from bert_jax.formats.imported import RECEIPT
from bert_jax.pretrained import as_directory, load_pretrained
from bert_jax.storage.manifest import MANIFEST, DamagedError, read_manifest
from bert_jax.storage.runs_file import RUNS, read_runs_file
from bert_jax.tasks.predictions import main_score
from bert_jax.tokenization import Tokenizer
from bert_jax.training import score_table

_NUM_ROWS, _NUM_TOKENS, _NUM_LISTED = 3, 24, 12
_NO_CHECKSUMS = "no sha256 of these files is recorded: none was compared"


def inspect(path: str, checksums: bool = False) -> Iterator[str]:
    """Lines that describe what `path` holds.

    Raise FileNotFoundError if nothing is there, DamagedError if a file is damaged or
    missing, ValueError if `path` is of no such kind.

    Args:
        path: a dataset, a workdir, a checkpoint, a directory of Hugging Face's files,
            hf:OWNER/NAME, or a vocabulary, its directory or its file.
        checksums: verify the sha256 of every file of a dataset, and of all checkpoints
            of a workdir. The model that is loaded is always verified.
    """
    directory = as_directory(path)
    place = directory.parent if directory.is_file() else directory
    # Datasets, runs and models have a tokenizer, too.
    others = (MANIFEST, CHECKPOINTS, RUNS, "config.json")
    has_other = any((place / name).exists() for name in others)
    if (place / "tokenizer_config.json").exists() and not has_other:
        yield from vocabulary_lines(Tokenizer.load(place))
        yield from [_NO_CHECKSUMS] * checksums
        return
    if not directory.is_dir():
        raise FileNotFoundError(f"{path} is not a directory; name one to inspect.")
    if (directory / MANIFEST).exists() and "shards" in read_manifest(directory):
        yield from dataset_lines(open_dataset(directory, verify=checksums))
        if checksums:
            yield "every file has the sha256 of the manifest"
        return
    if list_steps(directory / CHECKPOINTS):
        yield from workdir_lines(directory, checksums)
    elif (directory / RUNS).exists():
        yield from runs_lines(directory)
    try:
        yield from model_lines(path, checksums)
    except FileNotFoundError as error:
        also = "A dataset or a vocabulary may be named, too."
        raise FileNotFoundError(f"{error} {also}") from error


def vocabulary_lines(tokenizer: Tokenizer) -> Iterator[str]:
    """Describe a vocabulary: special, longest and last tokens, and a divided text."""
    yield tokenizer_line(tokenizer)
    named = (
        f"{tokenizer.special_names[n]} {i}" for n, i in tokenizer.special_ids.items()
    )
    yield f"special tokens: {', '.join(named)}"
    continuing = int(tokenizer.continues_word.sum())
    begin = tokenizer.vocab_size - continuing
    yield f"inside words: {continuing:,}, beginning a word: {begin:,}"
    tokens = tokenizer.tokens(range(tokenizer.vocab_size))
    longest = sorted(tokens, key=len, reverse=True)[:_NUM_LISTED]
    yield f"longest: {' '.join(longest)}"
    places = np.linspace(len(tokenizer.special_ids), len(tokens) - 1, _NUM_LISTED)
    yield f"from first to last: {' '.join(tokens[i] for i in places.astype(int))}"
    text = "The characteristically naïve coöperation of 2024, at 37.5 °C."
    divided = tokenizer.tokens(tokenizer.encode(text).ids.tolist())
    yield f"{text} → {' '.join(divided)}"


def dataset_lines(dataset: Dataset) -> Iterator[str]:
    """Describe a dataset: options, dtype of a row, counts, and a few rows as text."""
    manifest = dataset.manifest
    yield f"dataset {dataset.path}, fingerprint {dataset.fingerprint}"
    yield tokenizer_line(dataset.tokenizer)
    for name, value in manifest["options"].items():
        yield f"{name}: {value}"
    yield f"pairs: {manifest['pairs']}"
    for name, kind, shape in manifest["row"]:
        yield f"row {name}: {np.dtype(kind)} {shape}"
    for split, counts in manifest["counts"].items():
        listed = ", ".join(f"{name} {value:,}" for name, value in counts.items())
        num_rows = len(getattr(dataset, split))
        yield f"{split}: rows {num_rows:,}, {listed}"
    text = TextReport.of_manifest(manifest)
    warnings = text.warnings(packed=manifest["options"].get("pack", False))
    yield from (*text.lines(), *(f"warning: {line}" for line in warnings))
    yield f"sources: {len(manifest['sources'])}, shards: {len(manifest['shards'])}"
    row_numbers = np.arange(min(_NUM_ROWS, len(dataset.train)))
    for number, row in enumerate(dataset.train.gather(row_numbers)):
        yield f"training row {number}:"
        yield from row_lines(row, dataset)


def row_lines(row: np.void, dataset: Dataset) -> Iterator[str]:
    """The first tokens of each segment of each pair of a row."""
    meanings = LABEL_MEANINGS[dataset.manifest["pairs"]]
    fields = (row[f] for f in ("first", "second", "end", "next_sentence_label"))
    for first, second, end, label in zip(*fields, strict=True):
        if not end:
            continue  # an unused slot
        for name, start, stop in (("first", first, second), ("second", second, end)):
            ids = row["tokens"][start:stop].tolist()
            more = " …" if len(ids) > _NUM_TOKENS else ""
            text = " ".join(dataset.tokenizer.tokens(ids[:_NUM_TOKENS]))
            if ids:
                yield f"  {name}: {text}{more}"
        yield f"  second segment: {meanings[int(label)]}"


def tokenizer_line(tokenizer: Tokenizer) -> str:
    """The kind, size and casing of a tokenizer."""
    cased = "cased" if tokenizer.cased else "uncased"
    return f"tokenizer: {tokenizer.kind}, {tokenizer.vocab_size:,} tokens, {cased}"


def workdir_lines(directory: epath.Path, checksums: bool) -> Iterator[str]:
    """Each checkpoint with its state and score."""
    read = verify_checkpoint if checksums else read_step_manifest
    for step in list_steps(directory / CHECKPOINTS):
        try:
            score = selection_score_of(read(directory / CHECKPOINTS / str(step)))
            state = "verified" if checksums else "complete"
            state += "" if score is None else f", score {score:.6g}"
        except (DamagedError, FileNotFoundError) as error:
            state = str(error)
        yield f"checkpoint {step}: {state}"


def runs_lines(directory: epath.Path) -> Iterator[str]:
    """Each run of a sweep with its first score, and the table of all scores."""
    runs = read_runs_file(directory)["runs"]
    for run in runs:
        yield f"run {run['name']}: {main_score(run['scores']):.4f}"
    yield from score_table.runs_lines(runs)


def model_lines(path: str, checksums: bool) -> Iterator[str]:
    """The configuration, tokenizer and parameters of the model that `load` loads."""
    model = load_pretrained(path)
    verified = (model.directory / MANIFEST).exists()
    yield f"model {model.directory}" + ", every file verified" * verified
    yield tokenizer_line(model.tokenizer)
    for name, base, value in differences(to_dict(BertConfig()), to_dict(model.config)):
        yield f"{name}: {value} (base has {base})" if base else f"{name}: {value}"
    leaves = jax.tree_util.tree_leaves_with_path(model.params)
    for leaf_path, leaf in leaves:
        yield f"{path_name(leaf_path)}  {list(leaf.shape)} {leaf.dtype}"
    yield f"parameters: {sum(leaf.size for _, leaf in leaves):,}"
    if checksums and not (verified or (model.directory / RECEIPT).exists()):
        yield _NO_CHECKSUMS

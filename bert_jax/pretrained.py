"""A model as a value: read from any of its homes, and written as a checkpoint."""

import contextlib
import dataclasses
import os
import shlex
import warnings
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath

from bert_jax.checkpoints.restore import read_params
from bert_jax.checkpoints.steps import find_checkpoint, read_config, read_config_as
from bert_jax.config import BertConfig, ExamplesConfig, FinetuneConfig
from bert_jax.config.checks import require
from bert_jax.config.embedding import Embedding
from bert_jax.config.model import Params
from bert_jax.config.serialization import to_dict
from bert_jax.formats.embedding import model_directory, stated_length
from bert_jax.formats.families import family_of
from bert_jax.formats.folding import Unused, read_unused, write_unused
from bert_jax.formats.hub import HUB, download, hint, may_be, pin
from bert_jax.formats.huggingface import CONFIG, is_huggingface, read_huggingface
from bert_jax.formats.imported import RECEIPT, Imported
from bert_jax.formats.tf1 import is_tf1
from bert_jax.model.classifiers import with_targets
from bert_jax.model.finite import require_finite
from bert_jax.storage.atomic import absolute, atomic_directory
from bert_jax.storage.files import JsonObject, name_path_in_errors, write_json
from bert_jax.storage.manifest import describe_files, read_manifest, write_manifest
from bert_jax.storage.remote import open_directory
from bert_jax.tokenization import Tokenizer


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
    """A model in memory, and how it was trained."""

    config: BertConfig
    params: Params
    """A nested dict of float32 arrays: NumPy's as read, JAX's if `placed`."""
    tokenizer: Tokenizer
    pairs: str
    """The objective of pretraining on text pairs: nsp, sop, or none."""
    directory: epath.Path
    """The checkpoint, or directory of Hugging Face's files, that it was read from."""
    imported: bool
    """Whether it was trained elsewhere, so that it has no optimizer state."""
    embedding: Embedding | None
    """How it makes one vector of a text, if its files specify it."""
    sources: tuple[JsonObject, ...]
    """Path, size and sha256 of each file that it was read from."""
    trained_length: int = 0
    """Tokens in the rows of its last pretraining run; 0: unknown."""
    own_length: int = 0
    """Tokens of a row by its files or its last run, of any kind; 0: unknown."""
    unused: Unused = dataclasses.field(default_factory=dict)
    """Rows and tensors of its files that it never uses, for an export (folding.py)."""

    run: JsonObject = dataclasses.field(default_factory=dict)
    """The config.json of the run that made it; {}: it was made elsewhere."""
    data: ExamplesConfig | None = None
    """How its examples became rows, if it was fine-tuned."""

    targets: tuple[float, float] = (0.0, 1.0)
    """Mean and deviation of the targets that `in_target_units` has folded in."""

    def in_target_units(self) -> "Model":
        """Return a model of numbers whose score is the number, for other libraries."""
        targets = self.config.target_mean, self.config.target_deviation
        config, params = with_targets(self.config, self.params)
        return dataclasses.replace(self, config=config, params=params, targets=targets)

    def changed(self, params: Params, **fields: Any) -> "Model":
        """Return the model with other parameters, and fields of its configuration."""
        config = self.config.changed(**fields)
        return dataclasses.replace(self, config=config, params=params)

    def placed(self) -> "Model":
        """Return the model with its parameters on the device, for computing.

        A program that is given NumPy arrays copies all of them at every batch.
        """
        return self.changed(jax.device_put(self.params))

    def __str__(self) -> str:
        """Return where it was read from, for messages."""
        return str(self.directory)


def as_directory(path: str) -> epath.Path:
    """Return the path; `hf:OWNER/NAME` is downloaded first."""
    require(isinstance(path, str), f"path={path!r:.80} must be a path or a name.")
    return download(path) if path.startswith(HUB) else open_directory(path)


def pinned_name(name: str, before: str | None) -> str:
    """Return the name of a model with a commit in the place of a branch of the hub.

    Args:
        before: the name that an earlier start has recorded, which is kept if it may be
            the same, or is of the same directory; None: this is the first.
    """
    if not name.startswith(HUB):
        is_same = before and os.path.abspath(name) == os.path.abspath(before)
        return before if before and is_same else name
    if before is None:
        return pin(name)
    return before if may_be(name, before) else name


def resolve_path(path: str) -> tuple[epath.Path, bool]:
    """Return the directory of the model that `path` names, and whether it is imported.

    Takes and raises the same as `load_pretrained`.
    """
    directory = as_directory(path)
    if is_huggingface(directory):
        return directory, True
    if is_tf1(directory):
        raise ValueError(
            f"{directory} is a checkpoint of TensorFlow; convert it by `bert-jax "
            f"convert import --from tf1 {shlex.quote(str(directory))} --output "
            "DIRECTORY`, and name that."
        )
    named = (
        "name a workdir of `bert-jax pretrain` or `finetune`, a checkpoint, or a "
        "directory of a model."
    )
    if not directory.exists():
        raise FileNotFoundError(f"{path} does not exist; {named}{hint(path)}")
    if directory.is_file():
        parent = absolute(directory).parent
        if (parent / CONFIG).exists():
            named = f"name the directory, {parent}."
        raise ValueError(f"{path} is a file; {named}")
    directory, problems = find_checkpoint(directory)
    for problem in problems:
        warnings.warn(f"Skipped a newer checkpoint: {problem}", stacklevel=4)
    # The configuration of an imported checkpoint describes only the model.
    return directory, "data" not in read_config(directory)


def load_pretrained(path: str | Model, allow_extra: bool = False) -> Model:
    """Read the model that `path` names, and verify every file; a `Model` is returned.

    Args:
        path: a workdir (its newest verified checkpoint; if fine-tuned, its best), one
            of its checkpoints, an imported checkpoint, a Hugging Face directory, or
            hf:OWNER/NAME, with @REVISION after it for another branch than main.
        allow_extra: ignore tensors of Hugging Face's files that the model does not
            have.

    Raises:
        FileNotFoundError: there is no model.
        ValueError: files are missing or altered, a parameter is not finite, or the
            model is not supported.
    """
    if isinstance(path, Model):
        return path
    directory, imported = resolve_path(path)
    if is_huggingface(directory):
        model = read_huggingface(directory, allow_extra)
        config, params, tokenizer = model.config, model.params, model.tokenizer
        embedding, sources = model.embedding, model.sources
        unused = dict(model.unused)
    else:
        config = read_config_as(directory, "model", BertConfig)
        embedding = read_stored_embedding(directory)
        params, sources = read_params(directory), read_manifest(directory)["files"]
        unused = read_unused(directory)
        tokenizer = Tokenizer.load(directory / "tokenizer")
    require_finite(params, directory)
    pairs, trained_length = "nsp" if "next_sentence" in params else "none", 0
    finetuning = None if imported else read_finetuning(directory)
    if not imported:
        pairs, trained_length = read_pretraining(directory)
    elif not is_huggingface(directory):
        values = read_config(directory)
        pairs, length = values.get("pairs", pairs), values.get("trained_length")
        trained_length = length if isinstance(length, int) else 0
    return Model(
        config=config,
        params=params,
        tokenizer=tokenizer,
        pairs=pairs,
        directory=directory,
        imported=imported,
        embedding=embedding,
        sources=tuple(sources),
        trained_length=trained_length,
        own_length=read_own_length(directory),
        unused=unused,
        run={} if imported else read_config(directory),
        data=finetuning.data if finetuning else None,
    )


def read_stored_embedding(directory: epath.Path) -> Embedding | None:
    """Return how a checkpoint's model makes vectors; None if it does not say it."""
    values = read_config(directory)
    if values.get("task") == "sentence-pairs":
        data = read_config_as(directory, "data", ExamplesConfig)
        return None if data.sentence_pairs.objective == "rank" else data.embedding
    if "embedding" in values:
        return read_config_as(directory, "embedding", Embedding)
    return None


def read_pretraining(directory: epath.Path) -> tuple[str, int]:
    """Return the pair objective of a checkpoint's run, and the tokens of its rows.

    The data of a fine-tuning run have neither: none, and 0.
    """
    config = read_config(directory)
    data = config["data"] if isinstance(config["data"], dict) else {"pairs": None}
    pairs, length = data.get("pairs", "none"), data.get("sequence_length")
    if pairs not in ("nsp", "sop", "none"):
        raise ValueError(
            f"{directory / CONFIG} has no data.pairs, one of nsp, sop and none; "
            "restore the file from a copy."
        )
    pairs = str(pairs) if config.get("pair_loss", True) else "none"
    return pairs, length if isinstance(length, int) else 0


def read_own_length(directory: epath.Path) -> int:
    """Return the tokens of a row by a model's files or its last run; 0: unknown."""
    if is_huggingface(directory):
        return stated_length(directory)
    values = read_config(directory)
    # An imported checkpoint has no data; an older one may have its length as a limit.
    places = values.get("data", values), values.get("embedding")
    names = "sequence_length", "max_length", "max_tokens"
    lengths = [p.get(name) for p in places if isinstance(p, dict) for name in names]
    return next((n for n in lengths if isinstance(n, int) and n > 0), 0)


def read_finetuning(directory: epath.Path) -> FinetuneConfig | None:
    """Return the configuration of the run that fine-tuned a model; None: no run did.

    Its `data.label_names` are left out: they are the names of the model's classes.
    """
    if "task" not in read_config(model_directory(directory)):
        return None
    config = read_config_as(directory, "", FinetuneConfig)
    return config.changed(data=config.data.renamed)


def read_positions(directory: epath.Path) -> int:
    """Return the number of a model's positions, before anything is checked."""
    values = read_config(model_directory(directory))
    if "model" in values:
        return read_config_as(directory, "model", BertConfig).max_position_embeddings
    # A damaged value is refused where the model is read.
    with contextlib.suppress(ValueError):
        values = family_of(values).bert_values(values)
    positions = values.get("max_position_embeddings")
    return positions if type(positions) is int else 512


def write_checkpoint(
    model: Imported | Model,
    receipt: JsonObject,
    output: epath.Path,
    run: JsonObject | None = None,
) -> None:
    """Write a checkpoint without optimizer state, atomically.

    The receipt becomes `conversion.json`, with the written files, and `run`, the
    configuration of the run that made the model, `config.json`. Raise FileExistsError
    if `output` exists and is not an empty directory, OSError if it cannot be written.
    """
    with atomic_directory(output) as directory:
        params = jax.tree.map(np.asarray, model.params)
        size = sum(leaf.nbytes for leaf in jax.tree.leaves(params))
        _reserve(directory, size, absolute(output))
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(directory / "state", params)
        values: JsonObject = (run or {}) | {"model": to_dict(model.config)}
        if not run:  # else its fields say the same
            if isinstance(model, Model):
                values["pairs"] = model.pairs
                values["trained_length"] = model.trained_length
            if model.embedding is not None:
                values["embedding"] = to_dict(model.embedding)
            if model.own_length:
                values["max_length"] = model.own_length
        write_json(values, directory / "config.json")
        write_unused(model.unused, directory)
        model.tokenizer.save(directory / "tokenizer")
        files = describe_files(directory)
        write_json(receipt | {"files": files}, directory / RECEIPT)
        files += describe_files(directory, [RECEIPT])
        write_manifest({"step": 0, "files": files}, directory)


def run_config(model: Model) -> JsonObject:
    """Return the configuration of the run that made a model, as it is now; {}: none.

    It says how texts become rows, and how the model makes vectors.
    """
    run = model.run
    if "task" in run and model.data is not None:
        run = run | {"data": to_dict(model.data)}
    if model.embedding is None or not run:
        return run
    embedding: JsonObject = {"embedding": to_dict(model.embedding)}
    if run.get("task") != "sentence-pairs":
        return run | embedding
    return run | {"data": run["data"] | embedding}


def finetuning_run_config(model: Model) -> JsonObject:
    """Return `run_config` of a fine-tuned model, for one that is made of it; {}."""
    return run_config(model) if "task" in model.run else {}


def _reserve(directory: epath.Path, size: int, output: epath.Path) -> None:
    """Check that the disk has `size` free bytes, by allocating a file of that size.

    Otherwise each thread of Orbax would print an error of its own.
    """
    if not hasattr(os, "posix_fallocate"):  # not on macOS
        return
    path = directory / "reserved"
    with name_path_in_errors(output), path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(size, 1))
    path.unlink()

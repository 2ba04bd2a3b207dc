"""A pretraining run and its dataset: the rows of each step, and how they are masked.

The step decides the rows of a batch, and the key of their masks. Both are computed here
by the functions of training; no log is read. The masks do not depend on the devices,
hosts or microbatches of the run.
"""

import dataclasses
import functools
import shlex
import warnings
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath
from jaxtyping import Array, UInt32

from bert_jax.checkpoints.restore import read_base_key
from bert_jax.checkpoints.steps import CHECKPOINTS, latest_verified_step, read_config
from bert_jax.config import DataConfig, PretrainConfig
from bert_jax.config.files import HISTORY
from bert_jax.config.serialization import from_dict
from bert_jax.data.records import Dataset, columns, open_dataset
from bert_jax.storage.files import JsonObject
from bert_jax.storage.remote import open_directory
from bert_jax.tasks.pretraining.task import PretrainingBatch, PretrainingTask
from bert_jax.training.step import step_keys


@dataclasses.dataclass(frozen=True)
class PretrainingRun:
    """A pretraining run and its dataset."""

    workdir: epath.Path
    values: JsonObject
    """The content of config.json."""
    dataset: Dataset
    num_done: int
    """The step of the newest verified checkpoint."""
    base_key: UInt32[Array, "2"]
    masks: dict[PretrainConfig, Callable[..., PretrainingBatch]] = dataclasses.field(
        default_factory=dict
    )
    """The masking of each configuration, compiled."""

    @functools.cached_property
    def config(self) -> PretrainConfig:
        """The configuration of the steps to come."""
        return config_at_step(self.workdir, self.values, self.num_done)

    @functools.cached_property
    def task(self) -> PretrainingTask:
        """The task of the steps to come."""
        return PretrainingTask(self.config, self.dataset)

    def masked_row(self, row: int, step: int, place: int) -> PretrainingBatch | None:
        """Return a row as a step's model sees it, [1, T]; None: nothing is masked.

        `step` is the number of steps done before, `place` that of the row in the batch.
        """
        config = config_at_step(self.workdir, self.values, step)
        if config.objective == "causal_lm":
            return None
        batch = columns(self.dataset.train.gather(np.array([row])))
        batch["row"] = np.array([place], np.int32)
        mask_key, _ = step_keys(self.base_key, step)
        if config not in self.masks:
            task = PretrainingTask(config, self.dataset)
            self.masks[config] = jax.jit(task.corrupt_at_step)
        return self.masks[config](batch, mask_key, jnp.int32(step))


def config_at_step(
    workdir: epath.Path, values: JsonObject, step: int
) -> PretrainConfig:
    """Return what decided the rows and masks of the step after `step` others.

    A fork may have changed the masking, and `--extend` the number of steps;
    config.json, with these `values`, has those of today, and in its history the earlier
    ones. Optimizer, mesh and profile, which decide neither rows nor masks, are those of
    the class. Raise ValueError if config.json is damaged.
    """
    try:
        values = {**values, "model": dict(values["model"])}
        values["masking"] = dict(values["masking"])
        for entry in reversed(values.pop(HISTORY, [])):
            for change in entry.get("changed", []):
                if entry["step"] > step:
                    name, value = change["field"], change["before"]
                    section, _, field = name.rpartition(".")
                    # No other section decides rows or masks.
                    if section in ("", "model", "masking"):
                        (values[section] if section else values)[field] = value
        values |= {"optimizer": {"warmup_steps": 0}, "mesh": {}, "profile_steps": ""}
        values["model"].pop("attention_kernel", None)
        return from_dict(PretrainConfig, values)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        reason = " ".join(str(error).split())
        if isinstance(error, KeyError):
            reason = f"it, or an entry of its {HISTORY}, lacks {reason}"
        raise ValueError(
            f"{workdir / 'config.json'} is damaged: {reason.rstrip('.')}; restore it "
            "from a copy."
        ) from error


class OtherDatasetError(ValueError):
    """A dataset is not the one that a run was trained on."""


def open_dataset_of_run(data: DataConfig, path: str = "") -> Dataset:
    """Open the dataset of a pretraining run; its checksums are not compared.

    It is at `path`, or where the run found it. Raise OtherDatasetError if by its
    manifest it has another content.
    """
    place = path or data.path
    dataset = open_dataset(place)
    if data.fingerprint not in ("", dataset.fingerprint):
        raise OtherDatasetError(
            f"{place} is not the dataset of the run: its fingerprint is "
            f"{dataset.fingerprint}, not {data.fingerprint}."
        )
    return dataset


def open_run(workdir: str, dataset_path: str = "") -> PretrainingRun:
    """Open a pretraining run, whose dataset is now at `dataset_path` or where it was.

    Raise FileNotFoundError if there is no run, or the dataset is gone; ValueError if
    the run has no checkpoint or is of another kind, or the dataset is another than the
    run's.
    """
    directory = open_directory(workdir)
    step, problems = latest_verified_step(directory / CHECKPOINTS)
    for problem in problems:
        warnings.warn(f"Skipped a newer checkpoint: {problem}", stacklevel=2)
    if step is None:
        raise FileNotFoundError(
            f"{workdir} is not the workdir of a run with a complete checkpoint; name "
            "one of `bert-jax pretrain`."
        )
    values = read_config(directory)
    if "masking" not in values:
        raise ValueError(
            f"{workdir} is not a run of `bert-jax pretrain`; the rows of fine-tuning "
            "are not those of a dataset. Name the workdir of a pretraining run."
        )
    config = config_at_step(directory, values, step)
    command = f"`bert-jax inspect DATASET --when TEXT --run {shlex.quote(workdir)}`"
    try:
        dataset = open_dataset_of_run(config.data, dataset_path)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"The dataset of {workdir} is gone: {error} If it was moved, pass its "
            f"place: {command}."
        ) from error
    except OtherDatasetError as error:
        raise OtherDatasetError(f"{error} Name the place of its own: {command}.") from (
            error
        )
    base_key = read_base_key(directory / CHECKPOINTS / str(step))
    return PretrainingRun(directory, values, dataset, step, base_key)

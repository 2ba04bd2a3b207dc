"""What a workdir records of its run: configuration, progress, origin."""

import contextlib
import dataclasses
import datetime
import functools
import importlib.metadata
import math
import os
from collections.abc import Iterator

import jax
from etils import epath

from bert_jax.apps.run_page.curves import subject_of
from bert_jax.checkpoints.steps import (
    CHECKPOINTS,
    complete_steps,
    read_config,
    selection_scores,
)
from bert_jax.config import FinetuneConfig, PretrainConfig, RunConfig
from bert_jax.config.checks import RESOLVED, field_descriptions
from bert_jax.config.files import HISTORY
from bert_jax.config.serialization import from_dict
from bert_jax.model.bert import init_params
from bert_jax.storage.atomic import is_address
from bert_jax.storage.files import JsonObject, read_json_object
from bert_jax.storage.manifest import MANIFEST
from bert_jax.storage.remote import open_directory
from bert_jax.storage.runs_file import RUNS, read_runs_file
from bert_jax.tasks.predictions import main_score, without_repeats
from bert_jax.tokenization import Tokenizer
from bert_jax.training.best_score import BestScore
from bert_jax.training.lock import LOCK, has_ended
from bert_jax.training.metrics_file import (
    METRICS,
    VALIDATION,
    MetricsLine,
    read_metrics,
)
from bert_jax.training.resume import Resume
from bert_jax.training.step import num_parameters


@dataclasses.dataclass(frozen=True)
class RunRecord:
    """What a workdir holds, without the arrays."""

    workdir: epath.Path
    config: PretrainConfig | FinetuneConfig
    history: list[JsonObject]
    """The machines on which the run was started, and what was changed at which step."""
    lines: list[MetricsLine]
    damaged_lines: int
    """Number of the lines of metrics.jsonl that cannot be read."""

    @property
    def step(self) -> int:
        """The last step that is known to have ended."""
        logged = [line.step for line in self.lines]
        return max([*logged, *self.checkpoints], default=0)

    @property
    def checkpoints(self) -> list[int]:
        """The steps of the complete checkpoints, in order."""
        return sorted(complete_steps(self.workdir / CHECKPOINTS))


def read_run_record(path: str) -> RunRecord:
    """Read what a workdir records; raise ValueError if it has several runs."""
    directory = open_directory(path)
    if (directory / RUNS).exists():
        best = read_runs_file(directory)["best"]
        raise ValueError(
            f"{path} holds several runs, and a report shows one; name one of them, "
            f"such as {directory / best}."
        )
    is_model = (directory / MANIFEST).exists()
    is_run = (directory / "config.json").exists() and not is_model
    values = read_config(directory) if is_run else {}
    if not {"num_steps", "model", "data"} <= values.keys():
        raise FileNotFoundError(
            f"{path} is not the workdir of a run, which has a config.json; name one "
            "of `bert-jax pretrain` or `finetune`."
        )
    history = values.pop(HISTORY, [])
    kind: type[PretrainConfig | FinetuneConfig]
    kind = FinetuneConfig if "task" in values else PretrainConfig
    try:
        config = from_dict(kind, values)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{directory / 'config.json'} is damaged: {error}") from error
    entries = history if isinstance(history, list) else []
    changes = [entry for entry in entries if isinstance(entry, dict)]
    lines, num_damaged = read_metrics(directory / METRICS)
    return RunRecord(directory, config, changes, lines, num_damaged)


def progress(run: RunRecord) -> str:
    """Return how far the run is, and whether it still runs."""
    num_steps = run.config.num_steps
    at = f"at step {run.step:,} of {num_steps:,}"
    owner: JsonObject = {}
    with contextlib.suppress(OSError, ValueError):  # released, or renewed just now
        owner = read_json_object(run.workdir / LOCK, "")
    ended = has_ended(owner) if owner else True
    if ended is None:
        return f"Perhaps running on {owner.get('host')}, {at}."
    if not ended:
        return f"Running, {at}."
    newest = max(run.checkpoints, default=None)
    if newest is None:
        return f"Stopped {at}, without a checkpoint; the same command begins it again."
    if newest >= num_steps > 0:
        return f"Finished, {at}."
    best = BestScore()
    for line in _comparable_lines(run):
        best.add(line.step, _selection_score(run, line))
    if newest == run.step and 0 < run.config.patience <= best.num_without_gain:
        goes_on = run.config.keep_optimizer_states != "none"
        remedy = " To train on, raise --patience." * goes_on
        return f"Ended {at}: {best.why_stopped()}.{remedy}"
    return f"Stopped {at}; the same command resumes it from its checkpoint {newest:,}."


def _comparable_lines(run: RunRecord) -> list[MetricsLine]:
    """Return the lines of validation scores since what they are of was changed."""
    last = Resume(run.step, {}, run.history, []).incomparable_until
    return [n for n in run.lines if n.split == VALIDATION and n.step > last]


def best_evaluation(run: RunRecord) -> MetricsLine | None:
    """Return the line of the best validation scores after the first step.

    The best is by the loss in pretraining, and by the first score in fine-tuning; of
    equal ones the newest, as of checkpoints.
    """
    lines = [line for line in _comparable_lines(run) if line.step]
    known = [line for line in lines if not math.isnan(_selection_score(run, line))]
    return max(known, key=lambda n: (_selection_score(run, n), n.step), default=None)


def _selection_score(run: RunRecord, line: MetricsLine) -> float:
    """Return the score that decides, the higher the better; NaN: the line has none."""
    if not isinstance(run.config, FinetuneConfig):
        return -line.scalars.get("loss", math.nan)
    has_score = line.scalars.keys() - {"loss"}
    return main_score(line.scalars) if has_score else math.nan


def evaluations(run: RunRecord, max_rows: int = 30) -> JsonObject:
    """Return the validation scores by step, as a table of `columns` and `rows`.

    Each row has a step, its values (None: not finite or absent), and whether there is a
    checkpoint of it, and the best one. Of more than `max_rows`, about as many evenly
    spread rows are kept, and those with checkpoints.
    """
    lines = [line for line in run.lines if line.split == VALIDATION]
    scores, _ = selection_scores(run.workdir / CHECKPOINTS)
    known = {step: score for step, score in scores.items() if abs(score) < float("inf")}
    best = max(known, key=lambda step: (known[step], step), default=None)
    columns = [*dict.fromkeys(n for own in lines for n in without_repeats(own.scalars))]
    every = -(-len(lines) // max_rows) or 1
    rows = [
        {
            "step": line.step,
            "values": [finite(line.scalars.get(name)) for name in columns],
            "kept": line.step in scores,
            "best": line.step == best and len(known) > 1,
        }
        for place, line in enumerate(lines)
        if (len(lines) - 1 - place) % every == 0 or line.step in scores
    ]
    subjects = [subject_of(name) for name in columns]
    return {
        "columns": [{"title": s.title, "percent": s.percent} for s in subjects],
        "rows": rows,
        "evaluations": len(lines),
    }


def finite(value: float | None) -> float | None:
    """Return a number that JSON has, in six digits, or None."""
    if value is None or not abs(value) < float("inf"):
        return None
    return float(f"{value:.6g}")


def configuration(config: RunConfig) -> list[JsonObject]:
    """Return each field: name, value, default, description, whether a run fills it."""
    return list(_fields(config, type(config)(), ""))


def _fields(config: object, default: object, prefix: str) -> Iterator[JsonObject]:
    assert dataclasses.is_dataclass(config) and not isinstance(config, type)
    about = field_descriptions(type(config))
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        default_value = getattr(default, field.name)
        if dataclasses.is_dataclass(value):
            yield from _fields(value, default_value, f"{field.name}.")
            continue
        yield {
            "name": prefix + field.name,
            "value": _text(value),
            "default": _text(default_value),
            "about": about.get(field.name, ""),
            "resolved": field.metadata == RESOLVED,
        }


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def provenance(run: RunRecord) -> list[tuple[str, str]]:
    """Return names and texts of what a reader needs to repeat the run."""
    config = run.config
    init = functools.partial(init_params, config.model)
    shapes = jax.eval_shape(init, jax.random.key(0))
    rows = [
        ("workdir", str(run.workdir)),
        ("kind of run", kind_of_run(config)),
        ("parameters", f"{num_parameters(shapes):,}"),
        ("seed", str(config.seed)),
        ("initial parameters", config.init_from or "random"),
        *([("teacher", config.teacher)] if config.teacher else []),
        *_data(config),
    ]
    with contextlib.suppress(OSError, ValueError):  # not written yet, or removed
        tokenizer = Tokenizer.load(run.workdir / "tokenizer")
        cased = "cased" if tokenizer.cased else "uncased"
        about = f"{tokenizer.kind}, {tokenizer.vocab_size:,} tokens, {cased}"
        rows.append(("tokenizer", about))
    for entry in run.history:
        rows.append((f"from step {entry.get('step', '?')}", _entry(entry)))
    files = {METRICS: run.workdir / METRICS}
    for step in run.checkpoints[-1:]:
        files[f"checkpoint {step}"] = run.workdir / CHECKPOINTS / str(step) / MANIFEST
    for name, path in files.items():
        if path.exists():
            # epath's stat fails if the owner of a file has no name.
            is_local = not is_address(path)
            time = os.stat(path).st_mtime if is_local else float(path.stat().mtime)
            rows.append((f"{name} written", _time(time)))
    version = importlib.metadata.version("bert_jax")
    now = datetime.datetime.now(datetime.UTC).timestamp()
    rows.append(("this page", f"written {_time(now)} by bert_jax {version}"))
    return rows


def kind_of_run(config: PretrainConfig | FinetuneConfig) -> str:
    """Return what the run learns, in words."""
    taught = f", taught by {config.teacher}" if config.teacher else ""
    if isinstance(config, FinetuneConfig):
        return f"fine-tuning, {config.task}{taught}"
    pairs = config.data.pairs if config.pair_loss else "none"
    learned = f"{config.objective}, pairs {pairs}" if pairs else config.objective
    return f"pretraining, {learned}{taught}"


def _data(config: PretrainConfig | FinetuneConfig) -> Iterator[tuple[str, str]]:
    if isinstance(config, PretrainConfig):
        yield "data", config.data.path or "not named"
    else:
        yield "data", config.data.path or config.data.train or "not named"
        if config.data.validation:
            yield "validation data", config.data.validation
    if config.data.fingerprint:
        yield "fingerprint of the data", config.data.fingerprint
    first = config.data.first_step if isinstance(config, PretrainConfig) else 0
    rows = (config.num_steps - first) * config.batch_size
    yield "rows of all steps", f"{rows:,}, as {config.batch_size:,} in each step"


def _entry(entry: JsonObject) -> str:
    """Return an entry of a run's history as text."""
    parts = []
    for name, value in entry.items():
        if name == "changed" and isinstance(value, list):
            parts += [
                f"{change.get('field')} changed from {change.get('before')} to "
                f"{change.get('now')}"
                for change in value
                if isinstance(change, dict)
            ]
        elif isinstance(value, dict):
            listed = ", ".join(f"{key} {v}" for key, v in value.items())
            parts.append(f"{name.replace('_', ' ')}: {listed}")
        elif name != "step":
            parts.append(f"{name.replace('_', ' ')} {value}")
    return ", ".join(parts)


def _time(seconds: float) -> str:
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return moment.strftime("%Y-%m-%d %H:%M UTC")

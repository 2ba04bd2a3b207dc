"""One self-contained web page of several runs: curves, scores, what differs."""

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from etils import epath

from bert_jax.apps.run_page.curves import (
    MAX_POINTS,
    SECTIONS,
    SUBJECTS,
    charts,
    subject_of,
)
from bert_jax.apps.run_page.run_record import (
    RunRecord,
    best_evaluation,
    configuration,
    finite,
    kind_of_run,
    progress,
    provenance,
    read_run_record,
)
from bert_jax.apps.run_page.run_report import write_run_report
from bert_jax.config import FinetuneConfig
from bert_jax.reports.web_page import SUFFIX, web_page
from bert_jax.storage.files import JsonObject, atomic_write, require_output_file
from bert_jax.storage.manifest import read_manifest
from bert_jax.storage.remote import open_directory
from bert_jax.storage.runs_file import RUNS, read_runs_file
from bert_jax.tasks.predictions import without_repeats
from bert_jax.training.metrics_file import METRICS

MAX_RUNS = 24
"""Runs of a page, as many as have a colour and a dash of their own."""
_MAX_NAMES = 4
"""Runs that the title of a page names."""
_NUM_COLORS = 8
_LOWER_IS_BETTER = ("loss", "perplexity", "squared_error", "bits_per_byte")


def write_run_page(
    paths: Sequence[str], path: Path, report: Callable[[str], None] = lambda line: None
) -> int:
    """Write the page of a run, or of several side by side; return their number.

    `paths` are workdirs of runs, which may still go on, and directories of several.
    `path` ends in .html; the page needs no network. `report` takes lines on the
    progress. Raise FileNotFoundError if one is not the workdir of a run, ValueError if
    a run is named twice, there are more than `MAX_RUNS`, or a config.json is damaged,
    OSError if the page cannot be written.
    """
    workdirs = []
    for place in paths:
        directory = open_directory(place)
        if (directory / RUNS).exists():
            runs_of = read_runs_file(directory)["runs"]
            workdirs += [str(directory / run["name"]) for run in runs_of]
        else:
            workdirs.append(place)
    require_different(workdirs)
    if len(workdirs) == 1:
        write_run_report(workdirs[0], path, report)
        return 1
    require_output_file(path, SUFFIX)
    if len(workdirs) > MAX_RUNS:
        raise ValueError(
            f"{len(workdirs)} runs are too many for a page, which tells {MAX_RUNS} "
            "apart; name at most so many."
        )
    names = short_names(workdirs)
    runs = {
        name: read_run_record(own) for name, own in zip(names, workdirs, strict=True)
    }
    atomic_write(path, run_comparison(runs).encode())
    return len(workdirs)


def require_different(paths: Sequence[str]) -> None:
    """Raise ValueError if two paths are the same directory."""
    first: dict[str, str] = {}
    for path in paths:
        place = path if ":" in path else os.path.realpath(path)
        if place in first:
            both = path if path == first[place] else f"{first[place]} and {path}"
            raise ValueError(f"{both} is the same directory twice; name it once.")
        first[place] = path


def short_names(paths: Sequence[str]) -> list[str]:
    """Return the paths without the folders that all of them begin with."""
    parts = [path.rstrip("/").split("/") for path in paths]
    levels = zip(*(own[:-1] for own in parts), strict=False)
    is_shared = (len(set(level)) == 1 for level in levels)
    count = sum(itertools.takewhile(bool, is_shared))
    return ["/".join(own[count:]) for own in parts]


def run_comparison(runs: Mapping[str, RunRecord]) -> str:
    """Return the page as HTML; all texts are escaped."""
    settings = [configuration(run.config) for run in runs.values()]
    abouts = {field["name"]: field["about"] for own in settings for field in own}
    values = [{field["name"]: field["value"] for field in own} for own in settings]
    origins = [dict(provenance(run)[:-1]) for run in runs.values()]  # not of the page
    data: JsonObject = {
        "runs": [
            {"name": name, "color": color_of(place), "progress": progress(run)}
            for place, (name, run) in enumerate(runs.items())
        ],
        "notes": list(comparability_notes([*runs.values()])),
        "charts": merged_charts(runs),
        "scores": score_rows([*runs.values()]),
        "configuration": rows_of(values, abouts),
        "provenance": rows_of(origins, {}, "–"),
    }
    shown = ", ".join(runs) if len(runs) <= _MAX_NAMES else f"{len(runs)} runs"
    return web_page(
        "bert_jax.apps.run_page", "run_comparison.html", {"runs": shown}, data
    )


def color_of(place: int) -> str:
    """Return the style classes of a run's curves: a colour, then a dash, too."""
    dash, color = divmod(place, _NUM_COLORS)
    return f"run{color} dash{dash}"


def comparability_notes(runs: Sequence[RunRecord]) -> Iterator[str]:
    """Yield why scores of the runs cannot be compared."""
    kinds = dict.fromkeys(kind_of_run(run.config) for run in runs)
    if len(kinds) > 1:
        yield (
            f"The runs learn different things ({'; '.join(kinds)}): the same name of a "
            "loss or score can mean something else."
        )
    elif len({validation_data(run) for run in runs}) > 1:
        yield (
            "The runs were scored on different validation examples, or other masks of "
            "them: a difference of their scores may come from these."
        )
    for run in runs:
        if count := run.damaged_lines:
            place = run.workdir / METRICS
            yield f"Left out of {place}, as unreadable: lines {count:,}."


def validation_data(run: RunRecord) -> tuple[object, ...]:
    """Return what tells on which examples, and masks, a run was scored."""
    config = run.config
    if not isinstance(config, FinetuneConfig):
        masks = config.masking
        needed = masks.changed(final_rate=None, max_predictions=None)
        length = config.data.sequence_length
        most = min(masks.num_slots(length), needed.num_slots(length))
        shares = masks.rate, masks.mask_share, masks.random_share, masks.unit
        spans = masks.span_probability, masks.max_span
        num_scored = config.eval_rows
        with contextlib.suppress(ValueError, OSError):  # the dataset may not be there
            shards = read_manifest(epath.Path(config.data.path))["shards"]
            rows = sum(s["rows"] for s in shards if s["split"] == "validation")
            num_scored = min(num_scored or rows, rows)
        about = config.data.fingerprint, num_scored, most
        return *about, *shares, *(spans if masks.unit == "span" else ())
    data = config.data
    if data.validation:
        return (data.validation_fingerprint or data.validation,)
    drawn = data.split, data.validation_fraction, config.seed
    return (data.fingerprint, *drawn)


def merged_charts(runs: Mapping[str, RunRecord]) -> list[JsonObject]:
    """Return a chart for each scalar and split, with a curve for each run."""
    merged: dict[tuple[str, str], JsonObject] = {}
    max_points = min(MAX_POINTS, max(200, 4 * MAX_POINTS // len(runs)))
    for place, (name, run) in enumerate(runs.items()):
        for chart in charts(run.lines, {}, max_points):
            for curve in chart["curves"]:
                own = merged.setdefault(
                    (chart["name"], curve["name"]), chart | {"curves": []}
                )
                own["curves"].append(curve | {"name": name, "color": color_of(place)})
    known = [*SUBJECTS]
    for (name, split), chart in merged.items():
        if sum(other == name for other, _ in merged) > 1:
            chart["title"] += f", {split}"

    def order(key: tuple[str, str]) -> tuple[int, int, str, bool]:
        name, split = key
        place = known.index(name) if name in known else len(known)
        return SECTIONS.index(merged[key]["section"]), place, name, split == "training"

    return [merged[key] for key in sorted(merged, key=order)]


def score_rows(runs: Sequence[RunRecord]) -> list[JsonObject]:
    """Return a row for each score of the runs' best evaluations, and one for its step.

    A row has a title, whether it is in percent, a value for each run (None: absent),
    and the places of the best ones, if they differ and were scored on the same data.
    """
    same_data = len({validation_data(run) for run in runs}) == 1
    unranked = {"bytes_per_token"}
    if len({(kind_of_run(c), c.distillation) for c in (r.config for r in runs)}) > 1:
        unranked.add("loss")
    best = [best_evaluation(run) for run in runs]
    scores = [without_repeats(line.scalars) if line else {} for line in best]
    rows: list[JsonObject] = []
    for name in dict.fromkeys(itertools.chain(*scores)):
        values = [finite(own.get(name)) for own in scores]
        known = [value for value in values if value is not None]
        is_lower_better = any(part in name for part in _LOWER_IS_BETTER)
        top = (min if is_lower_better else max)(known, default=None)
        ranked = same_data and len(set(known)) > 1 and name not in unranked
        ranked = ranked and not name.endswith("_threshold")  # neither is better
        places = [i for i, value in enumerate(values) if ranked and value == top]
        subject = subject_of(name)
        about = {"title": subject.title, "percent": subject.percent}
        rows.append(about | {"values": values, "best": places})
    if rows:
        steps = [line.step if line else None for line in best]
        rows.append({"title": "step", "whole": True, "values": steps, "best": []})
    return rows


def rows_of(
    values: Sequence[Mapping[str, str]],
    abouts: Mapping[str, str],
    missing: str | None = None,
) -> list[JsonObject]:
    """Return a row for each name: its meaning, values by run, and whether they differ.

    Where a run has no value, `missing` stands; None is no difference.
    """
    rows = []
    for name in dict.fromkeys(itertools.chain(*values)):
        own = [run.get(name, missing) for run in values]
        about, differs = abouts.get(name, ""), len({*own} - {None}) > 1
        rows.append({"name": name, "about": about, "values": own, "differs": differs})
    return rows


def run_page(
    workdir: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
) -> Path:
    """Write a page of a run, or of several side by side; return its path.

    One run is shown by its curves, samples and configuration; several by curves over
    one another, scores, and what differs in their configurations.

    Args:
        workdir: of a pretraining or fine-tuning run, which may still go on, or of
            several; or a directory of several, which `finetune_runs` has made.
        output: a file that ends in .html; it needs no network.

    Raises:
        FileNotFoundError: `workdir` is not one.
        ValueError: a run is damaged, or named twice; or `output` is no .html.
        OSError: the page cannot be written.
    """
    several = (workdir,) if isinstance(workdir, str | os.PathLike) else tuple(workdir)
    if not several:
        raise ValueError("workdir=() names no run; name one or several.")
    write_run_page([os.fspath(own) for own in several], Path(output))
    return Path(output)

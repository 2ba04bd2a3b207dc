"""Read `runs.json`: the result of each of several fine-tuning runs."""

import math

from etils import epath

from bert_jax.storage.files import JsonObject, read_json_object

RUNS = "runs.json"
"""Its `runs` have a name, setting, seed and scores; `best` is the name of one."""

_REMEDY = "restore it from a copy, or name one of the runs' own directories"


def read_runs_file(directory: epath.Path) -> JsonObject:
    """Return the content of `runs.json`; each run has a directory beside that file.

    Raise FileNotFoundError if there is none, and ValueError if it is damaged or names a
    directory elsewhere.
    """
    path = directory / RUNS
    values = read_json_object(path, _REMEDY)
    runs = values.get("runs")
    if not isinstance(runs, list) or not isinstance(values.get("config"), dict):
        raise ValueError(f"{path} must have runs, a list, and their config; {_REMEDY}.")
    for run in runs:
        if not _is_run(run) or run["scores"].keys() != runs[0]["scores"].keys():
            raise ValueError(
                f"{path} lists {run!r:.80}, which must be a run with name, setting, "
                f"seed and the scores that all have; {_REMEDY}."
            )
        scores = run["scores"]
        run["scores"] = {k: math.nan if v is None else v for k, v in scores.items()}
    best = values.get("best")
    if best not in [run["name"] for run in runs]:
        raise ValueError(
            f"{path} calls {best!r:.80} the best, which is none of its runs; {_REMEDY}."
        )
    return values


def _is_run(run: object) -> bool:
    """Whether the entry is complete, and its name is the name of a run's directory."""
    match run:
        case {"name": str(name), "setting": str(), "seed": seed, "scores": dict(items)}:
            is_name = name not in ("", ".", "..") and not set(name) & set("/\\\0")
            are_numbers = all(isinstance(one, float | None) for one in items.values())
            return is_name and type(seed) is int and len(items) > 0 and are_numbers
    return False

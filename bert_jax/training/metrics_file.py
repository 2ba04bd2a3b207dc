"""Read `metrics.jsonl`, and cut it where a run resumes."""

import contextlib
import dataclasses
import json
import math

from etils import epath

from bert_jax.storage.files import (
    atomic_file,
    name_path_in_errors,
    require_regular_file,
)

METRICS = "metrics.jsonl"
TRAIN, VALIDATION = "train", "validation"
"""The values of `split` that the training loop writes."""


def keep_lines_until(path: epath.Path, step: int) -> None:
    """Drop the lines after `step`, and a truncated last line, so no step is twice.

    Raise ValueError if a line other than the last is not JSON.
    """
    if not path.exists():
        return
    require_regular_file(path)
    # Line by line: that of the rows of each step may be larger than the memory.
    with (
        path.open("rb") as old,
        atomic_file(path) as temporary,
        name_path_in_errors(path),
        temporary.open("xb") as new,
    ):
        for number, content in enumerate(old, 1):
            if line := _kept_line(content, step, f"{path}, line {number}"):
                new.write(line)


def _kept_line(content: bytes, step: int, where: str) -> bytes:
    """Return a line if it is of `step` or before, else b""; refuse what is no JSON."""
    remedy = "repair or move the file away."
    try:
        line = content.decode().rstrip("\r\n")
        is_kept = line and json.loads(line)["step"] <= step
    except UnicodeDecodeError as error:
        raise ValueError(f"{where} is not UTF-8 ({error}); {remedy}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        if content.endswith(b"\n"):
            raise ValueError(
                f"{where} is not a metrics line ({error}); {remedy}"
            ) from error
        return b""
    return f"{line}\n".encode() if is_kept else b""


@dataclasses.dataclass(frozen=True)
class MetricsLine:
    """The scalars of one step and split, NaN where a value was not finite."""

    step: int
    split: str
    scalars: dict[str, float]


def read_metrics(path: epath.Path) -> tuple[list[MetricsLine], int]:
    """Return the lines of a metrics file, and the number of damaged ones.

    A last line without its end is not counted: the run still writes it, or was killed.
    """
    if not path.is_file():
        return [], 0
    texts = path.read_bytes().decode(errors="replace").split("\n")
    lines = [_metrics_line(text) for text in texts]
    damaged = [text for text, line in zip(texts[:-1], lines, strict=False) if not line]
    return [line for line in lines if line], sum(map(bool, damaged))


def _metrics_line(text: str) -> MetricsLine | None:
    with contextlib.suppress(
        ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError
    ):
        values = json.loads(text)
        step, split = values.pop("step"), values.pop("split")
        scalars = {k: math.nan if v is None else v + 0.0 for k, v in values.items()}
        if type(step) is int and isinstance(split, str):
            return MetricsLine(step, split, scalars)
    return None


def read_scores(path: epath.Path, step: int) -> dict[str, float] | None:
    """The validation scores of `step` in a metrics file; None if there are none."""
    for line in read_metrics(path)[0]:
        if (line.step, line.split) == (step, VALIDATION):
            return line.scalars
    return None

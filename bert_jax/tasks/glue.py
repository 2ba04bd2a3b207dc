"""The nine tasks of GLUE as their official files have them (Wang et al. 2018)."""

import dataclasses
import warnings
from pathlib import Path

from bert_jax.data.sources import TFDS
from bert_jax.data.structured import tfds_rows
from bert_jax.tasks.tables import TableRow, read_lines


@dataclasses.dataclass(frozen=True)
class GlueTask:
    """The files, columns, classes and scores of one task."""

    folder: str
    """Its name in the official download."""
    texts: tuple[str, ...]
    """Columns with the text, or the pair of texts."""
    label: str
    """Column with the label."""
    labels: tuple[str, ...]
    """Classes in the order of the outputs; none of a regression."""
    scores: tuple[str, ...]
    """What is reported of it; the first chooses the best checkpoint."""
    header: tuple[str, ...] = ()
    """Columns of files that have no line with their names."""
    tfds_texts: tuple[str, ...] = ()
    """Columns of TFDS where they have other names."""
    tfds_labels: tuple[str, ...] = ()
    """Classes in the order of TFDS where it is another."""


_PAIR = ("sentence1", "sentence2")
_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
_MRPC = ("#1 String", "#2 String")
_ACCURACY = ("accuracy",)

GLUE: dict[str, GlueTask] = {
    "cola": GlueTask(
        "CoLA",
        ("sentence",),
        "label",
        _BINARY,
        ("mcc",),
        header=("source", "label", "mark", "sentence"),
    ),
    "sst2": GlueTask("SST-2", ("sentence",), "label", _BINARY, _ACCURACY),
    "mrpc": GlueTask(
        "MRPC", _MRPC, "Quality", _BINARY, ("f1", "accuracy"), tfds_texts=_PAIR
    ),
    "qqp": GlueTask(
        "QQP",
        ("question1", "question2"),
        "is_duplicate",
        _BINARY,
        ("f1", "accuracy"),
    ),
    "stsb": GlueTask("STS-B", _PAIR, "score", (), ("pearson", "spearman")),
    "mnli": GlueTask(
        "MNLI",
        _PAIR,
        "gold_label",
        ("contradiction", "entailment", "neutral"),
        _ACCURACY,
        tfds_texts=("premise", "hypothesis"),
        tfds_labels=("entailment", "neutral", "contradiction"),
    ),
    "qnli": GlueTask("QNLI", ("question", "sentence"), "label", _ENTAILMENT, _ACCURACY),
    "rte": GlueTask("RTE", _PAIR, "label", _ENTAILMENT, _ACCURACY),
    "wnli": GlueTask("WNLI", _PAIR, "label", _BINARY, _ACCURACY),
}

MISMATCHED = "mismatched"
_FILES = {"train": "train", "validation": "dev", "test": "test"}


def split_files(name: str, part: str) -> list[tuple[str, str]]:
    """File names (without .tsv) of a part of the data, each with its group's name."""
    file = _FILES[part]
    if name == "mnli" and part != "train":
        return [(f"{file}_matched", ""), (f"{file}_{MISMATCHED}", MISMATCHED)]
    return [(file, "")]


def submission_name(name: str, group: str) -> str:
    """The name that the server of GLUE wants a file of predictions to have."""
    if name == "mnli":
        return "MNLI-mm.tsv" if group == MISMATCHED else "MNLI-m.tsv"
    return f"{GLUE[name].folder}.tsv"


def read_glue(name: str, path: str, part: str) -> list[tuple[TableRow, str]]:
    """The rows of a part of a task's data, each with its group's name.

    Columns are named as `GLUE[name]` names them. Rows of QQP that lack a field or a
    text, of which the official files have some, are left out with a warning that counts
    them; never of the test, which is answered row by row.

    Args:
        path: the task's folder, that of all tasks, or tfds:glue/NAME.

    Raises:
        FileNotFoundError: a file is not there.
        ValueError: a file is not as it should be; says in which line.
    """
    if path.startswith(TFDS):
        return _tfds_rows(name, path.removeprefix(TFDS), part)
    task, root = GLUE[name], Path(path)
    folders = [folder for folder in (root / task.folder, root) if folder.is_dir()]
    found = []
    for file, group in split_files(name, part):
        places = [folder / f"{file}.tsv" for folder in folders]
        there = [place for place in places if place.is_file()]
        if not there:
            raise FileNotFoundError(
                f"{root} has neither {task.folder}/{file}.tsv nor {file}.tsv; it must "
                f"be the folder of {name} or of all of GLUE."
            )
        found += [(row, group) for row in _official_rows(name, there[0], part)]
    return found


def _official_rows(name: str, path: Path, part: str) -> list[TableRow]:
    task = GLUE[name]
    lines = read_lines(path, quoted=False)
    header = list(task.header)
    if not header or part == "test":
        _, header = next(lines, (1, []))
    rows, broken = [], []
    for number, fields in lines:
        values = dict(zip(header, fields, strict=False))
        whole = len(fields) == len(header)
        if name == "qqp" and part != "test":
            whole = whole and all(values.get(text, "?").strip() for text in task.texts)
            if not whole:
                broken.append(number)
                continue
        if not whole:
            raise ValueError(
                f"{path}, line {number} has {len(fields)} fields and must have "
                f"{len(header)}: {', '.join(header)}."
            )
        rows.append(TableRow(values, f"{path}, line {number}"))
    if broken:
        warnings.warn(
            f"{path}: {len(broken)} rows lack a field or a text and are left out; the "
            f"first is line {broken[0]}.",
            stacklevel=2,
        )
    if not rows:
        raise ValueError(f"{path} has no rows; it must have one at least.")
    return rows


def _tfds_rows(name: str, dataset: str, part: str) -> list[tuple[TableRow, str]]:
    task = GLUE[name]
    columns, classes = task.tfds_texts or task.texts, task.tfds_labels or task.labels
    found = []
    for file, group in split_files(name, part):
        split = file.replace("dev", "validation")
        for number, values in enumerate(tfds_rows(dataset, split), 1):
            row = dict(zip(task.texts, (values[c] for c in columns), strict=True))
            label = values["label"]
            if part != "test":  # whose labels are not public
                row[task.label] = classes[label] if classes else str(label)
            where = f"{TFDS}{dataset}, example {number} of {split}"
            found.append((TableRow(row, where), group))
    return found

"""The nine tasks of GLUE, and readers of their official files (Wang et al. 2018)."""

import dataclasses
import warnings
from collections.abc import Iterator
from pathlib import Path

from bert_jax.data.sources import TFDS
from bert_jax.data.structured import tfds_rows
from bert_jax.tables.read import tab_separated
from bert_jax.tables.rows import TableRow


@dataclasses.dataclass(frozen=True)
class GlueTask:
    """The files, columns, classes and scores of one task."""

    folder: str
    """The folder's name in the official download."""
    texts: tuple[str, ...]
    """The columns with the text, or the pair of texts."""
    label: str
    """The column with the label."""
    labels: tuple[str, ...]
    """The classes in the order of the outputs; () for a regression."""
    scores: tuple[str, ...]
    """The scores to report; the first one selects the best checkpoint."""
    header: tuple[str, ...] = ()
    """The columns of files that have no header line."""
    tfds_texts: tuple[str, ...] = ()
    """The columns in TFDS, if their names differ."""
    tfds_labels: tuple[str, ...] = ()
    """The classes in the order of TFDS, if it differs."""


_TEXT = ("sentence",)
_PAIR = ("sentence1", "sentence2")
_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
_MRPC = ("#1 String", "#2 String")
_QQP = ("question1", "question2")
_COLA_HEADER = ("source", "label", "mark", "sentence")
_ACCURACY = ("accuracy",)
_F1 = ("f1", "accuracy")

GLUE: dict[str, GlueTask] = {
    "cola": GlueTask("CoLA", _TEXT, "label", _BINARY, ("mcc",), header=_COLA_HEADER),
    "sst2": GlueTask("SST-2", _TEXT, "label", _BINARY, _ACCURACY),
    "mrpc": GlueTask("MRPC", _MRPC, "Quality", _BINARY, _F1, tfds_texts=_PAIR),
    "qqp": GlueTask("QQP", _QQP, "is_duplicate", _BINARY, _F1),
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


def submission_name(name: str, group: str) -> str:
    """Return the name of the prediction file that GLUE's server accepts."""
    if name == "mnli":
        return "MNLI-mm.tsv" if group == MISMATCHED else "MNLI-m.tsv"
    return f"{GLUE[name].folder}.tsv"


def read_glue(name: str, path: str, split: str) -> list[tuple[TableRow, str]]:
    """Return the rows of a split of a task, each with its group's name.

    Columns have the names of `GLUE[name]`. The official files of QQP have some rows
    that lack a field or a text; they are left out with a warning, except in the test
    split, which needs an answer for each row.

    Args:
        path: the task's folder, the folder of all tasks, or tfds:glue/NAME.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: a file has the wrong format; the message names the line.
    """
    task, root, file = GLUE[name], Path(path), _FILES[split]
    files = {file: ""}
    if name == "mnli" and split != "train":
        files = {f"{file}_matched": "", f"{file}_{MISMATCHED}": MISMATCHED}
    rows = []
    for file, group in files.items():
        if path.startswith(TFDS):
            own = _tfds_rows(name, path.removeprefix(TFDS), split, file)
            rows += [(row, group) for row in own]
            continue
        candidates = [folder / f"{file}.tsv" for folder in (root / task.folder, root)]
        paths = [candidate for candidate in candidates if candidate.is_file()]
        if not paths:
            raise FileNotFoundError(
                f"{root} has neither {task.folder}/{file}.tsv nor {file}.tsv; it must "
                f"be the folder of {name} or of all of GLUE; name it by --data.path."
            )
        rows += [(row, group) for row in _official_rows(name, paths[0], split)]
    return rows


def _official_rows(name: str, path: Path, split: str) -> list[TableRow]:
    task = GLUE[name]
    lines = tab_separated(path)
    header = list(task.header)
    if not header or split == "test":
        _, header = next(lines, (1, []))
    may_skip = name == "qqp" and split != "test"
    rows, skipped_lines = [], []
    for line_number, fields in lines:
        values = dict(zip(header, fields, strict=False))
        is_complete = len(fields) == len(header)
        has_texts = all(values.get(column, "?").strip() for column in task.texts)
        if may_skip and not (is_complete and has_texts):
            skipped_lines.append(line_number)
            continue
        where = f"{path}, line {line_number}"
        rule = f"has {len(fields)} fields and must have {len(header)}"
        problem = "" if is_complete else f"{where} {rule}: {', '.join(header)}."
        rows.append(TableRow(values, where, problem))
    if skipped_lines:
        warnings.warn(
            f"{path}: {len(skipped_lines)} rows lack a field or a text and are left "
            f"out; the first is line {skipped_lines[0]}.",
            stacklevel=2,
        )
    if not rows:
        raise ValueError(f"{path} has no rows; it must have at least one.")
    return rows


def _tfds_rows(name: str, dataset: str, split: str, file: str) -> Iterator[TableRow]:
    task, tfds_split = GLUE[name], file.replace("dev", "validation")
    columns, classes = task.tfds_texts or task.texts, task.tfds_labels or task.labels
    for number, values in enumerate(tfds_rows(dataset, tfds_split), 1):
        row = dict(zip(task.texts, (values[c] for c in columns), strict=True))
        label = values["label"]
        if split != "test":  # the labels of the test split are not public
            row[task.label] = classes[label] if classes else str(label)
        yield TableRow(row, f"{TFDS}{dataset}, example {number} of {tfds_split}")

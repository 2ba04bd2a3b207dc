"""The tasks that read an option, and the refusal of one that is given for nothing."""

from collections.abc import Sequence
from typing import Any

from bert_jax.cli.names import options_of
from bert_jax.config.files import TASKS
from bert_jax.config.model import OWN_FIELDS

_TEXT = "text-classification text-regression"
_TEXTS_AND_TAGS = f"{_TEXT} token-classification sentence-pairs"
_CLASSES = "text-classification token-classification"
_NOT_PAIRS = f"{_CLASSES} text-regression question-answering multiple-choice"
READ_BY = {
    **dict.fromkeys(
        "data.multi_label data.label_separator data.merge_labels data.balance "
        "class_weights".split(),
        "text-classification",
    ),
    **dict.fromkeys(
        "data.document_stride data.max_query_length data.max_answer_length "
        "data.num_best data.null_threshold".split(),
        "question-answering",
    ),
    "data.labels": _CLASSES,
    "data.label_names": _CLASSES,
    "data.glue": _TEXT,
    "data.text_columns": f"{_TEXT} sentence-pairs",
    "data.delimiter": f"{_TEXT} question-answering multiple-choice sentence-pairs",
    "data.label_column": f"{_TEXTS_AND_TAGS} multiple-choice",
    "data.sentence_pairs": "sentence-pairs",
    "data.path": _NOT_PAIRS,
    "teacher": _NOT_PAIRS,
    "distillation": _NOT_PAIRS,
    "distillation.temperature": f"{_CLASSES} question-answering multiple-choice",
    "model.pooling": f"{_TEXT} multiple-choice sentence-pairs",
}
"""The tasks that read a field of a fine-tuning; of other fields, all tasks."""
_READ_BY_VERB = {
    "evaluate": {"data.labels": "token-classification"},
    "predict": {
        "data.text_columns": _TEXTS_AND_TAGS,
        "data.delimiter": " ".join(TASKS),
        "data.label_column": "sentence-pairs",  # whether pairs have prompts of a search
    },
}
"""The same, where it is different for a verb."""
_UNUSED = {
    "evaluate": "data.train data.validation data.validation_fraction data.balance "
    "data.num_buckets data.sentence_pairs.symmetric data.sentence_pairs.dimensions "
    "data.sentence_pairs.temperature"
}
_UNUSED["predict"] = (
    f"{_UNUSED['evaluate']} data.test data.path data.labels "
    "data.multi_label data.label_separator data.merge_labels "
    "data.sentence_pairs.negative_columns"
)
"""Fields that a verb does not read, whatever the task is."""


def readers(field: str, verb: str) -> tuple[str, ...]:
    """Return the tasks with which a verb reads a field; none: it never does."""
    if field in _UNUSED.get(verb, "").split():
        return ()
    table = READ_BY | _READ_BY_VERB.get(verb, {})
    while field and field not in table:
        field = field.rpartition(".")[0]
    listed = table.get(field, "").split()
    return tuple(task for task in TASKS if not listed or task in listed)


def is_read(field: str, verb: str, task: str) -> bool:
    """Return whether a verb reads a field, with a task; "": not known."""
    part, _, name = field.rpartition(".")
    if verb == "finetune" and part == "model" and name not in OWN_FIELDS:
        return False  # it is that of the model that the run starts from
    tasks = readers(field, verb)
    return task in tasks if task else bool(tasks)


def require_used(
    options: Any, arguments: Sequence[str], verb: str, task: str, default: Any = None
) -> None:
    """Raise ValueError for an option among arguments that is not read with a task.

    The values of `default` may be given all the same.
    """
    words = [word.partition("=")[0] for word in arguments]
    given = {*words, *(word.replace("no-", "", 1) for word in words)}
    before = {o.name: o.default for o in options_of(type(options), default)}
    for name, field, *_, value, _ in options_of(type(options), options):
        tasks = readers(field, verb)
        if name not in given or (task in tasks if task else tasks):
            continue
        if default is not None and value == before[name]:
            continue
        remedy = f"leave {name} out."
        if field in ("data.train", "data.validation", "data.test", "data.path"):
            file = "--data.train" if verb == "finetune" else "--input"
            remedy = f"name the file by {file}."
        start = f"{field}={value!r:.80} is not used by {verb}"
        if not tasks:
            raise ValueError(f"{start}; {remedy}")
        others = ", ".join(name for name in TASKS if name not in tasks)
        listed = ", ".join(tasks) if len(tasks) < 4 else f"all tasks but {others}"
        raise ValueError(f"{start} {task}, but by {listed}; {remedy}")

"""The options of examples: the files that replace others, and what a verb reads."""

import dataclasses
import operator
from collections.abc import Sequence

from etils import epath

from bert_jax.cli.command import option_value
from bert_jax.cli.names import SHORT_NAMES
from bert_jax.config import ExamplesConfig
from bert_jax.config.checks import require

UNUSED = {
    "evaluate": "balance num_buckets sentence_pairs.symmetric "
    "sentence_pairs.dimensions",
    "predict": "labels balance num_buckets sentence_pairs.symmetric "
    "sentence_pairs.dimensions sentence_pairs.temperature train validation test path "
    "validation_fraction label_column multi_label label_separator merge_labels",
}
"""The options of `data` that a verb does not read."""
OF_TASK = {
    "question-answering": "document_stride max_query_length max_answer_length num_best "
    "null_threshold",
    "sentence-pairs": "sentence_pairs",
    "token-classification": "labels",  # names of tags that are numbers
}
"""The options of `data` that one task alone reads."""


def require_used(
    data: ExamplesConfig, default: ExamplesConfig, verb: str, task: str
) -> None:
    """Raise ValueError for an option that has another value and that is not read.

    Args:
        default: the values of the checkpoint.
        task: that it was fine-tuned on; "": not known.
    """
    unused = UNUSED[verb].split()
    for name, options in OF_TASK.items():
        unused += options.split() if task and name != task else []
    for name in unused:
        value_of = operator.attrgetter(name)
        if (value := value_of(data)) != value_of(default):
            option = SHORT_NAMES.get(name, f"data.{name.replace('_', '-')}")
            what = f"{task} " if name not in UNUSED[verb].split() else ""
            raise ValueError(
                f"data.{name}={value!r:.80} is not used by {what}{verb}; "
                + (
                    "name the file by --input."
                    if name in ("train", "validation", "test", "path")
                    else f"leave --{option} out."
                )
            )


def with_other_files(
    data: ExamplesConfig, arguments: Sequence[str], verb: str
) -> ExamplesConfig:
    """Return the settings without the files that others are given for.

    Raises:
        ValueError: more than one argument names what to use.
    """
    places = ["--data.validation", "--data.test", "--data.path"]
    places += ["--input"] * (verb == "evaluate")
    values = {name: option_value(arguments, name) for name in places}
    named = {name: value for name, value in values.items() if value is not None}
    require(
        len(named) < 2,
        f"{' and '.join(named)} each name what to use; give one of them.",
    )
    was_directory = bool(data.path or data.glue)
    if named:
        data = dataclasses.replace(data, train="", validation="", test="")
    file = named.get("--input", "")
    if file.startswith("tfds:") or (
        was_directory and file and epath.Path(file).is_dir()
    ):
        return dataclasses.replace(data, path=file)
    if named and "--data.path" not in named:
        data = dataclasses.replace(data, path="", glue="")
    return dataclasses.replace(data, validation=file, test=file) if file else data

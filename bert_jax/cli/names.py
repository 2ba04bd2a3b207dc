"""The names of options: one for each thing, and the other names that it had."""

import dataclasses
import re
import sys
from collections.abc import Sequence
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    get_args,
    get_origin,
    get_type_hints,
)

from bert_jax.config.checks import RESOLVED, field_descriptions
from bert_jax.terminal.messages import UsageError

SHORT_NAMES = {
    "text_field": "text-column",
    "text_columns": "text-column",
    "label_column": "label-column",
    "delimiter": "delimiter",
}
"""Fields whose option has this name, without a prefix such as `data.`."""
MODEL_FIRST = (
    *("evaluate", "predict", "embed", "search", "features", "generate", "inspect"),
    *("convert export", "convert extend", "convert average", "convert shrink"),
)
"""Verbs whose first argument is the model."""
SIZE_FIRST = ("benchmark train", "benchmark inference", "benchmark compile")
"""Verbs with an option --model, whose value may be the first argument."""
_SAME = (
    ("--model", "--init-from", "--checkpoint"),
    ("--text-column", "--text-columns", "--text-field", "--data.text-columns"),
    ("--label-column", "--label-columns", "--data.label-column"),
    ("--delimiter", "--data.delimiter"),
)
"""Names of one thing. A verb has one of them, and takes the others for it."""
_OF_VERB = {
    "evaluate": {"--report": "--output", "--data.validation": "--input"},
    "inspect": {"--report": "--output"},
}
"""Former names of the options of one verb."""
_INPUT = "--input"
_OPTION = re.compile(r"(--[A-Za-z][\w.-]*)(=.*)?", re.DOTALL)


class Option(NamedTuple):
    """An option of a verb, or an argument that has no name on the command line."""

    name: str
    """--NAME; of an argument: what stands for it, such as MODEL."""
    field: str
    """The field of the configuration, such as data.max_length."""
    owner: type
    """The dataclass of the field."""
    hint: Any
    default: Any
    """MISSING: it must be given."""
    description: str

    @property
    def place(self) -> tuple[type, str]:
        """The dataclass and its field."""
        return self.owner, self.field.rpartition(".")[2]

    @property
    def choices(self) -> tuple[str, ...]:
        """The values to choose from; empty: any value."""
        kinds = [self.hint, *get_args(self.hint)]
        words = [get_args(kind) for kind in kinds if get_origin(kind) is Literal]
        return tuple(word for listed in words for word in listed if word)


def options_of(
    options_class: type, default: Any = None, prefix: str = "--", path: str = ""
) -> list[Option]:
    """Return the options of a dataclass, of those in it, too, in their order.

    Args:
        default: an instance with the values of options that are not given; None: those
            of the class.
    """
    from tyro.conf import Positional

    options = []
    hints = get_type_hints(options_class, include_extras=True)
    descriptions = field_descriptions(options_class)
    for field in dataclasses.fields(options_class):
        if field.metadata == RESOLVED:
            continue
        hint = hints[field.name]
        kind, *extras = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        value = getattr(default, field.name, field.default)
        given = [extra.name for extra in extras if hasattr(extra, "name")]
        word = next((name for name in given if name is not None), field.name)
        word = word.replace("_", "-")
        name = prefix + word
        if dataclasses.is_dataclass(kind):
            assert isinstance(kind, type)
            inner = (f"{name}.", f"{path}{field.name}.") if word else (prefix, path)
            options += options_of(kind, value, inner[0], inner[1])
            continue
        if Positional in extras:
            metavars = [extra.metavar for extra in extras if hasattr(extra, "metavar")]
            name = next(filter(None, metavars), field.name.upper())
        elif field.name in SHORT_NAMES:
            name = f"--{SHORT_NAMES[field.name]}"
        place, text = path + field.name, descriptions.get(field.name, "")
        options.append(Option(name, place, options_class, kind, value, text))
    return options


def option_names(options_class: type) -> list[str]:
    """Return the options of a dataclass, without arguments that have no name."""
    names = [option.name for option in options_of(options_class)]
    return [name for name in names if name.startswith("-")]


def names_of(options_class: type, verb: str) -> list[str]:
    """Return the options of a verb, also --model where its value may come first."""
    return option_names(options_class) + ["--model"] * (verb in MODEL_FIRST)


def with_present_names(
    options_class: type, arguments: Sequence[str], verb: str
) -> list[str]:
    """Return the arguments of a verb with the names that its options have.

    Underscores become hyphens, and another name of a thing becomes the one that the
    verb has, which is said on standard error. The value of --model comes first. If
    --input takes several files, those of each --input are read. Raise UsageError if an
    option is given by two of its names, or the model twice, or --report, where it means
    a page, names none.
    """
    end = list(arguments).index("--") if "--" in arguments else len(arguments)
    names, others = names_of(options_class, verb), dict(_OF_VERB.get(verb, {}))
    for same in _SAME:
        if of_verb := [name for name in same if name in names]:
            others |= {name: of_verb[0] for name in same if name not in names}
    words: list[str] = []
    given: dict[str, str] = {}
    for place, word in enumerate(arguments[:end], 1):
        if (match := _OPTION.fullmatch(word)) is None:
            words.append(word)
            continue
        written = match[1].replace("_", "-")
        name = others.get(written, written)
        if given.setdefault(name, written) != written and verb != "evaluate":
            raise UsageError(
                f"{given[name]} and {written} are two names of {name}; give it once."
            )
        if written not in (name, "--model"):
            print(f"bert-jax: {written} is now {name}.", file=sys.stderr)
        if (written, name) == ("--report", "--output"):
            page = (match[2] or "".join(arguments[place : place + 1])).lstrip("=")
            if not page.endswith(".html"):  # it would name a directory
                raise UsageError(f"report={page} must end in .html.")
        words.append(name + (match[2] or ""))
    if verb in SIZE_FIRST and words and not words[0].startswith("-"):
        words.insert(0, "--model")
    words = _with_one_input(options_class, _model_first(words, verb))
    return words + list(arguments[end:])


def _with_one_input(options_class: type, words: list[str]) -> list[str]:
    """Return the arguments with the files of each --input after one, at the end.

    If it takes one file, the last one counts, as of other options.
    """
    if [word.partition("=")[0] for word in words].count(_INPUT) < 2:
        return words
    hints = {option.name: option.hint for option in options_of(options_class)}
    if get_origin(hints.get(_INPUT)) is not tuple:
        return words
    values: list[str] = []
    others: list[str] = []
    is_value = False
    for word in words:
        name, sign, value = word.partition("=")
        if name == _INPUT:
            values += [value] * bool(sign)
            is_value = not sign
            continue
        is_value = is_value and (word == "-" or not word.startswith("-"))
        (values if is_value else others).append(word)
    return [*others, _INPUT, *values]


def _model_first(words: list[str], verb: str) -> list[str]:
    """Return the arguments with the value of --model as the first of them."""
    places = [i for i, w in enumerate(words) if w.partition("=")[0] == "--model"]
    if verb not in MODEL_FIRST or not places:
        return words
    place = places[0]
    _, sign, model = words[place].partition("=")
    others = words[:place] + words[place + (1 if sign else 2) :]
    if not sign and place + 1 == len(words):
        raise UsageError("--model needs a value: a model.")
    model = model if sign else words[place + 1]
    if len(places) > 1 or (others and not others[0].startswith("-")):
        raise UsageError(f"{verb} is given two models; name one, first or by --model.")
    return [model, *others]

"""Read the options of a verb by tyro."""

import contextlib
import dataclasses
import functools
import io
import itertools
import re
from collections.abc import Callable, Sequence, Set
from dataclasses import MISSING
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

from bert_jax.cli.hints import not_taken, unknown
from bert_jax.cli.names import SHORT_NAMES, names_of, options_of, with_present_names
from bert_jax.config import FinetuneConfig, PretrainConfig, RunConfig
from bert_jax.config.checks import RESOLVED, did_you_mean, field_descriptions, spaced
from bert_jax.config.files import load_config as load_config
from bert_jax.terminal.messages import UsageError, say

if TYPE_CHECKING:
    from tyro.constructors import ConstructorRegistry

ConfigT = TypeVar("ConfigT", bound=RunConfig)
OptionsT = TypeVar("OptionsT")
_DATA = "--data.path"


def parse(
    options_class: type[OptionsT],
    arguments: Sequence[str],
    verb: str,
    default: OptionsT | None = None,
) -> OptionsT:
    """Build the options of a verb, a dataclass, from its arguments.

    Options that are not given have the values of `default`, or of the class if None.
    Raise UsageError if an option is unknown, or its value is missing or of another
    type, ValueError if a configuration rejects a value.
    """
    import tyro

    errors = io.StringIO()
    arguments = with_present_names(options_class, arguments, verb)
    try:
        with contextlib.redirect_stderr(errors):
            options = tyro.cli(
                options_class,
                prog=f"bert-jax {verb}",
                args=arguments,
                default=tyro.MISSING_NONPROP if default is None else default,
                registry=registry(),
            )
        if getattr(options, "output", "") in ("-", ("-",)) and verb != "predict":
            raise UsageError(
                f"output=- is standard output, to which {verb} does not write; name a "
                "file or a directory."
            )
        return _with_values(options, arguments, verb)
    except SystemExit as stop:
        # tyro also exits where a dataclass raises ValueError, whose own message is
        # better. For a nested dataclass it wraps that error, with the field's name in
        # `arg`; in errors of its own `arg` is an object.
        error = stop.__context__
        if isinstance(getattr(error, "arg", None), str):
            error = error.__context__ if error else None
        if isinstance(error, ValueError):
            raise error from None
        if stop.code:
            names = names_of(options_class, verb)
            message = error_message(errors.getvalue(), verb, arguments, names)
            raise UsageError(message) from None
        raise


def _with_values(options: OptionsT, arguments: Sequence[str], verb: str) -> OptionsT:
    """Return the options; refuse one of several values that is given without one.

    One with words to choose from may be: none of them is chosen. What must be given
    has a message of its own.
    """
    needed = {o.name for o in options_of(type(options)) if o.default is MISSING}
    for option in options_of(type(options), options):
        may_be_empty = option.choices or option.name in needed
        if option.default == () and option.name in arguments and not may_be_empty:
            raise UsageError(
                f"{option.name} needs a value; `bert-jax {verb} --help-all` lists the "
                "options."
            )
    return options


def option_value(arguments: Sequence[str], option: str) -> str | None:
    """Return the last value of an option, after it or its `=`; None: not given."""
    value = None
    for argument, following in itertools.zip_longest(arguments, arguments[1:]):
        if argument.startswith(f"{option}="):
            value = argument.removeprefix(f"{option}=")
        if argument == option:
            value = following
    return value


def named_options(arguments: Sequence[str]) -> set[str]:
    """Return the names of the options among arguments."""
    return {word.partition("=")[0] for word in arguments}


def with_ruled_predictions(config: ConfigT, arguments: Sequence[str]) -> ConfigT:
    """Return the defaults of a run; a rate that is named decides how many are masked.

    Those that a run has recorded by the rule of its own rate would cap another.
    """
    if not isinstance(config, PretrainConfig):
        return config
    names = named_options(arguments) & {"--masking.rate", "--masking.final-rate", _DATA}
    ruled = config.changed(masking={"max_predictions": None})
    number = ruled.masking.num_slots(config.data.sequence_length)
    return ruled if names and config.masking.max_predictions == number else config


def say_unread_masking(config: PretrainConfig, arguments: Sequence[str]) -> None:
    """Print which of the named options of the masking a run does not read."""
    names = [name for name in named_options(arguments) if name.startswith("--masking.")]
    reason = "--objective causal_lm masks nothing"
    if config.objective == "masked_lm":
        spans = {"--masking.max-span", "--masking.span-probability"}
        names = [name for name in names if name in spans]
        reason = f"--masking.unit is {config.masking.unit}"
        names *= config.masking.unit != "span"
    for name in sorted(names):
        say(f"{name} has no effect: {reason}.")


def without_resolved(config: ConfigT, arguments: Sequence[str]) -> ConfigT:
    """Return the record of a run as defaults of another, of what is named.

    What the run filled in for its data and its teacher goes with them.
    """
    names = named_options(arguments)
    config = with_ruled_predictions(config, arguments)
    if "--teacher" in names:
        config = config.changed(distillation={"fingerprint": ""})
    if isinstance(config, FinetuneConfig) and names & {_DATA, "--data.train"}:
        return config.without_record()
    if isinstance(config, PretrainConfig) and _DATA in names:
        return config.changed(
            data={"fingerprint": "", "pairs": "", "sequence_length": 0},
            masking={"mask_token_id": None, "vocab_size": None},
            model={"vocab_size": 0},
        )
    return config


def taking_beam_options(read: Callable[..., Any]) -> Callable[..., Any]:
    """Let a reader of options take those of Apache Beam, too, which stand after `--`.

    It then raises UsageError if the verb has none.
    """

    def call(options_class: type, arguments: Sequence[str], verb: str) -> Any:
        end = list(arguments).index("--") if "--" in arguments else len(arguments)
        options = read(options_class, arguments[:end], verb)
        if not (beam_options := tuple(arguments[end + 1 :])):
            return options
        if not hasattr(options, "beam_options"):
            raise UsageError(
                f"{' '.join(beam_options)} stands after --, where the options of "
                "Apache Beam are, and this verb does not use it; leave it out."
            )
        return dataclasses.replace(options, beam_options=beam_options)

    return call


parse_with_beam_options = taking_beam_options(parse)


def registry(hidden: Set[tuple[type, str]] = frozenset()) -> "ConstructorRegistry":
    """Return tyro's rule for our dataclasses, without the fields that a run resolves.

    Args:
        hidden: other fields to leave out, as (dataclass, name), for a help.

    tyro's own rule keeps the line breaks of docstrings, which its completion scripts
    take for the ends of words.
    """
    from tyro import MISSING_NONPROP, conf, constructors

    registry = constructors.ConstructorRegistry()

    @registry.struct_rule
    def dataclass_rule(
        info: constructors.StructTypeInfo,
    ) -> constructors.StructConstructorSpec | None:
        is_ours = getattr(info.type, "__module__", "").startswith("bert_jax.")
        if not (is_ours and dataclasses.is_dataclass(info.type)):
            return None
        descriptions = field_descriptions(info.type)
        hints = get_type_hints(info.type, include_extras=True)
        specs, resolved = [], {}
        for field in dataclasses.fields(info.type):
            name = field.name
            default = getattr(info.default, name, field.default)
            if field.metadata == RESOLVED or (info.type, name) in hidden:
                resolved[name] = default
                continue
            if default is dataclasses.MISSING:
                default = MISSING_NONPROP
            hint = hints[name]
            if name in SHORT_NAMES:
                extra = conf.arg(name=SHORT_NAMES[name], prefix_name=False)
                hint = Annotated[hint, extra]
            text = descriptions.get(name)
            specs.append(constructors.StructFieldSpec(name, hint, default, text))
        build = functools.partial(info.type, **resolved)
        return constructors.StructConstructorSpec(build, tuple(specs))

    return registry


def error_message(
    box: str, verb: str, arguments: Sequence[str], names: Sequence[str]
) -> str:
    """Return an error that tyro draws as a box in one line; `names` are the options.

    The box has a title, then paragraphs between rules: the error, and similar options.
    """
    _, _, body = box.partition("\n")
    text = re.sub("^[│╰ ] ?| *[│╯]?$", "", body, flags=re.MULTILINE)
    # A rule is of hyphens where the locale lacks the line characters.
    paragraphs = re.split("^[─ -]*[─-]$", text, flags=re.MULTILINE)
    error = next((part for part in paragraphs if part.strip()), box)
    message = " ".join(error.split())
    see_help = f"`bert-jax {verb} --help-all` lists the options."
    others = unknown(arguments, names)
    if message.startswith("Missing from"):
        missing = re.findall(r"^ {4}(\S+)", error, re.MULTILINE)
        rest = f", and {not_taken(others, names)}" if others else "; "
        return f"{verb} needs {' and '.join(missing)}{rest}{see_help}"
    if message.startswith(_UNKNOWN):
        others = message.removeprefix(_UNKNOWN).split(", ")
    if others:
        return f"{verb} {not_taken(others, names)}{see_help}"
    if match := re.match(_INVALID_CHOICE, message):
        value, option, listed = match.groups()
        choices = tuple(re.findall(r"'([^']*)'", listed))
        allowed = ", ".join(choice or "''" for choice in choices)
        hint = did_you_mean(value, choices) or "."
        return f"{option}={value} must be one of {allowed}{hint}"
    message = re.sub(_NO_VALUE, r"\1 needs a value", message)
    for reason, rule in _RULES.items():
        message = re.sub(rf"Error parsing (\S+): {reason}", rf"\1{rule}", message)
    if match := re.fullmatch(_NUMBERS, message):
        return f"{match[1]}{spaced(match[2])}"
    return f"{message.rstrip('.')}; {see_help}"


_UNKNOWN = "Unrecognized options: "
_INVALID_CHOICE = r"invalid choice '(.*)' for argument '(.*)'\. .*\((.*)\)"
_NO_VALUE = r"Missing value for argument '(.*)'\. .*"
_NUMBERS = r"(--\S+='([\d. -]+,[\d., -]+)' cannot be understood)"
_RULES = {
    r"invalid literal for int.. .*: '(.*)'": r"=\2 must be a whole number",
    r"no type matching {None}\|INT .*from \['(.*?)'\].*": r"=\2 must be a whole number",
    r"no type matching INT\|.*from \['[\d ]{60}.*": " has too many digits",
    r"no type matching INT\|{(\w+)} .*from \['(.*?)'\].*": r"=\3 must be a whole "
    r"number or \2",
    r"no type matching {None}\|FLOAT .*from \['(.*?)'\].*": r"=\2 must be a number",
    r"could not convert string to float: '(.*)'": r"=\2 must be a number",
    r"Exceeds the limit .*": " has too many digits",
    r"Could not find valid parse for arguments: \[(.*)\]": r"=\2 cannot be understood",
}
"""Why tyro cannot parse a value, as patterns, and what we say after the option."""

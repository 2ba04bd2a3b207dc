"""Completion in a shell, whose script asks `bert-jax` at each press of TAB."""

import glob
import os
from collections.abc import Iterable, Sequence
from typing import get_args, get_origin

from bert_jax.cli.help import subject_of
from bert_jax.cli.names import MODEL_FIRST, Option
from bert_jax.cli.verbs import GROUPS, VERBS
from bert_jax.config.files import TASKS, named_configs, read_purpose
from bert_jax.terminal.messages import UsageError

ASK = "--complete"
COMPLETION = ("--completion", "--tyro-print-completion")
"""The option that prints a script, and its former name."""
_SCRIPTS = {
    "bash": """\
# In ~/.bashrc: eval "$(bert-jax --completion bash)"
_bert_jax() {
    local IFS=$'\\n'
    COMPREPLY=($("$1" --complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o bashdefault -o default -F _bert_jax bert-jax
""",
    "zsh": """\
# In ~/.zshrc, after compinit: eval "$(bert-jax --completion zsh)"
_bert_jax() {
    local -a found
    found=(${(f)"$($words[1] --complete "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    if (( $#found )); then
        compadd -a found
    else
        compset -P '--*='
        _files
    fi
}
compdef _bert_jax bert-jax
""",
    "fish": """\
# In ~/.config/fish/config.fish: bert-jax --completion fish | source
function __bert_jax
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    set -g __bert_jax_words ($words[1] --complete $words[2..] "$word" 2>/dev/null)
    set -q __bert_jax_words[1]
end
complete -c bert-jax -n __bert_jax -f -a '$__bert_jax_words'
""",
    "tcsh": """\
# In ~/.tcshrc: bert-jax --completion tcsh >! ~/.bert-jax.tcsh; source ~/.bert-jax.tcsh
complete bert-jax 'p@*@`bert-jax --complete`@'
""",
}


def script(arguments: Sequence[str]) -> str:
    """Return the script of the shell that the arguments name, or raise UsageError."""
    if len(arguments) != 1 or arguments[0] not in _SCRIPTS:
        raise UsageError(f"{COMPLETION[0]} needs one of {', '.join(_SCRIPTS)}.")
    return _SCRIPTS[arguments[0]]


def answer(words: Sequence[str]) -> list[str]:
    """Return the completions that a script asks for; none: names of files.

    Args:
        words: after `bert-jax`, up to the one that is completed; none: tcsh asks, which
            puts the line into the environment, and does not complete files then.
    """
    if words:
        return candidates(words)
    words = os.environ.get("COMMAND_LINE", "").split(" ")[1:]
    return candidates(words) or sorted(glob.glob(f"{glob.escape(words[-1])}*"))


def candidates(words: Sequence[str]) -> list[str]:
    """Return the words that complete the last word; none: it is a file or a value."""
    *before, word = words
    before = [word for word in before if word not in ("=", "--debug")]
    # `--option=value` is one word, or three in bash, which completes only the third.
    option, sign, value = word.partition("=")
    if sign:
        before, word = before + [option] * bool(option), value
    start = option + sign if option and sign else ""
    if before[:1] == ["help"]:
        before = before[1:]
    return [start + name for name in _listed(before, word) if name.startswith(word)]


def _listed(before: list[str], word: str) -> Iterable[str]:
    """Return the words that can follow others, also those that begin differently."""
    for length in (1, 2):
        if (verb := " ".join(before[:length])) in VERBS:
            return _after_verb(verb, before[length:], word)
    if word.startswith("-"):
        return (COMPLETION[0], "--debug", "--help", "--version") if not before else ()
    names = [name.split() for name in VERBS]
    following = [name[len(before)] for name in names if name[:-1] == before]
    return following if before else (*following, *GROUPS)


def _after_verb(verb: str, before: list[str], word: str) -> Iterable[str]:
    """Return the options of a verb, or the choices where a value is due."""
    named = _named(verb)
    if named and not before and not word.startswith("-"):
        return named
    # A file of the user's own is not executed at a press of TAB.
    name = before[0] if before[:1] and before[0] in named else ""
    options = subject_of(verb, name).read
    if named and before and not before[0].startswith("-"):
        before = before[1:]
    if not word.startswith("-") and (due := _due(options, before)) is not None:
        return due.choices
    names = [name for option in options for name in _names(option)]
    names += ["--model"] * (verb in MODEL_FIRST) + ["--help", "--help-all"]
    return [name for name in names if name not in before]


def _due(options: Sequence[Option], before: list[str]) -> Option | None:
    """Return the option or argument that the next word is a value of; None: none is."""
    places = [i for i, word in enumerate(before) if word.startswith("--")]
    if not places:
        arguments = [option for option in options if option.name[0] != "-"]
        several = [option for option in arguments if _is_several(option)]
        return next(iter([*arguments[len(before) :], *several]), None)
    name = before[places[-1]].replace("_", "-")
    option = next((option for option in options if option.name == name), None)
    if option is None or option.hint is bool:
        return None
    is_given = places[-1] < len(before) - 1
    return None if is_given and not _is_several(option) else option


def _is_several(option: Option) -> bool:
    """Return whether an option takes any number of values."""
    return any(get_origin(k) is tuple for k in (option.hint, *get_args(option.hint)))


def _names(option: Option) -> tuple[str, ...]:
    """Return an option's names on the command line; none: it is an argument."""
    if not option.name.startswith("-"):
        return ()
    part, dot, last = option.name.removeprefix("--").rpartition(".")
    is_on = option.hint is bool and option.default is True
    return (option.name, *[f"--{part}{dot}no-{last}"] * is_on)


def _named(verb: str) -> tuple[str, ...]:
    """Return the tasks and configurations of the package that may follow a verb."""
    if verb not in ("pretrain", "finetune"):
        return ()
    files = named_configs().items()
    configs = [name for name, path in files if verb in read_purpose(path)[1]]
    return (*(TASKS if verb == "finetune" else ()), *configs)

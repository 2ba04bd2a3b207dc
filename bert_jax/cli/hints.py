"""What a message says of options that a verb does not have."""

import difflib
import shlex
from collections.abc import Iterable, Sequence

from bert_jax.cli.foreign import of_option, plain
from bert_jax.cli.names import names_of
from bert_jax.cli.verbs import VERBS
from bert_jax.config.files import is_named

_ANSWERS = ("true", "false", "yes", "no", "0", "1")


def not_taken(words: Sequence[str], names: Sequence[str]) -> str:
    """Name words that a verb with these options does not take, and what is meant."""
    options = [word.partition("=")[0] for word in words if word.startswith("-")]
    listed = (options or list(words))[:5]
    hints: list[str] = []
    advice: dict[str, list[str]] = {}
    for word in listed:
        is_config = is_named(word) or word.endswith((".py", "config.json"))
        if is_config and "--workdir" in names and not options:
            return f"does not take {word} there; a configuration is the first word; "
        is_file = not options and "." in word and " " not in word
        ours, note = of_option("--file", names) if is_file else _meant(word, names)
        if ours:
            of = f" {word}" if is_file else f" for {word}" if len(listed) > 1 else ""
            hints.append(f"{ours}{of}{f' ({note})' if note else ''}")
        elif note:
            advice.setdefault(note, []).append(word)
    text = f"does not take {', '.join(listed)}; "
    if hints:
        text += f"did you mean {', '.join(hints)}? "
    elif not options and "--query" in names:
        text += f"did you mean --query {shlex.quote(' '.join(words))}? "
    elif not options and "--prompt" in names and "--input" not in names:
        text += f"did you mean --prompt {shlex.quote(' '.join(words))}? "
    elif " " in words[0] and "--input" in names:
        text += "texts are read from the file of --input; "
    elif words[0].lower() in _ANSWERS:
        text += "a switch is --NAME or --no-NAME, without a value; "
    for note, those in advice.items():
        start = "Leave" if text.endswith("? ") else "leave"
        text += f"{start} {', '.join(those)} out: {note}; "
    return text


def unknown(arguments: Iterable[str], names: Sequence[str]) -> list[str]:
    """Return the options among arguments that are not of these names."""
    words = [word for word in arguments if word.startswith("--") and word != "--"]
    return [
        word
        for word in words
        if not {(name := word.partition("=")[0]), name.replace("no-", "", 1)} & {*names}
    ]


def _meant(word: str, names: Sequence[str]) -> tuple[str, str]:
    """Return the option that a word may mean, or "", and a note."""
    ours, note = of_option(word, names)
    if ours or note or not word.startswith("-"):
        return ours, note
    name = plain(word)
    if ends := [full for full in names if full.endswith(f".{name[2:]}")]:
        return " or ".join(ends), ""
    options = ((verb, names_of(v.load(v.options), verb)) for verb, v in VERBS.items())
    if of := [verb for verb, others in options if name in others]:
        return "", f"it is an option of {', '.join(of[:3])}"
    by_name = {full[2:].rpartition(".")[2]: full for full in names[::-1]}
    by_name |= {full[2:]: full for full in names}
    close = difflib.get_close_matches(name[2:], by_name, n=1, cutoff=0.7)
    return (by_name[close[0]] if close else ""), ""

"""The options that a message advises, and whether its verb has them."""

import functools
import re

from bert_jax.cli.names import names_of
from bert_jax.cli.verbs import VERBS

OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*(?:\.[a-z0-9-]+)*(?![\w{]|\.[\w{])")


@functools.cache
def options(verb):
    names = names_of(VERBS[verb].load(VERBS[verb].options), verb)
    return {*names, *(_off(name) for name in names), "--help", "--help-all"}


def _off(name):
    start, dot, end = name[2:].rpartition(".")
    return f"--{start}{dot}no-{end}"


def verbs_named(message):
    """The verbs that a message names, as commands: `bert-jax VERB` or `VERB …`."""
    return [
        v for v in VERBS if re.search(rf"(bert-jax |`){v}\b|\b{v} (has )?--", message)
    ]


def unknown_advice(message, verbs):
    """The options of a message that neither these verbs nor those it names have."""
    named = verbs_named(message)
    return [
        option
        for option in OPTION.findall(message)
        if not any(option in options(verb) for verb in named)
        and not (verbs and all(option in options(verb) for verb in verbs))
    ]

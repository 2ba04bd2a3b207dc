"""`bert-jax fill`."""

import dataclasses
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from bert_jax.cli.command import option_value, parse
from bert_jax.cli.start import require_standard_output
from bert_jax.terminal.messages import one_line


@dataclasses.dataclass(frozen=True, kw_only=True)
class FillOptions:
    """Fill the masks of texts by a pretrained model."""

    text: Annotated[
        tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="TEXT ...")
    ] = ()
    """Texts with [MASK] (or <mask>) in place of one word or several; none, or -: the
    lines of standard input, each answered as it comes."""
    model: str
    """Workdir of `bert-jax pretrain`, one of its checkpoints, an imported model, a
    Hugging Face directory or hf:OWNER/NAME."""
    top_k: int = 5
    """Tokens to print for each mask, the most probable ones."""
    json: bool = False
    """Print a line of JSON for each text."""


def read_fill(
    options_class: type[FillOptions], arguments: Sequence[str], verb: str
) -> FillOptions:
    """Parse the arguments; the model may also stand before the texts."""
    first, others = "".join(arguments[:1]), list(arguments[1:])
    # A word with neither blanks nor a mask is no text to fill, but a misspelt place.
    is_word = re.fullmatch(r"[^-<[\s][^<[\s]*", first)
    is_model = is_word or (first and Path(first).is_dir())
    if is_model and option_value(arguments, "--model") is None:
        arguments = [*others, "--model", first]
    return parse(options_class, arguments, verb)


def fill(options: FillOptions) -> int:
    """Return 2 if a text was left out."""
    from bert_jax.inference.jsonl import filled_texts

    require_standard_output()
    problems: list[str] = []

    def report(line: str) -> None:
        problems.append(line)
        print(f"bert-jax: {one_line(line)}", file=sys.stderr, flush=True)

    texts = () if options.text == ("-",) else options.text
    answers = filled_texts(options.model, texts, options.top_k, report, options.json)
    for answer in answers:
        print(answer, flush=True)
    return 2 if problems else 0

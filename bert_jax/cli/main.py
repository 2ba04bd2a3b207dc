"""The command line: verbs that call the package, each importing only what it needs."""

import dataclasses
import difflib
import importlib
import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Annotated, NoReturn, TypeAlias

from bert_jax.cli.command import parse_options
from bert_jax.distributed import environment
from bert_jax.terminal import messages, signals
from bert_jax.terminal.messages import (
    UsageError,
    explain,
    one_line,
    printable,
    show_warnings_in_a_line,
    silence_resource_tracker,
    write_any_text,
)

Verb: TypeAlias = Callable[[Sequence[str]], int]

USAGE = """\
usage: bert-jax VERB [OPTIONS]        bert-jax VERB --help tells a verb's options

  vocab       learn a vocabulary from text files
  prepare     turn text files into a dataset of training rows
  pretrain    pretrain a model on a dataset; again, to go on with it
  finetune    fine-tune a model on a task; again, to go on with it
  evaluate    score a fine-tuned model on a file, and write its predictions
  predict     a fine-tuned model's answers for a file or standard input
  features    hidden states of each token of a file's lines
  convert     import a model of another library, or export one
  inspect     what a dataset or a model holds, and whether it is whole
  doctor      what is wrong with this machine
  benchmark   measure training, inference, input or preparation on this machine
  demo        the whole story, offline, on the documentation of installed packages

  --version   print the version
  --debug     before or after a verb: show the traceback of an error
"""


def vocab(arguments: Sequence[str]) -> int:
    """Learn a vocabulary from text files."""
    from bert_jax.config import VocabularyConfig

    config = parse_options(VocabularyConfig, "vocab", arguments)
    from bert_jax.data.vocabulary import train_vocabulary

    tokenizer = train_vocabulary(config)
    print(
        f"{printable(config.output)}: {tokenizer.kind}, {tokenizer.vocab_size} tokens, "
        f"{'cased' if tokenizer.cased else 'uncased'}."
    )
    return 0


def prepare(arguments: Sequence[str]) -> int:
    """Turn text into a dataset of training rows; what follows -- is for Apache Beam."""
    from bert_jax.config import PrepareConfig

    ours, beams = list(arguments), []
    if "--" in ours:
        place = ours.index("--")
        ours, beams = ours[:place], ours[place + 1 :]
    config = parse_options(PrepareConfig, "prepare", ours)
    if beams:
        config = dataclasses.replace(config, beam_options=tuple(beams))
    from bert_jax.data.prepare import prepare as run

    run(config)
    return 0


def inspect(arguments: Sequence[str]) -> int:
    """What a directory holds."""
    import tyro

    def command(
        path: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="PATH")],
        verify: bool = False,
    ) -> tuple[str, bool]:
        """What a dataset, a workdir or a model holds.

        Args:
            path: its directory, or hf:OWNER/NAME@REVISION.
            verify: compare the sha256 of every file.
        """
        return path, verify

    path, verify = parse_options(command, "inspect", arguments)
    from bert_jax.diagnostics.inspect import inspect as run

    for line in run(path, verify):
        print(printable(line))
    return 0


def doctor(arguments: Sequence[str]) -> int:
    """What is wrong with this machine."""

    def command() -> None:
        """Versions, devices and their arithmetic, disk, common mistakes."""

    parse_options(command, "doctor", arguments)
    from bert_jax.diagnostics.doctor import main as run

    return run()


def demo(arguments: Sequence[str]) -> int:
    """The whole story on the embedded corpus."""

    def command(workdir: str = "bert_jax_demo") -> str:
        """Vocabulary, dataset, pretraining and predictions, offline.

        Args:
            workdir: directory for all that the demo makes.
        """
        return workdir

    workdir = parse_options(command, "demo", arguments)
    import jax

    from bert_jax.demo.demo import demo as run

    jax.devices()  # it fails before files are written, where there is none
    run(workdir)
    return 0


def benchmark(arguments: Sequence[str]) -> int:
    """Measure this machine. Compiling is measured too, so no program is kept."""
    environment.configure_jax(os.environ, compilation_cache=False)
    return lazy_verb("benchmark", "main")(arguments)


def lazy_verb(module: str, name: str) -> Verb:
    """The verb that a module of ours has under a name; loaded when it is called."""

    def run(arguments: Sequence[str]) -> int:
        verb: Verb = getattr(importlib.import_module(f"bert_jax.{module}"), name)
        return verb(arguments)

    return run


VERBS: dict[str, Verb] = {
    "vocab": vocab,
    "prepare": prepare,
    "pretrain": lazy_verb("cli.pretraining", "pretrain"),
    "finetune": lazy_verb("cli.finetuning", "finetune"),
    "evaluate": lazy_verb("cli.finetuning", "evaluate"),
    "predict": lazy_verb("cli.finetuning", "predict"),
    "features": lazy_verb("cli.finetuning", "features"),
    "convert": lazy_verb("cli.conversion", "convert"),
    "inspect": inspect,
    "benchmark": benchmark,
    "doctor": doctor,
    "demo": demo,
}


def run_verb(arguments: Sequence[str]) -> int:
    """Find the verb and run it.

    Raises:
        UsageError: there is no such verb.
    """
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(USAGE, end="")
        return 0
    if arguments[0] == "--version":
        from importlib.metadata import version

        print(f"bert_jax {version('bert_jax')}")
        return 0
    verb, *rest = arguments
    if verb not in VERBS:
        near = difflib.get_close_matches(verb, VERBS, n=1)
        hint = f"did you mean {near[0]}?" if near else "bert-jax --help lists them."
        raise UsageError(f"{verb!r} is not a verb; {hint}")
    return VERBS[verb](rest)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; what a user did wrong is one line, and exit code 2."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments
    if not debug:
        # Orbax logs tracebacks of errors that it raises as well, asyncio those of the
        # other writes that the same full disk ended.
        for name in ("absl", "asyncio"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        sys.unraisablehook = messages.ignore_closed_event_loop
        warnings.filterwarnings("ignore", ".* was never awaited", RuntimeWarning)
    arguments = [argument for argument in arguments if argument != "--debug"]
    try:
        with signals.interruptible():
            return run_verb(arguments)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # Whoever read our output has gone, as in `bert-jax … | head`: end as SIGPIPE
        # would end us, without a further complaint when Python closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except Exception as error:
        if debug:
            raise
        return _explain(error)


def _explain(error: Exception) -> int:
    """Say in one line what went wrong, and give the exit code for it."""
    from bert_jax.training.faults import InterruptedRun

    if isinstance(error, InterruptedRun):
        print(one_line(error), file=sys.stderr)
        return error.exit_code
    explained = explain(error)
    if explained is None:
        raise error
    line, code = explained
    print(f"bert-jax: {one_line(line)}", file=sys.stderr)
    return code


COMPUTING = set("pretrain finetune evaluate predict features benchmark demo".split())
"""Verbs whose time goes into steps."""


def entry_point(*verb: str) -> NoReturn:
    """What the `bert-jax` command runs, or that of a single verb."""
    signals.install()
    write_any_text()
    show_warnings_in_a_line()
    silence_resource_tracker(os.environ)
    arguments = [*verb, *sys.argv[1:]]
    if COMPUTING.intersection(arguments[:2]):
        with signals.blocked():
            environment.reexec_with_huge_pages(os.environ)
    sys.exit(main(arguments))

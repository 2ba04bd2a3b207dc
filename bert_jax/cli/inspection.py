"""`bert-jax inspect`, `doctor`, `configs` and `demo`."""

import dataclasses
import os
import sys
from pathlib import Path
from typing import Annotated

import tyro

from bert_jax.cli.start import require_standard_output
from bert_jax.config.files import named_configs, read_purpose
from bert_jax.distributed import environment
from bert_jax.terminal.messages import UsageError, printable, say

_FILE_WIDTH = 120
"""The columns of a table that is not printed in a terminal."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class InspectOptions:
    """Print what a dataset, a workdir or a model holds."""

    path: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="PATH")]
    """Its directory, or hf:OWNER/NAME; also --model."""
    others: Annotated[
        tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[PATH ...]")
    ] = ()
    """With output: more runs, or models with attention, beside that of PATH."""
    verify: bool = False
    """Compare the sha256 of every file."""
    output: str = ""
    """FILE.html: write a web page of a run, which may go on; of several; or of
    attention."""
    attention: str = ""
    """With output: a text, for a page of the attention of each head of a model in it,
    or of several models side by side."""
    when: Annotated[
        tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(metavar="TEXT")
    ] = ()
    """A text: print at which steps the pretraining run PATH has seen and will see the
    rows that contain it, and how they are masked."""
    run: str = ""
    """With when, if PATH is a dataset: the workdir of the run."""
    summary: bool = False
    """Print a model's parameters by module, their memory, and the FLOPs of a row."""
    sequence_length: int = 0
    """With summary: tokens of that row; 0: as in the model's pretraining, or 128."""


@dataclasses.dataclass(frozen=True)
class DoctorOptions:
    """Check versions, devices and their arithmetic, disk, common mistakes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """Make a vocabulary, a dataset, a pretrained model and predictions, offline."""

    workdir: str = "bert_jax_demo"
    """Directory for everything that the demo makes."""


def inspect(options: InspectOptions) -> None:
    require_standard_output(options.output)
    if options.others and not options.output:
        raise UsageError(
            f"{1 + len(options.others)} paths stand side by side on a page; name it by "
            "--output FILE.html, or inspect one path."
        )
    if options.summary or options.sequence_length:
        return inspect_summary(options)
    is_run_page = bool(options.output and not options.attention)
    if options.when or options.run or is_run_page:
        # The run may hold the accelerator, and this must not wait for it.
        environment.set_platform_to_cpu(os.environ)
    from bert_jax.apps.inspect.inspect import inspect

    if options.when or options.run:
        return inspect_when(options)
    if options.attention and not options.output:
        raise UsageError(
            f"attention={options.attention!r:.80} needs a page to write; name it by "
            "--output FILE.html."
        )
    if options.output and options.verify:
        raise UsageError(
            f"verify=True has no effect with output={options.output}; give one command "
            "for each."
        )
    if options.attention:
        return inspect_attention(options)
    if options.output:
        return inspect_run(options)
    for line in inspect(options.path, options.verify):
        print(printable(line))


def inspect_summary(options: InspectOptions) -> None:
    if not options.summary:
        raise UsageError(
            f"sequence_length={options.sequence_length} has no effect without summary; "
            "pass --summary too, or leave it out."
        )
    require_without(options, "summary", "verify attention output when run")
    environment.set_platform_to_cpu(os.environ)  # an accelerator may be in use
    from rich.console import Console

    from bert_jax.apps.inspect.summary import summary

    title, table, lines = summary(options.path, options.sequence_length)
    say(title)
    width = None if sys.stdout.isatty() else _FILE_WIDTH
    Console(highlight=False, markup=False, width=width).print(table)
    for line in lines:
        say(line)


def require_without(options: InspectOptions, name: str, others: str) -> None:
    """Refuse options that have no effect with the option `name`."""
    for other in others.split():
        if value := getattr(options, other):
            raise UsageError(
                f"{other}={value!r:.80} has no effect with {name}; leave one of them "
                "out."
            )


def inspect_when(options: InspectOptions) -> None:
    from bert_jax.apps.inspect.when_seen import when_seen

    if not options.when:
        raise UsageError(f"run={options.run} needs --when TEXT, or leave it out.")
    require_without(options, "when", "verify attention output")
    for line in when_seen(options.path, options.when, options.run):
        print(printable(line))


def inspect_attention(options: InspectOptions) -> None:
    from bert_jax.apps.run_page.run_comparison import require_different
    from bert_jax.inference.attention_page import write_attention_page
    from bert_jax.inference.predictor import load
    from bert_jax.reports.web_page import SUFFIX
    from bert_jax.storage.files import require_output_file

    page = Path(options.output)
    require_output_file(page, SUFFIX)  # before the models are loaded
    paths = (options.path, *options.others)
    require_different(paths)
    models = {path: load(path) for path in paths}
    write_attention_page(models, options.attention, page)
    say(f"{page}: the attention of every head; open it in a browser")


def inspect_run(options: InspectOptions) -> None:
    from bert_jax.apps.run_page.run_comparison import write_run_page

    page = Path(options.output)
    count = write_run_page((options.path, *options.others), page, say)
    content = "curves and configuration of the run"
    if count > 1:
        content = f"curves, scores and configurations of {count} runs"
    say(f"{page}: {content}; open it in a browser")


def doctor(_: DoctorOptions) -> int:
    from bert_jax.apps.inspect.doctor import main

    return main()


def demo(options: DemoOptions) -> None:
    environment.configure_jax(os.environ)  # its two fine-tunings compile the same
    import jax

    from bert_jax.apps.demo.demo import demo

    jax.devices()  # fails before any file is written, if there is no device
    demo(options.workdir)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConfigsOptions:
    """List the configurations of the package. `pretrain` and `finetune` take a name or
    the path of a file; --print-config shows the values.
    """


def configs(_: ConfigsOptions) -> None:
    files = named_configs()
    width = max(map(len, files))
    for verb in ("pretrain", "finetune"):
        say(f"bert-jax {verb} NAME")
        for name, path in files.items():
            purpose, verbs = read_purpose(path)
            if verb in verbs:
                say(f"  {name:{width}}  {purpose}")

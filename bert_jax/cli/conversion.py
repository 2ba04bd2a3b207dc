"""`bert-jax convert`: models of other libraries, and models made of others."""

import dataclasses
import sys
from pathlib import Path
from shlex import quote
from typing import Annotated, Literal

import tyro

from bert_jax.cli.start import ModelArgument
from bert_jax.storage.atomic import local_output
from bert_jax.terminal.messages import UsageError, one_line, say


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImportOptions:
    """Make a checkpoint from a model of Hugging Face or TensorFlow 1."""

    source: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="SRC")]
    """Directory of the model, one file of its tensors, or hf:OWNER/NAME."""
    kind: Annotated[Literal["huggingface", "tf1"], tyro.conf.arg(name="from")]
    """The library that wrote the files."""
    output: str
    """Directory to write the checkpoint to."""
    allow_extra: bool = False
    """Ignore tensors that the model does not have."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Write a model for Hugging Face, as ONNX or StableHLO, or as a page of masks."""

    source: ModelArgument
    """Workdir, checkpoint, Hugging Face directory, or hf:OWNER/NAME."""
    kind: Annotated[
        Literal["huggingface", "onnx", "stablehlo", "page"], tyro.conf.arg(name="to")
    ]
    """huggingface: files for transformers; onnx: a graph for ONNX Runtime and servers;
    stablehlo: a program that needs only JAX; page: one web page by which a small model
    fills masks in a browser."""
    output: str
    """Directory to write to; with page: a file that ends in .html."""
    batch_size: int | None = None
    """With stablehlo: the only batch size that the program accepts; None: any."""
    sequence_length: int | None = None
    """With stablehlo: tokens per row; None: the model's own length, 128 without one."""
    license: str = ""
    """With huggingface: the licence for the model card, as the hub names it, such as
    apache-2.0; empty: that of the model that this one was made of, if it is known."""
    language: tuple[str, ...] = ()
    """With huggingface: ISO 639-1 codes of the languages, such as en; none: in the same
    way."""
    steps: tuple[int, ...] = ()
    """With page: steps of checkpoints of MODEL, the workdir of a run, to choose from in
    the page; none: the model that MODEL names."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExtendOptions:
    """Add words or positions to a model, as a checkpoint to continue training from."""

    source: ModelArgument
    """Workdir, checkpoint, Hugging Face directory, or hf:OWNER/NAME."""
    output: str
    """Directory to write the checkpoint to."""
    words: str = ""
    """File of new words, one per line; a word's vector starts as its pieces' mean."""
    positions: int | None = None
    """New maximum number of tokens per row."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AverageOptions:
    """Average the parameters of several checkpoints of a run."""

    source: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """Workdir of the run."""
    steps: tuple[int, ...]
    """Steps of its checkpoints, two or more."""
    output: str
    """Directory to write the checkpoint to."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShrinkOptions:
    """Keep some layers of a model, as a student to distil it into."""

    source: ModelArgument
    """Workdir, checkpoint, Hugging Face directory, or hf:OWNER/NAME."""
    layers: tuple[int, ...]
    """Layers to keep, counted from 0, in order, such as 0 2 4."""
    output: str
    """Directory to write the checkpoint to."""


def import_model(options: ImportOptions) -> None:
    from bert_jax.apps.convert.receipts import import_checkpoint

    output = options.output
    summary, warning = import_checkpoint(
        options.kind, options.source, local_output(output), options.allow_extra
    )
    say(f"{output}: {summary}")
    if warning:
        print(one_line(f"bert-jax: warning: {output}: {warning}"), file=sys.stderr)


def export_model(options: ExportOptions) -> None:
    output = options.output
    if options.steps and options.kind != "page":
        raise UsageError(f"steps={options.steps} needs --to page; leave it out.")
    if options.kind != "huggingface" and (options.license or options.language):
        raise UsageError("--license and --language need --to huggingface.")
    sizes = {name: getattr(options, name) for name in ("batch_size", "sequence_length")}
    sizes = {name: size for name, size in sizes.items() if size is not None}
    if options.kind == "stablehlo":
        from bert_jax.apps.convert.stablehlo import export_stablehlo

        outputs = export_stablehlo(options.source, local_output(output), **sizes)
        say(f"{output}: load.py gives {', '.join(outputs)}.")
        return
    for name, size in sizes.items():
        raise UsageError(f"{name}={size} needs --to stablehlo; leave it out.")
    if options.kind == "page":
        from bert_jax.apps.convert.page import export_page

        say(export_page(options.source, Path(output), options.steps))
        return
    from bert_jax.apps.convert.save import save

    warnings: list[str] = []
    license, language = options.license, options.language
    summary = save(
        options.source, output, options.kind, warnings.append, license, language
    )
    say(f"{output}: {summary}")
    if options.kind == "huggingface":
        card = f"Read {output}/README.md"
        say(f"{card}; upload by `hf upload OWNER/NAME {quote(output)}`.")
    for warning in warnings:
        print(one_line(f"bert-jax: warning: {warning}"), file=sys.stderr)


def extend_model(options: ExtendOptions) -> None:
    from bert_jax.apps.convert.extend import extend, read_words

    words = read_words(options.words) if options.words else []
    say(extend(options.source, local_output(options.output), words, options.positions))


def average_model(options: AverageOptions) -> None:
    from bert_jax.runs.average import average

    say(average(options.source, options.steps, local_output(options.output)))


def shrink_model(options: ShrinkOptions) -> None:
    from bert_jax.apps.convert.shrink import shrink

    say(shrink(options.source, options.layers, local_output(options.output)))

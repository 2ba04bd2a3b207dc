"""`bert-jax convert`: models from and to other libraries."""

import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Literal

from bert_jax.cli.command import parse_options
from bert_jax.terminal.messages import UsageError, one_line, say

USAGE = """\
usage: bert-jax convert VERB [OPTIONS]    bert-jax convert VERB --help tells its options

  import   a checkpoint from a model of Hugging Face's or of TensorFlow 1
  export   a model to the files of Hugging Face's, or to StableHLO
  extend   a model with more words or positions, to train on from
"""


def import_model(arguments: Sequence[str]) -> int:
    """Make a checkpoint of another library's model."""
    import tyro

    def command(
        source: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="SRC")],
        kind: Annotated[Literal["huggingface", "tf1"], tyro.conf.arg(name="from")],
        output: str,
        allow_extra: bool = False,
    ) -> tuple[str, str, str, bool]:
        """Make a checkpoint of another library's model.

        Args:
            source: directory of the model, one file of its tensors, or
                hf:OWNER/NAME@REVISION.
            kind: whose files they are.
            output: directory to make, of the checkpoint.
            allow_extra: leave tensors aside that the model does not have.
        """
        return source, kind, output, allow_extra

    return _import_model(*parse_options(command, "convert import", arguments))


def _import_model(source: str, kind: str, output: str, allow_extra: bool) -> int:
    from bert_jax.convert.comparison import Comparison, compare
    from bert_jax.convert.receipts import summary, write_imported
    from bert_jax.storage.atomic import local_output, require_empty
    from bert_jax.storage.remote import open_directory

    directory = local_output(output)
    require_empty(directory)
    if kind == "tf1":
        from bert_jax.formats.tf1 import read_tf1

        imported = read_tf1(open_directory(source), allow_extra=allow_extra)
        comparison = Comparison(reason="no library here runs the checkpoint itself")
    else:
        from bert_jax.formats.embedding import model_directory
        from bert_jax.formats.huggingface import read_huggingface
        from bert_jax.pretrained import as_directory

        found = as_directory(source)
        imported = read_huggingface(found, allow_extra=allow_extra)
        if found.is_dir():
            comparison = compare(
                model_directory(found), imported.config, imported.params
            )
        else:
            comparison = Comparison(reason="transformers reads directories alone")
    write_imported(imported, directory, comparison)
    say(f"{output}: {summary(imported)}")
    _warn(output, comparison.warning)
    return 0


def _warn(output: str, warning: str) -> None:
    if warning:
        print(one_line(f"bert-jax: warning: {output}: {warning}"), file=sys.stderr)


def export_model(arguments: Sequence[str]) -> int:
    """Write a model for another library."""
    import tyro

    def command(
        source: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="MODEL")],
        kind: Annotated[Literal["huggingface", "stablehlo"], tyro.conf.arg(name="to")],
        output: str,
        batch_size: int | None = None,
        sequence_length: int | None = None,
    ) -> tuple[str, str, str, dict[str, int]]:
        """Write a model for another library.

        Args:
            source: a workdir, a checkpoint, a Hugging Face directory, or
                hf:OWNER/NAME@REVISION.
            kind: what to write: files for transformers, or a program for JAX alone.
            output: directory to make.
            batch_size: of stablehlo: the only one that the program takes; else any.
            sequence_length: of stablehlo: tokens a row; else 128, or all that the
                model takes.
        """
        sizes = {"batch_size": batch_size, "sequence_length": sequence_length}
        given = {name: size for name, size in sizes.items() if size is not None}
        return source, kind, output, given

    return _export_model(*parse_options(command, "convert export", arguments))


def _export_model(source: str, kind: str, output: str, sizes: dict[str, int]) -> int:
    from bert_jax.storage.atomic import local_output

    if kind == "stablehlo":
        from bert_jax.convert.stablehlo import export_stablehlo

        outputs = export_stablehlo(source, local_output(output), **sizes)
        say(f"{output}: load.py gives {', '.join(outputs)}.")
        return 0
    for name, size in sizes.items():
        raise UsageError(f"{name}={size} is of --to stablehlo alone; leave it out.")
    from bert_jax.convert.export import export_huggingface

    leaves, comparison, ids = export_huggingface(source, local_output(output))
    say(f"{output}: {len(leaves)} tensors; conversion.json lists them.")
    _warn(output, comparison.warning)
    _warn(output, ids.warning)
    return 0


def extend_model(arguments: Sequence[str]) -> int:
    """Add words or positions to a model."""
    import tyro

    def command(
        source: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="MODEL")],
        output: str,
        words: str = "",
        positions: int | None = None,
    ) -> tuple[str, str, str, int | None]:
        """Add words or positions to a model, as a checkpoint to train on from.

        Args:
            source: a workdir, a checkpoint, a Hugging Face directory, or
                hf:OWNER/NAME@REVISION.
            output: directory to make, of the checkpoint.
            words: file of new words, one a line; each begins as its pieces' mean.
            positions: the longest row that the model shall take.
        """
        return source, output, words, positions

    return _extend_model(*parse_options(command, "convert extend", arguments))


def _extend_model(source: str, output: str, words: str, positions: int | None) -> int:
    from bert_jax.convert.extend import extend, read_words
    from bert_jax.storage.atomic import local_output

    found = read_words(words) if words else []
    say(extend(source, local_output(output), found, positions))
    return 0


VERBS: dict[str, Callable[[Sequence[str]], int]] = {
    "import": import_model,
    "export": export_model,
    "extend": extend_model,
}


def convert(arguments: Sequence[str]) -> int:
    """Find the verb and run it.

    Raises:
        UsageError: there is no such verb.
    """
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(USAGE, end="")
        return 0
    verb, *rest = arguments
    if verb not in VERBS:
        known = ", ".join(VERBS)
        raise UsageError(f"convert {verb!r} must be convert {known}.")
    return VERBS[verb](rest)

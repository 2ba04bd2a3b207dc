"""The table of verbs and their help. Importing it is quick, for `bert-jax --help`."""

import importlib
from typing import Any, NamedTuple

USAGE = """\
usage: bert-jax VERB [OPTIONS]
       bert-jax VERB --help         an example, and the options that matter
       bert-jax VERB --help-all     all options

  vocab       learn a vocabulary from text files
  prepare     turn text files into a dataset of training rows
  pretrain    pretrain a model on a dataset; again, to continue the run
  finetune    fine-tune a model on a task; again, to continue the run
  fork        begin a new run as another was at a checkpoint, with other options
  evaluate    score a fine-tuned model on a file, and write its predictions
  predict     print or write a fine-tuned model's predictions for a file, for
              standard input, or for each file of a corpus
  embed       write a vector for each text of a file, or of a corpus of files
  search      find texts of a corpus for queries, rank them again, and score that
  fill        fill the masks of texts by a pretrained model
  features    write the hidden states of each token of a file's lines
  generate    continue a text by a causal language model
  convert     import a model of another library; export, extend, average or
              shrink one
  inspect     print what a dataset or a model holds, and verify its files;
              write a run, or the attention of a model, as a web page
  reproduce   run an experiment of the paper, at a budget that you choose
  configs     list the configurations of the package, which can be named
  doctor      check this machine
  benchmark   measure training, inference, input or preparation on this machine,
              or compile training for accelerators that are not present
  demo        run every step, offline, on the documentation of installed packages

  --version   print the version
  --debug     before or after a verb: show the traceback of an error
  --completion bash|zsh|fish|tcsh
              print what completes verbs, tasks and options in that shell;
              its first line says where to put it
"""
GROUPS = ("convert", "benchmark")
"""Verbs that have subcommands."""


class Verb(NamedTuple):
    """Names in a module that is imported when the verb is used."""

    module: str
    options: str
    """The dataclass of the verb's options."""
    run: str
    """A function: options → exit code, or None for 0."""
    read: str = ""
    """A function that parses the arguments, with the parameters of `parse`; empty:
    `parse`."""

    def load(self, name: str) -> Any:
        """Return what the module defines as `name`."""
        return getattr(importlib.import_module(f"bert_jax.{self.module}"), name)


_BEAM, _EXAMPLES = "parse_with_beam_options", "read_with_checkpoint"
VERBS = {
    "vocab": Verb("cli.datasets", "VocabularyConfig", "vocab"),
    "prepare": Verb("cli.datasets", "PrepareConfig", "prepare", _BEAM),
    "pretrain": Verb("cli.pretraining", "PretrainOptions", "pretrain", "read_pretrain"),
    "finetune": Verb("cli.finetuning", "FinetuneOptions", "finetune", "read_finetune"),
    "fork": Verb("cli.forking", "PretrainingFork", "fork", "read_fork"),
    "evaluate": Verb("cli.inference", "EvaluateOptions", "evaluate", _EXAMPLES),
    "predict": Verb("cli.inference", "PredictOptions", "predict", _EXAMPLES),
    "embed": Verb("cli.inference", "EmbedOptions", "embed", _BEAM),
    "search": Verb("cli.search", "SearchOptions", "search"),
    "fill": Verb("cli.filling", "FillOptions", "fill", "read_fill"),
    "features": Verb("cli.inference", "FeaturesOptions", "features"),
    "generate": Verb("cli.inference", "GenerateOptions", "generate"),
    "convert import": Verb("cli.conversion", "ImportOptions", "import_model"),
    "convert export": Verb("cli.conversion", "ExportOptions", "export_model"),
    "convert extend": Verb("cli.conversion", "ExtendOptions", "extend_model"),
    "convert average": Verb("cli.conversion", "AverageOptions", "average_model"),
    "convert shrink": Verb("cli.conversion", "ShrinkOptions", "shrink_model"),
    "inspect": Verb("cli.inspection", "InspectOptions", "inspect"),
    "reproduce": Verb("cli.reproduction", "ReproduceOptions", "reproduce"),
    "configs": Verb("cli.inspection", "ConfigsOptions", "configs"),
    "doctor": Verb("cli.inspection", "DoctorOptions", "doctor"),
    "benchmark train": Verb("apps.benchmark.command", "TrainOptions", "run"),
    "benchmark compile": Verb("apps.benchmark.command", "CompileOptions", "run"),
    "benchmark inference": Verb("apps.benchmark.command", "InferenceOptions", "run"),
    "benchmark input": Verb("apps.benchmark.command", "InputOptions", "run"),
    "benchmark prepare": Verb("apps.benchmark.command", "PrepareOptions", "run"),
    "demo": Verb("cli.inspection", "DemoOptions", "demo"),
}

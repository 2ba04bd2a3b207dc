"""The help of each verb and task: the ten options that matter first, and an example."""

import contextlib
import re
import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING
from pathlib import Path
from typing import Any, NamedTuple

from bert_jax.cli.command import registry
from bert_jax.cli.names import Option, options_of
from bert_jax.cli.readers import is_read
from bert_jax.cli.verbs import VERBS

HELP_ALL = "--help-all"
HELP = ("-h", "--help", "help", HELP_ALL)

_WHOLE_WORDS: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
"""How lines are filled: a command is pasted, and a name is searched for."""
_FIRST = {
    "finetune": ("TASK|CONFIG", "text-classification"),
    "pretrain": ("[CONFIG]", "bert-tiny-two-cores"),
}
"""What stands after a verb and is no option of it, and an example."""


class Help(NamedTuple):
    """What the help of a verb, or of `finetune TASK`, shows first."""

    example: str
    """The command, without `bert-jax` and the verb."""
    options: str = ""
    """Names of the options that matter; empty: all."""
    about: str = ""
    """Of a task: what is learned; and from which file."""


_MODEL = "--init-from hf:google-bert/bert-base-uncased"
_FILES = "--data.train train.csv --data.validation dev.csv"
_TUNED = "init-from data.train data.validation workdir num-epochs batch-size "
_TUNED += "optimizer.peak-learning-rate "
_COLUMNS = {"data.text_columns": "text-column", "data.label_column": "label-column"}
_TABLE = f"{_TUNED}text-column label-column data.max-length"
TASKS = {
    "text-classification": Help(
        f"{_MODEL} {_FILES} --workdir runs/reviews",
        _TABLE,
        "Classes of texts, or of pairs of texts; from a table with the columns text "
        "and label.",
    ),
    "text-regression": Help(
        f"{_MODEL} {_FILES} --label-column stars --workdir runs/stars",
        _TABLE,
        "Numbers for texts, or for pairs of texts; from a table with the columns text "
        "and label.",
    ),
    "token-classification": Help(
        "--init-from hf:google-bert/bert-base-cased --data.train train.txt "
        "--data.validation dev.txt --workdir runs/names",
        f"{_TUNED}data.labels label-column data.max-length",
        "Tags of words, such as names; from lines of a word and its tag, with a blank "
        "line between sentences.",
    ),
    "question-answering": Help(
        f"{_MODEL} --data.train train-v2.0.json --data.validation dev-v2.0.json "
        "--workdir runs/squad",
        f"{_TUNED}data.max-length data.document-stride data.null-threshold",
        "Where the answer to a question is in a text; from SQuAD's JSON, or a table "
        "with the columns id, context, question and answers.",
    ),
    "multiple-choice": Help(
        f"{_MODEL} {_FILES} --workdir runs/swag",
        f"{_TUNED}label-column data.max-length data.test",
        "Which of several answers or endings is right; from a table of SWAG's form, or "
        ".jsonl with context, question, choices and label.",
    ),
    "sentence-pairs": Help(
        "--init-from hf:sentence-transformers/all-MiniLM-L6-v2 --data.train pairs.csv "
        "--text-column question context --workdir runs/pairs",
        f"{_TUNED}text-column data.sentence-pairs.objective microbatches",
        "Vectors of texts for search, or scores of pairs; from a table of pairs, such "
        "as question and context.",
    ),
}
HELPS = {
    "vocab": Help("--input 'text/*.txt' --output vocab --vocab-size auto --cased"),
    "prepare": Help(
        "--input 'text/*.txt' --tokenizer vocab --output data --language de",
        "input tokenizer output text-column language sequence-length pairs pack "
        "sentences validation-fraction",
    ),
    "pretrain": Help(
        "--data.path data --workdir runs/mine",
        "data.path workdir init-from num-steps hours batch-size model.dtype "
        "optimizer.peak-learning-rate masking.rate dry-run",
    ),
    "finetune": Help(
        f"{_MODEL} --data.train train.csv --workdir runs/reviews",
        f"{_TUNED}data.test seeds dry-run",
    ),
    **{f"finetune {task}": shown for task, shown in TASKS.items()},
    "fork": Help(
        "runs/mine --at 1000 --output runs/slower --optimizer.peak-learning-rate 5e-5",
        "RUN at output data.path num-steps masking.rate model.hidden-dropout-prob "
        "optimizer.peak-learning-rate optimizer.schedule",
    ),
    "evaluate": Help(
        "runs/reviews --input test.csv --output report.html",
        "MODEL input output part text-column label-column delimiter data.label-names "
        "data.max-length compute-metrics",
    ),
    "predict": Help(
        "runs/reviews --input texts.csv --output predictions.csv",
        "MODEL input output overwrite text-column columns top-k threshold batch-size "
        "skip-damaged",
    ),
    "embed": Help(
        "runs/pairs --input texts.csv --text-column text --output vectors",
        "MODEL input output text-column pooling normalize prompt batch-size "
        "skip-damaged engine",
    ),
    "search": Help(
        'runs/pairs --query "how to appeal" --corpus texts.csv',
        "MODEL query corpus text-column k input output reranker query-prompt "
        "corpus-vectors",
    ),
    "fill": Help(
        '--model runs/mine "The cat [MASK] on the mat."', "TEXT model top-k json"
    ),
    "features": Help("runs/mine --input texts.txt --output features.npz --layers -1"),
    "generate": Help('runs/gpt --prompt "Once upon a time" --num-tokens 100'),
    "convert import": Help("uncased_L-12_H-768_A-12 --from tf1 --output models/bert"),
    "convert export": Help("runs/reviews --to huggingface --output exported"),
    "convert extend": Help("runs/mine --words words.txt --output models/more_words"),
    "convert average": Help("runs/mine --steps 8000 9000 10000 --output models/mean"),
    "convert shrink": Help("runs/mine --layers 0 2 4 --output models/student"),
    "inspect": Help("runs/mine --output report.html"),
    "reproduce": Help(
        "masking --budget toy --output reproduced",
        "NAME output budget input tokenizer tasks seeds flops microbatches yes",
    ),
    "configs": Help(""),
    "doctor": Help(""),
    "benchmark train": Help(
        "--model base --compare torch",
        "model batch-size sequence-length dtype microbatches remat attention-kernel "
        "compare steps json",
    ),
    "benchmark compile": Help(
        "--topology v5e:4x4 --model base",
        "topology model batch-size sequence-length dtype microbatches remat "
        "attention-kernel fsdp tensor",
    ),
    "benchmark inference": Help("--model base --compare torch"),
    "benchmark input": Help("--batch-size 256"),
    "benchmark prepare": Help("--input 'text/*.txt'"),
    "demo": Help("--workdir demo"),
}


class HelpSubject(NamedTuple):
    """What a help is about: a verb, with or without a task or configuration."""

    verb: str
    name: str
    """The task or configuration; "": none is named."""
    options_class: type
    default: Any
    """Options with the values of the configuration; None: the class's defaults."""

    @property
    def command(self) -> str:
        """The command, with what stands for a task or configuration."""
        place = self.name if self.default else _FIRST.get(self.verb, ("",))[0]
        return " ".join(filter(None, ("bert-jax", self.verb, place)))

    @property
    def task(self) -> str:
        """The task of a fine-tuning; "": none was named, or another verb."""
        return getattr(getattr(self.default, "config", None), "task", "")

    @property
    def read(self) -> list[Option]:
        """The options that the verb reads, with the task."""
        options = options_of(self.options_class, self.default)
        known = _COLUMNS if self.is_glue else {}
        return [
            option
            for option in options
            if is_read(option.field, self.verb, self.task) and option.field not in known
        ]

    @property
    def is_glue(self) -> bool:
        """Whether it is a task of GLUE, whose columns are known."""
        return bool(self.task and self.default.config.data.glue)

    @property
    def shown(self) -> Help:
        """What the help shows first."""
        shown = HELPS[f"{self.verb} {self.task}".strip()]
        if not (self.task and self.default.config.data.path):
            return shown
        # Of a published dataset, whose files are not named.
        example = (
            f"{_MODEL} --data.path DIRECTORY --workdir runs/{Path(self.name).stem}"
        )
        names = shown.options.replace("data.train data.validation", "data.path")
        about = shown.about
        if self.is_glue:
            about = f"{about.partition(';')[0]}; from the files of GLUE."
            names = " ".join(n for n in names.split() if n not in _COLUMNS.values())
        return shown._replace(example=example, options=names, about=about)


def asks(words: Sequence[str]) -> bool:
    """Return whether the words after a verb ask for its help."""
    words = list(words)[: words.index("--") if "--" in words else None]
    is_last = words[-1:] == ["help"] and not any(word[:1] == "-" for word in words)
    return is_last or not {"-h", "--help", HELP_ALL}.isdisjoint(words)


def print_help(verb: str, words: Sequence[str]) -> None:
    """Print the help of a verb, or of the task or configuration that follows it.

    Raise UsageError if there is none such, ValueError if a configuration file fails.
    """
    is_named = verb in _FIRST and words[0] != "help" and not words[0].startswith("-")
    subject = subject_of(verb, words[0] if is_named else "")
    if HELP_ALL in words:
        import tyro

        options = options_of(subject.options_class, subject.default)
        hidden = {o.place for o in options} - {o.place for o in subject.read}
        with contextlib.suppress(SystemExit):
            tyro.cli(
                subject.options_class,
                prog=subject.command,
                args=["--help"],
                default=subject.default or tyro.MISSING_NONPROP,
                registry=registry(hidden),
            )
    else:
        print("\n".join(help_lines(subject, subject.read)))


def subject_of(verb: str, name: str = "") -> HelpSubject:
    """Return the subject of a verb, or of a task or configuration of it.

    Raise UsageError if there is none such, ValueError if a configuration file fails.
    """
    options_class, default = VERBS[verb].load(VERBS[verb].options), None
    if name:
        default = options_class(config=VERBS[verb].load("default_config")(name))
    return HelpSubject(verb, name, options_class, default)


def help_lines(subject: HelpSubject, options: Sequence[Option]) -> Iterator[str]:
    """Yield the lines of a help; `options` are those that are read."""
    width = max(min(shutil.get_terminal_size().columns, 100), 40)
    shown, verb = subject.shown, subject.verb
    arguments = [option.name for option in options if option.name[0] != "-"]
    arguments += ["[OPTIONS]"] * (len(arguments) < len(options))
    yield " ".join(["usage:", subject.command, *arguments])
    about = shown.about or " ".join((subject.options_class.__doc__ or "").split())
    yield from ("", *textwrap.wrap(about, width), "")
    name = subject.name or _FIRST.get(verb, ("", ""))[1]
    example = filter(None, ("bert-jax", verb, name, shown.example))
    yield from example_lines(" ".join(example), width)
    if verb == "finetune" and not subject.default:
        yield from (
            "",
            "Tasks; `bert-jax finetune TASK --help` has the options of each:",
        )
        abouts = {name: task.about.split(";")[0] for name, task in TASKS.items()}
        yield from rows(abouts, width)
    by_name = {option.name.lstrip("-").split()[0]: option for option in options}
    chosen = [by_name[name] for name in shown.options.split()] or options
    if chosen:
        yield ""
        yield from rows({o.name: described(o) for o in chosen}, width)
    if len(chosen) < len(options):
        yield f"\n`{subject.command} {HELP_ALL}` lists all {len(options)} options."


def example_lines(command: str, width: int) -> Iterator[str]:
    """Yield a command in lines, each of whole options and continued by a backslash."""
    words = re.sub(" (?!--)", "\N{NO-BREAK SPACE}", command)
    lines = textwrap.wrap(words, width - 8, **_WHOLE_WORDS)
    for number, line in enumerate(lines, 1):
        indent = "  " if number == 1 else "      "
        end = " \\" * (number < len(lines))
        yield indent + line.replace("\N{NO-BREAK SPACE}", " ") + end


def rows(texts: Mapping[str, str], width: int) -> Iterator[str]:
    """Yield a table of names and what each is; a long name has a line of its own."""
    column = min(max(map(len, texts)), 20) + 4
    for name, text in texts.items():
        lines = textwrap.wrap(text, width - column, **_WHOLE_WORDS)
        if len(name) > column - 4:
            yield f"  {name}"
        elif lines:
            yield f"  {name}".ljust(column) + lines.pop(0)
        yield from (" " * column + line for line in lines)


def described(option: Option) -> str:
    """Return the first sentence about an option, its choices and its default."""
    sentence = re.split(r"(?<=[a-z0-9)])\. (?=[A-Z])", option.description)[0]
    text, value = sentence.rstrip(".") + ".", option.default
    if 0 < len(option.choices) < 9 and option.choices[0] not in text:
        text += f" One of {', '.join(option.choices)}."
    if value is MISSING:
        return f"{text} Required."
    shown = " ".join(map(str, value)) if isinstance(value, tuple) else value
    is_said = shown in ("", None, False, 0) or "efault" in sentence
    return text if is_said else f"{text} Default: {shown}."

"""`bert-jax evaluate`, `predict`, `features` and `generate`."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import tyro
from etils import epath

from bert_jax.cli.command import option_value, parse, taking_beam_options
from bert_jax.cli.command import parse_with_beam_options as parse_with_beam_options
from bert_jax.cli.readers import READ_BY, require_used
from bert_jax.cli.start import ModelArgument, require_standard_output, scores_json
from bert_jax.config import ExamplesConfig
from bert_jax.config.checks import (
    require,
    require_beam_engine,
    require_delimiter,
    require_seed,
)
from bert_jax.storage.files import require_new_file
from bert_jax.terminal.messages import UsageError, printable, say

if TYPE_CHECKING:
    from bert_jax.apps.corpus.shards import ShardJob


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetunedOptions:
    """Options of a verb that uses a fine-tuned model."""

    model: ModelArgument
    """Workdir of `bert-jax finetune`, or one of its checkpoints; also --model."""
    data: ExamplesConfig = ExamplesConfig()


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateOptions(FinetunedOptions):
    """Score a fine-tuned model, and write its predictions."""

    input: str = ""
    """File to score, or what data.path names; empty: what the run was validated on."""
    output: Annotated[
        tyro.conf.UseAppendAction[tuple[str, ...]],
        tyro.conf.arg(metavar="FILE.html|DIRECTORY"),
    ] = ()
    """FILE.html to write on what the model gets wrong: scores by class, confusions,
    calibration, thresholds, the worst examples; with the same as .json beside it. Or a
    directory for the task's official prediction files. May be given for each."""
    compute_metrics: str = ""
    """MODULE:FUNCTION of your own that returns scores."""
    part: Literal["validation", "test"] = "validation"
    """Split of data.path to score, or of the files of the fine-tuning."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictOptions(FinetunedOptions):
    """Write predictions in the order of the input, by default as lines of JSON."""

    input: tuple[str, ...] = ("-",)
    """.csv, .tsv, .jsonl or .parquet file, or another file with one text per line, all
    but .parquet also with .gz or .zst; -: lines of JSON or of text from standard input.
    With a directory as output: files, patterns and directories."""
    output: str = ""
    """.jsonl, .csv or .parquet file to write, or a directory, for a file for each input
    file; empty or -: lines of JSON on standard output."""
    overwrite: bool = False
    """Replace a file of that name."""
    format: Literal["jsonl", "csv", "parquet"] = "jsonl"
    """With a directory as output: the kind of its files."""
    engine: Literal["local", "beam"] = "local"
    """With a directory as output: compute here, or by Apache Beam, whose options stand
    after --."""
    skip_damaged: bool = False
    """Write null for the prediction of a row that cannot be used, and with a directory
    as output leave out files that cannot be read; their number is said."""
    columns: tuple[str, ...] = ("id",)
    """Columns of the input to copy; *: all; default: id, if there is one."""
    threshold: float | None = None
    """Probability from which the second of two classes, or each of several labels, is
    predicted; default: the more probable class, or labels above 0.5."""
    top_k: int = 0
    """Write the probabilities of the k most probable classes alone; 0: of all."""
    batch_size: int = 32
    """Examples that are computed at once."""
    beam_options: tuple[str, ...] = ()
    """Options for Apache Beam, such as --runner=FlinkRunner."""

    def __post_init__(self) -> None:
        is_file = self.output not in ("", "-") and not writes_directory(self.output)
        require(
            is_file or not self.overwrite,
            "overwrite=True needs a file as output; a directory is continued.",
        )
        if writes_directory(self.output):
            return
        given = {"engine": "local", "format": "jsonl"}
        for name, default in given.items():
            require(
                getattr(self, name) == default,
                f"{name}={getattr(self, name)} needs a directory as output, with a "
                "file for each input file; name one by --output.",
            )
        require(
            len(self.input) == 1,
            f"input names {len(self.input)} files, and output={self.output or '-'} is "
            "one; name a directory by --output, for a file for each.",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbedOptions:
    """Write a vector for each text: for each file an .npy file, float32 [N, D]."""

    model: ModelArgument
    """Workdir, checkpoint, Hugging Face directory or hf:OWNER/NAME; also --model."""
    input: tuple[str, ...]
    """Files, patterns, directories: .csv, .tsv, .jsonl, .txt, also .gz or .zst, or
    .parquet."""
    output: str
    """Directory to write into; the same command again goes on."""
    text_column: str = "text"
    """Column (or JSON field) of the text."""
    delimiter: str = ""
    """Separator of the columns of .csv and .tsv files; empty: the one of the header."""
    pooling: Literal["mean", "cls"] | None = None
    """How the hidden states become a vector; default: as the model's files say, or
    mean."""
    normalize: bool | None = None
    """Divide each vector by its length; default: as the model's files say, or not."""
    prompt: str | None = None
    """Put before each text: the name of one of the model's prompts, or a text;
    default: the model's default prompt, if it has one."""
    engine: Literal["local", "beam"] = "local"
    """Compute here, or by Apache Beam, whose options stand after --."""
    skip_damaged: bool = False
    """Write NaN for the vector of a row without a text, and leave out files that cannot
    be read; their number is said."""
    batch_size: int = 32
    """Texts that are computed at once."""
    beam_options: tuple[str, ...] = ()
    """Options for Apache Beam, such as --runner=FlinkRunner."""

    def __post_init__(self) -> None:
        require_delimiter(self.delimiter)
        require(
            Path(self.output).suffix
            not in (".npy", ".npz", ".jsonl", ".csv", ".parquet"),
            f"output={self.output} must be a directory, with an .npy file for each "
            "input file; leave out the suffix.",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeaturesOptions:
    """Write the hidden states of each token, with its position in the text."""

    model: ModelArgument
    """Workdir, checkpoint, Hugging Face directory or hf:OWNER/NAME; also --model."""
    input: str
    """File with one text per line; -: standard input."""
    output: str
    """.npz or .jsonl file to write."""
    overwrite: bool = False
    """Replace a file of that name."""
    layers: tuple[int, ...] = (-1,)
    """Which layers: 0 the embeddings, 1 the first, -1 the last."""
    combine: Literal["concatenate", "sum"] = "concatenate"
    """Concatenate or sum several layers."""
    batch_size: int = 32
    """Texts that are computed at once."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GenerateOptions:
    """Continue a text by a model that was pretrained with objective=causal_lm."""

    model: ModelArgument
    """Workdir of `bert-jax pretrain`, or one of its checkpoints; also --model."""
    prompt: str = ""
    """The text to continue; empty: begin a text."""
    num_tokens: int = 50
    """Tokens to generate at most."""
    temperature: float = 1.0
    """Divides the scores; 0: always the most probable token."""
    top_k: int = 0
    """Draw from the k most probable tokens; 0: from all."""
    top_p: float = 1.0
    """Draw from the fewest tokens whose probabilities add up to this."""
    seed: int = 0
    """The same seed gives the same text."""

    def __post_init__(self) -> None:
        require_seed(self)


FinetunedT = TypeVar("FinetunedT", bound=FinetunedOptions)


@taking_beam_options
def read_with_checkpoint(
    options_class: type[FinetunedT], arguments: Sequence[str], verb: str
) -> FinetunedT:
    """Parse with the data configuration that the checkpoint was fine-tuned with.

    A given file or directory replaces the files of the fine-tuning.
    """
    if arguments and not arguments[0].startswith("-"):
        model = arguments[0]
    else:
        model = parse(options_class, arguments, verb).model
    from bert_jax.inference.evaluation import settings_of

    data, task = settings_of(model)
    if verb == "predict":  # it is an option of its own
        data = data.changed(skip_damaged=False)
    data = with_other_files(data, arguments, verb)
    default = options_class(model=model, data=data)
    options = parse(options_class, arguments, verb, default)
    require_used(options, arguments, verb, task, default)
    return options


def with_other_files(
    data: ExamplesConfig, arguments: Sequence[str], verb: str
) -> ExamplesConfig:
    """Return the settings without the files that others are given for.

    Raise ValueError if more than one argument names what to use.
    """
    places = ["--data.validation", "--data.test", "--data.path"]
    places += ["--input"] * (verb == "evaluate")
    values = {name: option_value(arguments, name) for name in places}
    named = {name: value for name, value in values.items() if value is not None}
    require(
        len(named) < 2,
        f"{' and '.join(named)} each name what to use; give one of them.",
    )
    if not named:
        return data
    file, was_directory = named.get("--input", ""), bool(data.path or data.glue)
    is_directory = was_directory and file and epath.Path(file).is_dir()
    if is_directory or file.startswith("tfds:"):
        return data.changed(train="", validation="", test="", path=file)
    if "--data.path" in named:
        return data.changed(train="", validation="", test="")
    return data.changed(path="", glue="", train="", validation=file, test=file)


def evaluate(options: EvaluateOptions) -> None:
    from bert_jax.inference.evaluation import (
        model_evaluation,
        require_outputs,
        scored_name,
    )
    from bert_jax.tasks.baselines import no_better
    from bert_jax.tasks.own_metrics import load_function

    require_standard_output(options.output)
    own = load_function(options.compute_metrics)
    directory, page = directory_and_page(options.output)
    require_outputs(directory, page)
    evaluation = model_evaluation(
        options.model, options.data, options.part, bool(page), own
    )
    files = evaluation.write(directory, page)
    scores = evaluation.scores | evaluation.source.baseline
    scored = scored_name(options.data, options.part)
    print(printable(f"Scored: {scored}."), file=sys.stderr)
    if not scores:
        columns, hint = " ".join(options.data.label_columns), ""
        if evaluation.task.name in READ_BY["data.label_column"].split():
            hint = f" (no column {columns}; --label-column names another)"
        line = f"The file has no labels{hint}; there is nothing to score."
        print(line, file=sys.stderr)
    print(scores_json(scores))
    for line in no_better(scores):
        print(line, file=sys.stderr)
    for file in files:
        say(file)
    if page:
        from bert_jax.reports.terminal import print_report

        print_report(evaluation.report)


def directory_and_page(outputs: tuple[str, ...]) -> tuple[str, str]:
    """Return the directory and the page among the outputs of `evaluate`, or "".

    Raise UsageError if there are two of either.
    """
    pages = [o for o in outputs if not writes_directory(o) and not Path(o).is_dir()]
    directories = [output for output in outputs if output not in pages]
    for kind, places in ("a page", pages), ("a directory", directories):
        if len(places) > 1:
            raise UsageError(f"output={' and '.join(places)}: {kind} is given twice.")
    return "".join(directories), "".join(pages)


def writes_directory(output: str) -> bool:
    """Whether an output names a directory, by its lack of a suffix."""
    is_path = output not in ("", "-")
    return is_path and (not Path(output).suffix or output.endswith("/"))


def predict(options: PredictOptions) -> None:
    from bert_jax.inference.jsonl import prediction_lines, write_predictions
    from bert_jax.inference.row_predictions import Request

    request = Request(
        checkpoint=options.model,
        source=options.input[0],
        data=options.data.changed(skip_damaged=False),
        batch_size=options.batch_size,
        columns=options.columns,
        threshold=options.threshold,
        top_k=options.top_k,
        skip_damaged=options.skip_damaged or options.data.skip_damaged,
    )
    if writes_directory(options.output):
        from bert_jax.apps.corpus.shard_outputs import PredictShards

        return write_corpus(PredictShards(request, options.format), options)
    if options.output not in ("", "-"):
        require_new_file(options.output, options.overwrite, request.source)
        return say(write_predictions(request, options.output))
    require_standard_output(remedy="name a file by --output")
    for line in prediction_lines(request):
        print(line, flush=request.source == "-")


def embed(options: EmbedOptions) -> None:
    from bert_jax.apps.corpus.shard_outputs import EmbedShards

    values = dict(vars(options))
    names = [field.name for field in dataclasses.fields(EmbedShards)]
    write_corpus(EmbedShards(**{name: values[name] for name in names}), options)


def write_corpus(job: "ShardJob", options: PredictOptions | EmbedOptions) -> None:
    """Write a file for each file of the inputs."""
    from bert_jax.apps.corpus.corpus import write_shards

    require_beam_engine(options)
    say(
        write_shards(
            job,
            options.input,
            options.output,
            options.engine,
            options.beam_options,
            options.skip_damaged,
        )
    )


def features(options: FeaturesOptions) -> None:
    from bert_jax.inference.jsonl import write_feature_file

    values = dict(vars(options))
    require_new_file(options.output, values.pop("overwrite"), options.input)
    say(write_feature_file(**values))


def generate(options: GenerateOptions) -> None:
    import jax

    from bert_jax.inference.predictor import load

    require_standard_output()
    values = dict(vars(options))
    model, seed = values.pop("model"), values.pop("seed")
    text = load(model).generate(**values, key=jax.random.key(seed))
    print(printable(text))

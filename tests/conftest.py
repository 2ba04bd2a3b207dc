"""Fixtures that many tests share: text, a tokenizer, a dataset and a small run."""

import csv
import gc
import os
import tempfile

# Before JAX starts: tests of several devices run in the same processes as the rest.
EIGHT_DEVICES = "--xla_force_host_platform_device_count=8"
if EIGHT_DEVICES not in (_flags := os.environ.get("XLA_FLAGS", "")):
    os.environ["XLA_FLAGS"] = f"{_flags} {EIGHT_DEVICES}".strip()
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Many tests compile the same small programs, and some do so in processes of their own.
# The processes of pytest-xdist find the directory that the first one made.
if "PYTEST_XDIST_WORKER" not in os.environ:
    _cache = tempfile.TemporaryDirectory(prefix="bert_jax_tests_")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = _cache.name
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "0"

# Tracing makes many objects that are no garbage: looking for it seldom saves a tenth.
gc.set_threshold(100_000, 50, 100)

import jaxtyping
from array_modules import modules_with_arrays

# Types of arrays are checked where there are any; mypy has seen the rest.
jaxtyping.install_import_hook(modules_with_arrays(), "beartype.beartype")

import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import margins
import pytest
import summary_table
from small_world import OBJECTS, PLACES, SUBJECTS, VERBS, VOCAB_SIZE

from bert_jax.cli.main import main
from bert_jax.config import (
    BertConfig,
    DataConfig,
    MaskingConfig,
    MeshConfig,
    OptimizerConfig,
    PrepareConfig,
    PretrainConfig,
    VocabularyConfig,
)

# JAX and what needs it are imported by the fixtures: the process that only hands tests
# to the others takes 3 s less.
if TYPE_CHECKING:
    from bert_jax.data.records import Dataset

# A shell's process in the background ignores SIGINT, and so would what tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says nothing on a shared machine.
hypothesis.settings.register_profile("shared", deadline=None, max_examples=50)
hypothesis.settings.load_profile("shared")

SEQUENCE_LENGTH = 32


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--margins", metavar="FILE", help=margins.__doc__)


def pytest_configure(config: pytest.Config) -> None:
    if file := config.getoption("--margins"):
        config.pluginmanager.register(margins.Margins(config, file))


@pytest.fixture
def unchecked_types() -> Iterator[None]:
    """Without the checks that the tests add to functions, as users have it."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command that must be refused; return the one line that it prints.

    With `unchanged`, no file in this folder is new or gone.
    """

    def run(*arguments: object, unchanged: Path | None = None) -> str:
        capsys.readouterr()
        before = sorted(unchanged.iterdir()) if unchanged else []
        code = main([str(argument) for argument in arguments])
        error = capsys.readouterr().err
        assert code == 2, error
        assert error.startswith("bert-jax: ") and error.count("\n") == 1, error
        assert (sorted(unchanged.iterdir()) if unchanged else []) == before
        return error.removesuffix("\n")

    return run


@pytest.fixture(scope="module")
def float64() -> Iterator[None]:
    """Computation in float64 for the tests of a module: `usefixtures("float64")`."""
    import jax

    with jax.enable_x64(True):
        yield


@pytest.fixture
def another_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a second process had a user's error at each barrier: "nothere is gone"."""
    import jax
    import numpy as np
    from jax.experimental import multihost_utils

    def gather(own: Any) -> Any:
        message = np.frombuffer(b"\1nothere is gone", np.uint8)
        return np.stack([own, np.pad(message, (0, len(own) - len(message)))])

    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(multihost_utils, "process_allgather", gather)


@pytest.fixture
def no_hidden_transfers() -> Iterator[None]:
    """An array that a program copies to the device by itself, at each call, raises."""
    import jax

    name = "jax_transfer_guard_host_to_device"
    jax.config.update(name, "disallow")
    yield
    jax.config.update(name, None)


@pytest.fixture
def buckets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which gs://bucket is `bucket`."""
    from fake_bucket import Bucket, install

    install(Bucket(tmp_path), monkeypatch.setattr)
    return tmp_path


@pytest.fixture
def described(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables of a compiler without a device."""
    from bert_jax.distributed.environment import configure_topology

    variables: dict[str, str] = {}
    configure_topology(variables)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def document(generator: random.Random) -> str:
    """A few sentences about one person in one place, a paragraph a line."""
    subject, place = generator.choice(SUBJECTS), generator.choice(PLACES)
    sentences = [
        f"The {subject} {generator.choice(VERBS)} the {generator.choice(OBJECTS)} "
        f"in the {place}."
        for _ in range(generator.randint(4, 12))
    ]
    half = len(sentences) // 2
    return " ".join(sentences[:half]) + "\n" + " ".join(sentences[half:])


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three text files of forty documents each."""
    folder = tmp_path_factory.mktemp("corpus")
    generator = random.Random(0)
    for name in "abc":
        documents = [document(generator) for _ in range(40)]
        (folder / f"{name}.txt").write_text("\n\n".join(documents) + "\n")
    return folder


@pytest.fixture(scope="session")
def tokenizer_directory(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from bert_jax.data.vocabulary import train_vocabulary

    output = tmp_path_factory.mktemp("tokenizer") / "vocabulary"
    inputs = (str(corpus / "*.txt"),)
    train_vocabulary(
        VocabularyConfig(input=inputs, output=str(output), vocab_size=VOCAB_SIZE)
    )
    return output


@pytest.fixture(scope="session")
def dataset(
    corpus: Path, tokenizer_directory: Path, tmp_path_factory: pytest.TempPathFactory
) -> "Dataset":
    """A dataset with about a tenth of its documents held out."""
    from bert_jax.data.prepare import prepare
    from bert_jax.data.records import open_dataset

    output = tmp_path_factory.mktemp("dataset") / "rows"
    config = PrepareConfig(
        input=(str(corpus / "*.txt"),),
        tokenizer=str(tokenizer_directory),
        output=str(output),
        sequence_length=SEQUENCE_LENGTH,
        validation_fraction=0.1,
        workers=1,
    )
    prepare(config)
    return open_dataset(output)


@pytest.fixture(scope="session")
def small_config(dataset: "Dataset") -> PretrainConfig:
    """Ten steps of a one-layer model on one device, with dropout."""
    return PretrainConfig(
        model=BertConfig.miniature(
            1, 16, vocab_size=VOCAB_SIZE, max_position_embeddings=SEQUENCE_LENGTH
        ),
        data=DataConfig(path=str(dataset.path), sequence_length=SEQUENCE_LENGTH),
        masking=MaskingConfig(max_predictions=5),
        optimizer=OptimizerConfig(peak_learning_rate=1e-2, warmup_steps=2),
        mesh=MeshConfig(data=1),
        num_steps=10,
        batch_size=8,
        log_every=1,
        eval_every=5,
        checkpoint_every=4,
        log_examples=True,
    )


@pytest.fixture(scope="session")
def pretrained(
    small_config: PretrainConfig, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The workdir of a small run that was never stopped.

    It is a model to load or fine-tune, and what an interrupted run must end as.
    """
    from bert_jax.runs.pretraining import pretrain

    workdir = tmp_path_factory.mktemp("pretrained") / "run"
    pretrain(small_config, workdir)
    return workdir


@pytest.fixture(scope="session")
def encoder_checkpoint(
    tokenizer_directory: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A checkpoint to fine-tune from: an encoder and pooler as seed 7 draws them."""
    import jax
    import numpy as np
    from etils import epath

    from bert_jax.apps.convert.receipts import write_imported
    from bert_jax.formats.imported import Imported
    from bert_jax.model.bert import init_params
    from bert_jax.tokenization import Tokenizer

    head = {"head": "sequence_classification", "labels": ("a", "b")}
    sizes = {"vocab_size": VOCAB_SIZE, "max_position_embeddings": SEQUENCE_LENGTH}
    model = BertConfig.miniature(1, 16, **sizes)
    drawn = jax.jit(
        lambda key: init_params(BertConfig.miniature(1, 16, **sizes, **head), key)
    )(jax.random.key(7))
    params = {name: drawn[name] for name in ("encoder", "pooler")}
    tokenizer = Tokenizer.load(tokenizer_directory)
    found = Imported(model, jax.tree.map(np.asarray, params), tokenizer, (), (), (), ())
    output = tmp_path_factory.mktemp("encoder") / "checkpoint"
    write_imported(found, epath.Path(output))
    return output


@pytest.fixture(scope="session")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CSV file with 48 rows: a review, and who it is about."""
    path = tmp_path_factory.mktemp("table") / "train.csv"
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["review", "who"])
        for i in range(48):
            who = SUBJECTS[i % 2]
            writer.writerow([f"The {who} reads letter {i} in the garden.", who])
    return path


@pytest.fixture(scope="session")
def classifier(
    reviews: Path, encoder_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The workdir of a small text classifier."""
    from run_helpers import classifier_config

    from bert_jax.runs.finetuning import finetune

    workdir = tmp_path_factory.mktemp("classifier") / "run"
    finetune(classifier_config(reviews, encoder_checkpoint, num_epochs=1.0), workdir)
    return workdir


@pytest.fixture(scope="session")
def teacher_checkpoint(
    tokenizer_directory: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A model of four layers with the heads of pretraining, as seed 11 draws it."""
    import jax
    import numpy as np
    from etils import epath

    from bert_jax.apps.convert.receipts import write_imported
    from bert_jax.formats.imported import Imported
    from bert_jax.model.bert import init_params
    from bert_jax.tokenization import Tokenizer

    # Large weights, so that the scores differ from token to token.
    sizes = {"vocab_size": VOCAB_SIZE, "max_position_embeddings": SEQUENCE_LENGTH}
    model = BertConfig.miniature(4, 16, initializer_range=0.5, **sizes)
    params = jax.jit(lambda key: init_params(model, key))(jax.random.key(11))
    tokenizer = Tokenizer.load(tokenizer_directory)
    params = jax.tree.map(np.asarray, params)
    found = Imported(model, params, tokenizer, (), (), (), ())
    output = tmp_path_factory.mktemp("teacher") / "checkpoint"
    write_imported(found, epath.Path(output))
    return output


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the table of the suites of tests/reliability that ran."""
    outcomes = ("passed", "failed", "error")
    reports = [
        report
        for name in outcomes
        for report in terminalreporter.stats.get(name, [])
        if isinstance(report, pytest.TestReport)
        and report.nodeid.startswith("tests/reliability/")
    ]
    if rows := summary_table.rows_of(reports):
        terminalreporter.section("reliability")
        for line in summary_table.lines(rows):
            terminalreporter.write_line(line)

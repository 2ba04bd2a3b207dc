"""Measure training, the input pipeline and preparation on this machine.

`bert-jax benchmark WHAT` or, where tyro is not installed, `python -m
bert_jax.benchmark WHAT`. Every figure printed was measured in that call.
"""

import argparse
import dataclasses
import functools
import importlib.util
import json
import platform
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from etils import epath
from jaxtyping import Shaped

from bert_jax.config import (
    PRESETS,
    DataConfig,
    MaskingConfig,
    PrepareConfig,
    PretrainConfig,
    VocabularyConfig,
)
from bert_jax.data.records import row_dtype

if TYPE_CHECKING:
    from bert_jax.tasks.task import Task

Figures = dict[str, Any]


def peak_memory_mib(whose: int = resource.RUSAGE_SELF) -> float:
    """The largest resident set so far of this process or a child of it, in MiB."""
    peak = resource.getrusage(whose).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def synthetic_rows(
    number: int, sequence_length: int, vocab_size: int
) -> Shaped[np.ndarray, " N"]:
    """Full rows of random tokens, as a prepared dataset holds them."""
    generator = np.random.default_rng(0)
    rows = np.zeros(number, row_dtype(sequence_length, vocab_size))
    shape = rows["tokens"].shape
    rows["tokens"] = generator.integers(5, vocab_size, shape, np.uint16)
    rows["second"] = sequence_length // 2
    rows["end"] = sequence_length
    rows["next_sentence_label"] = generator.integers(0, 2, (number, 1))
    return rows


def synthetic_task(options: argparse.Namespace) -> tuple[PretrainConfig, "Task"]:
    """Pretraining of the asked size on synthetic rows."""
    from bert_jax.data.records import Dataset, Rows
    from bert_jax.tasks.pretraining import pretraining_task

    model = dataclasses.replace(PRESETS[options.model], dtype=options.dtype)
    config = PretrainConfig(
        model=model,
        data=DataConfig(sequence_length=options.sequence_length, pairs="nsp"),
        masking=MaskingConfig(
            # The paper's slots: 20 at 128 tokens, 80 at 512.
            max_predictions=-(-options.sequence_length * 5 // 32),
            mask_token_id=4,
            vocab_size=model.vocab_size,
        ),
        batch_size=options.batch_size,
    )
    table = synthetic_rows(
        options.batch_size, options.sequence_length, model.vocab_size
    )
    rows = Rows(table.dtype, [table])
    dataset = Dataset(epath.Path("synthetic"), {}, rows, Rows(table.dtype, []))
    return config, pretraining_task(config, dataset)


def benchmark_train(options: argparse.Namespace) -> Figures:
    """The training step alone: masking, forward, backward, update, on one batch."""
    import jax

    from bert_jax.sharding import make_mesh, to_global, tree_shardings
    from bert_jax.training.optimizer import make_optimizer
    from bert_jax.training.state import initial_state, num_parameters
    from bert_jax.training.step import make_train_step

    config, task = synthetic_task(options)
    mesh = make_mesh(config.mesh, config.batch_size)
    optimizer = make_optimizer(config.optimizer, config.num_steps)
    state = jax.jit(
        functools.partial(initial_state, task.initialise, optimizer, config.seed)
    )()
    shardings = tree_shardings(mesh, state)
    step = make_train_step(task, config, mesh, shardings)
    state, rows = jax.device_put(state, shardings), task.batch(0)
    batch = to_global(rows, mesh)
    seconds = []
    for _ in range(1 + options.repeats):
        start = time.monotonic()
        state, scalars = jax.block_until_ready(step(state, batch))
        seconds.append(time.monotonic() - start)
    compile_seconds, *seconds = seconds
    median = statistics.median(seconds)
    flops = task.flops(rows)
    return {
        "parameters": num_parameters(state.params),
        "compile_seconds": compile_seconds,
        "step_seconds": median,
        "step_seconds_fastest": min(seconds),
        "step_seconds_slowest": max(seconds),
        "tokens_per_second": task.tokens(rows) / median,
        "sequences_per_second": config.batch_size / median,
        "model_flops_per_second": flops / median,
        "loss": float(scalars["loss"]),
        **device_figures(flops / median),
    }


def device_figures(flops_per_second: float) -> Figures:
    """What the devices are; of their peak, the share used; their peak memory."""
    import jax

    from bert_jax.flops import peak_flops_per_second

    device = jax.devices()[0]
    figures: Figures = {"device": device.device_kind, "devices": jax.device_count()}
    peak = peak_flops_per_second(device.device_kind)
    if peak is not None:
        figures["mfu"] = flops_per_second / peak / jax.device_count()
    memory = device.memory_stats() or {}
    if "peak_bytes_in_use" in memory:
        figures["device_peak_mib"] = memory["peak_bytes_in_use"] / (1 << 20)
    return figures


def benchmark_input(options: argparse.Namespace) -> Figures:
    """Rows from memory-mapped shards to NumPy batches, in random order, by tf.data.

    The plain iterator, used where TensorFlow is not installed, runs alternately.
    """
    from bert_jax.data.pipeline import row_numbers, stream
    from bert_jax.data.records import Rows, columns, write_rows

    number = options.rows
    table = synthetic_rows(number, options.sequence_length, vocab_size=30522)
    kinds = [False]
    if importlib.util.find_spec("tensorflow") is not None:
        kinds.append(True)
    rates: dict[bool, list[float]] = {kind: [] for kind in kinds}
    with tempfile.TemporaryDirectory() as folder:
        path = epath.Path(folder) / "rows.npy"
        write_rows(path, table)
        rows = Rows(table.dtype, [np.load(path, mmap_mode="r").view(np.ndarray)])

        def read(step: int) -> dict[str, np.ndarray]:
            size = options.batch_size
            positions = step * size + np.arange(size)
            return columns(rows.gather(row_numbers(number, 0, positions)))

        steps = max(2, number // options.batch_size)
        for _ in range(options.repeats):
            for kind in kinds:
                batches = stream(read, 0, steps, use_tensorflow=kind)
                next(batches)
                start = time.monotonic()
                tokens = sum(int(batch["end"].sum()) for batch in batches)
                rates[kind].append(tokens / (time.monotonic() - start))
    names = {False: "plain_tokens_per_second", True: "tf_data_tokens_per_second"}
    return {"rows": number} | {
        names[kind]: statistics.median(values) for kind, values in rates.items()
    }


def benchmark_prepare(options: argparse.Namespace) -> Figures:
    """Learn a vocabulary from text and prepare it as a dataset.

    The text is `--input`, or else the documentation of the installed packages.
    """
    from bert_jax.data.installed_documentation import write_corpus
    from bert_jax.data.prepare import prepare
    from bert_jax.vocabulary import train_vocabulary

    with tempfile.TemporaryDirectory() as folder:
        inputs = tuple(options.input)
        if not inputs:
            write_corpus(Path(folder) / "corpus")
            inputs = (str(Path(folder) / "corpus" / "*.txt"),)
        tokenizer, output = f"{folder}/vocab", f"{folder}/data"
        start = time.monotonic()
        train_vocabulary(
            VocabularyConfig(
                input=inputs, output=tokenizer, vocab_size=options.vocab_size
            )
        )
        vocabulary_seconds = time.monotonic() - start
        start = time.monotonic()
        manifest = prepare(
            PrepareConfig(
                input=inputs,
                tokenizer=tokenizer,
                output=output,
                sequence_length=options.sequence_length,
            )
        )
        prepare_seconds = time.monotonic() - start
    size = sum(source["size"] for source in manifest["sources"])
    return {
        "megabytes": size / 1e6,
        "vocabulary_seconds": vocabulary_seconds,
        "prepare_seconds": prepare_seconds,
        "megabytes_per_second": size / 1e6 / prepare_seconds,
        "counts": manifest["counts"],
        "largest_worker_mib": peak_memory_mib(resource.RUSAGE_CHILDREN),
    }


WHAT: dict[str, Callable[[argparse.Namespace], Figures]] = {
    "train": benchmark_train,
    "input": benchmark_input,
    "prepare": benchmark_prepare,
}


def positive(text: str) -> int:
    """The option's value as a whole number of at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} must be at least 1")
    return number


def parser() -> argparse.ArgumentParser:
    """The options; argparse, so that it runs where tyro is not installed."""
    top = argparse.ArgumentParser(
        prog="bert-jax benchmark", description=(__doc__ or "").split("\n")[0]
    )
    whats = top.add_subparsers(dest="what", required=True)
    commands: dict[str, argparse.ArgumentParser] = {}
    for name, function in WHAT.items():
        text = (function.__doc__ or "").split("\n")[0]
        commands[name] = command = whats.add_parser(name, help=text, description=text)
        command.add_argument("--sequence-length", type=positive, default=128)
        command.add_argument("--json", type=Path, help="write the figures here too")
    train, source, prepare = commands["train"], commands["input"], commands["prepare"]
    train.add_argument("--model", choices=list(PRESETS), default="base")
    train.add_argument("--batch-size", type=positive, default=8)
    train.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    train.add_argument("--repeats", type=positive, default=10)
    source.add_argument("--batch-size", type=positive, default=256)
    source.add_argument("--rows", type=positive, default=500_000)
    source.add_argument("--repeats", type=positive, default=5)
    prepare.add_argument("--input", nargs="+", default=[], help="text files")
    prepare.add_argument("--vocab-size", type=positive, default=8192)
    return top


def show(value: Any) -> str:
    """A figure as a person reads it."""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a table, and write JSON where asked."""
    options = parser().parse_args(arguments)
    asked = {k: v for k, v in vars(options).items() if k != "json"}
    figures = WHAT[options.what](options)
    figures |= {"peak_memory_mib": peak_memory_mib(), "machine": platform.machine()}
    for name, value in (asked | figures).items():
        print(f"{name:24} {show(value)}")
    if options.json:
        options.json.write_text(json.dumps(asked | figures, indent=2, default=str))
    return 0


if __name__ == "__main__":
    sys.exit(main())

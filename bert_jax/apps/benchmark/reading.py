"""Time the way from text to a dataset, and from its shards to NumPy batches."""

import importlib.util
import resource
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from etils import epath
from jaxtyping import Shaped

from bert_jax.apps.benchmark.figures import Figures, peak_memory_mib
from bert_jax.apps.benchmark.options import InputOptions, PrepareOptions
from bert_jax.config import PrepareConfig, VocabularyConfig
from bert_jax.data.installed_documentation import write_corpus
from bert_jax.data.pipeline import row_numbers, stream
from bert_jax.data.prepare import prepare
from bert_jax.data.records import Rows, columns, write_rows
from bert_jax.data.shards import row_dtype
from bert_jax.data.vocabulary import train_vocabulary


def synthetic_rows(
    num_rows: int, sequence_length: int, vocab_size: int
) -> Shaped[np.ndarray, " N"]:
    """Return full rows of random tokens, in the format of a prepared dataset."""
    generator = np.random.default_rng(0)
    rows = np.zeros(num_rows, row_dtype(sequence_length, vocab_size))
    shape = rows["tokens"].shape
    rows["tokens"] = generator.integers(5, vocab_size, shape, np.uint16)
    rows["second"] = sequence_length // 2
    rows["end"] = sequence_length
    rows["next_sentence_label"] = generator.integers(0, 2, (num_rows, 1))
    return rows


def benchmark_input(options: InputOptions) -> Figures:
    """Time reading rows from memory-mapped shards to NumPy batches, in random order.

    The plain iterator and, where TensorFlow is installed, tf.data take turns.
    """
    num_rows = options.rows
    table = synthetic_rows(num_rows, options.sequence_length, vocab_size=30522)
    readers = {"plain_tokens_per_second": False}
    if importlib.util.find_spec("tensorflow") is not None:
        readers["tf_data_tokens_per_second"] = True
    rates: dict[str, list[float]] = {name: [] for name in readers}
    with tempfile.TemporaryDirectory() as folder:
        path = epath.Path(folder) / "rows.npy"
        write_rows(path, table)
        rows = Rows(table.dtype, [np.load(path, mmap_mode="r").view(np.ndarray)])

        def read(step: int) -> dict[str, np.ndarray]:
            size = options.batch_size
            positions = step * size + np.arange(size)
            return columns(rows.gather(row_numbers(num_rows, 0, positions)))

        steps = max(2, num_rows // options.batch_size)
        for _ in range(options.repeats):
            for name, use_tensorflow in readers.items():
                batches = stream(read, 0, steps, use_tensorflow=use_tensorflow)
                next(batches)
                start = time.perf_counter()
                tokens = sum(int(batch["end"].sum()) for batch in batches)
                rates[name].append(tokens / (time.perf_counter() - start))
    return {"rows": num_rows} | {
        name: statistics.median(values) for name, values in rates.items()
    }


def benchmark_prepare(options: PrepareOptions) -> Figures:
    """Time learning a vocabulary from text, and preparing the text as a dataset."""
    with tempfile.TemporaryDirectory() as folder:
        inputs = tuple(options.input)
        if not inputs:
            write_corpus(Path(folder) / "corpus")
            inputs = (str(Path(folder) / "corpus" / "*.txt"),)
        vocabulary = VocabularyConfig(
            input=inputs, output=f"{folder}/vocab", vocab_size=options.vocab_size
        )
        rows = PrepareConfig(
            input=inputs,
            tokenizer=vocabulary.output,
            output=f"{folder}/data",
            sequence_length=options.sequence_length,
        )
        start = time.perf_counter()
        train_vocabulary(vocabulary)
        middle = time.perf_counter()
        manifest = prepare(rows)
        prepare_seconds = time.perf_counter() - middle
    size = sum(source["size"] for source in manifest["sources"])
    return {
        "megabytes": size / 1e6,
        "vocabulary_seconds": middle - start,
        "prepare_seconds": prepare_seconds,
        "megabytes_per_second": size / 1e6 / prepare_seconds,
        "counts": manifest["counts"],
        "largest_worker_mib": peak_memory_mib(resource.RUSAGE_CHILDREN),
    }

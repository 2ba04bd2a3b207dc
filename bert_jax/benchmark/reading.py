"""The input pipeline: rows from memory-mapped shards to NumPy batches."""

import argparse
import importlib.util
import statistics
import tempfile
import time

import numpy as np
from etils import epath

from bert_jax.benchmark.figures import Figures
from bert_jax.benchmark.synthetic import synthetic_rows
from bert_jax.data.pipeline import row_numbers, stream
from bert_jax.data.records import Rows, columns, write_rows


def benchmark_input(options: argparse.Namespace) -> Figures:
    """Rows from memory-mapped shards to NumPy batches, in random order, by tf.data.

    The plain iterator, used where TensorFlow is not installed, runs alternately.
    """
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
                start = time.perf_counter()
                tokens = sum(int(batch["end"].sum()) for batch in batches)
                rates[kind].append(tokens / (time.perf_counter() - start))
    names = {False: "plain_tokens_per_second", True: "tf_data_tokens_per_second"}
    return {"rows": number} | {
        names[kind]: statistics.median(values) for kind, values in rates.items()
    }

"""Time the way from text to a vocabulary and to a dataset."""

import resource
import tempfile
import time
from pathlib import Path

from bert_jax.benchmark.figures import Figures, peak_memory_mib
from bert_jax.benchmark.options import PrepareOptions
from bert_jax.config import PrepareConfig, VocabularyConfig
from bert_jax.data.prepare import prepare
from bert_jax.data.sources import write_documentation
from bert_jax.data.vocabulary import train_vocabulary


def benchmark_prepare(options: PrepareOptions) -> Figures:
    """Time learning a vocabulary from text, and preparing the text as a dataset.

    Without `--input` the text is the documentation of the installed packages.
    """
    with tempfile.TemporaryDirectory() as folder:
        inputs = tuple(options.input)
        if not inputs:
            write_documentation(Path(folder) / "corpus")
            inputs = (str(Path(folder) / "corpus" / "*.txt"),)
        tokenizer, output = f"{folder}/vocab", f"{folder}/data"
        start = time.perf_counter()
        vocabulary = VocabularyConfig(
            input=inputs, output=tokenizer, vocab_size=options.vocab_size
        )
        train_vocabulary(vocabulary)
        vocabulary_seconds = time.perf_counter() - start
        start = time.perf_counter()
        length = options.sequence_length
        rows = PrepareConfig(
            input=inputs, tokenizer=tokenizer, output=output, sequence_length=length
        )
        manifest = prepare(rows)
        prepare_seconds = time.perf_counter() - start
    size = sum(source["size"] for source in manifest["sources"])
    return {
        "megabytes": size / 1e6,
        "vocabulary_seconds": vocabulary_seconds,
        "prepare_seconds": prepare_seconds,
        "megabytes_per_second": size / 1e6 / prepare_seconds,
        "counts": manifest["counts"],
        "largest_worker_mib": peak_memory_mib(resource.RUSAGE_CHILDREN),
    }

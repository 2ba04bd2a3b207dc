"""Time the way from text to a vocabulary and to a dataset."""

import resource
import tempfile
import time
from pathlib import Path

from bert_jax.apps.benchmark.figures import Figures, peak_memory_mib
from bert_jax.apps.benchmark.options import PrepareOptions
from bert_jax.config import PrepareConfig, VocabularyConfig
from bert_jax.data.installed_documentation import write_corpus
from bert_jax.data.prepare import prepare
from bert_jax.data.vocabulary import train_vocabulary


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

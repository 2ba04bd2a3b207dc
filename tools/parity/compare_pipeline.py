"""Compare the rate of `classify` with that of transformers' pipeline.

It is no test: processes of their own take turns, and each prints texts a second and the
cores that it kept busy. The file has one text a line:

    python tools/parity/compare_pipeline.py MODEL texts.txt --turns 3

MODEL is a directory of a classifier that both libraries read.
"""

import argparse
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

LIBRARIES = ("bert_jax", "transformers")


def ours(model: str, length: int, batch_size: int) -> Callable[[list[str]], object]:
    import dataclasses

    import bert_jax

    warnings.simplefilter("ignore")  # of texts longer than those of pretraining
    bert = bert_jax.load(model)
    bert.data = dataclasses.replace(bert.data, max_length=length)
    return lambda texts: bert.classify(texts, batch_size=batch_size)


def theirs(model: str, length: int, batch_size: int) -> Callable[[list[str]], object]:
    from transformers import pipeline

    classify = pipeline("text-classification", model=model, device="cpu")
    options = {"batch_size": batch_size, "truncation": True, "max_length": length}
    return lambda texts: classify(texts, **options)


def measure(classify: Callable[[list[str]], object], texts: list[str]) -> str:
    """The second of two passes, so that programs are compiled."""
    classify(texts)
    start, cpu = time.perf_counter(), time.process_time()
    classify(texts)
    seconds = time.perf_counter() - start
    cores = (time.process_time() - cpu) / seconds
    return f"{len(texts) / seconds:.1f} texts/s, {cores:.2f} cores"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("texts", type=Path)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--only", choices=LIBRARIES, help="measure it in this process")
    options = parser.parse_args()
    if options.only:
        load = {"bert_jax": ours, "transformers": theirs}[options.only]
        classify = load(options.model, options.length, options.batch_size)
        texts = options.texts.read_text().splitlines()
        print(measure(classify, [text for text in texts if text.strip()]))
        return
    for turn in range(options.turns):
        for name in LIBRARIES:
            command = [sys.executable, *sys.argv, "--only", name]
            result = subprocess.run(command, check=True, capture_output=True, text=True)
            print(f"turn {turn}  {name:12}  {result.stdout.splitlines()[-1]}")


if __name__ == "__main__":
    main()

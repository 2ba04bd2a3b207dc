"""Compare a text classifier in JAX, ONNX Runtime, and ONNX Runtime with 8-bit integers.

It is no test: it prints accuracy, labels that differ, and rates, in alternating turns,
by the CPU time of one core, so that other processes hardly change it:

    taskset -c 0 python tools/parity/compare_onnx.py runs/polarity test.csv

The table has the columns `text` and `label`.
"""

import argparse
import csv
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import numpy as np
import onnxruntime
from etils import epath
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.transformers import optimizer
from tokenizers import Tokenizer

from bert_jax.apps.convert.onnx_export import export_onnx
from bert_jax.model.bert import compute
from bert_jax.model.inputs import Inputs
from bert_jax.pretrained import load_pretrained

Arrays = list[np.ndarray]
Run = Callable[[Arrays], np.ndarray]


def jax_run(checkpoint: str) -> Run:
    model = load_pretrained(checkpoint)
    params = jax.device_put(model.params)

    @jax.jit
    def scores(ids, mask, segments):
        inputs = Inputs(ids, segments, mask > 0)
        return compute(model.config, params, "classifier_scores", inputs)

    return lambda arrays: np.asarray(scores(*(x.astype(np.int32) for x in arrays)))


def onnx_run(path: Path) -> Run:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options)
    names = "input_ids", "attention_mask", "token_type_ids"
    return lambda arrays: session.run(None, dict(zip(names, arrays, strict=True)))[0]


def make_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the name of each variant of the model, and its file."""
    model = folder / "model.onnx"
    yield "ONNX Runtime", model
    sizes = json.loads((folder / "config.json").read_text())
    heads, width = sizes["num_attention_heads"], sizes["hidden_size"]
    fused = optimizer.optimize_model(str(model), "bert", heads, width, opt_level=0)
    fused.save_model_to_file(str(folder / "fused.onnx"))
    yield "fused", folder / "fused.onnx"
    for name, per_channel in (("int8 per tensor", False), ("int8 per channel", True)):
        path = folder / f"{name}.onnx"
        quantize_dynamic(
            model, path, per_channel=per_channel, weight_type=QuantType.QInt8
        )
        yield name, path


def batches(tokenizer: Tokenizer, texts: list[str], size: int) -> Iterator[Arrays]:
    for start in range(0, len(texts), size):
        rows = tokenizer.encode_batch(texts[start : start + size])
        columns = ("ids", "attention_mask", "type_ids")
        yield [np.array([getattr(r, c) for r in rows], np.int64) for c in columns]


def seconds_per_row(run: Run, chosen: list[Arrays]) -> float:
    start = time.process_time()
    for arrays in chosen:
        run(arrays)
    return (time.process_time() - start) / sum(len(arrays[0]) for arrays in chosen)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint")
    parser.add_argument("table")
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp()) / "onnx"
    export_onnx(options.checkpoint, epath.Path(folder))
    ways = {"JAX": jax_run(options.checkpoint)}
    sizes = {}
    for name, path in make_files(folder):
        ways[name], sizes[name] = onnx_run(path), os.path.getsize(path)
    with open(options.table, newline="") as file:
        rows = list(csv.DictReader(file))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    rows.sort(key=lambda row: len(tokenizer.encode(row["text"]).ids))
    labels = json.loads((folder / "config.json").read_text())["label2id"]
    gold = np.array([labels[row["label"]] for row in rows])
    texts = [row["text"] for row in rows]
    single = list(batches(tokenizer, texts[:: len(texts) // 10], 1))
    tokenizer.enable_padding(pad_to_multiple_of=16)
    full = list(batches(tokenizer, texts, 32))
    chosen = {name: np.concatenate([*map(run, full)]) for name, run in ways.items()}
    for run in ways.values():  # JAX compiles each length
        seconds_per_row(run, single)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(options.turns):
        for name, run in ways.items():
            pair = seconds_per_row(run, full[::10]), seconds_per_row(run, single)
            times[name].append(pair)
    for name, scores in chosen.items():
        best, reference = scores.argmax(1), chosen["JAX"]
        many, one = map(statistics.median, zip(*times[name], strict=True))
        print(
            f"{name:17} accuracy {(best == gold).mean():.4f}, "
            f"{(best != reference.argmax(1)).sum()} other labels, largest difference "
            f"{np.abs(scores - reference).max():.1g}, {1 / many:.1f} rows/s, one text "
            f"{one * 1e3:.1f} ms, {sizes.get(name, 0) / 1e6:.1f} MB"
        )


if __name__ == "__main__":
    main()

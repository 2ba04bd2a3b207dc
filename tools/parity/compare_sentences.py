"""Compare training on pairs with sentence-transformers: retrieval scores and rates.

It is no test. Both start from one model, and learn from the same pairs with the same
batch, rate, epochs and length; each model then searches a directory in BEIR's form:

    python tools/parity/compare_sentences.py MODEL train.csv validation.csv BEIR

MODEL is a directory that sentence-transformers reads; the tables have the columns
`question` and `context`. Nothing is chosen by the validation, which a run needs.
"""

import argparse
import csv
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.losses import MultipleNegativesRankingLoss

import bert_jax
from bert_jax.config import ExamplesConfig, FinetuneConfig, OptimizerConfig
from bert_jax.inference.retrieval import SearchRequest, search_files

COLUMNS = ("question", "context")
LOG_EVERY = 10


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("train", type=Path)
    parser.add_argument("validation")
    parser.add_argument("beir")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rate", type=float, default=5e-4)
    parser.add_argument("--length", type=int, default=64)
    return parser.parse_args()


class Times(bert_jax.Callback):
    """The times of the metrics' lines."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_log(self, step: int, scalars: Mapping[str, float]) -> None:
        self.times.append(time.perf_counter())


def train_ours(options: argparse.Namespace, seed: int, workdir: str) -> float:
    """Train; return the median of pairs a second between two lines of the metrics."""
    times = Times()
    bert_jax.finetune(
        FinetuneConfig(
            task="sentence-pairs",
            init_from=options.model,
            data=ExamplesConfig(
                train=str(options.train),
                validation=options.validation,
                text_columns=COLUMNS,
                max_length=options.length,
                num_buckets=1,
            ),
            batch_size=options.batch_size,
            num_epochs=options.epochs,
            seed=seed,
            log_every=LOG_EVERY,
            eval_every=1_000_000,  # after the last step only
            optimizer=OptimizerConfig(
                peak_learning_rate=options.rate, warmup_steps=0, warmup_share=0.1
            ),
        ),
        workdir,
        callbacks=[times],
    )
    seconds = statistics.median(np.diff(times.times))
    return LOG_EVERY * options.batch_size / seconds


def batches(texts: list[dict[str, str]], size: int, steps: int, seed: int) -> list:
    """Batches without repeated second texts, as BatchSamplers.NO_DUPLICATES."""
    rng, queue, made = np.random.default_rng(seed), [], []
    for _ in range(steps):
        batch, seen, skipped = [], set(), []
        while len(batch) < size:
            queue = queue or rng.permutation(len(texts)).tolist()
            row = texts[queue.pop()]
            if row["context"] in seen:
                skipped.append(texts.index(row))
            else:
                batch.append(row)
                seen.add(row["context"])
        queue += skipped
        made.append(batch)
    return made


def train_theirs(options: argparse.Namespace, seed: int, output: str) -> float:
    """As `train_ours`, with the same AdamW, warm-up and clipping."""
    torch.manual_seed(seed)
    with options.train.open() as file:
        texts = list(csv.DictReader(file))
    model = SentenceTransformer(options.model, device="cpu").train()
    model.max_seq_length = options.length
    loss_of = MultipleNegativesRankingLoss(model, scale=20.0)
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": 0.01}]
    groups.append({"params": others, "weight_decay": 0.0})
    optimizer = torch.optim.AdamW(groups, lr=options.rate, eps=1e-6)
    steps = -(-len(texts) * options.epochs // options.batch_size)
    warm = max(1, steps // 10)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda n: min((n + 1) / warm, (steps - n) / max(1, steps - warm))
    )
    seconds = []
    for batch in batches(texts, options.batch_size, steps, seed):
        start = time.perf_counter()
        sides = [model.preprocess([row[name] for row in batch]) for name in COLUMNS]
        loss_of(sides, None).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        seconds.append(time.perf_counter() - start)
    model.eval().save(output)
    return options.batch_size / statistics.median(seconds)


def main() -> None:
    options = parse()
    with tempfile.TemporaryDirectory() as folder:
        for seed in options.seeds:
            for name, train in (("ours", train_ours), ("theirs", train_theirs)):
                output = f"{folder}/{name}-{seed}"
                rate = train(options, seed, output)
                request = SearchRequest(input=options.beir, model=output)
                scores, _ = search_files(request)
                line = {key: round(value, 4) for key, value in scores.items()}
                print(f"seed {seed}  {name:7} {rate:6.1f} pairs/s  {line}", flush=True)


if __name__ == "__main__":
    main()

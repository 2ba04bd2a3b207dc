"""Compare an exact search with FAISS's flat index and with NumPy.

It is no test: it draws random vectors of length 1, searches them by each in turns, and
prints wall and CPU time, and how many places have the same vector:

    python tools/parity/compare_search.py --vectors 1000000 --queries 1000
"""

import argparse
import time
from collections.abc import Callable

import faiss
import numpy as np

from bert_jax.inference.search import nearest

BLOCK = 16384


def unit_vectors(rng: np.random.Generator, count: int, width: int) -> np.ndarray:
    vectors = rng.standard_normal((count, width), dtype=np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def numpy_search(queries: np.ndarray, corpus: np.ndarray, k: int) -> np.ndarray:
    """Block by block, as `nearest`."""
    best = np.full((len(queries), k), -np.inf, np.float32)
    rows = np.zeros((len(queries), k), np.int64)
    for start in range(0, len(corpus), BLOCK):
        cosines = queries @ corpus[start : start + BLOCK].T
        places = np.argpartition(-cosines, k - 1, axis=1)[:, :k]
        values = np.take_along_axis(cosines, places, axis=1)
        both = np.concatenate([best, values], axis=1)
        numbers = np.concatenate([rows, start + places], axis=1)
        order = np.argsort(-both, axis=1, kind="stable")[:, :k]
        best = np.take_along_axis(both, order, axis=1)
        rows = np.take_along_axis(numbers, order, axis=1)
    return rows


def timed(name: str, search: Callable[[], np.ndarray]) -> np.ndarray:
    start, cpu = time.perf_counter(), time.process_time()
    rows = search()
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    print(f"{name:9} {wall:6.1f} s  {cpu:6.1f} s of CPU", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--vectors", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    rng, k = np.random.default_rng(0), options.k
    corpus = unit_vectors(rng, options.vectors, options.width)
    queries = unit_vectors(rng, options.queries, options.width)
    index = faiss.IndexFlatIP(options.width)
    index.add(corpus)
    nearest(queries, corpus[: 2 * BLOCK], k)  # compiles it
    for _ in range(options.turns):
        ours = timed("bert_jax", lambda: nearest(queries, corpus, k).indices)
        flat = timed("FAISS", lambda: index.search(queries, k)[1])
        plain = timed("NumPy", lambda: numpy_search(queries, corpus, k))
    same = [float((ours == rows).mean()) for rows in (flat, plain)]
    print(f"the same as FAISS {same[0]:.2%}, as NumPy {same[1]:.2%}")


if __name__ == "__main__":
    main()

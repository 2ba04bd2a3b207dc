"""Vectors of texts, and the nearest neighbours of queries among them.

A vector is the mean of a text's tokens in the last layer, or what the own files of a
model of sentence-transformers say; the cosine of two vectors is how alike texts are.
python examples/embeddings.py --model MODEL --texts FILE --queries "one" "another"
MODEL: a workdir or hf:sentence-transformers/all-MiniLM-L6-v2. FILE: one text a line.
A model that was not trained for similarity gives all texts nearly the same direction;
--center subtracts it. With --cache FILE.npy the vectors are kept for the next queries.
"""

from pathlib import Path

import numpy as np
import tyro

import bert_jax


def normalized(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def nearest(vectors, queries, k):
    """The k rows of `vectors` with the largest cosine to each query, and these."""
    cosines = normalized(queries) @ normalized(vectors).T  # [Q, N], exact
    best = np.argsort(-cosines, axis=1, kind="stable")[:, :k]
    return best, np.take_along_axis(cosines, best, axis=1)


def main(
    model: str,
    texts: str,
    queries: tuple[str, ...],
    k: int = 5,
    center: bool = False,
    cache: str = "",
):
    bert = bert_jax.load(model)
    lines = [line for line in Path(texts).read_text().splitlines() if line.strip()]
    if cache and Path(cache).exists():
        vectors = np.load(cache)  # float32 [N, D]
    else:
        vectors = bert.embed(lines, batch_size=64)
        if cache:
            np.save(cache, vectors)
    mean = vectors.mean(0) if center else np.zeros_like(vectors[0])
    best, cosines = nearest(vectors - mean, bert.embed(queries) - mean, k)
    return [
        [(lines[row], float(cosine)) for row, cosine in zip(*pairs, strict=True)]
        for pairs in zip(best, cosines, strict=True)
    ]


if __name__ == "__main__":
    for neighbours in tyro.cli(main, description=__doc__):
        print(*(f"{cosine:.3f}  {text}" for text, cosine in neighbours), "", sep="\n")

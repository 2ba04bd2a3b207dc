"""Which documents are held out, and the order of the others in each pass over them.

Both follow from the seed, and from each document's source and its number in it.
"""

import hashlib
import math
from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Float64, Int64, UInt64

from bert_jax.config import PrepareConfig
from bert_jax.data.corpus import Corpus
from bert_jax.data.dataset_manifest import SPLITS


def shuffle(
    config: PrepareConfig, number: int, chosen: Bool[np.ndarray, " N"]
) -> Int64[np.ndarray, " M"]:
    """The chosen documents, in the order of pass `number`."""
    # Three numbers, but the first of them not a split, are no chunk's seed.
    seed = (config.seed, len(SPLITS), number) if number else config.seed
    order = np.random.default_rng(seed).permutation(len(chosen))
    return order[chosen[order]]


def num_passes(config: PrepareConfig) -> int:
    """How many passes the most used documents need."""
    return math.ceil(_uses(config).max())


def _uses(config: PrepareConfig) -> Float64[np.ndarray, " I"]:
    """How often the documents of each input are used, on average."""
    weights = config.weights or (1.0,) * len(config.input)
    # 0.7 * 10 must not be a bit more than 7.
    return np.round(np.array(weights, np.float64) * config.repeats, 9)


def passes(
    config: PrepareConfig, corpus: Corpus, chosen: Bool[np.ndarray, " N"]
) -> list[Int64[np.ndarray, " _"]]:
    """The order of the chosen documents in each pass.

    A document to be used 2.3 times is used twice or, three in ten, thrice, by a hash of
    it. Its uses lie evenly among the passes, the first anywhere, so that all passes
    have much the same mixture.

    Raises:
        ValueError: a pass is left with too few documents.
    """
    total = num_passes(config)
    uses = _uses(config)[corpus.inputs]
    if (uses == total).all():
        return [shuffle(config, number, chosen) for number in range(total)]
    spread = uses[corpus.documents.file] + _fractions(config.seed, corpus, b"copies")
    copies = np.floor(spread).astype(np.int64)
    first = _fractions(config.seed, corpus, b"first")
    orders = []
    for number in range(total):
        # Copy j is in pass floor((j + first) * total / copies): is any in this one?
        before, up_to = (
            np.ceil(end * copies / total - first) for end in (number, number + 1)
        )
        orders.append(shuffle(config, number, chosen & (up_to > before)))
        if len(orders[-1]) < 2:
            raise ValueError(
                f"weights={config.weights} and repeats={config.repeats} leave "
                f"{len(orders[-1])} documents in one of {total} passes, but it needs "
                "two; raise them or add documents."
            )
    return orders


def held_out(config: PrepareConfig, corpus: Corpus) -> Bool[np.ndarray, " N"]:
    """Which documents are for validation: at least two, unless none were asked for.

    A document's fate hangs on its source's name and its number in it, not on the rest
    of the corpus.
    """
    count, fraction = len(corpus.documents), config.validation_fraction
    if not fraction:
        return np.zeros(count, bool)
    if count >= 4:
        draws = _hashes(config.seed, corpus) / 2.0**64
        chosen = draws <= max(fraction, np.partition(draws, 1)[1])
        if count - chosen.sum() >= 2:
            return chosen
    raise ValueError(
        f"validation_fraction={fraction} of {count} documents does not leave at least "
        "two for training and two for validation; add documents, or set it to 0."
    )


def _fractions(seed: int, corpus: Corpus, purpose: bytes) -> Float64[np.ndarray, " N"]:
    """A number in [0, 1) for each document, exact when a small whole one is added."""
    return (_hashes(seed, corpus, purpose) >> np.uint64(32)) / 2.0**32


def _hashes(
    seed: int, corpus: Corpus, purpose: bytes = b""
) -> UInt64[np.ndarray, " N"]:
    """A number for each document, whose bits are as if drawn."""
    files = corpus.documents.file
    first = np.searchsorted(files, files)

    def draw() -> Iterator[int]:
        for number, file in enumerate(files):
            identity = f"{seed} {number - first[number]} {corpus.sources[file]['name']}"
            digest = hashlib.blake2b(identity.encode(), digest_size=8, person=purpose)
            yield int.from_bytes(digest.digest())

    return np.fromiter(draw(), np.uint64, len(files))

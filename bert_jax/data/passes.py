"""Hold out validation documents, and order the others for each training pass.

Both depend only on the seed, and on each document's source name and its index there.
"""

import hashlib
import math

import numpy as np
from jaxtyping import Bool, Float64, Int64, UInt64

from bert_jax.config import PrepareConfig
from bert_jax.data.corpus import Corpus
from bert_jax.data.dataset_manifest import SPLITS
from bert_jax.terminal.messages import say


def shuffle(
    config: PrepareConfig, number: int, chosen: Bool[np.ndarray, " N"]
) -> Int64[np.ndarray, " M"]:
    """Return the chosen documents in the order of pass `number`."""
    # A chunk's seed has a split's index in the middle, so this is no chunk's seed.
    seed = (config.seed, len(SPLITS), number) if number else config.seed
    order = np.random.default_rng(seed).permutation(len(chosen))
    return order[chosen[order]]


def num_passes(config: PrepareConfig) -> int:
    """Return the number of passes that the most used documents need."""
    return math.ceil(_uses(config).max())


def _uses(config: PrepareConfig) -> Float64[np.ndarray, " I"]:
    """Return the average number of times that each input's documents are used."""
    weights = config.weights or (1.0,) * len(config.input)
    # Round, because 0.7 * 10 must not be slightly more than 7.
    return np.round(np.array(weights, np.float64) * config.repeats, 9)


def passes(
    config: PrepareConfig, corpus: Corpus, chosen: Bool[np.ndarray, " N"]
) -> list[Int64[np.ndarray, " _"]]:
    """Return the order of the chosen documents in each pass.

    If documents are to be used 2.3 times, a hash selects three in ten that are used
    three times; the others are used twice. The uses of a document are spread evenly
    over the passes from a hashed start, so that all passes have a similar mixture.
    Raise ValueError if a pass has too few documents.
    """
    total = num_passes(config)
    uses = _uses(config)[corpus.inputs]
    if (uses == total).all():
        return [shuffle(config, number, chosen) for number in range(total)]
    fractions = _fractions(config.seed, corpus, b"copies")
    copies = np.floor(uses[corpus.documents.file] + fractions).astype(np.int64)
    first = _fractions(config.seed, corpus, b"first")
    orders = []
    for number in range(total):
        # Copy j is in pass floor((j + first) * total / copies). Count the copies before
        # this pass and before the next; they differ if the document is in this pass.
        before = np.ceil(number * copies / total - first)
        before_next = np.ceil((number + 1) * copies / total - first)
        orders.append(shuffle(config, number, chosen & (before_next > before)))
        if len(orders[-1]) < 2:
            raise ValueError(
                f"weights={config.weights} and repeats={config.repeats} leave "
                f"{len(orders[-1])} documents in one of {total} passes, but it needs "
                "two; raise them or add documents."
            )
    return orders


def held_out(config: PrepareConfig, corpus: Corpus) -> Bool[np.ndarray, " N"]:
    """Return the mask of validation documents: at least two, or none if not wanted.

    The split of a document depends only on the seed, its source name and its index
    among those of its source that are no duplicates, and not on the rest of the corpus;
    where the fraction chooses fewer than two, a line says that it does. Raise
    ValueError if there are too few documents for two splits.
    """
    count, fraction = len(corpus.documents), config.validation_fraction
    if not fraction:
        return np.zeros(count, bool)
    if count >= 4:
        draws = _hashes(config.seed, corpus) / 2.0**64
        if (least := np.partition(draws, 1)[1]) > fraction:
            say(
                f"validation_fraction={fraction} of {count} documents chooses fewer "
                "than two: those of the two smallest hashes are held out, until more "
                "documents are added."
            )
        chosen = draws <= max(fraction, least)
        if count - chosen.sum() >= 2:
            return chosen
    raise ValueError(
        f"validation_fraction={fraction} of {count} documents{corpus.without_copies} "
        "does not leave at least two for training and two for validation; add "
        "documents, or set it to 0."
    )


def _fractions(seed: int, corpus: Corpus, purpose: bytes) -> Float64[np.ndarray, " N"]:
    """Return a hash in [0, 1) of each document, exact after adding a small integer."""
    return (_hashes(seed, corpus, purpose) >> np.uint64(32)) / 2.0**32


def _hashes(
    seed: int, corpus: Corpus, purpose: bytes = b""
) -> UInt64[np.ndarray, " N"]:
    files = corpus.documents.file
    places = np.arange(len(files)) - np.searchsorted(files, files)
    hashes = np.empty(len(files), np.uint64)
    for number, (file, place) in enumerate(zip(files, places, strict=True)):
        identity = f"{seed} {place} {corpus.sources[file]['name']}".encode()
        digest = hashlib.blake2b(identity, digest_size=8, person=purpose).digest()
        hashes[number] = int.from_bytes(digest)
    return hashes

"""Remove exact duplicates: documents and paragraphs that occur earlier in the corpus.

Texts are compared by 64-bit hashes. Among a thousand million different texts, the
probability that any two have the same hash is 3 %.
"""

import array
import collections
import hashlib

from bert_jax.tables.lines import split_lines


class TextHashes:
    """A set of text hashes, in 12 to 24 bytes each: a table with linear probing.

    While the table is resized, the old table of half its size is in memory too.
    """

    def __init__(self) -> None:
        self._slots = array.array("Q", [0]) * 1024  # 0: free
        self._count = 0

    def add(self, text: str) -> bool:
        """Add a text; return whether it is new. All white space counts as equal."""
        folded = " ".join(text.split()).encode(errors="surrogateescape")
        digest = hashlib.blake2b(folded, digest_size=8).digest()
        key = int.from_bytes(digest) or 1
        place = self._place(key)
        if self._slots[place]:
            return False
        self._slots[place] = key
        self._count += 1
        if 3 * self._count > 2 * len(self._slots):
            old = self._slots
            self._slots = array.array("Q", [0]) * (2 * len(old))
            for key in filter(None, old):
                self._slots[self._place(key)] = key
        return True

    def _place(self, key: int) -> int:
        """Return the slot that holds the key, or else the free slot for it."""
        slots, mask = self._slots, len(self._slots) - 1
        place = key & mask
        while slots[place] and slots[place] != key:
            place = (place + 1) & mask
        return place


class Deduplicator:
    """Removes duplicates in one pass over a corpus."""

    def __init__(self, paragraphs: bool) -> None:
        """With `paragraphs`, also remove duplicate lines that are not blank."""
        self._documents = TextHashes()
        self._paragraphs = TextHashes() if paragraphs else None

    def keep(self, content: bytes, dropped: collections.Counter[str]) -> bytes:
        """Return the new text of a document, or nothing; count what is dropped."""
        text = content.decode(errors="surrogateescape")
        if not self._documents.add(text):
            dropped["duplicate documents"] += 1
            return b""
        if self._paragraphs is None:
            return content
        lines = [line for line in split_lines(text) if line.strip()]
        new = [line for line in lines if self._paragraphs.add(line)]
        dropped["duplicate paragraphs"] += len(lines) - len(new)
        if not new:
            dropped["documents of duplicate paragraphs"] += 1
        return "\n".join(new).encode(errors="surrogateescape")

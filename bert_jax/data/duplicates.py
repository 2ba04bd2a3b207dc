"""Exact duplicates: documents and paragraphs that came up before in the corpus.

Text is remembered by a hash of 64 bits. Among a thousand million texts, the chance that
any two different ones share theirs is 3 %.
"""

import array
import collections
import hashlib

from bert_jax.data.documents import split_lines


class Seen:
    """Hashes of texts, in 12 to 24 bytes each: a table with linear probing.

    While the table grows, the old one of half its size is there as well.
    """

    def __init__(self) -> None:
        self._slots = array.array("Q", [0]) * 1024  # 0: free
        self._count = 0

    def add(self, text: str) -> bool:
        """Remember a text; whether it is new. White space of any kind is alike."""
        folded = " ".join(text.split()).encode(errors="surrogateescape")
        digest = hashlib.blake2b(folded, digest_size=8).digest()
        key = int.from_bytes(digest) or 1
        place = self._place(key)
        if self._slots[place]:
            return False
        self._slots[place] = key
        self._count += 1
        if 3 * self._count > 2 * len(self._slots):
            old, self._slots = (
                self._slots,
                array.array("Q", [0]) * (2 * len(self._slots)),
            )
            for key in old:
                if key:
                    self._slots[self._place(key)] = key
        return True

    def _place(self, key: int) -> int:
        """The slot that holds the key, or else the one that is free for it."""
        slots, mask = self._slots, len(self._slots) - 1
        place = key & mask
        while slots[place] and slots[place] != key:
            place = (place + 1) & mask
        return place


class Deduplicator:
    """Goes through a corpus once, and leaves out what it has met before."""

    def __init__(self, paragraphs: bool) -> None:
        """With `paragraphs`, each line that is not blank is one."""
        self._documents = Seen()
        self._paragraphs = Seen() if paragraphs else None

    def keep(self, content: bytes, dropped: collections.Counter[str]) -> bytes:
        """What is new in a document, perhaps nothing; the rest is counted."""
        text = content.decode(errors="surrogateescape")
        if not self._documents.add(text):
            dropped["duplicate documents"] += 1
            return b""
        if self._paragraphs is None:
            return content
        lines = [line for line in split_lines(text) if line.strip()]
        fresh = [line for line in lines if self._paragraphs.add(line)]
        dropped["duplicate paragraphs"] += len(lines) - len(fresh)
        if not fresh:
            dropped["documents of duplicate paragraphs"] += 1
        return "\n".join(fresh).encode(errors="surrogateescape")

"""Exact duplicates."""

import collections
import hashlib

from hypothesis import given
from hypothesis import strategies as st

from bert_jax.data.duplicates import Deduplicator, TextHashes


@given(st.lists(st.text("ab \n\u00a0", max_size=4)))
def test_seen_is_a_set_of_texts_but_for_white_space(texts):
    seen, known = TextHashes(), set()
    for text in texts:
        assert seen.add(text) == (" ".join(text.split()) not in known)
        known.add(" ".join(text.split()))


def test_seen_grows_and_forgets_nothing():
    seen = TextHashes()
    assert all(seen.add(str(number)) for number in range(20_000))
    assert not any(seen.add(str(number)) for number in range(20_000))
    assert all(seen.add(str(number)) for number in range(20_000, 21_000))


def test_a_hash_of_zero_is_one_like_any_other(monkeypatch):
    class Zero:
        def digest(self):
            return bytes(8)

    seen = TextHashes()
    assert seen.add("a")
    monkeypatch.setattr(hashlib, "blake2b", lambda *args, **options: Zero())
    assert [seen.add("b"), seen.add("b")] == [True, False]


def keep(paragraphs, *documents):
    dropped = collections.Counter()
    deduplicator = Deduplicator(paragraphs)
    kept = [deduplicator.keep(document, dropped) for document in documents]
    return kept, {name: count for name, count in dropped.items() if count}


def test_documents_are_kept_once():
    kept, dropped = keep(False, b"a b\nc", b"a  b c\r\n", b"a b\nC", b"a b\nc")
    assert kept == [b"a b\nc", b"", b"a b\nC", b""]
    assert dropped == {"duplicate documents": 2}


def test_paragraphs_are_kept_once_and_those_of_duplicates_not_counted_again():
    documents = [b"one\n two\n\nthree\r", b"one\ntwo 3", b"one\ntwo\nthree"]
    documents += [b"Four\n two\rfive", b"five\nFour", b"six\nsix\ncaf\xe9", b"caf\xe9"]
    kept, dropped = keep(True, *documents)
    assert kept == [
        b"one\n two\nthree",
        b"two 3",
        b"",
        b"Four\nfive",
        b"",
        b"six\ncaf\xe9",
        b"",
    ]
    assert dropped == {
        "duplicate documents": 1,
        "duplicate paragraphs": 1 + 1 + 2 + 1 + 1,
        "documents of duplicate paragraphs": 2,
    }

"""Standard input: lines in chunks of those that have come."""

import os
import sys

from bert_jax.tables.lines import chunks, read_lines


def test_a_chunk_has_the_lines_that_have_come(monkeypatch):
    reading, writing = os.pipe()
    with os.fdopen(reading) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        found = chunks("-", read_lines("-"), 3)
        os.write(writing, b"one\r\ntwo\nthr")
        assert next(found) == ["one", "two"]
        os.write(writing, b"ee\n4\n\n6\n7\nthe end")
        assert next(found) == ["three", "4", ""]
        assert next(found) == ["6", "7"]
        os.close(writing)
        assert [*found] == [["the end"]]


def test_a_file_is_read_in_whole_chunks(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("1\n2\n3\n4\n5")
    assert [*chunks("a.txt", read_lines(str(file)), 2)] == [
        ["1", "2"],
        ["3", "4"],
        ["5"],
    ]

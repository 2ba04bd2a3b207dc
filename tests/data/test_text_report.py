"""What happened to a text is counted, adds up, and is said with the remedy."""

import pytest

from bert_jax.data.text_report import TextReport, count_unknown
from bert_jax.tokenization import SPECIAL_TOKENS, Tokenizer


@pytest.fixture(scope="module")
def english():
    letters = "abcdefghijklmnopqrstuvwxyz"
    tokens = [*SPECIAL_TOKENS, *letters, *(f"##{c}" for c in letters), "."]
    vocabulary = "".join(f"{token}\n" for token in tokens).encode()
    return Tokenizer({"kind": "wordpiece", "cased": False}, vocabulary)


def test_reports_add_up_and_the_first_place_stays():
    report, other = TextReport(), TextReport()
    report.add("duplicate documents", 2, "b.txt:7")
    report.add("duplicate documents", 1, "a.txt:1")
    other.add("duplicate documents", 4, "c.txt:9")
    other.add("control characters", 1, "c.txt:3")
    report.update(TextReport.from_json(other.as_json()))
    assert report.dropped == {"duplicate documents": 7, "control characters": 1}
    (line,) = report.lines()
    assert "7 duplicate documents (first: b.txt:7)" in line
    assert "1 control characters (first: c.txt:3)" in line


@pytest.mark.parametrize(
    ("text", "cause", "remedy"),
    [
        ("это русский текст", "100% unknown characters, most often", "bert-jax vocab`"),
        ("gattaca" * 40, "words that are too long", "--kind unigram"),
    ],
    ids=["Russian", "DNA"],
)
def test_unknown_tokens_have_a_cause_and_a_remedy(english, text, cause, remedy):
    report = count_unknown(english, [text])
    (warning,) = report.warnings()
    assert warning.startswith("100% of the tokens are [UNK]: ")
    assert cause in warning and remedy in warning
    with pytest.raises(ValueError, match=r"100% of the tokens are \[UNK\]"):
        report.require_sense()


def test_known_text_gives_no_warning(english):
    report = count_unknown(english, ["the cat sat.", "é is e"])
    assert report.unknown_share == 0
    assert report.warnings() == [] == report.lines()
    report.require_sense()

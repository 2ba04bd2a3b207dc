"""What happened to a text is counted, adds up, and is said with the remedy."""

import gzip
import json

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bert_jax.apps.inspect.inspect import dataset_lines
from bert_jax.config import PrepareConfig
from bert_jax.data.chunk_tokens import divide
from bert_jax.data.chunks import Layout
from bert_jax.data.prepare import prepare
from bert_jax.data.records import open_dataset
from bert_jax.data.text_report import TextReport, count_unknown
from bert_jax.tokenization import SPECIAL_TOKENS, Tokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz"
SENTENCE = "we go on and on as it is."


@pytest.fixture(scope="module")
def english():
    tokens = [*SPECIAL_TOKENS, *LETTERS, *(f"##{c}" for c in LETTERS), "."]
    vocabulary = "".join(f"{token}\n" for token in tokens).encode()
    return Tokenizer({"kind": "wordpiece", "cased": False}, vocabulary)


@pytest.fixture
def prepared(english, tmp_path):
    """A function that prepares texts, and returns the dataset and its report."""

    def prepare_texts(texts, name="a.txt", **options):
        (tmp_path / name).write_text("\n\n".join(texts), encoding="utf-8")
        english.save(tmp_path / "tokenizer")
        config = PrepareConfig(
            tokenizer=str(tmp_path / "tokenizer"),
            output=str(tmp_path / "data"),
            **{"input": (str(tmp_path / name),), "workers": 1}
            | {"sequence_length": 64, "validation_fraction": 0.0}
            | options,
        )
        lines = []
        manifest = prepare(config, lines.append, Layout(chunk_bytes=5000))
        dataset = open_dataset(config.output)
        return dataset, TextReport.of_manifest(manifest), "\n".join(lines)

    return prepare_texts


def test_reports_add_up_and_the_first_place_stays():
    report, other = TextReport(), TextReport()
    report.add("duplicate documents", 2, "b.txt:7")
    report.add("duplicate documents", 1, "a.txt:1")
    report.add_lengths("sentence_tokens", [3, 3, 40])
    other.add("duplicate documents", 4, "c.txt:9")
    other.add("control characters", 1, "c.txt:3")
    other.add_lengths("sentence_tokens", [1001, 40, 2])
    report.update(TextReport.from_json(other.as_json()))
    assert report.dropped == {"duplicate documents": 7, "control characters": 1}
    assert report.sentence_tokens == {"2": 1, "3": 2, "40": 2, "992": 1}
    (line,) = report.lines()
    assert "7 duplicate documents (first: b.txt:7)" in line
    assert "1 control characters (first: c.txt:3)" in line
    assert TextReport.from_json({"dropped": {"duplicate paragraphs": 0}}).lines() == []


@pytest.mark.parametrize(
    ("text", "cause", "remedy"),
    [
        ("это русский текст", "unknown characters, most often", "bert-jax vocab`"),
        ("gattaca" * 40, "words that are too long", "--kind unigram"),
        ("東京は大きい。", "unknown characters, most often", "bert-jax vocab`"),
    ],
    ids=["Russian", "DNA", "Japanese"],
)
def test_unknown_tokens_have_a_cause_and_a_remedy(english, text, cause, remedy):
    report = count_unknown(english, [text])
    (warning,) = report.warnings()
    assert warning.startswith("[UNK] is 100.0% of the tokens, by 100% ")
    assert cause in warning and remedy in warning
    with pytest.raises(ValueError, match=r"\[UNK\] is 100.0% of the tokens"):
        report.require_sense()


def test_known_text_gives_no_warning(english):
    report = count_unknown(english, ["the cat sat.", "é is e"])
    assert report.warnings() == [] == report.lines()
    report.require_sense()


def test_removed_characters_are_a_share_of_all(english):
    report = count_unknown(english, ["the cat\u200d sat.", "the cat sat."])
    (warning,) = report.warnings()
    assert warning.startswith("4.0% of the characters are joiners")


@pytest.mark.parametrize("text", ["Это русский текст.", "gattaca" * 40])
def test_a_text_of_unknown_words_is_refused_and_leaves_nothing(
    prepared, tmp_path, text
):
    with pytest.raises(ValueError, match=r"data: \[UNK\] is .*% of the tokens, by"):
        prepared([f"{text}\n{text}"] * 9)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("pairs", ["nsp", "sop"])
@pytest.mark.parametrize("sentences", ["split", "lines"])
def test_a_long_line_is_divided_and_not_cut(prepared, pairs, sentences):
    """Records of one line without a full stop, as of minified text."""
    texts = ["on and on we go " * 80] * 10  # 880 tokens each
    dataset, report, lines = prepared(texts, pairs=pairs, sentences=sentences)
    assert len(dataset.train) >= 10 * 880 // 64
    assert report.text["divided sentences"] == 10
    assert report.text["tokens"] == 8800
    assert report.text["tokens in no row"] < 0.15 * 8800
    assert "10 divided sentences (first: a.txt:1)" in lines
    if pairs == "nsp":
        share = dataset.manifest["counts"]["train"]["random_share"]
        assert 0.4 < share < 0.65


def test_spans_of_a_sentence_end_at_word_starts():
    continues = np.array([False, True])
    words = np.array([0, 1, 1] * 40, np.int32)
    spans = divide(words, continues, 61)
    np.testing.assert_array_equal(np.concatenate(spans), words)
    assert {len(span) for span in spans} == {15}
    unmarked = divide(np.ones(120, np.int32), continues, 61)
    assert {len(span) for span in unmarked} == {16, 8}, "no words: spans of 61 / 4"


@example([True] * 6 + [False], 5)  # no word starts in the first span
@given(st.lists(st.booleans(), min_size=1, max_size=300), st.integers(5, 80))
def test_divided_spans_are_the_sentence_and_fit_a_row(flags, limit):
    tokens = np.array(flags, np.int32)
    spans = divide(tokens, np.array([False, True]), limit)
    np.testing.assert_array_equal(np.concatenate(spans), tokens)
    assert all(1 <= len(span) <= max(-(-limit // 4), min(8, limit)) for span in spans)


@pytest.mark.parametrize("character", "\v\f\x1c\x1d\x1e\x1f\x85")
def test_white_space_of_python_that_bert_deletes_is_counted(english, character):
    """As word processors and pdftotext leave it; the words are joined."""
    report = count_unknown(english, [f"we go{character}on.", "we\tgo\u00a0\u2028on."])
    assert report.dropped == {"control characters": 1}


def test_removed_characters_of_examples_are_a_share_of_theirs(english):
    report = count_unknown(english, ["we go on. " * 20] * 9 + ["we\u200d go \u200bon."])
    assert report.dropped == {"invisible joiners": 1, "control characters": 1}
    assert report.warnings() == []
    warning = count_unknown(english, ["we\u200d go on."]).warnings()[0]
    assert warning.startswith("10.0% of the characters are joiners")


def test_copies_and_sources_without_text_are_said(prepared, tmp_path):
    (tmp_path / "b.txt").write_text(" \n\n")
    texts = [f"{SENTENCE} {letter}.\n{SENTENCE}" for letter in LETTERS] * 3
    source = (str(tmp_path / "a.txt"), str(tmp_path / "b.txt"))
    options = {"sentences": "lines", "deduplicate": True, "input": source}
    _, report, lines = prepared(texts, **options)
    assert "52 duplicate documents" in lines and "1 sources without text" in lines
    assert "(first: b.txt)" in lines
    assert any("66.7% of the documents are copies" in w for w in report.warnings())


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (1, r"single document \(9 duplicates were dropped\), but next sentence"),
        (2, r"of 2 documents \(8 duplicates were dropped\) does not leave at least"),
    ],
)
def test_what_copies_leave_too_little_of_is_said(prepared, number, message):
    texts = [f"{SENTENCE} {LETTERS[i % number]}.\n{SENTENCE}" for i in range(10)]
    options = {"deduplicate": True, "validation_fraction": 0.01}
    with pytest.raises(ValueError, match=message):
        prepared(texts, sentences="lines", **options)


def test_a_source_with_the_text_of_another_is_said(prepared, tmp_path):
    """However it is stored; one of equal size and other text is none."""
    texts = [f"{SENTENCE} {letter}.\n{SENTENCE}" for letter in LETTERS]
    whole = "\n\n".join(texts)
    (tmp_path / "again.gz").write_bytes(gzip.compress(whole.encode()))
    (tmp_path / "lines.txt").write_bytes(b"\n\n" + whole.encode())
    (tmp_path / "other.txt").write_text(whole.replace("go on", "no go"))
    names = "a.txt", "again.gz", "lines.txt", "other.txt"
    source = tuple(str(tmp_path / name) for name in names)
    _, report, lines = prepared(texts, input=source, sentences="lines")
    assert report.text["sources with the text of an earlier one"] == 2
    assert (
        "repeated: 2 sources with the text of an earlier one (first: again.gz); leave "
        "them out, or pass --deduplicate." in lines
    )


def test_sources_that_differ_are_no_copies(prepared, tmp_path):
    (tmp_path / "b.txt").write_text(f"{SENTENCE} b.\n\n{SENTENCE} b.")
    source = str(tmp_path / "a.txt"), str(tmp_path / "b.txt")
    _, report, lines = prepared([f"{SENTENCE} a."] * 2, input=source)
    assert "repeated" not in lines and report.text["sentences"] == 8


def test_one_sentence_a_document_gives_a_warning(prepared, capsys):
    _, report, lines = prepared([SENTENCE] * 20)
    assert report.text["documents of one sentence"] == 20
    assert "20 documents of one sentence" in lines
    assert "100.0% of the pairs are random" in capsys.readouterr().err
    assert any("use --pairs none" in line for line in report.warnings())


def test_ordinary_text_gives_no_warning(prepared, capsys):
    dataset, report, lines = prepared(["\n".join([SENTENCE] * 9)] * 9)
    assert report.warnings() == [] and capsys.readouterr().err == ""
    medians = "9 documents of 160 tokens, 81 sentences of 18 tokens (medians)"
    assert medians in lines
    cut = report.text["tokens in no row"]
    assert f"cut: {cut:,} tokens are in no row" in lines
    every = dataset.train.gather(np.arange(len(dataset.train)))
    assert 0 < cut < 9 * 9 * 18 - every["end"].sum() / 2


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_removed_characters_are_counted_with_the_first_place(prepared, name):
    bad = "we g\u200co on.\nan\x07d o\u200dn\u200d."
    texts = ["\n".join([SENTENCE] * 3)] * 5 + [f"{SENTENCE}\n{bad}"] * 2
    if name == "a.jsonl":
        texts = [json.dumps({"text": text}) for text in texts]
    dataset, report, _ = prepared(texts, name)
    assert report.dropped["invisible joiners"] == 6
    assert report.dropped["control characters"] == 2
    places = (
        ["a.txt:22", "a.txt:23"] if name == "a.txt" else ["a.jsonl, document 6"] * 2
    )
    assert [
        report.first[kind] for kind in ("invisible joiners", "control characters")
    ] == places
    lines = "\n".join(dataset_lines(dataset))
    assert f"6 invisible joiners (first: {places[0]})" in lines


@pytest.mark.parametrize(
    ("name", "place"),
    [("a.txt", "a.txt:23"), ("a.jsonl", "a.jsonl, document 6 of those that are kept")],
)
def test_places_in_kept_documents_and_replaced_spaces(prepared, name, place):
    line = f"{SENTENCE}\n{SENTENCE}\nan\u0416d A\u00a0. it is."
    texts = ["\n".join([SENTENCE] * 3)] * 5 + [line]
    if name == "a.jsonl":
        texts = [json.dumps({"text": text}) for text in ["", *texts]]
    _, report, _ = prepared(texts, name)
    assert report.first["[UNK]"] == place


def test_remedies_do_not_contradict_each_other():
    counts = {"tokens": 100, "positions": 100, "tokens in no row": 50}
    report = TextReport()
    report.text.update(counts)
    (cut,) = report.warnings()
    assert "raise --sequence-length" in cut
    report.text["padding"] = 60
    (padding,) = report.warnings()
    assert "use --pack, or a smaller --sequence-length" in padding
    (padding,) = report.warnings(packed=True)
    assert padding.endswith("padding; use a smaller --sequence-length.")


def test_a_control_character_that_is_unknown_is_to_be_removed():
    """Sentencepiece has no token for NUL."""
    report = TextReport()
    report.text.update({"tokens": 100, "[UNK]": 50})
    report.unknown["unknown characters"] = report.unknown_characters["\0"] = 50
    (warning,) = report.warnings("use a larger --vocab-size")
    assert warning.endswith("; remove control characters from the text.")


def test_an_unknown_character_is_not_a_removed_one(english):
    """Beside another one, the word is [UNK] with it and without it."""
    report = count_unknown(english, ["the \U0001f600\U0001fae8 sat"])
    assert not report.dropped and report.text["[UNK]"] == 1


def test_places_in_a_file_of_carriage_returns(prepared):
    text = "we go on.\rand on.\r\rit is.\ras it\u200b is.\r"
    _, _, lines = prepared([text])
    assert "control characters (first: a.txt:5)" in lines

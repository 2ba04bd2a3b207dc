"""Training a vocabulary on text files."""

import collections
import gzip
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

import bert_jax
from bert_jax.cli.main import main
from bert_jax.config import VocabularyConfig
from bert_jax.data.folding import fold
from bert_jax.data.line_sample import LineSample
from bert_jax.data.sources import find_sources
from bert_jax.data.vocabulary import (
    read_lines,
    train_vocabulary,
)
from bert_jax.data.word_counts import WordCounter
from bert_jax.tokenization import Tokenizer, bert_normalizer

KINDS = ("wordpiece", "unigram", "bpe")


@pytest.fixture
def text(tmp_path):
    """A file of made-up sentences whose words are drawn from a few hundred."""
    generator = random.Random(3)
    syllables = [a + b for a in "bdfgklmnprstvz" for b in ("a", "en", "or", "ish", "u")]
    words = ["".join(generator.choices(syllables, k=2)) for _ in range(300)]
    lines = [" ".join(generator.choices(words, k=9)).title() for _ in range(400)]
    path = tmp_path / "text.txt"
    path.write_text(".\n".join(lines) + ".\n")
    return path


def train(text, output, **options):
    options = {"vocab_size": 150} | options
    return train_vocabulary(
        VocabularyConfig(input=(str(text),), output=str(output), **options)
    )


def digests(directory):
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.iterdir()
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cased", [False, True])
def test_writes_what_it_returns(text, tmp_path, kind, cased):
    trained = train(text, tmp_path / "out", kind=kind, cased=cased)
    loaded = Tokenizer.load(tmp_path / "out")
    assert loaded.fingerprint == trained.fingerprint
    assert (loaded.kind, loaded.cased, loaded.vocab_size) == (kind, cased, 150)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "text.txt"]
    known = loaded.encode(text.read_text()).ids
    assert loaded.unk_id not in known
    assert any(t.strip("▁#")[:1].isupper() for t in loaded.tokens(known)) == cased


def test_same_bytes_in_every_process(text, tmp_path):
    program = (
        "import sys; from bert_jax.config import VocabularyConfig as C\n"
        "from bert_jax.data.vocabulary import train_vocabulary\n"
        "for kind in ('wordpiece', 'unigram', 'bpe'):\n"
        "    train_vocabulary(C(input=(sys.argv[1],), output=sys.argv[2] + kind,\n"
        "                       kind=kind, vocab_size=150, sample_sentences=300))\n"
    )
    for seed in ("1", "2"):
        ran = subprocess.run(
            [sys.executable, "-c", program, str(text), str(tmp_path / seed)],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert ran.stdout == ran.stderr == ""  # sentencepiece keeps quiet
    for kind in KINDS:
        assert digests(tmp_path / f"1{kind}") == digests(tmp_path / f"2{kind}")


def test_another_sample_gives_another_vocabulary(text, tmp_path):
    options = {"kind": "unigram", "sample_sentences": 100}
    first = train(text, tmp_path / "a", **options)
    second = train(text, tmp_path / "b", **options, seed=1)
    assert first.tokens(range(150)) != second.tokens(range(150))
    config = (tmp_path / "b" / "tokenizer_config.json").read_text()
    for fact in ('"lines": 400', '"sampled_lines": 100', '"seed": 1'):
        assert fact in config


@pytest.mark.slow
def test_b7_unigram_of_a_line_of_150000_characters_without_spaces(tmp_path):
    text = "".join(random.Random(0).choices("กข", k=150_000))
    (tmp_path / "text.txt").write_text(text)
    options = {"kind": "unigram", "vocab_size": 60}
    trained = train(tmp_path / "text.txt", tmp_path / "out", **options)
    assert trained.vocab_size == 60


def test_text_that_wordpiece_cannot_read_is_refused(tmp_path):
    (tmp_path / "dna.txt").write_text("acgt" * 5000)
    with pytest.raises(ValueError, match="than 200 characters.*use --kind unigram"):
        train(tmp_path / "dna.txt", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_long_lines_are_learned_from(text, tmp_path, kind):
    """sentencepiece by itself drops lines past 4,192 bytes."""
    text.write_text(text.read_text().replace("\n", " "))
    assert train(text, tmp_path / "out", kind=kind).vocab_size == 150


def test_where_the_text_lies_does_not_matter(text, tmp_path):
    parts = text.read_text().splitlines(keepends=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "1.txt").write_text("".join(parts[:100]))
    (tmp_path / "elsewhere" / "2.txt").write_text("".join(parts[100:]))
    for kind in KINDS:
        whole = train(text, tmp_path / kind, kind=kind)
        pattern = tmp_path / "elsewhere" / "*.txt"
        split = train(pattern, tmp_path / f"{kind}-2", kind=kind)
        assert whole.fingerprint == split.fingerprint


@pytest.mark.parametrize("kind", KINDS)
def test_sizes_that_do_not_fit(text, tmp_path, kind):
    least = r"vocab_size=20 is less than the \d+ special .* use at least \d+\."
    with pytest.raises(ValueError, match=least):
        train(text, tmp_path / "out", kind=kind, vocab_size=20)
    assert list(tmp_path.iterdir()) == [text]
    full = train(text, tmp_path / "full", kind=kind, vocab_size=5000)
    assert 150 < full.vocab_size < 5000
    same = train(text, tmp_path / "same", kind=kind, vocab_size=full.vocab_size)
    assert same.fingerprint == full.fingerprint


def test_a_size_that_the_text_does_not_fill_is_said(text, tmp_path, capsys):
    where = ["--input", str(text), "--output", str(tmp_path / "out")]
    assert main(["vocab", *where, "--vocab-size", "5000"]) == 0
    [line, last] = capsys.readouterr().out.splitlines()
    [size] = re.findall(r"wordpiece, (\d+) tokens", last)
    assert line == f"The text fills no more than {size} of 5,000 tokens."


@pytest.mark.parametrize("kind", [*KINDS, "char"])
def test_the_size_can_follow_from_the_text(text, tmp_path, kind):
    """Tokens of a text of four times the length have four times the occurrences."""
    small = train(text, tmp_path / "small", kind=kind, vocab_size="auto")
    text.write_text(text.read_text() * 4)
    large = train(text, tmp_path / "large", kind=kind, vocab_size="auto")
    if kind == "char":
        assert large.vocab_size == small.vocab_size
    else:
        assert small.vocab_size < large.vocab_size


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_the_size_follows_from_long_lines_without_spaces(tmp_path, kind):
    """No word of WordPiece is longer than 200 characters."""
    generator = random.Random(0)
    words = ["".join(generator.choices("กขคงจ", k=4)) for _ in range(20)]
    lines = ["".join(generator.choices(words, k=120)) for _ in range(40)]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    options = {"kind": kind, "vocab_size": "auto", "cased": True}
    assert train(tmp_path / "a.txt", tmp_path / "v", **options).vocab_size > 30


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("content", [b"", b"\n \n\t\r\n", b"\xef\xbb\xbf\n"])
def test_no_text(tmp_path, kind, content):
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.txt holds no text\."):
        train(tmp_path / "a.txt", tmp_path / "out", kind=kind)
    assert not (tmp_path / "out").exists()


def test_missing_input(text, tmp_path):
    (tmp_path / "empty").mkdir()
    for wrong in (tmp_path / "*.text", tmp_path / "empty", tmp_path / "none.txt"):
        with pytest.raises(FileNotFoundError, match="matches no file; give text"):
            train(wrong, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_output_is_never_overwritten(text, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes").write_text("mine")
    for taken in (tmp_path / "full", text):
        with pytest.raises(FileExistsError, match="remove it or choose another"):
            train(text, taken)
    assert (tmp_path / "full" / "notes").read_text() == "mine"


def test_empty_output_and_rests_of_a_killed_run_are_no_hindrance(text, tmp_path):
    (tmp_path / "out").mkdir()
    rest = tmp_path / "out.abc.unfinished"
    rest.mkdir()
    (rest / "vocab.txt").write_text("half")
    train(text, tmp_path / "out")
    assert Tokenizer.load(tmp_path / "out").vocab_size == 150
    assert {p.name for p in tmp_path.iterdir()} >= {"out", rest.name}


def test_c1_a_directory_of_the_users_is_not_removed(text, tmp_path):
    mine = tmp_path / "out.unfinished"
    mine.mkdir()
    (mine / "thesis.txt").write_text("mine")
    train(text, tmp_path / "out")
    with pytest.raises(ValueError, match="vocab_size"):
        train(text, tmp_path / "deep" / "other", vocab_size=6)
    assert (mine / "thesis.txt").read_text() == "mine"
    assert not (tmp_path / "deep").exists()
    # Others may read it, as they may what `mkdir` makes.
    (tmp_path / "plain").mkdir()
    modes = [(tmp_path / name).stat().st_mode for name in ("out", "plain")]
    assert modes[0] == modes[1]


def lines_of(*paths, piece_bytes=1 << 20, **options):
    config = VocabularyConfig(input=tuple(map(str, paths)), output="", **options)
    return list(read_lines(find_sources(config.input), config, piece_bytes))


def test_lines_are_read_whatever_their_bytes(tmp_path):
    content = b"\xef\xbb\xbfone\r\n\n  two \xff three\n\tfour\r\rfive\0\xe2\x80\xa8\xc3"
    (tmp_path / "a").write_bytes(content)
    (tmp_path / "a.gz").write_bytes(gzip.compress(content))
    for name in ("a", "a.gz"):
        lines = lines_of(tmp_path / name, strict=False)
        assert lines == ["one", "two \ufffd three", "four", "five\0\u2028\ufffd"]
        with pytest.raises(ValueError, match=f"{name}: byte 0xff at 15 is not UTF-8"):
            lines_of(tmp_path / name)


@given(st.text("ab\ré \n", max_size=60), st.integers(1, 9))
def test_lines_do_not_depend_on_the_pieces_read(tmp_path_factory, text, size):
    path = tmp_path_factory.mktemp("text") / "a.txt"
    path.write_bytes(text.encode())
    found = lines_of(path, piece_bytes=size)
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    assert found == [line.strip() for line in lines if line.strip()]


@pytest.mark.parametrize("size", [7, 9999, 1 << 20])
def test_long_lines_are_divided_wherever_the_pieces_end(tmp_path, size):
    words = "".join(f"{number:06} " for number in range(4000))
    path = tmp_path / "a.txt"
    path.write_text(words + "\n" + "é" * 25_000)
    spaced, other = words[: 7 * 1428 - 1], words[7 * 1428 : 7 * 2856 - 1]
    parts = [
        spaced,
        other,
        words[7 * 2856 : -1],
        *("é" * n for n in (10**4, 10**4, 5000)),
    ]
    assert lines_of(path, piece_bytes=size) == parts


def test_lines_of_records_are_those_of_each_text(tmp_path):
    (tmp_path / "b.txt").write_text("five")
    texts = ["one\n\ntwo", "three ", "", "four"]
    records = "".join(json.dumps({"body": text}) + "\n" for text in texts)
    (tmp_path / "a.jsonl").write_text(records)
    lines = lines_of(tmp_path / "*", text_field="body")
    assert lines == ["one", "two", "three", "four", "five"]
    with pytest.raises(ValueError, match=r"a\.jsonl:1: there is no 'text', but body"):
        lines_of(tmp_path / "a.jsonl")


@pytest.mark.parametrize("kind", KINDS)
def test_any_kind_of_source_gives_the_same_vocabulary(text, tmp_path, kind):
    plain = train(text, tmp_path / "plain", kind=kind)
    (tmp_path / "a.gz").write_bytes(gzip.compress(text.read_bytes()))
    record = json.dumps({"text": text.read_text()})
    (tmp_path / "a.jsonl").write_text(record)
    for name in ("a.gz", "a.jsonl"):
        trained = train(tmp_path / name, tmp_path / f"{name}.out", kind=kind)
        assert trained.fingerprint == plain.fingerprint


def test_a_damaged_source_leaves_no_vocabulary(text, tmp_path):
    (tmp_path / "a.gz").write_bytes(gzip.compress(text.read_bytes())[:-1])
    with pytest.raises(ValueError, match=r"a\.gz is damaged or not gzip"):
        train(tmp_path / "a.gz", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@settings(deadline=None)  # machines are shared
@given(
    st.lists(st.text("aÉe\u0301中ßΣςİ \t\n\u00a0\u2003\x1c\x85\x00\u200b\ufffd.-")),
    st.booleans(),
)
def test_words_are_counted_as_encoding_sees_them(lines, cased):
    counts = collections.Counter()
    for line in lines:
        normal = bert_normalizer(cased).normalize_str(line)
        splitter = tokenizers.pre_tokenizers.BertPreTokenizer()
        counts.update(word for word, _ in splitter.pre_tokenize_str(normal))
    assert WordCounter(cased).update(lines).words == counts


@pytest.mark.parametrize("space", ["", " "])
def test_b11_few_distinct_words_are_kept_of_a_text_of_any_size(space):
    """The pieces of text without spaces hardly repeat; their characters do."""
    generator = random.Random(0)
    parts = ["".join(generator.choices("กขคงจ", k=9)) + "," for _ in range(20_000)]
    lines = [space.join(parts[i : i + 50]) for i in range(0, len(parts), 50)]
    lines += ["ฉัน"] * 700
    counter = WordCounter(True, max_size=50_000, max_buffered=1000).update(lines)
    assert counter.times_thinned > 3
    assert sum(map(len, counter.words)) + 8 * len(counter.words) <= 50_000
    assert counter.total == 40_700  # each comma is a word
    # Totals stay about right, and what is frequent is counted exactly.
    assert sum(counter.words.values()) == pytest.approx(40_700, rel=0.05)
    assert counter.words["ฉัน"] == 700 and counter.words[","] == 20_000
    again = WordCounter(True, max_size=50_000, max_buffered=1000).update(lines)
    assert counter.words == again.words


def test_words_that_are_too_long_are_counted_only():
    counter = WordCounter(True).update(["a " + "b" * 200, "acgt" * 2000, "c" * 201])
    assert dict(counter.words) == {"a": 1, "b" * 200: 1}
    assert (counter.total, counter.num_long) == (2, 2)


def test_b4_rare_syllables_of_korean_are_known(tmp_path):
    """2,350 syllables: past the first 1,000, words were [UNK]."""
    generator = random.Random(0)
    syllables = [chr(0xAC00 + 4 * i) for i in range(2350)]
    weights = [1 / (i + 9) for i in range(2350)]
    words = ["".join(generator.choices(syllables, weights, k=3)) for _ in range(3000)]
    words += ["".join(syllables[i : i + 2]) for i in range(0, 2350, 2)]
    (tmp_path / "text.txt").write_text("\n".join(map(" ".join, [words] * 2)))
    options = {"cased": True, "vocab_size": 10_000}
    tokenizer = train(tmp_path / "text.txt", tmp_path / "out", **options)
    unknown = (tokenizer.encode(" ".join(words)).ids == tokenizer.unk_id).sum()
    assert unknown <= len(words) / 10_000


def sample_lines(lines, *arguments):
    sample = LineSample(*arguments)
    for line in lines:
        sample.add(line)
    return sample.lines, sample.num_lines


def test_sample_is_even_and_seeded():
    sample, seen = sample_lines(iter("abcdef"), 9, 0)
    assert (sample, seen) == (list("abcdef"), 6)
    lines = [str(i) * 5 for i in range(10)]
    for size, max_characters in ((5, 50), (10, 45)):  # 5 lines each
        counts = collections.Counter()
        for seed in range(2000):
            sample, seen = sample_lines(lines, size, seed, max_characters)
            assert len(set(sample)) == 5 and seen == 10
            counts.update(sample)
        # 2000 draws of probability 0.5: 1000, standard deviation 22.
        assert all(880 < counts[line] < 1120 for line in lines)
    # Without spaces, a character counts more.
    assert len(sample_lines(["a" * 100] * 9, 9, 0, 16 * 450)[0]) < 5
    assert len(sample_lines(["a " * 50] * 9, 9, 0, 16 * 450)[0]) == 9
    assert sample_lines([], 4, 0) == ([], 0)


@pytest.mark.parametrize(
    ("character", "expected"),
    [
        *[("É", "e"), ("İ", "i"), ("ﬁ", "fi"), ("Ａ", "a"), ("ß", "ß"), ("한", "한")],
        *[("\u0301", ""), ("\x07", ""), ("\u200b", ""), ("\ufffd", "")],
        *[("\u00a0", " "), ("\u2028", " "), ("\n", " "), ("中", "中"), ("ё", "е")],
    ],
)
def test_fold(character, expected):
    assert fold(character) == expected


_RULES = """
import hashlib
from bert_jax.data.folding import fold_rules
rules = [(ord(character), folded) for character, folded in fold_rules()]
print(len(rules), hashlib.sha256(repr(rules).encode()).hexdigest()[:16])
"""


@pytest.mark.parametrize("minor", [11, 12, 13, 14])
def test_b12_every_python_folds_alike(minor):
    """Another result here changes every uncased vocabulary of sentencepiece."""
    this = sys.version_info[1] == minor
    python = sys.executable if this else shutil.which(f"python3.{minor}") or ""
    if not python or subprocess.run([python, "-c", ""], capture_output=True).returncode:
        pytest.skip(f"there is no Python 3.{minor}")
    root = Path(bert_jax.__file__).parents[1]
    ran = subprocess.run([python, "-c", _RULES], cwd=root, capture_output=True)
    assert ran.stdout == b"8901 5299b6a038eb48ac\n", ran.stderr


def told(capsys, text, output, *options):
    text.parent.joinpath("a.txt").write_text("Plain text.\n\nMore of it.\n")
    where = ["--input", str(text.parent / "*.txt"), "--output", str(output)]
    assert main(["vocab", *where, *options]) == 0
    printed = capsys.readouterr()
    return printed.out + printed.err


PERSIAN = "می\u200cخواهم کتاب\u200cها را بخوانم\n" * 30


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (PERSIAN, "60 invisible joiners (first: b.txt:1)"),
        ("\nक्\u200dष और क्\u200cष\n" * 30, "60 invisible joiners (first: b.txt:2)"),
        ("ភាសា\u200bខ្មែរ\n" * 30, "30 control characters (first: b.txt:1)"),
        ("one \uf8ff two\n" * 30, "30 control characters (first: b.txt:1)"),
        ("\u200b\nភាសា\u200b\n" * 30, "60 control characters (first: b.txt:1)"),
    ],
)
def test_b9_removed_characters_are_counted(text, count, tmp_path, capsys):
    (tmp_path / "b.txt").write_text(text)
    found = told(capsys, tmp_path / "b.txt", tmp_path / "out", "--cased")
    assert f"dropped or replaced: {count}.\n" in found
    assert "which this vocabulary removes; " in found
    remedy = ("--cased", "--kind", "unigram", "--vocab-size", "auto")
    found = told(capsys, tmp_path / "b.txt", tmp_path / "other", *remedy)
    assert "warning" not in found


@pytest.mark.parametrize("kind", ["wordpiece", "unigram"])
def test_what_unigram_removes_too_is_to_be_cleaned(kind, tmp_path, capsys):
    (tmp_path / "b.txt").write_text("one \atwo three\n" * 30)
    found = told(
        capsys,
        tmp_path / "b.txt",
        tmp_path / "out",
        *("--cased", "--kind", kind, "--vocab-size", "auto"),
    )
    assert "which this vocabulary removes; clean the text.\n" in found


def test_text_of_removed_characters_alone_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text("\a\b\n")
    for kind, message in (("wordpiece", "holds no text"), ("bpe", "only characters")):
        with pytest.raises(ValueError, match=message):
            train(tmp_path / "a.txt", tmp_path / "out", kind=kind)


def test_b9_few_removed_characters_are_counted_without_a_warning(tmp_path, capsys):
    (tmp_path / "b.txt").write_text("one\u00adtwo\n" + "three\n" * 400)
    found = told(capsys, tmp_path / "b.txt", tmp_path / "out")
    assert "dropped or replaced: 1 control characters (first: b.txt:1)." in found
    assert "warning" not in found


def test_b2_words_that_are_too_long_are_said_with_their_remedy(tmp_path, capsys):
    (tmp_path / "b.txt").write_text(("กขค" * 80 + " งจ\n") * 30)
    found = told(capsys, tmp_path / "b.txt", tmp_path / "out", "--cased")
    assert "by 100% words that are too long; text without spaces needs" in found


def test_b4_characters_without_room_are_said_with_their_remedy(tmp_path, capsys):
    lines = [chr(0x4E00 + i) * 2 for i in range(3000)]
    (tmp_path / "b.txt").write_text("\n".join(lines))
    found = told(capsys, tmp_path / "b.txt", tmp_path / "out", "--vocab-size", "2000")
    assert re.search(r"by 100% unknown characters, .*; use a larger --vocab-", found)


@pytest.mark.parametrize(
    ("line", "lost"),
    [
        ("これはペンです。 それは本です。", "本てす。"),
        ("हिन्दी में लिखा हुआ पाठ", "becomes "),
        ("Élan, naïve façade, Größe; ёлка и йод; Ἀχιλλεύς", ""),
        ("Дзе ён жыў, у горадзе", "becomes жыу"),
        ("Ќе дојде ноќта", "becomes "),
        ("Слове\u0301сный за\u0301мок ѝ", ""),
        ("مسؤول عن بيئة", "becomes "),
        ("مَكْتُوبٌ أإآ", ""),
        ("מִכְתָּב קָצָר", ""),
        ("A text in English. ❤️ ⚠️ 1️⃣", ""),
        (
            "나는 책을 읽는다",
            "in 60 of the first 60 words (first: text.txt:1): 책을 becomes",
        ),
    ],
)
def test_marks_that_are_more_than_accents_are_not_lost_silently(line, lost, tmp_path):
    file = tmp_path / "text.txt"
    file.write_text(f"{line}\n" * 20)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        train(file, tmp_path / "out")
        train(file, tmp_path / "cased", cased=True)
    messages = [str(warning.message) for warning in found]
    assert len(messages) == (1 if lost else 0), messages
    assert all(lost in message and "Use --cased" in message for message in messages)


@pytest.mark.parametrize("kind", ["unigram", "char"])
def test_the_mark_of_sentencepiece_takes_no_line(kind, tmp_path):
    """It would leave out each line that has one."""
    path = tmp_path / "a.txt"
    path.write_text("hello world again\n" * 50 + "zebra \u2585 quiz\n" * 30)
    tokenizer = train(path, tmp_path / "v", kind=kind, vocab_size=22)
    for word in ("zebra", "quiz"):
        assert tokenizer.unk_id not in tokenizer.encode(word).ids


@pytest.mark.parametrize("kind", ["unigram", "bpe", "char"])
def test_names_of_special_tokens_are_learned_from_as_text(kind, tmp_path):
    """Sentencepiece would know none of their characters."""
    path = tmp_path / "a.txt"
    path.write_text("x[MASK] and [CLS][SEP] [UNK] y[PAD]\n" * 50)
    tokenizer = train(path, tmp_path / "v", kind=kind, vocab_size="auto", cased=True)
    ids = tokenizer.encode("[MASK] [CLS] [SEP] [UNK] [PAD]").ids.tolist()
    assert not set(ids) & set(tokenizer.special_ids.values())


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_places_of_records_are_theirs_in_the_file(name, tmp_path, capsys):
    path = tmp_path / name
    texts = ["a b\nc d\ne f", "", "zero\u200bwidth"]
    if name == "a.csv":
        path.write_text("text\n" + "\n".join(f'"{text}"' for text in texts))
    else:
        path.write_text("\n".join(json.dumps({"text": text}) for text in texts))
    train(path, tmp_path / "v", kind="wordpiece", vocab_size=60)
    place = {"a.jsonl": "a.jsonl:3", "a.csv": "a.csv, line 6"}[name]
    assert f"1 control characters (first: {place})" in capsys.readouterr().out

"""Files of columns: what is read from them, what is refused, what is written."""

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.config import ExamplesConfig
from bert_jax.metrics.entities import SCHEMES, Entity, convert_tags, write_tags
from bert_jax.tasks.tagging.conll import Sentence, read_sentences, write_sentences
from bert_jax.tasks.tagging.task import TokenClassificationTask

CONLL_2003 = """-DOCSTART- -X- O O

EU NNP I-NP I-ORG
rejects VBZ I-VP O
German JJ I-NP I-MISC

Peter NNP I-NP I-PER
Blackburn NNP I-NP I-PER
Mary NNP B-NP B-PER

-DOCSTART- -X- O O

BRUSSELS NNP I-NP I-LOC
"""


def written(tmp_path, text, name="a.txt"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def refused(tmp_path, text, name="a.txt"):
    """The one line in which a file is refused, after its folder."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        read_sentences(written(tmp_path, text, name))
    assert "\n" not in str(caught.value) and type(caught.value) is ValueError
    return str(caught.value).removeprefix(f"{tmp_path}/")


def test_sentences_of_four_columns(tmp_path):
    first, second, third = read_sentences(written(tmp_path, CONLL_2003))
    assert first.words == ("EU", "rejects", "German")
    assert first.tags == ("I-ORG", "O", "I-MISC") and first.scheme == "IOB1"
    assert first.columns[1] == ("rejects", "VBZ", "I-VP", "O")
    assert first.before == ("-DOCSTART- -X- O O", "")
    assert second.before == ("",) and second.after == ()
    assert second.tags_in("IOB2") == ["B-PER", "I-PER", "B-PER"]
    assert second.tags_in("IOBES") == ["B-PER", "E-PER", "S-PER"]
    assert third.before == ("", "-DOCSTART- -X- O O", "") and third.after == ()
    assert third.where(0).endswith("a.txt, line 13")


def test_byte_order_marks_of_joined_files(tmp_path):
    own = read_sentences(written(tmp_path, CONLL_2003))
    joined = read_sentences(written(tmp_path, 2 * f"\ufeff{CONLL_2003}\n"))
    assert [one.words for one in joined] == 2 * [one.words for one in own]


@pytest.mark.parametrize("separator", ["\t", " "])
def test_a_word_that_is_a_byte_order_mark(tmp_path, separator):
    """As texts of the web have it: the no-break space of no width."""
    lines = (f"{word}{separator}O\n" for word in ("a", "\ufeff", "b"))
    (sentence,) = read_sentences(written(tmp_path, "".join(lines)))
    assert sentence.words == ("a", "\ufeff", "b")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("blank", ["", "\t", " "])
def test_tabs_line_ends_and_byte_order_marks(tmp_path, end, mark, blank):
    lines = ["New York\tB-LOC", "\xa0\tO", blank, blank, "x\x85y\tO", blank]
    found = read_sentences(written(tmp_path, mark + end.join(lines)))
    assert [sentence.words for sentence in found] == [("New York", "\xa0"), ("x\x85y",)]
    assert [sentence.tags for sentence in found] == [("B-LOC", "O"), ("O",)]
    assert [sentence.line for sentence in found] == [1, 5]


def test_columns_parted_by_any_number_of_spaces_and_tabs(tmp_path):
    (found,) = read_sentences(written(tmp_path, "a  NN   O\nb NN\tO\n c\tNN  O "))
    assert found.columns == (("a", "NN", "O"), ("b", "NN", "O"), ("c", "NN", "O"))


def test_one_column_is_words_without_tags(tmp_path):
    first, second = read_sentences(written(tmp_path, "a\nb\n\nc\n"))
    assert first.words == ("a", "b") and first.tags is None and first.scheme is None
    assert second.words == ("c",)


@pytest.mark.parametrize(
    ("tags", "scheme"),
    [
        ("O O", "IOB2"),
        ("B-A I-A B-A", "IOB2"),
        ("I-A I-A B-A", "IOB1"),
        ("B-A E-A S-A", "IOBES"),
        ("S-A O", "IOBES"),
        # Ill-formed in every scheme: the one with the fewest such tags.
        ("B-A O I-A", "IOB2"),
        ("I-A I-A O I-A O B-A", "IOB1"),
        ("B-A I-A O B-A O I-A", "IOB2"),
        ("S-A O S-A O B-A", "IOBES"),
        # No tags of entities.
        ("NN VBZ O", None),
        ("PER O", None),
        ("B I O", None),
    ],
)
def test_which_scheme_the_tags_are_in(tmp_path, tags, scheme):
    text = "".join(f"w\t{tag}\n" for tag in tags.split())
    (found,) = read_sentences(written(tmp_path, text))
    assert found.scheme == scheme


def test_lines_of_json(tmp_path):
    lines = [{"tokens": ["New York", "is"], "tags": ["B-LOC", "O"]}, {}]
    lines[1] = {"id": 3, "tokens": ["x"], "tags": ["O"]}
    text = "\n\n".join(map(json.dumps, lines))
    first, second = read_sentences(written(tmp_path, text, "a.jsonl"))
    assert first.words == ("New York", "is") and first.tags == ("B-LOC", "O")
    assert first.scheme == "IOB2" and second.where(0).endswith("a.jsonl, line 3")
    (third,) = read_sentences(written(tmp_path, '{"tokens": ["x"]}', "b.jsonl"))
    assert third.tags is None


NAMES = ("O", "B-PER", "I-PER", "B-LOC")


@pytest.mark.parametrize("suffix", ["jsonl", "JSONL", "parquet"])
def test_tags_that_are_numbers(tmp_path, suffix):
    """As in the datasets of a hub, whose names stand elsewhere."""
    rows = [
        {
            "tokens": ["Ada", "in", "Oslo"],
            "ner_tags": [1, 0, 3],
            "pos": ["N", "P", "N"],
        },
        {"tokens": ["Ada", "Byron"], "ner_tags": [1, 2], "pos": ["N", "N"]},
    ]
    path = str(tmp_path / f"a.{suffix}")
    if suffix == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        Path(path).write_text("\n".join(map(json.dumps, rows)))
    task = TokenClassificationTask(ExamplesConfig(labels=NAMES))
    first, second = task.read(path)
    assert first.tags == ("B-PER", "O", "B-LOC") and second.tags == ("B-PER", "I-PER")
    assert first.scheme == "IOB2" and second.line == 2
    assert task.labels([first, second]) == NAMES
    other = TokenClassificationTask(ExamplesConfig(label_column="pos"))
    assert other.read(path)[0].tags == ("N", "P", "N")
    with pytest.raises(ValueError, match=r"a.*1: ner_tags holds numbers, .* in --data"):
        read_sentences(path)
    with pytest.raises(
        ValueError, match=r"holds 3, and --data.labels has 3 names, for"
    ):
        read_sentences(path, NAMES[:3])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a\tO\n\nb\tNN\tO\n",
            "a.txt, line 3: 3 columns, but line 1 has 2; each must",
        ),
        (
            "-DOCSTART-\na NN O\nb\n",
            "a.txt, line 3: 1 columns, but line 2 has 3; each",
        ),
        (
            "a\tO\nb c\n",
            "a.txt, line 2: 1 columns, but line 1 has 2; .* by a tab",
        ),
        ("a\tO\n\tO\n", "a.txt, line 2: 1 columns"),
        ("a O\nb I-\n", "a.txt, line 2: 'I-' is not a tag"),
        ("a B-X\nb NN\n", "a.txt, line 2: 'NN' is not a tag: .*, such as 'B-X'; to"),
        ("a U-X\nb O\n", "a.txt, line 1: 'U-X' is not a tag: .* its U as S"),
        ("a B-X\nb M-X\n", "a.txt, line 2: 'M-X' is not a tag: .* BMES's M as I"),
        ("a b-x\nb o\n", "a.txt, line [12]: '(b-x|o)' is not a tag"),
        ("a O\rb O\r", "a.txt, line 1 holds a carriage return; end lines by a line"),
        ("# id 1\na O\n", "a.txt, line 2: 2 columns, but .* has 3; .* like a comment"),
        (
            "1 a a N _ _ 0 r\n2 b b N _ _ 1 r\n",
            "a.txt, line 1: the first of 8 columns counts the words, as in CoNLL-U",
        ),
        (
            "1 a B-X O\n2 b O O\n\n1 c O O\n",
            "a.txt, line 1: the first of 4 columns counts .* `cut -f2,3`",
        ),
        ("", "a.txt holds no sentence; each line must hold a word"),
        ("-DOCSTART- -X- O O\n\n \n", "a.txt holds no sentence"),
        (b"a O\n\xe9 O\n", "a.txt.* byte 0xe9 .*is not UTF-8"),
    ],
)
def test_columns_that_are_refused(tmp_path, text, message):
    assert re.match(message, refused(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"tokens": []}', "a.jsonl, line 1: tokens=\\[\\] must be a list of strings"),
        (
            '{"text": "a b"}',
            'a.jsonl, line 1 has no tokens; its columns are text. Write {"tokens"',
        ),
        ('{"tokens": null}', "a.jsonl, line 1: tokens=None must be a list of strings"),
        ('\n{"tokens": ["a", 1]}', "a.jsonl, line 2: tokens holds 1; each must be a"),
        (
            '{"tokens": ["a"], "tags": [0]}',
            "a.jsonl, line 1: tags holds numbers, whose",
        ),
        (
            '{"tokens": ["a"], "tags": ["O", "O"]}',
            ".*line 1: 2 tags for 1 tokens; each",
        ),
        ('{"tokens": [" "]}', "a.jsonl, line 1: token ' ' must hold more than"),
        ('{"tokens": ["a\\tb"]}', "a.jsonl, line 1: token 'a\\\\tb' must .* no tab"),
        ('{"tokens": ["\\ud83d"]}', "a.jsonl, line 1: token .* half of a character"),
        *(
            (f'{{"tokens": ["a"], "tags": ["{tag}"]}}', "a.jsonl, line 1: tag .* must")
            for tag in (r"\ud83d", r"a\nb", r"a\tb", " ")
        ),
        (
            '{"tokens": ["a"], "tags": ["O"]}\n{"tokens": ["a"]}',
            "a.jsonl, line 2 has no tags, unlike line 1; all lines must, or none",
        ),
        (
            '{"tokens": ["a", "b"], "tags": ["PER", "I-X"]}',
            "a.jsonl, line 1: 'PER' is not a tag",
        ),
        (
            '{"tokens": ["a", "b"], "tags": ["I-X", "O-Y"]}',
            ".*'O-Y' is not a tag.* It is in the field of the tags, and others are",
        ),
        ("[1]", "a.jsonl, line 1 must be a JSON object"),
        ("{", "a.jsonl, line 1 is not JSON"),
    ],
)
def test_json_that_is_refused(tmp_path, text, message):
    assert re.match(message, refused(tmp_path, text, "a.jsonl"))


def test_commas_between_columns_are_told(tmp_path):
    text = "Sentence #,Word,Tag\nSentence: 1,In,O\n,Oslo,B-LOC\n"
    message = r"a.csv, line 3: 1 columns, but .* by commas or semicolons: write a tab"
    assert re.match(message, refused(tmp_path, text, "a.csv"))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="b.txt is not a file; name a file of"):
        read_sentences(str(tmp_path / "b.txt"))


def test_the_columns_come_back_with_one_more(tmp_path):
    sentences = read_sentences(written(tmp_path, CONLL_2003))
    output = tmp_path / "predictions.txt"
    write_sentences(sentences, [["P"] * len(each.words) for each in sentences], output)
    expected = [
        line and line + (" O" if line.startswith("-DOC") else " P")
        for line in CONLL_2003.split("\n")
    ]
    assert output.read_text().split("\n") == expected


def test_document_starts_are_as_wide_as_words(tmp_path):
    sentences = read_sentences(written(tmp_path, "-DOCSTART-\n\na\tNN\tO\n\n\n"))
    output = tmp_path / "predictions.txt"
    write_sentences(sentences, [["O"]], output)
    assert output.read_text() == "-DOCSTART-\tO\tO\tO\n\na\tNN\tO\tO\n\n\n"


def test_sentences_taken_out_of_a_file_stay_apart(tmp_path):
    one, _, three = read_sentences(written(tmp_path, "a O\n\nb O\n\nc O\n\n"))
    output = tmp_path / "predictions.txt"
    write_sentences([three, one], [["O"], ["O"]], output)
    assert output.read_text() == "\nc O O\n\na O O\n"
    write_sentences([one, one], [["O"], ["O"]], output)
    assert output.read_text() == "a O O\n\na O O\n"


def test_sentences_that_were_in_no_columns_get_some(tmp_path):
    output = tmp_path / "predictions.txt"
    sentences = [Sentence(("a b", "c"), ("O", "O")), Sentence(("d",), ("O",))]
    write_sentences(sentences, [["O", "B-X"], ["O"]], output)
    assert output.read_text() == "a b\tO\tO\nc\tO\tB-X\n\nd\tO\tO\n"
    write_sentences([Sentence(("a",))], [["B-X"]], output)
    assert output.read_text() == "a\tB-X\n"


WORDS = st.text("ab'-#\xa0ß你\u2028", min_size=1, max_size=4)


TAGGED = st.lists(
    st.tuples(WORDS, st.sampled_from(["", "A", "B-c"]), st.booleans()), min_size=1
)
"""Words, each with the type of the entity it is in, if any, and whether that is the
entity of the word before, if it can be."""


def entities(sentence):
    """The chunks of a sentence that TAGGED drew."""
    found = []
    for i, (_, type_, same) in enumerate(sentence):
        if same and found and found[-1].end == i and found[-1].type == type_:
            found[-1] = Entity(type_, found[-1].start, i + 1)
        elif type_:
            found.append(Entity(type_, i, i + 1))
    return found


@given(
    st.lists(TAGGED, min_size=1, max_size=5),
    st.sampled_from(SCHEMES),
    st.sampled_from(["\t", " "]),
)
def test_what_is_written_is_what_was_read(tmp_path_factory, drawn, scheme, separator):
    words = [[word for word, *_ in each] for each in drawn]
    tags = [write_tags(entities(each), len(each), scheme) for each in drawn]
    folder = tmp_path_factory.mktemp("columns")
    text = "\n".join(
        "".join(f"{word}{separator}{tag}\n" for word, tag in zip(*each, strict=True))
        for each in zip(words, tags, strict=True)
    )
    found = read_sentences(written(folder, text))
    assert [list(each.words) for each in found] == words
    for each, expected in zip(found, tags, strict=True):
        assert each.tags_in("IOBES") == convert_tags(expected, "IOBES")
        assert each.tags == tuple(expected)
    write_sentences(found, [each.tags for each in found], folder / "b.txt")
    lines = (folder / "b.txt").read_bytes().decode().split("\n")
    assert "\n".join(line.rpartition(separator)[0] for line in lines) == text

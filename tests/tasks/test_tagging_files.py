"""Published files of tags, from the command line: IOB1 as it is, and plain labels."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from small_world import OBJECTS, PLACES, SUBJECTS, VERBS

import bert_jax
from bert_jax.cli.main import main

SMALL = "--data.max-length 32 --data.num-buckets 1 --batch-size 8 --num-steps 30 "
SMALL += "--mesh.data 1 --optimizer.peak-learning-rate 2e-2"


def sentences() -> list[list[tuple[str, str, str]]]:
    """Words with part of speech and IOB1 tag, some of them with B after O."""
    found = []
    for i in range(24):
        who, other = SUBJECTS[i % 4], SUBJECTS[(i + 1) % 4]
        place = PLACES[i % 4]
        # Persons in a row: IOB1 has B where one touches the next.
        found.append(
            [
                ("The", "DT", "O"),
                (who, "NN", "I-PER"),
                (other, "NN", "B-PER"),
                (VERBS[i % 5], "VBZ", "O"),
                ("the", "DT", "O"),
                (OBJECTS[i % 7], "NN", "O"),
                ("in", "IN", "O"),
                ("the", "DT", "O"),
                # As published, where no I-LOC stands before it.
                (place, "NN", "B-LOC" if i % 6 == 0 else "I-LOC"),
            ]
        )
    return found


def columns(path: Path, chosen: Sequence[int], end: str = "\r\n") -> Path:
    """The sentences in columns, as the shared task published them."""
    lines = ["-DOCSTART- -X- O", ""]
    for sentence in sentences():
        lines += [" ".join(word[i] for i in chosen) + " " for word in sentence]
        lines.append("")
    # A byte order mark, line ends of Windows, and no blank line at the end.
    path.write_bytes(("\ufeff" + end.join(lines[:-1])).encode())
    return path


def trained(file: Path, encoder: Path, workdir: Path) -> Path:
    where = ["--data.train", str(file), "--data.validation", str(file)]
    where += ["--init-from", str(encoder), "--workdir", str(workdir)]
    assert main(["finetune", "token-classification", *where, *SMALL.split()]) == 0
    return workdir


def evaluated(capsys: pytest.CaptureFixture[str], workdir: Path, output: Path):
    """The scores, and the columns of the file of predictions."""
    capsys.readouterr()
    code = main(["evaluate", "--model", str(workdir), "--output", str(output)])
    scores, file = capsys.readouterr().out.splitlines()
    assert code == 0
    return json.loads(scores), Path(file).read_text().splitlines()


def conlleval(lines: Sequence[str]) -> tuple[float, float]:
    """F1 and accuracy as conlleval counts them in a file's last two columns."""
    chunks: tuple[set[tuple[int, ...]], set[tuple[int, ...]]] = (set(), set())
    right = words = 0
    before = ["O", "O"]
    starts = [0, 0]
    kinds = ["", ""]

    def close(side: int, number: int) -> None:
        if before[side] != "O":
            chunks[side].add((starts[side], number, hash(kinds[side])))

    for number, line in enumerate([*lines, ""]):
        tags = line.split()[-2:] or ["O", "O"]
        if line and not line.startswith("-DOCSTART-"):
            words += 1
            right += tags[0] == tags[1]
        for side, tag in enumerate(tags):
            prefix, _, kind = tag.partition("-")
            goes_on = prefix == "I" and before[side] != "O" and kind == kinds[side]
            if not goes_on:
                close(side, number)
                starts[side], kinds[side] = number, kind
                before[side] = prefix
            else:
                before[side] = prefix
    both = len(chunks[0] & chunks[1])
    return 2 * both / (len(chunks[0]) + len(chunks[1])), right / words


@pytest.mark.slow
def test_f1_iob1_as_published_trains_and_scores_as_conlleval(
    encoder_checkpoint, tmp_path, capsys
):
    """F1: B after O is read, counted in a line, and scored as it is."""
    file = columns(tmp_path / "eng.train", (0, 1, 2))
    workdir = trained(file, encoder_checkpoint, tmp_path / "run")
    printed = capsys.readouterr().out
    # Of 24 places, 4 are written with B where IOB1 has I; line 11 is the first.
    unlike = f"{file}: 4 of 216 tags are ill-formed in IOB1, and are read as conlleval"
    assert f"{unlike} reads them; the first is 'B-LOC' in line 11" in printed
    scores, lines = evaluated(capsys, workdir, tmp_path / "out")
    assert len(lines) == 24 * 10 + 1 and lines[0] == "-DOCSTART- -X- O O"
    f1, accuracy = conlleval(lines)
    assert f1 > 0.5 and scores["f1"] == pytest.approx(f1, abs=1e-4)
    assert scores["accuracy"] == pytest.approx(accuracy, abs=1e-4)
    model = bert_jax.load(workdir).config
    assert model.labels == ("O", "B-LOC", "B-PER"), "IOB1 is learned as IOB2"


@pytest.mark.slow
def test_f1_plain_labels_train_tag_and_score(encoder_checkpoint, tmp_path, capsys):
    """F1: a column of parts of speech: scored by accuracy, and given word by word."""
    file = columns(tmp_path / "pos.txt", (0, 1), end="\n")
    workdir = trained(file, encoder_checkpoint, tmp_path / "run")
    printed = capsys.readouterr().out
    assert f"{file}: plain labels, not entities; scored by accuracy" in printed
    assert "baseline: each word's commonest tag" in printed
    scores, lines = evaluated(capsys, workdir, tmp_path / "out")
    rows = [line.split() for line in lines if line and "DOCSTART" not in line]
    right = [row[-1] == row[-2] for row in rows]
    assert list(scores) == ["accuracy", "baseline: each word's commonest tag"]
    assert scores["accuracy"] == pytest.approx(sum(right) / len(rows), abs=1e-4)
    assert scores["accuracy"] > 0.6
    bert = bert_jax.load(workdir)
    assert bert.config.labels == ("DT", "IN", "NN", "VBZ")
    text = "The judge, reads"
    (found,) = bert.tag([text])
    assert list(found) == ["tags", "words"] and len(found["tags"]) == 4
    assert [text[each["start"] : each["end"]] for each in found["words"]] == [
        "The",
        "judge",
        ",",
        "reads",
    ]
    assert [each["tag"] for each in found["words"]] == found["tags"]
    assert all(0 < each["score"] <= 1 for each in found["words"])


@pytest.mark.slow
def test_predict_does_not_look_at_tags(encoder_checkpoint, tmp_path, capsys):
    """A file to learn from may be given to `predict`, whatever its tags."""
    file = columns(tmp_path / "pos.txt", (0, 1))
    workdir = trained(file, encoder_checkpoint, tmp_path / "run")
    rows = tmp_path / "a.jsonl"
    rows.write_text('{"id": 1, "tokens": ["The", "judge"], "tags": ["X", "Y"]}\n')
    capsys.readouterr()
    assert main(["predict", "--model", str(workdir), "--input", str(rows)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["id"] == 1 and len(found["tags"]) == 2

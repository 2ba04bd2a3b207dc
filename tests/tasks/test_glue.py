"""GLUE in its official layout and in that of TFDS, with the quirks of each file."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.config.finetuning import GlueName
from bert_jax.tasks.kinds import finetuning_task
from bert_jax.tasks.predictions import Predictions
from bert_jax.tasks.texts import glue
from bert_jax.tasks.texts.classes import ClassTask
from bert_jax.tasks.texts.examples import TextExample
from bert_jax.tasks.texts.glue import GLUE, read_glue

PARSES = "sentence1_binary_parse sentence2_binary_parse sentence1_parse sentence2_parse"
MNLI = f"index promptID pairID genre {PARSES} sentence1 sentence2"
STSB = "index genre filename year old_index source1 source2 sentence1 sentence2"
TEXTS = {
    "cola": [("The cat sat.",), ('He said "go.',)],
    "sst2": [("hide new secretions ",), ("a `` fine '' film",)],
    "mrpc": [('He said "no.', "He declined."), ("It rose 3 %.", "It fell.")],
    "qqp": [("How do I?", 'What is a "cat"?'), ("Who?", "Why?")],
    "stsb": [("A man eats.", 'A "man" eats.'), ("A dog.", "A cat.")],
    "mnli": [("It rains.", "It is wet."), ('"Yes"', "No")],
    "qnli": [("When?", "In 1990."), ("Who?", 'By "him".')],
    "rte": [("Oil is dear.", "Oil costs."), ("He won.", '"He" lost.')],
    "wnli": [("It fell on it.", "The tree fell."), ("A b.", "B a.")],
}
LABELS: dict[str, list[Any]] = {
    "cola": ["1", "0"],
    "sst2": ["0", "1"],
    "mrpc": ["1", "0"],
    "qqp": ["0", "1"],
    "stsb": [5.0, 1.25],
    "mnli": ["neutral", "contradiction"],
    "qnli": ["entailment", "not_entailment"],
    "rte": ["not_entailment", "entailment"],
    "wnli": ["1", "0"],
}
TRAIN_HEADERS = {
    "cola": "",
    "sst2": "sentence label",
    "mrpc": "Quality #1_ID #2_ID #1_String #2_String",
    "qqp": "id qid1 qid2 question1 question2 is_duplicate",
    "stsb": f"{STSB} score",
    "mnli": f"{MNLI} label1 gold_label",
    "qnli": "index question sentence label",
    "rte": "index sentence1 sentence2 label",
    "wnli": "index sentence1 sentence2 label",
}
DEV_HEADERS = TRAIN_HEADERS | {
    "mnli": f"{MNLI} label1 label2 label3 label4 label5 gold_label"
}
TEST_HEADERS = {
    "cola": "index sentence",
    "sst2": "index sentence",
    "mrpc": "index #1_ID #2_ID #1_String #2_String",
    "qqp": "id question1 question2",
    "stsb": STSB,
    "mnli": MNLI,
    "qnli": "index question sentence",
    "rte": "index sentence1 sentence2",
    "wnli": "index sentence1 sentence2",
}
COLA = "source label mark sentence"


def table(name: str, header: str, labelled: bool) -> str:
    """Two rows; the values of other columns are no labels."""
    columns = [
        column.replace("_S", " S").replace("_I", " I") for column in header.split()
    ]
    lines = ["\t".join(columns)] if columns else []
    columns = columns or COLA.split()
    for texts, label in zip(TEXTS[name], LABELS[name], strict=True):
        values = dict.fromkeys(columns, "x")
        values |= dict(zip(GLUE[name].texts, texts, strict=True))
        if labelled:
            values[GLUE[name].label] = str(label)
        lines.append("\t".join(values.values()))
    return "\n".join(lines) + "\n"


def files_of(name: str, part: str) -> list[str]:
    if name == "mnli" and part != "train":
        return [f"{part}_matched.tsv", f"{part}_mismatched.tsv"]
    return [f"{part}.tsv"]


@pytest.fixture(scope="session")
def official(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All nine tasks as the official download has them."""
    root = tmp_path_factory.mktemp("glue")
    for name, task in GLUE.items():
        folder = root / task.folder
        folder.mkdir()
        headers = {"train": TRAIN_HEADERS, "dev": DEV_HEADERS, "test": TEST_HEADERS}
        for part, of_task in headers.items():
            text = table(name, of_task[name], part != "test")
            mark = "\ufeff" if name == "mrpc" else ""
            for file in files_of(name, part):
                (folder / file).write_text(mark + text, "utf-8")
    return root


def model_of(name):
    kind = "regression" if name == "stsb" else "single_label_classification"
    return BertConfig.tiny(
        head="sequence_classification",
        labels=GLUE[name].labels or ("score",),
        problem_type=kind,
    )


def task(name, path):
    data = ExamplesConfig(path=str(path), glue=name)
    return finetuning_task(
        "text-regression" if name == "stsb" else "text-classification",
        data,
        model_of(name),
    )


def test_there_are_nine_tasks():
    assert set(GLUE) == set(GlueName.__args__) - {""}
    assert len(GLUE) == 9


@pytest.mark.parametrize("name", GLUE)
@pytest.mark.parametrize("part", ["train", "validation", "test"])
@pytest.mark.parametrize("of_all", [True, False])
def test_the_official_layout(name, part, of_all, official):
    own = task(name, official if of_all else official / GLUE[name].folder)
    examples = own.read(part)
    groups = [""] if name != "mnli" or part == "train" else ["", "mismatched"]
    assert [example.texts for example in examples] == TEXTS[name] * len(groups)
    labels = LABELS[name] if part != "test" else [None, None]
    assert [example.label for example in examples] == labels * len(groups)
    assert [example.group for example in examples] == [
        group for group in groups for _ in range(2)
    ]
    first = 1 if name == "cola" and part != "test" else 2
    assert examples[0].where.endswith(f"line {first}")
    assert own.has_label(examples[0]) == (part != "test")


@pytest.mark.parametrize("name", GLUE)
def test_classes_in_the_order_of_glue(name, official):
    own = task(name, official)
    assert own.labels(own.read("train")) == {
        "stsb": ("score",),
        "mnli": ("contradiction", "entailment", "neutral"),
        "qnli": ("entailment", "not_entailment"),
        "rte": ("entailment", "not_entailment"),
    }.get(name, ("0", "1"))


def right(example: TextExample) -> dict[str, Any]:
    """The prediction that is right for an example."""
    key = "value" if isinstance(example.label, float) else "label"
    return {key: example.label}


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("cola", ["mcc"]),
        ("sst2", ["accuracy"]),
        ("mrpc", ["f1", "accuracy"]),
        ("qqp", ["f1", "accuracy"]),
        ("stsb", ["pearson", "spearman"]),
        ("mnli", ["accuracy", "accuracy_mismatched"]),
        ("qnli", ["accuracy"]),
        ("rte", ["accuracy"]),
        ("wnli", ["accuracy"]),
    ],
)
def test_the_official_scores_in_their_order(name, names, official):
    own = task(name, official)
    examples = own.read("validation")
    scores = own.official_scores(Predictions(examples, list(map(right, examples))))
    assert list(scores) == names
    assert list(scores.values()) == pytest.approx([1.0] * len(names))


def test_mnli_scores_each_half_by_itself(official):
    own = task("mnli", official)
    examples = own.read("validation")
    values = list(map(right, examples))
    values[2] = {"label": "entailment"}  # of the mismatched half
    scores = own.official_scores(Predictions(examples, values))
    assert scores == {"accuracy": 1.0, "accuracy_mismatched": 0.5}


SUBMISSIONS = {
    "cola": {"CoLA.tsv": ["1", "0"]},
    "sst2": {"SST-2.tsv": ["0", "1"]},
    "mrpc": {"MRPC.tsv": ["1", "0"]},
    "qqp": {"QQP.tsv": ["0", "1"]},
    "stsb": {"STS-B.tsv": ["5.0000", "1.2500"]},
    "mnli": {
        "MNLI-m.tsv": ["neutral", "contradiction"],
        "MNLI-mm.tsv": ["neutral", "contradiction"],
    },
    "qnli": {"QNLI.tsv": ["entailment", "not_entailment"]},
    "rte": {"RTE.tsv": ["not_entailment", "entailment"]},
    "wnli": {"WNLI.tsv": ["1", "0"]},
}


@pytest.mark.parametrize("name", GLUE)
def test_submission_files(name, official, tmp_path):
    own = task(name, official)
    values = list(map(right, own.read("validation")))
    names = own.write(Predictions(own.read("test"), values), tmp_path)
    assert sorted(names) == sorted(path.name for path in tmp_path.iterdir())
    for file, cells in SUBMISSIONS[name].items():
        lines = ["index\tprediction", *(f"{i}\t{c}" for i, c in enumerate(cells))]
        assert (tmp_path / file).read_text() == "\n".join(lines) + "\n"
    assert set(names) == set(SUBMISSIONS[name])


def test_broken_rows_of_qqp_are_left_out_and_counted(official, tmp_path):
    text = (official / "QQP" / "train.tsv").read_text()
    broken = "9\t1\t2\tcut off\n10\t1\t2\t\tNo first?\t0\n11\t1\t2\tWho?\t \t1\n"
    (tmp_path / "train.tsv").write_text(text + broken)
    with pytest.warns(UserWarning, match=r"train.tsv: 3 rows lack .* is line 4\."):
        examples = task("qqp", tmp_path).read("train")
    assert [example.texts for example in examples] == TEXTS["qqp"]


def test_damaged_rows_are_left_out_where_that_is_asked_for(official, tmp_path, capsys):
    text = (official / "RTE" / "train.tsv").read_text()
    for name in ("train", "test"):
        (tmp_path / f"{name}.tsv").write_text(text + "9\tcut off\n")
    config = ExamplesConfig(path=str(tmp_path), glue="rte", skip_damaged=True)
    examples = ClassTask(config).read("train")
    assert [example.texts for example in examples] == TEXTS["rte"]
    assert "train: 1 of 3 rows cannot be used, and are" in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"test.tsv, line 4 has 2 .*: index, sen.*\.$"):
        ClassTask(config).read("test")


def test_no_row_of_a_test_is_left_out(official, tmp_path):
    """The server counts the rows, and takes the answer of each by its number."""
    text = (official / "QQP" / "test.tsv").read_text()
    path = tmp_path / "test.tsv"
    path.write_text(text + "2\tcut off\n")
    with pytest.raises(ValueError, match="test.tsv, line 4 has 2 fields"):
        task("qqp", tmp_path).read("test")
    path.write_text(text + "2\t\tNo first?\n")
    with pytest.raises(ValueError, match="test.tsv, line 4: question1 is empty"):
        task("qqp", tmp_path).read("test")


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("sst2", lambda t: t + "no label\n", "train.tsv, line 4 has 1 fields and must"),
        (
            "rte",
            lambda t: t.replace("label", "lbl"),
            "sentence2, lbl. Did you mean lbl",
        ),
        ("rte", lambda t: t.replace("sentence2", "s"), "line 2 has no sentence2; its"),
        ("qqp", lambda t: t.replace("question1", "q"), "line 2 has no question1; its"),
        ("cola", lambda t: "", "train.tsv has no rows"),
        ("stsb", lambda t: t.replace("1.25", "good"), "score='good' must be a finite"),
        ("wnli", lambda t: t.replace("\t0\n", "\t\n"), "line 3: label is empty"),
        ("mnli", lambda t: t.replace("neutral\n", "-\n"), "'-' is none of the classes"),
    ],
)
def test_broken_files(name, change, message, official, tmp_path):
    file = official / GLUE[name].folder / "train.tsv"
    (tmp_path / "train.tsv").write_text(change(file.read_text()))
    own = task(name, tmp_path)
    with pytest.raises(ValueError, match=message):  # noqa: PT012  any of the three
        examples = own.read("train")
        own.labels(examples)
        own.check(examples)


def test_a_file_that_is_not_there(tmp_path):
    message = "has neither RTE/train.tsv nor train.tsv; it must be the folder of rte or"
    message += ".*by --data.path"
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(FileNotFoundError, match=message):
            read_glue("rte", str(path), "train")


def test_a_path_without_a_task(tmp_path):
    with pytest.raises(ValueError, match="no task of GLUE is named; name one, as in"):
        ClassTask(ExamplesConfig(path=str(tmp_path))).read("train")


@pytest.mark.parametrize("name", GLUE)
def test_tfds(name, monkeypatch):
    """Rows as TFDS has them: numbers for classes, -1 where they are not public."""
    columns = {"mnli": ("premise", "hypothesis"), "mrpc": ("sentence1", "sentence2")}
    order = {"mnli": ("entailment", "neutral", "contradiction")}
    opened = []

    def rows(dataset, split):
        opened.append((dataset, split))
        for texts, label in zip(TEXTS[name], LABELS[name], strict=True):
            classes = order.get(name, GLUE[name].labels)
            number = classes.index(label) if classes else np.float32(label).item()
            label = number if "test" not in split else -1
            names = columns.get(name, GLUE[name].texts)
            yield dict(zip(names, texts, strict=True)) | {"label": label, "idx": 0}

    monkeypatch.setattr(glue, "tfds_rows", rows)
    for part in ("train", "validation", "test"):
        opened.clear()
        examples = task(name, f"tfds:glue/{name}").read(part)
        ends = ["_matched", "_mismatched"] if name == "mnli" else [""]
        ends = ends if part != "train" else [""]
        assert opened == [(f"glue/{name}", part + end) for end in ends]
        labels = LABELS[name] if part != "test" else [None, None]
        assert [example.label for example in examples] == labels * len(ends)
        assert [example.texts for example in examples] == TEXTS[name] * len(ends)
        assert examples[1].where == f"tfds:glue/{name}, example 2 of {part + ends[0]}"

"""A kind of fine-tuning in one file: it trains, is scored, predicts, has a report."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, final

import jax
import numpy as np

from bert_jax.cli.main import main
from bert_jax.config.finetuning import TaskName
from bert_jax.config.model import Head
from bert_jax.data.examples import TokenizedExamples, from_rows, join_pairs, num_cut
from bert_jax.storage.files import JsonObject
from bert_jax.tables.rows import TableRow
from bert_jax.tasks import kinds
from bert_jax.tasks.finetuning import FinetuningTask
from bert_jax.tasks.predictions import Prediction, Predictions, Split, SplitOutputs
from bert_jax.tasks.reporting.analysis import Analysis
from bert_jax.tasks.reporting.views import Column, Section, Table
from bert_jax.tokenization import Tokenizer

SIZES = ("short", "long")


@dataclasses.dataclass(frozen=True)
class Line:
    """A line, and whether it is short or long; None: not known."""

    text: str
    label: str | None
    where: str = ""


def analyse(task: FinetuningTask, predictions: Predictions) -> JsonObject:
    both = zip(predictions.examples, predictions.values, strict=True)
    wrong = [line.text for line, value in both if value["size"] != line.label]
    return {"wrong_lines": wrong}


def sections(report: JsonObject) -> list[Section]:
    rows = [[text] for text in report["wrong_lines"]]
    table = Table("Lines of another size", [Column("line")], rows)
    return [Section("lines", "Lines", f"{len(rows)} are wrong.", [table])]


@final
@dataclasses.dataclass(frozen=True)
class SizeTask(FinetuningTask):
    """In place of another kind, whose name it takes."""

    name: ClassVar[TaskName] = "multiple-choice"
    head: ClassVar[Head] = "sequence_classification"
    noun: ClassVar[str] = "lines"
    analyses: ClassVar[Mapping[str, Analysis]] = {"sizes": Analysis(analyse, sections)}

    def read(self, name: str) -> list[Line]:
        pairs = (line.split(": ", 1) for line in Path(name).read_text().splitlines())
        return [
            Line(text, size, f"{name}, line {number}")
            for number, (size, text) in enumerate(pairs, 1)
        ]

    def labels(self, examples: Sequence[Line]) -> tuple[str, ...]:
        self.check(examples)
        return SIZES

    def check(self, examples: Sequence[Line]) -> None:
        assert {line.label for line in examples} <= {*SIZES, None}

    def tokenize(
        self, examples: Sequence[Line], tokenizer: Tokenizer
    ) -> TokenizedExamples:
        ids = tokenizer.encode_batch([line.text for line in examples])
        rows, cut = join_pairs(tokenizer, [(one,) for one in ids], self.max_tokens)
        labels = [SIZES.index(line.label) if line.label else -1 for line in examples]
        by_example = {"cut": cut, "label": np.array(labels, np.int32)}
        return from_rows(rows, np.arange(len(rows), dtype=np.int32), by_example)

    def outputs(self, scores: jax.Array) -> dict[str, jax.Array]:
        return {"scores": scores}

    def predict(self, outputs: SplitOutputs) -> list[Prediction]:
        return [{"size": SIZES[int(row["scores"].argmax())]} for row in outputs.rows]

    def official_scores(self, predictions: Predictions) -> dict[str, float]:
        wrong = len(analyse(self, predictions)["wrong_lines"])
        return {"accuracy": 1 - wrong / len(predictions.examples)}

    def write(self, predictions: Predictions, directory: Path) -> list[str]:
        sizes = [value["size"] for value in predictions.values]
        (directory / "sizes.txt").write_text("\n".join(sizes) + "\n")
        return ["sizes.txt"]

    def baseline(self, splits: object) -> tuple[str, float]:
        return "a guess", 0.5

    def example_without_label(self, row: TableRow) -> Line:
        return Line(str(row.values["text"]), None, row.where)

    def texts(self, example: Line) -> tuple[str, ...]:
        return (example.text,)

    def warnings(self, split: Split) -> list[str]:
        return self.cut_warnings(num_cut(split.tokenized), len(split.examples))


def test_a_kind_in_one_file_is_trained_scored_reported_and_predicts(
    encoder_checkpoint, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(kinds, "KINDS", [SizeTask, *kinds.KINDS])
    lines = [
        f"{SIZES[n % 2]}: {'The judge reads. ' * (1 + n % 2 * 4)}" for n in range(16)
    ]
    file = tmp_path / "lines.txt"
    file.write_text("\n".join(lines) + "\n")
    run, page = tmp_path / "run", tmp_path / "page.html"
    options = "--mesh.data 1 --num-steps 60 --eval-every 60 --batch-size 8 "
    options += "--optimizer.peak-learning-rate 1e-2"
    names = ["--data.train", str(file), "--data.validation", str(file)]
    words = [*names, "--init-from", str(encoder_checkpoint), "--workdir", str(run)]
    assert main(["finetune", "multiple-choice", *words, *options.split()]) == 0
    capsys.readouterr()
    where = ["evaluate", str(run), "--input", str(file)]
    assert main([*where, "--output", str(tmp_path / "out")]) == 0
    scores = json.loads(capsys.readouterr().out.splitlines()[0])
    assert scores["baseline: a guess"] == 0.5 and scores["accuracy"] > 0.9
    assert (tmp_path / "out" / "sizes.txt").read_text().splitlines() == list(SIZES) * 8
    assert main([*where, "--output", str(page)]) == 0
    report = json.loads(page.with_suffix(".json").read_text())
    assert (report["kind"], report["task"]) == ("sizes", "multiple-choice")
    assert report["wrong_lines"] == [] and "Lines of another size" in page.read_text()
    capsys.readouterr()
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"text": "The judge reads."}\n')
    assert main(["predict", str(run), "--input", str(rows)]) == 0
    assert json.loads(capsys.readouterr().out)["size"] == "short"

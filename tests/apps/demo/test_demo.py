"""The demo, on a small corpus and for a few steps."""

import dataclasses
import functools
import json
import re
import shutil
from xml.etree import ElementTree

import pytest

from bert_jax.apps.demo import demo as module
from bert_jax.apps.demo import report as demo_report
from bert_jax.config import DataConfig


@pytest.fixture
def small_demo(corpus, small_config):
    """The demo with the tests' corpus, vocabulary size and model."""

    def write_corpus(directory):
        shutil.copytree(corpus, directory)
        summary = {"words": 5, "documents": 120, "duplicates": 7, "sha256": "ab" * 32}
        modules = {name: [f"{name}.m{i}" for i in range(40)] for name in "abc"}
        (directory / "corpus.json").write_text(
            json.dumps(summary | {"modules": modules})
        )

    data = DataConfig(sequence_length=32)
    config = dataclasses.replace(small_config, data=data, num_steps=6)
    data = dataclasses.replace(module.FINETUNING.data, max_length=32)
    finetuning = dataclasses.replace(
        module.FINETUNING,
        data=data,
        mesh=config.mesh,
        num_steps=3,
        eval_every=3,
        checkpoint_every=3,
    )
    return functools.partial(
        module.demo,
        pretraining=config,
        finetuning=finetuning,
        write_corpus=write_corpus,
    )


@pytest.mark.slow
def test_the_demo_tells_the_story_and_goes_on(small_demo, tmp_path, capsys):
    small_demo(tmp_path / "demo")
    output = capsys.readouterr().out
    for part in ("masked LM loss", "masked LM accuracy", "next sentence accuracy"):
        assert part in output
    assert "50.0%" in output and "7 duplicate paragraphs dropped" in output
    # One is in the advice; and of this corpus' validation rows four have a long word.
    num_masked = output.count("[MASK]") - 1
    assert num_masked == 4
    assert "abababababababab" in output
    page = tmp_path / "demo" / "report.html"
    assert str(page) in output and "Finished, at step 6 of 6." in page.read_text()
    picture = tmp_path / "demo" / "picture.svg"
    assert str(picture) in output
    check_picture(picture, output)
    for part in ("pretrained encoder", "random initialisation", "TF-IDF", "33.3%"):
        assert part in output
    answers = re.findall(r"^    \S+\?  ", output, re.MULTILINE)
    assert len(answers) == num_masked + demo_report.EXAMPLES
    pretrained, drawn = output.split("library_from_scratch:")
    assert "Drawn by seed 0: classifier" in pretrained
    assert "Drawn by seed 0" not in drawn
    begun = checkpoints(tmp_path / "demo")
    # Called again, it keeps what is there and tells the same.
    small_demo(tmp_path / "demo")
    again = capsys.readouterr().out
    table = output[output.index("masked LM loss") : output.index("Made in")]
    assert table in again
    assert checkpoints(tmp_path / "demo") == begun
    # Pages that a line names are there when it is printed.
    page.unlink()
    page.mkdir()
    with pytest.raises(ValueError, match="report.html is a directory"):
        small_demo(tmp_path / "demo")
    last = capsys.readouterr().out
    assert table in last and "report.html" not in last


def check_picture(path, output):
    """It is XML, and shows the loss of the table and five predictions."""
    root = ElementTree.parse(path).getroot()
    texts = [element.text for element in root.iter() if element.text]
    [loss] = re.findall(r"masked LM loss \(nats\) +│ +(\d+\.\d\d)", output)
    assert loss in texts
    assert sum(text.endswith("%") and " " not in text for text in texts) == 5
    assert demo_report.SENTENCE in texts
    width = float(root.get("width"))
    ends = [float(e.get("x", 0)) + float(e.get("width", 0)) for e in root.iter()]
    assert max(end for end in ends if end != width) < width


def checkpoints(root):
    """Every file of every checkpoint, and when it was written."""
    files = root.glob("*/checkpoints/**/*")
    return {path: path.stat().st_mtime_ns for path in files if path.is_file()}


def test_a_file_is_no_workdir(small_demo, tmp_path, capsys):
    path = tmp_path / "file"
    path.write_text("kept")
    with pytest.raises(ValueError, match="exists and is not a directory; choose"):
        small_demo(path)
    assert path.read_text() == "kept" and not capsys.readouterr().out


@pytest.mark.parametrize(("words", "wins"), [(0.3, True), (0.2, False)])
def test_the_remarks_say_who_wins(small_demo, tmp_path, words, wins):
    corpus = tmp_path / "corpus"
    small_demo.keywords["write_corpus"](corpus)
    module.write_origins(module.paragraph_origins(corpus), tmp_path / "origins")
    accuracies = {"pretrained": 0.25, "drawn": 0.3, "words": words, "commonest": 0.2}
    found = " ".join(demo_report.remarks(tmp_path, accuracies))
    assert "3 libraries" in found and "worth -5.0 points" in found
    assert ("linear model wins" in found) == wins


def test_the_demos_configuration_is_the_packages():
    """bert_jax/configs/demo.py names it."""
    assert module.PRETRAINING.data.sequence_length == module.SEQUENCE_LENGTH
    assert module.PRETRAINING.model.vocab_size == module.VOCAB_SIZE
    assert module.PRETRAINING.num_steps == module.NUM_STEPS

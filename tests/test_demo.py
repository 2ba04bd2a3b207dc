"""The demo, on a small corpus and for a few steps."""

import dataclasses
import json
import shutil

import pytest

from bert_jax import demo as module
from bert_jax.config import DataConfig


@pytest.fixture
def small_demo(corpus, small_config, monkeypatch):
    """The demo with the tests' corpus, vocabulary size and model."""

    def write_corpus(directory):
        shutil.copytree(corpus, directory)
        summary = {"words": 5, "documents": 120, "duplicates": 7, "sha256": "ab" * 32}
        (directory / "corpus.json").write_text(json.dumps(summary))

    data = DataConfig(sequence_length=32)
    config = dataclasses.replace(small_config, data=data, num_steps=6)
    monkeypatch.setattr(module, "write_corpus", write_corpus)
    monkeypatch.setattr(module, "CONFIG", config)
    monkeypatch.setattr(module, "VOCAB_SIZE", 160)
    monkeypatch.setattr(module, "SEQUENCE_LENGTH", 32)
    monkeypatch.setattr(module, "WORDS_OF_CONTEXT", 4)


def test_the_demo_tells_the_story_and_goes_on(small_demo, tmp_path, capsys):
    module.demo(tmp_path / "demo")
    output = capsys.readouterr().out
    for part in ("masked LM loss", "masked LM accuracy", "next sentence accuracy"):
        assert part in output
    assert "50.0%" in output and "7 duplicate paragraphs dropped" in output
    assert output.count("[MASK]") == module.EXAMPLES + 1
    assert "abababababababab" in output
    # Called again, it keeps what is there and tells the same.
    module.demo(tmp_path / "demo")
    again = capsys.readouterr().out
    table = output[output.index("masked LM loss") : output.index("Made in")]
    assert table in again


def test_the_demos_configuration_is_the_packages():
    """configs/demo.py names it; a wheel does not hold configs/."""
    assert module.CONFIG.data.sequence_length == module.SEQUENCE_LENGTH
    assert module.CONFIG.model.vocab_size == module.VOCAB_SIZE
    assert module.CONFIG.num_steps == module.NUM_STEPS

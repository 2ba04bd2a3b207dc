"""Benchmarks run, and print what they measured."""

import json

import pytest

from bert_jax.benchmark import main
from bert_jax.config import BertConfig
from bert_jax.flops import peak_flops_per_second, pretraining_flops


def test_train(tmp_path, capsys):
    size = ["--model", "tiny", "--batch-size", "8", "--sequence-length", "16"]
    path = tmp_path / "figures.json"
    assert main(["train", *size, "--repeats", "2", "--json", str(path)]) == 0
    figures = json.loads(path.read_text())
    assert figures["parameters"] == 4_433_468
    # Every row is full, so tokens and sequences tell the same time.
    assert figures["tokens_per_second"] == pytest.approx(
        16 * figures["sequences_per_second"]
    )
    assert figures["step_seconds_fastest"] <= figures["step_seconds"]
    assert 9 < figures["loss"] < 13
    assert "step_seconds" in capsys.readouterr().out


def test_input(capsys):
    assert main(["input", "--rows", "3000", "--repeats", "1"]) == 0
    output = capsys.readouterr().out
    assert "tf_data_tokens_per_second" in output
    assert "plain_tokens_per_second" in output


def test_prepare(corpus, capsys):
    text = str(corpus / "*.txt")
    assert main(["prepare", "--input", text, "--vocab-size", "160"]) == 0
    assert "prepare_seconds" in capsys.readouterr().out


def test_no_repeats_is_no_measurement(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["train", "--repeats", "0"])
    assert stop.value.code == 2
    assert "0 must be at least 1" in capsys.readouterr().err


def test_model_flops_of_base_by_hand():
    """12 layers of 4·768² + 2·768·3072 weights, 128 tokens, 20 predictions."""
    layers = 12 * (6 * (4 * 768**2 + 2 * 768 * 3072) + 12 * 128 * 768) * 128
    head = 20 * 6 * (768**2 + 768 * 30522)
    pooler = 6 * (768**2 + 2 * 768)
    found = pretraining_flops(BertConfig.base(), 1, 128, 20)
    assert found == layers + head + pooler


def test_peaks():
    assert peak_flops_per_second("NVIDIA H100 80GB HBM3") == 989e12
    assert peak_flops_per_second("TPU v5 lite") == 197e12
    assert peak_flops_per_second("cpu") is None

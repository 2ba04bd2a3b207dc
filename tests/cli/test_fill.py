"""`bert-jax fill`: texts on the command line, and lines as they come."""

import json

import pytest
from run_helpers import answered_at_once

import bert_jax
from bert_jax.cli.main import main

ONE, TWO = "The [MASK] reads the letter.", "The <mask> reads the <mask>."


@pytest.fixture(scope="module")
def fillings(pretrained):
    return bert_jax.load(pretrained).fill_mask([ONE, TWO], top_k=2)


def test_texts_are_shown_with_a_line_for_each_mask(pretrained, fillings, capsys):
    assert main(["fill", ONE, TWO, "--model", str(pretrained), "--top-k", "2"]) == 0
    shown = [
        "  ".join(f"{t} {p:.1%}" for t, p in m) for m in fillings[:1] + fillings[1]
    ]
    lines = [ONE, f"  {shown[0]}", TWO, f"  1. {shown[1]}", f"  2. {shown[2]}"]
    assert capsys.readouterr().out.splitlines() == lines


def test_lines_are_answered_as_they_come(pretrained, fillings, monkeypatch):
    command = ["fill", str(pretrained), "--json", "--top-k=2"]
    lines = answered_at_once(monkeypatch, command, [ONE, TWO])
    for line, text, masks in zip(
        lines, (ONE, TWO), ([fillings[0]], fillings[1]), strict=True
    ):
        answer = json.loads(line)
        assert answer["text"] == text and len(answer["masks"]) == len(masks)
        for mask, expected in zip(answer["masks"], masks, strict=True):
            found = {each["token"]: each["probability"] for each in mask}
            assert found == pytest.approx(dict(expected), rel=1e-4)


def test_json_is_json_whatever_the_text_holds(pretrained, capsys):
    text = "The\xa0[MASK]\x9b31m reads\u2028the \U000e0001letter."
    assert main(["fill", text, "--json", "--model", str(pretrained)]) == 0
    output = capsys.readouterr().out
    assert json.loads(output)["text"] == text and "\x9b" not in output


def test_a_text_that_is_not_utf8_is_named(pretrained, capsys):
    assert main(["fill", "\udcff [MASK]", ONE, "--model", str(pretrained)]) == 2
    output, error = capsys.readouterr()
    assert "text 1=" in error and "half of a surrogate pair" in error
    assert output.splitlines()[0] == ONE and error.count("\n") == 1


def test_a_text_without_a_mask_is_named_and_the_others_are_filled(pretrained, capsys):
    texts = "no mask", ONE, "[MASK] " * 40
    assert main(["fill", *texts, "--model", str(pretrained), "--top-k", "1"]) == 2
    output, error = capsys.readouterr()
    first, second = error.splitlines()
    assert first.startswith("bert-jax: text 1 holds no [MASK]; write it in place of")
    assert second.startswith("bert-jax: text 3 has 42 tokens,")
    assert output.splitlines()[0] == ONE and output.count("\n") == 2


def test_a_model_that_fills_no_masks(encoder_checkpoint, refused):
    assert "The model has no masked_lm head" in refused(
        "fill", ONE, "--model", str(encoder_checkpoint)
    )
    assert "fill needs --model" in refused("fill", ONE)
    assert "runs/mien does not exist; name" in refused("fill", "runs/mien", ONE)

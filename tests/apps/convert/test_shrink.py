"""A model of some of a model's layers."""

import dataclasses
import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from etils import epath
from run_helpers import read_arrays

import bert_jax
from bert_jax.apps.convert.shrink import shrink
from bert_jax.cli.main import main
from bert_jax.config.embedding import Embedding
from bert_jax.inference.predictor import Predictor
from bert_jax.pretrained import load_pretrained, run_config, write_checkpoint


def saved(checkpoint: Path) -> dict[str, np.ndarray]:
    return read_arrays(checkpoint, "state")


def test_the_layers_kept_are_renumbered_and_unchanged(
    teacher_checkpoint, tmp_path, capsys
):
    output, layers = tmp_path / "student", ["--layers", "0", "2"]
    command = ["convert", "shrink", str(teacher_checkpoint), *layers]
    assert main([*command, "--output", str(output)]) == 0
    assert "layers 0 2 of the 4 of" in capsys.readouterr().out
    teacher, student = saved(teacher_checkpoint), saved(output)
    moved = {"/layer_0/": "/layer_0/", "/layer_1/": "/layer_2/"}
    for name, leaf in student.items():
        for new, old in moved.items():
            if new in name:
                name = name.replace(new, old)
                break
        np.testing.assert_array_equal(leaf, teacher[name])
    left_out = {n for n in teacher if "/layer_1/" in n or "/layer_3/" in n}
    assert len(student) == len(teacher) - len(left_out) and len(left_out) == 32
    receipt = json.loads((output / "conversion.json").read_text())
    assert receipt["layers"] == {"layer_0": "layer_0", "layer_1": "layer_2"}
    manifest = json.loads((teacher_checkpoint / "manifest.json").read_text())
    assert receipt["sources"] == manifest["files"]
    assert main(["inspect", str(output), "--verify"]) == 0


def test_the_student_computes_the_first_layers_of_its_teacher(
    teacher_checkpoint, tmp_path
):
    shrink(str(teacher_checkpoint), [0, 1], epath.Path(tmp_path / "student"))
    teacher, student = map(bert_jax.load, (teacher_checkpoint, tmp_path / "student"))
    assert student.config.num_hidden_layers == 2
    inputs = bert_jax.text_inputs(teacher.tokenizer, ["The judge reads a letter."], 16)
    whole, part = (
        jax.jit(lambda params, bert=bert: bert_jax.compute(
            bert.config, params, "hidden_states", inputs
        ))(bert.params)
        for bert in (teacher, student)
    )  # fmt: skip
    assert len(whole) == 5 and len(part) == 3
    np.testing.assert_allclose(part[-1], whole[2], atol=1e-6)
    assert not np.allclose(whole[2], whole[4], atol=0.1)


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ("", "--layers has no layer; name those to keep"),
        ("0 4", "--layers has 4, and the model has 4 layers; they are counted from 0"),
        ("-1", "--layers has -1, and the model has 4 layers"),
        ("0 2 2", "--layers has a layer twice, in 0 2 2"),
        ("2 0", "--layers has 2 0, which is not in order"),
        ("0 1 2 3", "--layers has all 4 layers of the model; leave some out."),
    ],
)
def test_refused_layers(layers, message, teacher_checkpoint, tmp_path, refused):
    output = ["--output", str(tmp_path / "out")]
    command = ["convert", "shrink", str(teacher_checkpoint), *output]
    error = refused(*command, "--layers", *layers.split())
    assert message in error
    assert list(tmp_path.iterdir()) == []


def test_the_command_that_is_printed_can_be_pasted(
    teacher_checkpoint, tmp_path, capsys
):
    teacher = tmp_path / "my teacher"
    teacher.symlink_to(teacher_checkpoint)
    command = ["convert", "shrink", str(teacher), "--layers", "0"]
    assert main([*command, "--output", str(tmp_path / "out")]) == 0
    assert f"with --teacher '{teacher}'." in capsys.readouterr().out


def test_what_was_fine_tuned_keeps_how_its_rows_are_read(
    encoder_checkpoint, classifier, reviews, tmp_path
):
    """Also in memory, where its directory is gone."""
    moved = shutil.copytree(classifier, tmp_path / "run")
    bert = bert_jax.load(moved)
    shutil.rmtree(moved)
    scores, _ = bert_jax.evaluate(bert, str(reviews))
    assert scores == bert_jax.evaluate(classifier, str(reviews))[0]
    bert.embedding = Embedding(pooling="cls")
    again = bert_jax.load(bert.save(tmp_path / "saved", "checkpoint"))
    assert again.embedding == bert.embedding and again.model.run["task"]
    assert again.data == bert.data and again.data.text_columns == ("review",)
    model = load_pretrained(str(classifier))
    deeper = dataclasses.replace(
        model,
        config=dataclasses.replace(model.config, num_hidden_layers=2),
        params=model.params
        | {
            "encoder": model.params["encoder"]
            | {"layer_1": model.params["encoder"]["layer_0"]}
        },
    )
    write_checkpoint(deeper, {}, epath.Path(tmp_path / "deep"), run_config(deeper))
    shrink(str(tmp_path / "deep"), [0], epath.Path(tmp_path / "student"))
    student, _ = bert_jax.evaluate(tmp_path / "student", str(reviews))
    assert student == scores


def test_a_predictor_of_ones_own_is_scored_by_its_data(classifier, reviews):
    """There is no directory that it was read from."""
    bert = bert_jax.load(classifier)
    own = Predictor(bert.config, bert.params, bert.tokenizer, data=bert.data)
    assert (
        bert_jax.evaluate(own, str(reviews))[0]
        == (bert_jax.evaluate(classifier, str(reviews))[0])
    )

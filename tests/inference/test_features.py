"""Features of tokens, to files too."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bert_jax
from bert_jax.cli.main import main
from bert_jax.inference.features import features, write_features
from bert_jax.model.bert import head_outputs
from bert_jax.model.inputs import Inputs

TEXTS = ["The clerk reads the letter.", "Rain.", "The baker opens the door. " * 3]


@pytest.fixture(scope="module")
def bert(pretrained):
    return bert_jax.load(pretrained)


def hidden_states(bert, text):
    """[L + 1, T, D] of a text alone, without any padding."""
    t = bert.tokenizer
    ids = jnp.array([[t.cls_id, *t.encode(text).ids, t.sep_id]], jnp.int32)
    compiled = jax.jit(head_outputs, static_argnums=0)
    outputs = compiled(bert.config, bert.params, Inputs(ids, ids * 0, ids > -1))
    return np.asarray(outputs["hidden_states"])[:, 0]


def test_features_are_the_hidden_states_of_each_text_alone(bert):
    for layers, combine in (((-1,), "concatenate"), ((0, 1), "concatenate")):
        found = bert.features(TEXTS, layers, combine)
        for text, each in zip(TEXTS, found, strict=True):
            states = hidden_states(bert, text)
            expected = np.concatenate([states[layer] for layer in layers], axis=-1)
            np.testing.assert_allclose(each.vectors, expected, atol=1e-5)
    for text, each in zip(TEXTS, bert.features(TEXTS, (0, -1), "sum"), strict=True):
        states = hidden_states(bert, text)
        np.testing.assert_allclose(each.vectors, states[0] + states[-1], atol=1e-5)


def test_tokens_stand_where_the_offsets_say(bert):
    (found,) = bert.features(["The clerk reads."])
    assert (found.tokens[0], found.tokens[-1]) == ("[CLS]", "[SEP]")
    assert (found.offsets[[0, -1]] == -1).all()
    starts, ends = found.offsets[1:-1].T
    pieces = ["The clerk reads."[a:b] for a, b in zip(starts, ends, strict=True)]
    assert "".join(pieces) == "Theclerkreads."


def test_layers_that_are_not_there_are_refused(bert):
    with pytest.raises(ValueError, match="layer 2 is none of the model's"):
        bert.features(["a"], (2,))
    with pytest.raises(ValueError, match="layers is empty"):
        bert.features(["a"], ())
    with pytest.raises(ValueError, match="'mean' must be concatenate or sum"):
        bert.features(["a"], (-1,), "mean")


def test_files_hold_what_python_gives(bert, pretrained, tmp_path, capsys):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    expected = bert.features(TEXTS, (-1, 0), "sum")
    options = ["--model", str(pretrained), "--input", str(tmp_path / "texts.txt")]
    options += ["--layers", "-1", "0", "--combine", "sum"]
    for name in ("out.npz", "out.jsonl"):
        output = tmp_path / name
        assert main(["features", *options, "--output", str(output)]) == 0
    assert "features of 3 lines of" in capsys.readouterr().out
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    arrays = np.load(tmp_path / "out.npz")
    for number, (line, each) in enumerate(zip(lines, expected, strict=True)):
        read = json.loads(line)
        assert read["tokens"] == each.tokens
        assert read["offsets"] == each.offsets.tolist()
        np.testing.assert_allclose(read["vectors"], each.vectors, atol=1e-5)
        part = slice(*arrays["starts"][number : number + 2])
        assert arrays["tokens"][part].tolist() == each.tokens
        np.testing.assert_allclose(arrays["vectors"][part], each.vectors, atol=1e-5)


def test_a_failure_leaves_no_file_behind(bert, tmp_path):
    def failing():
        yield features(bert.model, TEXTS[:1])
        raise RuntimeError("stopped")

    with pytest.raises(ValueError, match=r"must end in .npz or .jsonl"):
        write_features(iter(()), tmp_path / "out.csv")
    for name in ("out.npz", "out.jsonl"):
        with pytest.raises(RuntimeError, match="stopped"):
            write_features(failing(), tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("content", "output", "says"),
    [
        (b"Rain.\n" + b"rain " * 60, "out.npz", "texts.txt, line 2 has 122 tokens"),
        (b"", "out.npz", "There is no text to write to"),
        (b"", "out.jsonl", "There is no text to write to"),
        (b"Rain.\nr\xffn\n", "out.jsonl", "texts.txt, line 2: byte 0xff at 7 is not"),
        (b"Rain.\n", "out.csv", "must end in .npz or .jsonl, to define the format"),
        (b"Rain.\n", "none/out.npz", "none is not a directory; make it first"),
    ],
)
def test_files_that_have_no_features(
    content, output, says, pretrained, tmp_path, refused
):
    source = tmp_path / "texts.txt"
    source.write_bytes(content)
    options = ["--model", str(pretrained), "--input", str(source)]
    error = refused("features", *options, "--output", str(tmp_path / output))
    assert says in error
    assert list(tmp_path.iterdir()) == [source], "nothing half-written"


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_a_table_is_said_to_be_read_by_lines(name, pretrained, tmp_path, capsys):
    (tmp_path / name).write_text("text,label\nRain.,1\n")
    options = ["--input", str(tmp_path / name), "--output", str(tmp_path / "out.npz")]
    assert main(["features", "--model", str(pretrained), *options]) == 0
    assert f"{name} is a table, and a text a line is read;" in capsys.readouterr().err


def test_a_byte_order_mark_is_no_text(pretrained, tmp_path):
    options = ["--model", str(pretrained), "--output", str(tmp_path / "out.jsonl")]
    options.append("--overwrite")
    found = []
    for encoding in ("utf-8", "utf-8-sig"):
        (tmp_path / "a.txt").write_text("Rain.\n", encoding)
        assert main(["features", *options, "--input", str(tmp_path / "a.txt")]) == 0
        found.append((tmp_path / "out.jsonl").read_text())
    assert found[0] == found[1]

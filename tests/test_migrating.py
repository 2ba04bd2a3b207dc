"""docs/migrating.md: its names exist, and its program runs."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from huggingface_files import stored

import bert_jax
from bert_jax.cli.main import main
from bert_jax.config import BertConfig
from bert_jax.formats.names import names_of

PAGE = (Path(__file__).parents[1] / "docs" / "migrating.md").read_text()
TF1_ROWS = re.findall(
    r"^\| `([\w/]+)` \| `([\w/]+)` \| \[(.*)\] \|$", PAGE, re.MULTILINE
)
ROWS = re.findall(r"^\| `([^`]*)` \| `([^`]*)` \|$", PAGE, re.MULTILINE)
PARAMETERS = [row for row in ROWS if re.match("(bert|cls)/", row[0])]


def test_the_table_of_parameters_is_that_of_the_importer():
    """FlaxBert's names are those of TensorFlow's, but for the ends of leaves."""
    ours = {name.ours: name.tf1 for name in names_of(BertConfig())}
    assert len(PARAMETERS) == 15
    for theirs, name in PARAMETERS:
        tf1 = theirs.replace("layer/0", "layer_0").removesuffix("/embedding")
        matches = {leaf: path for leaf, path in ours.items() if leaf.startswith(name)}
        assert matches, name
        for leaf, path in matches.items():
            if leaf in ("masked_lm/bias", "next_sentence/dense/kernel"):
                assert "output_" in path  # named otherwise in TensorFlow
            elif leaf != "next_sentence/dense/bias":
                assert path.startswith(tf1), (leaf, path)


def test_tensorflows_names_and_shapes_are_those_of_the_importer():
    config = BertConfig(head="pretraining")
    names = {name.tf1: name for name in names_of(config)}
    sizes = {
        "V": config.vocab_size,
        "P": config.max_position_embeddings,
        "D": config.hidden_size,
        "F": config.intermediate_size,
        "2": 2,
    }
    assert len(TF1_ROWS) == 17
    for theirs, ours, shape in TF1_ROWS:
        assert names[theirs].ours == ours
        assert names[theirs].shape == tuple(sizes[key] for key in shape.split(", "))


def test_options_exist(capsys):
    """Those of google-research/bert's two programs, each at the verb that has it."""
    texts = {}
    for verb in ("prepare", "pretrain"):
        with pytest.raises(SystemExit):
            main([verb, "--help"])
        texts[verb] = capsys.readouterr().out
    part = PAGE[PAGE.index("| `create_pretraining_data.py`") :]
    verb, found = "", 0
    for row in part[: part.index("| `run_classifier.py")].splitlines():
        ours = row.split("|")[2]
        if command := re.search("bert-jax ([a-z]+)", ours):
            verb = command[1]
        for option in re.findall("--[a-z.-]+", ours):
            assert option in texts["pretrain" if "of `pretrain`" in ours else verb]
            found += 1
    assert found > 15


def test_the_program_runs(tmp_path):
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    folder = stored("BertForMaskedLM").write(tmp_path / "model")
    program = program.replace("hf:google-bert/bert-base-uncased", str(folder))
    program = program.replace("101, 1996, 103, 2938, 1012, 102", "2, 7, 4, 9, 8, 3")
    values: dict[str, object] = {}
    exec(program, values)
    hidden, probabilities = values["hidden"], values["probabilities"]
    config = bert_jax.load(folder).config
    assert hidden.shape == (1, 6, config.hidden_size) and hidden.dtype == jnp.float32
    assert probabilities.shape == (1, 1, config.vocab_size)
    assert jax.device_get(probabilities).sum() == pytest.approx(1, abs=1e-5)

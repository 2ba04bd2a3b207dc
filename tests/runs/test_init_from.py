"""Pretraining that starts from an imported model."""

import dataclasses
import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import chex
import jax
import numpy as np
import pytest
from etils import epath
from huggingface_files import stored
from run_helpers import write_config

import bert_jax
from bert_jax.apps.convert.receipts import write_imported
from bert_jax.apps.dry_run.pretraining import dry_run
from bert_jax.cli.main import main
from bert_jax.config import (
    BertConfig,
    DataConfig,
    MaskingConfig,
    MeshConfig,
    OptimizerConfig,
    PrepareConfig,
    PretrainConfig,
)
from bert_jax.data.prepare import prepare
from bert_jax.data.records import Dataset
from bert_jax.distributed.sharding import path_name
from bert_jax.formats.huggingface import read_huggingface
from bert_jax.formats.imported import Imported
from bert_jax.model.bert import init_params
from bert_jax.runs.init_from import open_source
from bert_jax.runs.pretraining import pretrain
from bert_jax.runs.pretraining_run import open_run
from bert_jax.tokenization import Tokenizer
from bert_jax.training.step import split_seed

Params = dict[str, Any]


@pytest.fixture(scope="module")
def config(small_config: PretrainConfig) -> PretrainConfig:
    """One step with a learning rate of 0: it saves its initial parameters."""
    return dataclasses.replace(
        small_config,
        num_steps=1,
        optimizer=OptimizerConfig(warmup_steps=1, peak_learning_rate=1e-3),
    )


def drawn(config: PretrainConfig, seed: int) -> Params:
    """The parameters that a run of that seed draws."""
    key, _ = split_seed(seed)
    return init_params(config.model, key)


def imported(
    config: PretrainConfig,
    dataset: Dataset,
    folder: Path,
    params: Params,
    **fields: Any,
) -> PretrainConfig:
    """Write a checkpoint of `params`; return the run that starts from it."""
    model = dataclasses.replace(config.model, **fields)
    contents = Imported(model, params, dataset.tokenizer, (), (), (), ())
    write_imported(contents, epath.Path(folder))
    return dataclasses.replace(config, init_from=str(folder))


def assert_same(one: Any, other: Any) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(one):
        values = other
        for part in path_name(path).split("/"):
            values = values[part]
        np.testing.assert_array_equal(leaf, values, err_msg=path_name(path))


@pytest.mark.parametrize(
    ("heads", "note"),
    [
        pytest.param((), "", marks=pytest.mark.slow),
        pytest.param(("pooler",), " Drawn by seed 0: pooler.", marks=pytest.mark.slow),
        pytest.param(
            ("pooler", "masked_lm", "next_sentence"),
            " Drawn by seed 0: masked_lm, next_sentence, pooler.",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_heads_that_are_not_there_are_drawn(
    heads, note, config, dataset, tmp_path, capsys
):
    theirs, fresh = drawn(config, 7), drawn(config, 0)
    given = {name: part for name, part in theirs.items() if name not in heads}
    run = imported(config, dataset, tmp_path / "model", given)
    pretrain(run, tmp_path / "run")
    saved = bert_jax.load(tmp_path / "run").params
    assert_same(given, saved)
    for name in heads:  # drawn in another program, which may round otherwise
        chex.assert_trees_all_close(fresh[name], saved[name], rtol=1e-5)
    kernels = (p["encoder"]["layer_0"]["attention"] for p in (theirs, fresh))
    one, other = (np.asarray(p["query"]["kernel"]) for p in kernels)
    assert (one != other).any(), "the seeds must draw different parameters"
    parameters = "only its parameters: the optimizer is new, and steps count from 0."
    line = f"From {tmp_path / 'model'}, {parameters}{note}\n"
    assert line in capsys.readouterr().out


@pytest.mark.slow
def test_a_head_that_the_run_lacks_is_not_loaded(config, dataset, tmp_path, capsys):
    params = drawn(config, 7)
    params["classifier"] = {"dense": {"bias": np.zeros(3, np.float32)}}
    pretrain(imported(config, dataset, tmp_path / "model", params), tmp_path / "run")
    assert " Not used: classifier.\n" in capsys.readouterr().out
    assert "classifier" not in bert_jax.load(tmp_path / "run").params


def lacks_a_layer(params: Params) -> None:
    del params["encoder"]["layer_0"]


def lacks_the_encoder(params: Params) -> None:
    del params["encoder"]


def lacks_half_a_head(params: Params) -> None:
    del params["masked_lm"]["bias"]


def other_width(params: Params) -> None:
    params["pooler"]["dense"]["bias"] = np.zeros(7, np.float32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lacks_a_layer,
            "layer_0/attention/key/bias is absent and should be .16,.; .*1",
        ),
        (lacks_the_encoder, "layer_norm/bias is absent and should be .16,.; .* 21 in"),
        (lacks_half_a_head, "masked_lm/bias is absent and should be .160,.; 1 in all"),
        (other_width, r"pooler/dense/bias is \(7,\) and should be \(16,\); 1 in all"),
    ],
)
def test_other_parameters_are_refused(
    change: Callable[[Params], None], message, config, dataset, tmp_path
):
    params = jax.tree.map(np.asarray, drawn(config, 7))
    change(params)
    run = imported(config, dataset, tmp_path / "model", params)
    for start in (dry_run, pretrain):
        with pytest.raises(ValueError, match=message):
            start(run, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("field", "value", "other", "message"),
    [
        (
            "hidden_act",
            "relu",
            "gelu_new",
            "hidden_act=gelu_new but .* has hidden_act=relu; leave",
        ),
        (
            "layer_norm_eps",
            1e-5,
            1e-6,
            "layer_norm_eps=1e-06 but .*_eps=1e-05; leave the o",
        ),
    ],
)
def test_another_computation_is_taken_or_refused(
    field, value, other, message, config, dataset, tmp_path, capsys
):
    """It is taken where the option was not given."""
    params = drawn(config, 7)
    run = imported(config, dataset, tmp_path / "model", params, **{field: value})
    dry_run(run, "")
    assert f"As {tmp_path / 'model'}: {field}={value}." in capsys.readouterr().out
    model = dataclasses.replace(run.model, **{field: other})
    with pytest.raises(ValueError, match=message):
        pretrain(dataclasses.replace(run, model=model), tmp_path / "run")


def test_a_shape_that_fits_neither_rows_nor_options(config, dataset, tmp_path):
    params = drawn(config, 7)
    run = imported(config, dataset, tmp_path / "model", params)
    heads = dataclasses.replace(BertConfig(vocab_size=0), num_attention_heads=3)
    with pytest.raises(ValueError, match="num_attention_heads=3 but .*_heads=1; leave"):
        dry_run(dataclasses.replace(run, model=heads), "")
    short = dataclasses.replace(config.model, max_position_embeddings=16)
    short_config = dataclasses.replace(config, model=short, data=DataConfig())
    source = imported(short_config, dataset, tmp_path / "short", drawn(short_config, 7))
    source = dataclasses.replace(source, data=run.data, model=BertConfig(vocab_size=0))
    with pytest.raises(ValueError, match="has 16 positions, and the rows have 32"):
        dry_run(source, "")


def test_mesh_and_rows_are_checked_by_the_shape_of_the_source(
    config, dataset, tmp_path
):
    """The configuration's own shape, with 12 heads and few positions, is replaced."""
    short = BertConfig(vocab_size=0, max_position_embeddings=16)

    def start(heads: int) -> object:
        params, folder = drawn(config, 7), tmp_path / f"{heads}"
        run = imported(config, dataset, folder, params, num_attention_heads=heads)
        mesh = MeshConfig(data=1, tensor=8)
        run = dataclasses.replace(run, model=short, mesh=mesh)
        return dry_run(run, "", named_shape={})

    assert start(8)
    with pytest.raises(ValueError, match="tensor=8 does not divide .*heads=4; 4 would"):
        start(4)


@pytest.mark.slow
def test_the_shape_is_that_of_the_source(config, dataset, tmp_path, capsys):
    """A run that starts from a model needs no option of its shape, nor to resume."""
    source = imported(config, dataset, tmp_path / "model", drawn(config, 7))
    plain = dataclasses.replace(source, model=BertConfig(vocab_size=0), num_steps=2)
    pretrain(plain, tmp_path / "run")
    assert f"As {tmp_path / 'model'}: hidden_size=" in capsys.readouterr().out
    written = json.loads((tmp_path / "run" / "config.json").read_text())["model"]
    assert written["hidden_size"] == config.model.hidden_size
    assert written["num_hidden_layers"] == config.model.num_hidden_layers
    longer = dataclasses.replace(plain, num_steps=3)
    pretrain(longer, tmp_path / "run", extend=True)
    assert "hidden_size=" not in capsys.readouterr().out


@pytest.mark.slow
def test_a_shape_in_a_file_gives_way_and_an_option_must_agree(
    config, dataset, tmp_path, capsys, refused
):
    """One line names every difference, before any of them is refused by itself."""
    source = imported(config, dataset, tmp_path / "model", drawn(config, 7))
    shape = {"hidden_size": 512, "num_attention_heads": 8, "layer_norm_eps": 1e-6}
    other = dataclasses.replace(
        config, model=dataclasses.replace(config.model, **shape)
    )
    file = write_config(other, tmp_path / "large.py")
    command = ["pretrain", str(file), "--init-from", source.init_from, "--dry-run"]
    same = ["--model.hidden-size=16", "--model.layer-norm-eps", "0.000000000001"]
    for options in ([], same):
        assert main([*command, *options]) == 0
        output = capsys.readouterr().out
        taken = "hidden_size=16, num_attention_heads=1, layer_norm_eps=1e-12."
        assert f"As {tmp_path / 'model'}: {taken}" in output
    named = ["--model.num-attention-heads=12", "--model.hidden_size", "768"]
    error = refused(*command, *named)
    given = "model: num_attention_heads=12, hidden_size=768 but "
    assert given in error and "has num_attention_heads=1, hidden_size=16; lea" in error


@pytest.mark.slow
def test_a_dry_run_names_the_source(config, dataset, tmp_path):
    params = {"encoder": drawn(config, 7)["encoder"]}
    run = imported(config, dataset, tmp_path / "model", params)
    *_, source = itertools.islice(dry_run(run, ""), 4)
    assert source.endswith(" Drawn by seed 0: masked_lm, next_sentence, pooler.")
    assert "From " not in "".join(dry_run(config, ""))


@pytest.mark.slow
def test_a_dry_run_refuses_the_workdir_of_another_run(config, tmp_path):
    pretrain(config, tmp_path)
    other = dataclasses.replace(config, seed=1)
    with pytest.raises(ValueError, match="belongs to another run: seed was 0"):
        dry_run(other, tmp_path)


@pytest.mark.slow
def test_a_dry_run_reports_a_kept_optimizer(config, tmp_path):
    pretrain(config, tmp_path / "first")
    run = dataclasses.replace(
        config,
        init_from=str(tmp_path / "first"),
        keep_optimizer=True,
        num_steps=2,
    )
    *_, line = itertools.islice(dry_run(run, ""), 4)
    assert line == (
        f"From {tmp_path / 'first'}, with its optimizer state and its step."
    )
    # Another seed orders the rows; the keys of masks go on, in both.
    run = dataclasses.replace(run, seed=1)
    lines = list(dry_run(run, "", verbose=True))
    assert any("follow its random keys (seed 0); seed=1 decides" in x for x in lines)
    pretrain(run, tmp_path / "second")
    trained = open_run(str(tmp_path / "second"))
    row = int(trained.task.row_numbers(1)[0])
    masked = trained.masked_row(row, 1, 0).masked
    positions = np.asarray(masked.predicted[0])[np.flatnonzero(masked.weights[0])]
    shown = next(x for x in lines if x.startswith("  to predict: "))
    assert [int(n) for n in re.findall(r"(?:^|; |: )(\d+): ", shown)] == sorted(
        positions.tolist()
    )


def test_the_record_of_a_vocabularys_training_may_differ(config, dataset, tmp_path):
    """A run's export for transformers has none, and fits the dataset of the run."""
    learned = dataset.tokenizer.config | {"training": {"words": 9}}
    tokenizer = Tokenizer(learned, dataset.tokenizer.files["vocab.txt"])
    contents = Imported(config.model, drawn(config, 7), tokenizer, (), (), (), ())
    write_imported(contents, epath.Path(tmp_path / "model"))
    run = dataclasses.replace(config, init_from=str(tmp_path / "model"))
    params, _ = open_source(run, dataset, None)
    assert_same(params, contents.params)


def test_no_optimizer_can_be_kept(config, dataset, tmp_path):
    run = imported(config, dataset, tmp_path / "model", drawn(config, 7))
    with pytest.raises(ValueError, match="was imported and has no optimizer; leave th"):
        pretrain(dataclasses.replace(run, keep_optimizer=True), tmp_path / "run")


def test_a_run_starts_from_hugging_faces_files(config, dataset, corpus, tmp_path):
    """Text is to be prepared by the model's own tokenizer, which an import holds."""
    folder = stored("BertForMaskedLM").write(tmp_path / "model")
    contents = read_huggingface(epath.Path(folder))
    model = dataclasses.replace(contents.config, head="pretraining")
    run = dataclasses.replace(
        config,
        model=model,
        data=DataConfig(sequence_length=20),
        masking=MaskingConfig(max_predictions=3),
        init_from=str(folder),
    )
    with pytest.raises(ValueError, match="different tokenizers; make a checkpoint of"):
        open_source(run, dataset, None)
    write_imported(contents, epath.Path(tmp_path / "checkpoint"))
    prepared = PrepareConfig(
        input=(str(corpus / "*.txt"),),
        tokenizer=str(tmp_path / "checkpoint" / "tokenizer"),
        output=str(tmp_path / "rows"),
        sequence_length=20,
        workers=1,
    )
    prepare(prepared)
    data = DataConfig(path=prepared.output, sequence_length=20)
    pretrain(dataclasses.replace(run, data=data), tmp_path / "run")
    assert_same(contents.params, bert_jax.load(tmp_path / "run").params)

"""Pretraining on every kind of pair, and with every unit of masking."""

import dataclasses
import functools
import json

import jax
import numpy as np
import pytest
from float64 import AGREEMENT, in_float64, widened

import bert_jax
from bert_jax.apps.dry_run.describe import details
from bert_jax.config import DataConfig, MeshConfig, PrepareConfig
from bert_jax.data.prepare import prepare
from bert_jax.data.records import open_dataset
from bert_jax.runs.pretraining import pretrain, resolve
from bert_jax.tasks.pretraining.task import PretrainingTask

PAIR_SCORES = {
    "nsp": {"nsp_loss", "nsp_accuracy"},
    "sop": {"sop_loss", "sop_accuracy"},
    "none": set(),
}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("nsp", marks=pytest.mark.slow),
        "sop",
        pytest.param("none", marks=pytest.mark.slow),
    ],
)
def prepared(request, corpus, tokenizer_directory, tmp_path_factory):
    """The tests' corpus with each kind of pairs: the kind, and the dataset's path."""
    output = tmp_path_factory.mktemp(request.param) / "rows"
    prepare(
        PrepareConfig(
            input=(str(corpus / "*.txt"),),
            tokenizer=str(tokenizer_directory),
            output=str(output),
            sequence_length=32,
            pairs=request.param,
            validation_fraction=0.1,
            workers=1,
        )
    )
    return request.param, output


UNITS = {"nsp": "whole_word", "sop": "span", "none": "token"}


@pytest.mark.slow
def test_each_kind_of_pair_and_each_unit_of_masking_trains(
    prepared, small_config, tmp_path
):
    pairs, path = prepared
    data = DataConfig(path=str(path), sequence_length=32)
    masking = dataclasses.replace(small_config.masking, unit=UNITS[pairs])
    config = dataclasses.replace(small_config, data=data, masking=masking, num_steps=4)
    scores = pretrain(config, tmp_path)
    assert 0 < scores["mlm_loss"] < 10
    assert scores["unigram_loss"] > 0
    lines = [
        json.loads(x) for x in (tmp_path / "metrics.jsonl").read_text().split("\n")[:-1]
    ]
    for line in [*lines, scores]:
        of_pairs = {name for name in line if name.startswith(("nsp", "sop"))}
        assert of_pairs == PAIR_SCORES[pairs]
    parts = [
        lines[0][name] for name in ("mlm_loss", f"{pairs}_loss") if name in lines[0]
    ]
    assert lines[0]["loss"] == pytest.approx(sum(parts))
    bert = bert_jax.load(tmp_path)
    if pairs == "nsp":
        assert 0 < bert.next_sentence("The judge reads.", "The judge writes.") < 1
    else:
        with pytest.raises(ValueError, match=f"pretrained with pairs={pairs}"):
            bert.next_sentence("The judge reads.", "The judge writes.")


@pytest.mark.slow
def test_pairs_without_a_loss_of_theirs(small_config, tmp_path):
    """The same rows and masks, and the tokens' loss alone (Liu et al. 2019, §4.2)."""
    short = dataclasses.replace(small_config, num_steps=2, eval_every=2, log_every=1)
    with_pairs = pretrain(short, tmp_path / "pairs")
    alone = pretrain(dataclasses.replace(short, pair_loss=False), tmp_path / "alone")
    assert {name for name in alone if name.startswith("nsp")} == set()
    first, other = (
        json.loads((tmp_path / name / "metrics.jsonl").read_text().split("\n")[0])
        for name in ("pairs", "alone")
    )
    assert other["mlm_loss"] == first["mlm_loss"] == other["loss"]
    assert first["loss"] > other["loss"]
    assert alone["mlm_loss"] != with_pairs["mlm_loss"]
    with pytest.raises(ValueError, match="not on whether a second segment follows"):
        bert_jax.load(tmp_path / "alone").next_sentence("The judge reads.", "A boy.")


def test_counts_name_what_the_labels_mean(prepared):
    pairs, path = prepared
    counts = open_dataset(path).manifest["counts"]["train"]
    shares = {name for name in counts if name.endswith("_share")}
    names = {"nsp": {"random_share"}, "sop": {"swapped_share"}, "none": set()}
    assert shares == names[pairs]
    assert open_dataset(path).manifest["pairs"] == pairs


def test_a_dataset_of_other_pairs_is_refused(prepared, small_config, tmp_path):
    pairs, path = prepared
    other = "sop" if pairs == "nsp" else "nsp"
    data = DataConfig(path=str(path), sequence_length=32, pairs=other)
    with pytest.raises(
        ValueError, match=f"data.pairs={other} but .* has {pairs}; leave"
    ):
        pretrain(dataclasses.replace(small_config, data=data), tmp_path)


@pytest.fixture(scope="module")
def packed(corpus, tokenizer_directory, tmp_path_factory):
    """The tests' corpus in rows of 64 with several pairs each, and unpacked."""
    folder = tmp_path_factory.mktemp("packed")
    datasets = []
    for pack in (True, False):
        config = PrepareConfig(
            input=(str(corpus / "*.txt"),),
            tokenizer=str(tokenizer_directory),
            output=str(folder / f"pack_{pack}"),
            sequence_length=64,
            pack=pack,
            validation_fraction=0.2,
            workers=1,
        )
        prepare(config)
        datasets.append(open_dataset(config.output))
    return datasets


def for_packed(small_config, dataset):
    model = dataclasses.replace(small_config.model, max_position_embeddings=64)
    data = DataConfig(path=str(dataset.path), sequence_length=64)
    masking = dataclasses.replace(small_config.masking, max_predictions=10)
    return dataclasses.replace(small_config, model=model, data=data, masking=masking)


@pytest.mark.slow
def test_packed_rows_are_trained_on_several_devices(packed, small_config, tmp_path):
    config = dataclasses.replace(
        for_packed(small_config, packed[0]),
        mesh=MeshConfig(data=2, fsdp=2),
        microbatches=2,
    )
    scores = pretrain(config, tmp_path)
    assert 0 < scores["nsp_loss"] < 2 and 0 < scores["unigram_loss"] < 5
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    losses = [x["mlm_loss"] for x in map(json.loads, lines) if x["split"] == "train"]
    assert len(losses) == 10 and losses[-1] < losses[0] - 0.2


def test_packed_rows_count_their_pairs_and_real_tokens(packed, small_config):
    counts, tasks = [], []
    for dataset in packed:
        config = resolve(for_packed(small_config, dataset), dataset)
        tasks.append(PretrainingTask(config, dataset))
        params = jax.jit(tasks[-1].init_params)(jax.random.key(0))
        evaluate = jax.jit(functools.partial(tasks[-1].evaluate, params))
        batches = list(tasks[-1].evaluation_batches())
        sums = [evaluate(batch)[0] for batch in batches]
        recorded = dataset.manifest["counts"]["validation"]
        assert sum(float(s["nsp_loss"][1]) for s in sums) == recorded["pairs"]
        assert sum(map(tasks[-1].num_tokens, batches)) == recorded["tokens"]
        counts.append((len(batches), recorded["tokens"], recorded["pairs"]))
    (few, *one), (many, *other) = counts
    assert few < many and one == other
    batch = tasks[0].batch(0)
    assert tasks[0].num_tokens(batch) == (batch["tokens"] > 0).sum()
    masked = jax.jit(tasks[0].corrupt)(batch, jax.random.key(0)).masked
    pair_ids = np.asarray(masked.inputs.pair_ids)
    assert (pair_ids > 0).sum() == tasks[0].num_tokens(batch)


def test_counts_are_those_of_the_losses(prepared, small_config):
    """Which they do not depend on: the gradient divides by them before the scores."""
    pairs, path = prepared
    dataset = open_dataset(path)
    data = DataConfig(path=str(path), sequence_length=32)
    config = resolve(dataclasses.replace(small_config, data=data), dataset)
    task = PretrainingTask(config, dataset)
    assert task.objective == (
        "mlm_loss",
        *(n for n in PAIR_SCORES[pairs] if "loss" in n),
    )
    params = jax.jit(task.init_params)(jax.random.key(0))
    batch = jax.jit(task.corrupt)(task.batch(0), jax.random.key(1))
    sums = jax.jit(task.loss)(params, batch, jax.random.key(2))
    counts = {name: float(count) for name, count in task.count(batch).items()}
    assert counts == {name: float(sums[name][1]) for name in task.objective}
    assert all(count > 0 for count in counts.values())


@pytest.mark.slow
def test_microbatches_are_evaluated_one_by_one(dataset, small_config):
    """Accumulation is for what does not fit into memory at once."""
    config = resolve(small_config, dataset)
    config = dataclasses.replace(config, model=in_float64(config.model))
    totals = []
    for microbatches in (1, 4):
        task = PretrainingTask(
            dataclasses.replace(config, microbatches=microbatches), dataset
        )
        batches = list(task.evaluation_batches())
        assert {len(batch["row"]) for batch in batches} == {8 // microbatches}
        with jax.enable_x64(True):
            params = widened(jax.jit(task.init_params)(jax.random.key(0)))
            evaluate = jax.jit(functools.partial(task.evaluate, params))
            sums = [evaluate(batch)[0]["mlm_loss"] for batch in batches]
        totals.append(np.array(sums).sum(0))
        assert len(task.batch(0)["row"]) == 8
    # The masks are those of the row, whatever batch it comes in.
    np.testing.assert_allclose(*totals, rtol=AGREEMENT)


def test_a_dry_run_shows_all_pairs_of_a_packed_row(packed, small_config):
    dataset = packed[0]
    config = resolve(for_packed(small_config, dataset), dataset)
    task = PretrainingTask(config, dataset)
    lines = list(details(config, dataset, task))
    place = next(i for i, x in enumerate(lines) if x.startswith("first batch, row 0"))
    rows, meanings = task.batch(0), {0: "follows", 1: "random"}
    labels = [
        meanings[label]
        for label, end in zip(
            rows["next_sentence_label"][0].tolist(), rows["end"][0], strict=True
        )
        if end
    ]
    assert f"(second segment: {', '.join(labels)})" in lines[place]
    assert lines[place + 1].split().count("[CLS]") == len(labels)
    assert "batch end: [8, 4] uint16" in lines
    manifest = dataset.manifest | {"pairs": "sop"}
    ordered = dataclasses.replace(dataset, manifest=manifest)
    said = list(details(config, ordered, task))[place]
    assert said == lines[place].replace("follows", "in order").replace(
        "random", "swapped"
    )


@pytest.mark.parametrize("field", ["mask_token_id", "vocab_size"])
def test_a_value_of_zero_is_no_unset_field(field, small_config, dataset):
    masking = dataclasses.replace(small_config.masking, **{field: 0})
    config = dataclasses.replace(small_config, masking=masking)
    with pytest.raises(ValueError, match=f"masking.{field}=0 but .* has"):
        resolve(config, dataset)

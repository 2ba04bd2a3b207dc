"""Pretraining on every kind of pair, and with every unit of masking."""

import dataclasses
import json

import pytest

import bert_jax
from bert_jax.config import DataConfig, PrepareConfig
from bert_jax.data.prepare import prepare
from bert_jax.data.records import open_dataset
from bert_jax.run import pretrain

PAIR_SCORES = {
    "nsp": {"nsp_loss", "nsp_accuracy"},
    "sop": {"sop_loss", "sop_accuracy"},
    "none": set(),
}


@pytest.fixture(scope="module", params=PAIR_SCORES)
def prepared(request, corpus, tokenizer_directory, tmp_path_factory):
    """The corpus of all tests with other pairs: the kind, and the dataset's path."""
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


def test_each_kind_of_pair_is_trained_and_reported_by_its_name(
    prepared, small_config, tmp_path
):
    pairs, path = prepared
    data = DataConfig(path=str(path), sequence_length=32)
    scores = pretrain(dataclasses.replace(small_config, data=data), tmp_path)
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
    with pytest.raises(ValueError, match=f"data.pairs={other} but .* with {pairs}"):
        pretrain(dataclasses.replace(small_config, data=data), tmp_path)


@pytest.mark.parametrize("unit", ["whole_word", "span"])
def test_every_unit_of_masking_trains(unit, small_config, tmp_path):
    masking = dataclasses.replace(small_config.masking, unit=unit)
    config = dataclasses.replace(small_config, masking=masking, num_steps=4)
    scores = pretrain(config, tmp_path)
    assert 0 < scores["mlm_loss"] < 10
    assert scores["unigram_loss"] > 0

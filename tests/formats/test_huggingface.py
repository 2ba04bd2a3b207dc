"""Models that transformers saved: what they compute here, and every way to save one."""

import json
from collections.abc import Callable
from pathlib import Path

import jax
import ml_dtypes
import numpy as np
import pytest
from etils import epath
from huggingface_files import HEADS, Files, reference, stored

import bert_jax
from bert_jax.apps.convert.extend import extend
from bert_jax.apps.convert.receipts import write_imported
from bert_jax.cli.main import main
from bert_jax.config import BertConfig
from bert_jax.distributed.sharding import path_name
from bert_jax.formats.huggingface import read_huggingface
from bert_jax.formats.imported import Imported
from bert_jax.formats.names import names_of
from bert_jax.model.bert import compute, head_outputs, init_params
from bert_jax.model.classifiers import CLASSIFIERS
from bert_jax.model.inputs import Inputs
from bert_jax.storage.manifest import sha256_of

TABLE = "bert.embeddings.word_embeddings.weight"
DECODER = "cls.predictions.decoder"


def read(folder: Path, allow_extra: bool = False) -> Imported:
    return read_huggingface(epath.Path(folder), allow_extra)


def flat(params) -> dict[str, np.ndarray]:
    return {
        path_name(path): np.asarray(leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(params)
    }


def assert_same(one, other) -> None:
    one, other = flat(one), flat(other)
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def as_transformers_names(head: str, found: dict[str, jax.Array]):
    """Our outputs under the names of transformers'."""
    named = {
        "hidden_states": found["hidden_states"],
        "pooler_output": found.get("pooled"),
        "prediction_logits": found.get("token_scores"),
        "seq_relationship_logits": found.get("pair_scores"),
        "logits": found.get("scores", found.get("token_scores")),
    }
    if head == "BertForQuestionAnswering":
        named["start_logits"] = found["scores"][:, :, 0]
        named["end_logits"] = found["scores"][:, :, 1]
    if head == "BertForMultipleChoice":
        named["logits"] = found["scores"].reshape(2, 2)
    return named


@pytest.mark.parametrize("head", HEADS)
def test_an_imported_model_computes_what_transformers_does(head, tmp_path):
    imported = read(stored(head).write(tmp_path / "model"))
    inputs, expected = reference(head)
    mask = inputs["attention_mask"] > 0
    ids, segments = inputs["input_ids"], inputs["segment_ids"]
    arrays = Inputs(*jax.device_put((ids, segments, mask)))
    outputs = head_outputs(imported.config, imported.params, arrays)
    found = as_transformers_names(head, outputs)
    assert len(expected) >= 2
    for name, values in expected.items():
        assert np.abs(values).max() > 0.1, f"{name} would equal zeros"
        # Float32 rounding of theirs and of ours, each 4e-6 of scores up to 30.
        np.testing.assert_allclose(found[name], values, rtol=0, atol=2e-5, err_msg=name)
    assert len(imported.leaves) == len(flat(imported.params))
    assert imported.fresh == imported.left_over == ()
    if imported.config.head in CLASSIFIERS:
        model = imported.config, imported.params
        scores = compute(*model, "classifier_scores", arrays)
        np.testing.assert_allclose(scores, outputs["scores"], atol=1e-6)


def initial(config: BertConfig):
    """The shapes of what a model of `config` draws."""
    return jax.eval_shape(lambda: init_params(config, jax.random.key(0)))


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("head", ["pretraining", *CLASSIFIERS])
def test_the_table_of_names_is_the_models_own(head, pooling):
    labelled = head.endswith("_classification")
    labels = ("a", "b", "c") if labelled else ()
    config = BertConfig.miniature(
        2, 32, vocab_size=60, head=head, labels=labels, pooling=pooling
    )
    ours = {
        path_name(path): leaf.shape
        for path, leaf in jax.tree_util.tree_leaves_with_path(initial(config))
    }
    assert {name.ours: name.shape for name in names_of(config)} == ours


def with_prefix(files: Files) -> None:
    files.tensors = {f"bert.{name}": x for name, x in files.tensors.items()}


def old_layer_norm(files: Files) -> None:
    files.rename("LayerNorm.weight", "LayerNorm.gamma")
    files.rename("LayerNorm.bias", "LayerNorm.beta")


def explicit_decoder(files: Files) -> None:
    files.tensors[f"{DECODER}.weight"] = files.tensors[TABLE].copy()
    files.tensors[f"{DECODER}.bias"] = files.tensors["cls.predictions.bias"].copy()
    files.config["tie_word_embeddings"] = False


def bias_of_decoder_alone(files: Files) -> None:
    files.rename("cls.predictions.bias", f"{DECODER}.bias")


def without_architecture(files: Files) -> None:
    del files.config["architectures"]


def activation(name: str) -> Callable[[Files], None]:
    return lambda files: files.config.update(hidden_act=name)


def wrapped(*prefixes: str) -> Callable[[Files], None]:
    def change(files: Files) -> None:
        for prefix in prefixes:
            files.tensors = {f"{prefix}{k}": x for k, x in files.tensors.items()}

    return change


ALIKE: list[tuple[str, Callable[[Files], None]]] = [
    ("BertForPreTraining", old_layer_norm),
    ("BertForPreTraining", explicit_decoder),
    ("BertForPreTraining", bias_of_decoder_alone),
    *(
        ("BertForPreTraining", activation(name))
        for name in ("gelu_fast", "gelu_pytorch_tanh", "gelu_accurate")
    ),
    ("BertForMaskedLM", wrapped("module.")),
    ("BertModel", wrapped("module.")),
    ("BertForMaskedLM", wrapped("_orig_mod.", "module.")),
    ("BertForPreTraining", lambda files: files.rename("bert.", "")),
    ("BertModel", with_prefix),
    *((head, without_architecture) for head in HEADS if "Choice" not in head),
]


@pytest.mark.parametrize(("head", "change"), ALIKE)
def test_every_way_to_save_a_model_is_read_alike(head, change, tmp_path):
    files = stored(head)
    one = read(files.write(tmp_path / "one"))
    change(files)
    other = read(files.write(tmp_path / "other"))
    assert_same(one.params, other.params)
    assert other.left_over == ()
    assert other.config.head == one.config.head


def test_shards_are_read_as_one_file(tmp_path):
    files = stored("BertForPreTraining")
    one = read(files.write(tmp_path / "one"))
    other = read(files.write_shards(tmp_path / "shards"))
    assert_same(one.params, other.params)
    assert [source["path"] for source in other.sources] == [
        "config.json",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
        "tokenizer_config.json",
        "vocab.txt",
    ]


@pytest.mark.parametrize(
    "name", ["model.safetensors", "mine.safetensors", "model.safetensors.index.json"]
)
def test_one_file_is_read_with_those_beside_it(name, tmp_path):
    files = stored("BertForMaskedLM")
    expected = read(files.write(tmp_path / "one")).params
    index = name.endswith("json")
    folder = (files.write_shards if index else files.write)(tmp_path / "model")
    if name == "mine.safetensors":
        (folder / "model.safetensors").rename(folder / name)
    found = read(folder / name)
    assert_same(found.params, expected)
    assert name in {entry["path"] for entry in found.sources}


def test_settings_that_are_not_looked_at_are_named(tmp_path, capsys):
    """Rates that a run has its own options for, and what changes nothing."""
    files = stored("BertForSequenceClassification")
    files.config |= {"classifier_dropout": 0.5, "output_attentions": True}
    folder = files.write(tmp_path / "model")
    output = tmp_path / "a"
    command = ["convert", "import", "--from", "huggingface", str(folder)]
    assert main([*command, "--output", str(output)]) == 0
    said = json.loads((output / "conversion.json").read_text())["config_left_over"]
    assert said["classifier_dropout"] == 0.5 and said["output_attentions"] is True
    assert said["bos_token_id"] is None and "hidden_size" not in said
    printed = capsys.readouterr().out
    assert "5 settings left over (classifier_dropout, dtype, " in printed
    assert "bos_token_id" not in printed


def test_the_receipt_of_an_import_has_the_sha256_of_both_sides(tmp_path):
    folder = stored("BertForMaskedLM").write(tmp_path / "model")
    output = tmp_path / "a"
    write_imported(read(folder), epath.Path(output))
    said = json.loads((output / "conversion.json").read_text())
    assert len(said["sources"]) == 4
    for place, entries in ((folder, said["sources"]), (output, said["files"])):
        for entry in entries:
            assert sha256_of(epath.Path(place) / entry["path"]) == entry["sha256"]
    written = {str(p.relative_to(output)) for p in output.rglob("*") if p.is_file()}
    listed = {entry["path"] for entry in said["files"]}
    assert written - listed == {"conversion.json", "manifest.json"}
    assert "config.json" in listed and "tokenizer/vocab.txt" in listed


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_becomes_float32(dtype, tmp_path):
    files = stored("BertModel")
    exact = read(files.write(tmp_path / "exact"))
    files.tensors = {name: x.astype(dtype) for name, x in files.tensors.items()}
    half = read(files.write(tmp_path / "half"))
    expected = jax.tree.map(lambda x: x.astype(dtype).astype(np.float32), exact.params)
    assert_same(half.params, expected)
    table = "encoder/embeddings/token/embedding"
    assert (flat(half.params)[table] != flat(exact.params)[table]).any()
    assert {leaf.dtype for leaf in half.leaves} == {np.dtype(dtype).name}


def test_buffers_are_left_over_and_named(tmp_path):
    files = stored("BertModel")
    files.tensors["embeddings.position_ids"] = np.arange(20)[None]
    imported = read(files.write(tmp_path / "model"))
    assert imported.left_over == ("embeddings.position_ids",)


def test_an_encoder_may_lack_its_pooler(tmp_path):
    files = stored("BertModel")
    whole = read(files.write(tmp_path / "whole")).params
    for leaf in ("weight", "bias"):
        del files.tensors[f"pooler.dense.{leaf}"]
    imported = read(files.write(tmp_path / "model"))
    assert_same(imported.params, {"encoder": whole["encoder"]})


def test_the_first_released_files_keep_both_heads(tmp_path):
    """They name BertForMaskedLM and hold the tensors of BertForPreTraining."""
    files = stored("BertForPreTraining")
    one = read(files.write(tmp_path / "one"))
    files.config["architectures"] = ["BertForMaskedLM"]
    other = read(files.write(tmp_path / "other"))
    assert other.config.head == "pretraining"
    assert_same(one.params, other.params)


def test_null_is_the_default_of_what_has_one_value(tmp_path):
    files = stored("BertModel")
    names = ("position_embedding_type", "is_decoder", "pruned_heads")
    files.config |= dict.fromkeys(names)
    assert read(files.write(tmp_path / "model")).config.head == "encoder"


def test_default_names_do_not_count_classes(tmp_path):
    """transformers 2 wrote the names of two classes beside any `num_labels`."""
    files = stored("BertForSequenceClassification")
    names = {"0": "LABEL_0", "1": "LABEL_1"}
    files.config |= {"id2label": names, "num_labels": 3}
    model = read_huggingface(epath.Path(files.write(tmp_path / "model")))
    assert model.config.labels == ("LABEL_0", "LABEL_1", "LABEL_2")


def test_labels_keep_the_order_of_their_numbers(tmp_path):
    files = stored("BertForSequenceClassification")
    files.config["id2label"] = {"2": "glad", "0": "sad", "1": "calm"}
    assert read(files.write(tmp_path / "a")).config.labels == ("sad", "calm", "glad")
    del files.config["id2label"]
    files.config["num_labels"] = 3
    labels = read(files.write(tmp_path / "b")).config.labels
    assert labels == ("LABEL_0", "LABEL_1", "LABEL_2")


def test_a_model_of_several_classes_is_scored_by_several_labels(tmp_path):
    files = stored("BertForSequenceClassification")
    files.config["problem_type"] = "multi_label_classification"
    names = list(files.config["id2label"].values())
    rows = [{"text": "the cat", "label": names[:2]}, {"text": "mat", "label": []}]
    scores, _ = bert_jax.evaluate(str(files.write(tmp_path / "model")), rows)
    assert 0 <= scores["micro_f1"] <= 1


def test_extra_tensors_are_left_aside_when_allowed(tmp_path):
    files = stored("BertForMaskedLM")
    files.tensors["classifier.weight"] = np.zeros((2, 32), np.float32)
    imported = read(files.write(tmp_path / "model"), allow_extra=True)
    assert imported.left_over == ("classifier.weight",)
    assert imported.config.head == "masked_lm"


def test_a_checkpoint_and_the_files_load_alike(tmp_path):
    folder = stored("BertForPreTraining").write(tmp_path / "model")
    imported = read(folder)
    write_imported(imported, epath.Path(tmp_path / "checkpoint"))
    one, other = bert_jax.load(folder), bert_jax.load(tmp_path / "checkpoint")
    assert_same(one.params, other.params)
    assert one.config == other.config and one.pairs == other.pairs == "nsp"
    assert one.tokenizer.fingerprint == other.tokenizer.fingerprint
    found = one.fill_mask("the [MASK] a mat")
    assert found == other.fill_mask("the [MASK] a mat") and len(found) == 5
    assert 0 < one.next_sentence("the cat", "the mat") < 1


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("gelu", "gelu"),
        ("gelu_python", "gelu"),
        ("gelu_new", "gelu_new"),
        ("gelu_fast", "gelu_new"),
        ("gelu_python_tanh", "gelu_new"),
        ("relu", "relu"),
    ],
)
def test_activations_by_transformers_names(theirs, ours, tmp_path):
    files = stored("BertModel")
    files.config["hidden_act"] = theirs
    assert read(files.write(tmp_path / "model")).config.hidden_act == ours


def test_a_prefix_of_every_name_is_left_out_and_named(tmp_path, capsys):
    files = stored("BertForMaskedLM")
    wrapped("module.")(files)
    folder, output = files.write(tmp_path / "model"), tmp_path / "checkpoint"
    command = ["convert", "import", str(folder), "--from", "huggingface"]
    assert main([*command, "--output", str(output)]) == 0
    told = "42 tensors taken, read without 'module.' before each name, 0 fresh"
    assert told in capsys.readouterr().out
    receipt = json.loads((output / "conversion.json").read_text())
    assert receipt["prefix_left_out"] == "module."
    assert all(leaf["source"].startswith("module.") for leaf in receipt["tensors"])


@pytest.mark.parametrize("rows", [64, 128, 1024])
def test_rows_beyond_the_vocabulary_are_dropped_and_named(rows, tmp_path, capsys):
    plain = bert_jax.load(stored("BertForPreTraining").write(tmp_path / "plain"))
    files = stored("BertForPreTraining")
    files.config["vocab_size"] = rows
    for name in (TABLE, "cls.predictions.bias"):
        values = files.tensors[name]
        more = np.full((rows - 60, *values.shape[1:]), 9, np.float32)
        files.tensors[name] = np.concatenate([values, more])
    explicit_decoder(files)
    folder, output = files.write(tmp_path / "padded"), tmp_path / "checkpoint"
    command = ["convert", "import", str(folder), "--from", "huggingface"]
    assert main([*command, "--output", str(output)]) == 0
    named = [f"{TABLE}[60:{rows}]", f"cls.predictions.bias[60:{rows}]"]
    assert f"2 left over ({', '.join(named)})" in capsys.readouterr().out
    receipt = json.loads((output / "conversion.json").read_text())
    assert receipt["left_over"] == named
    (table,) = [leaf for leaf in receipt["tensors"] if leaf["source"] == TABLE]
    assert table["shape"] == [rows, 32]
    for path in (folder, output):
        bert = bert_jax.load(path)
        assert bert.config == plain.config
        assert_same(bert.params, plain.params)
        assert bert.fill_mask("the [MASK]") == plain.fill_mask("the [MASK]")
    assert (
        main(
            [
                "convert",
                "export",
                str(output),
                "--to",
                "huggingface",
                "--output",
                str(tmp_path / "exported"),
            ]
        )
        == 0
    )
    assert_same(bert_jax.load(tmp_path / "exported").params, plain.params)


@pytest.mark.parametrize("rows", [61, 63, 72, 200, 2048])
def test_another_number_of_rows_is_no_padding(rows, tmp_path):
    files = stored("BertModel")
    name = "embeddings.word_embeddings.weight"
    files.tensors[name] = np.resize(files.tensors[name], (rows, 32))
    files.config["vocab_size"] = rows
    with pytest.raises(ValueError, match=f"60 tokens and .* {rows} rows, which is no"):
        read(files.write(tmp_path / "model"))


def test_load_leaves_extra_tensors_aside_when_allowed(tmp_path):
    files = stored("BertForMaskedLM")
    plain = bert_jax.load(files.write(tmp_path / "plain"))
    files.tensors["classifier.weight"] = np.zeros((2, 32), np.float32)
    folder = files.write(tmp_path / "model")
    with pytest.raises(
        ValueError, match=r"holds classifier.weight, .*allow_extra=True"
    ):
        bert_jax.load(folder)
    assert_same(bert_jax.load(folder, allow_extra=True).params, plain.params)


def test_added_tokens_survive_import_and_export(tmp_path):
    files = stored("BertForMaskedLM")
    for name in (TABLE, "cls.predictions.bias"):
        values = files.tensors[name]
        files.tensors[name] = np.concatenate([values, values[5:7]])
    files.config["vocab_size"] = 62
    folder = files.write(tmp_path / "model")
    (folder / "added_tokens.json").write_text('{"<url>": 60, "<user>": 61}')
    write_imported(read(folder), epath.Path(tmp_path / "checkpoint"))
    output = tmp_path / "exported"
    assert (
        main(
            [
                "convert",
                "export",
                str(tmp_path / "checkpoint"),
                "--to",
                "huggingface",
                "--output",
                str(output),
            ]
        )
        == 0
    )
    for path in (folder, tmp_path / "checkpoint", output):
        tokenizer = bert_jax.load(path).tokenizer
        assert tokenizer.encode_batch(["the<url> <user>"]) == [[57, 60, 61]]
    with pytest.raises(ValueError, match=r"has 2 added tokens \(<url>, <user>\)"):
        extend(str(output), epath.Path(tmp_path / "larger"), ["catmat"], None)

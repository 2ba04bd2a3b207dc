"""Other families at Hugging Face, beside transformers: tests/parity/README.md."""

import dataclasses
import json
import re

import jax
import numpy as np
import pytest
import safetensors.numpy
from etils import epath
from family_files import (
    family_of,
    model_names,
    stored_inputs,
    stored_model,
    write_model,
)
from huggingface_files import stored

from bert_jax.apps.convert.export import export_huggingface, huggingface_config
from bert_jax.apps.convert.receipts import write_imported
from bert_jax.cli.main import main
from bert_jax.formats.families import FAMILIES
from bert_jax.formats.huggingface import read_huggingface
from bert_jax.formats.names import names_of
from bert_jax.inference.evaluation import settings_of
from bert_jax.model.bert import head_outputs
from bert_jax.model.inputs import Inputs
from bert_jax.pretrained import load_pretrained

pytestmark = pytest.mark.precise
MODELS = model_names()


def read(folder):
    return read_huggingface(epath.Path(folder))


def test_every_head_of_every_family_is_tested():
    """A class that is not in the fixture has no test of its numbers."""
    by_class = {family.class_name: family for family in FAMILIES.values()}
    tested = {name: name.removeprefix(family_of(name)) for name in MODELS}
    for name, family in by_class.items():
        if name != "Bert":
            ends = {end for model, end in tested.items() if family_of(model) == name}
            assert ends == set(family.head_of), name


@pytest.mark.parametrize("name", MODELS)
def test_a_folded_model_computes_what_transformers_does(name, tmp_path):
    _, _, expected = stored_model(name)
    imported = read(write_model(name, tmp_path / "model"))
    ids, segments, mask = stored_inputs(name)
    assert segments.any() == name.startswith("Electra")
    arrays = Inputs(*jax.device_put((ids, segments, mask > 0)))
    outputs = head_outputs(imported.config, imported.params, arrays)
    found = {"hidden_states": outputs["hidden_states"]}
    if "pooler_output" in expected:
        found["pooler_output"] = outputs["pooled"]
    if name.endswith("ForMaskedLM"):
        found["logits"] = outputs["token_scores"]
    elif name.endswith("QuestionAnswering"):
        found["start_logits"] = outputs["scores"][..., 0]
        found["end_logits"] = outputs["scores"][..., 1]
    elif "scores" in outputs:
        found["logits"] = outputs["scores"]
    known = expected.keys() - ({"logits"} if "ForPreTraining" in name else set())
    assert found.keys() == known
    for key in known:
        ours, theirs = np.asarray(found[key]), expected[key]
        ours = ours.reshape(theirs.shape)
        if theirs.shape[-len(mask.shape) :] == mask.shape:  # a score of each token
            ours, theirs = ours * mask, theirs * mask
        elif mask.shape == theirs.shape[-3:-1]:
            ours, theirs = ours * mask[..., None], theirs * mask[..., None]
        largest = np.abs(theirs).max()
        assert largest > 0.1, f"{key} would equal zeros"
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5 * largest)


@pytest.mark.parametrize("name", MODELS)
def test_export_returns_the_bytes_of_its_own_family(name, tmp_path):
    """From the files themselves, and for some from an imported checkpoint."""
    saved = write_model(name, tmp_path / "saved")
    sources = {"direct": saved}
    if name.endswith(("ForMaskedLM", "ForPreTraining", "Model")):
        sources["imported"] = tmp_path / "checkpoint"
        write_imported(read(saved), epath.Path(tmp_path / "checkpoint"))
    for output, source in sources.items():
        export_huggingface(str(source), epath.Path(tmp_path / output))
        content = (tmp_path / output / "model.safetensors").read_bytes()
        assert content == (saved / "model.safetensors").read_bytes()
        theirs = json.loads((saved / "config.json").read_text())
        ours = json.loads((tmp_path / output / "config.json").read_text())
        shared = (theirs.keys() & ours.keys()) - {"label2id"}
        assert {n: theirs[n] for n in shared} == {n: ours[n] for n in shared}
        assert {"model_type", "architectures"} <= shared
        if (saved / "tokenizer.json").exists():
            exported = tmp_path / output / "tokenizer.json"
            assert exported.read_bytes() == (saved / "tokenizer.json").read_bytes()


def test_an_encoder_under_the_name_of_a_masked_lm(tmp_path):
    """As many published sentence models are."""
    path = write_model("RobertaModel", tmp_path / "a")
    config = json.loads((path / "config.json").read_text())
    config["architectures"] = ["RobertaForMaskedLM"]
    (path / "config.json").write_text(json.dumps(config))
    with pytest.warns(UserWarning, match="no tensor of the head of RobertaForMaskedLM"):
        assert read(path).config.head == "encoder"


def test_the_receipt_says_what_was_folded(tmp_path):
    imported = read(write_model("RobertaForMaskedLM", tmp_path / "a"))
    assert imported.config.max_position_embeddings == 16
    assert imported.folded == (
        "roberta.embeddings.position_embeddings.weight[:2]: never used, since "
        "positions begin at 2",
    )
    imported = read(write_model("DistilBertForMaskedLM", tmp_path / "b"))
    assert imported.folded == (
        "encoder/embeddings/segment/embedding: a row of zeros, since there is no "
        "segment",
    )
    write_imported(imported, epath.Path(tmp_path / "checkpoint"))
    receipt = json.loads((tmp_path / "checkpoint" / "conversion.json").read_text())
    assert receipt["folded"] == list(imported.folded)
    imported = read(write_model("ElectraForPreTraining", tmp_path / "c"))
    assert imported.config.head == "encoder" and len(imported.left_over) == 4
    assert all("discriminator_predictions" in name for name in imported.left_over)


@pytest.mark.parametrize("family", ["Roberta", "XLMRoberta", "Camembert"])
def test_a_classifier_beside_a_pooler_is_imported(family, tmp_path):
    """roberta-large-mnli has both; transformers reads `classifier.dense` only."""
    saved = write_model(f"{family}ForSequenceClassification", tmp_path / "saved")
    alone = read(saved)
    path = saved / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    dense = tensors["classifier.dense.weight"]
    assert alone.left_over == () and not any("." in name for name in alone.unused)
    tensors["roberta.pooler.dense.weight"] = dense + 1
    tensors["roberta.pooler.dense.bias"] = dense[0] + 1
    safetensors.numpy.save_file(tensors, path, metadata={"format": "pt"})
    imported = read(saved)
    np.testing.assert_array_equal(imported.params["pooler"]["dense"]["kernel"], dense.T)
    pooler = {"roberta.pooler.dense.bias", "roberta.pooler.dense.weight"}
    assert set(imported.left_over) == pooler
    assert {name for name in imported.unused if "." in name} == pooler
    write_imported(imported, epath.Path(tmp_path / "checkpoint"))
    for output, source in (("a", saved), ("b", tmp_path / "checkpoint")):
        export_huggingface(str(source), epath.Path(tmp_path / output))
        content = (tmp_path / output / "model.safetensors").read_bytes()
        assert content == path.read_bytes()


@pytest.mark.parametrize("family", ["Roberta", "DistilBert"])
def test_predict_has_the_positions_that_a_family_counts(family, tmp_path, capsys):
    """The first files of RoBERTa state no length beside them."""
    saved = write_model(f"{family}ForSequenceClassification", tmp_path / "saved")
    (tmp_path / "texts.txt").write_text("the cat\n")
    assert main(["predict", str(saved), "--input", f"{tmp_path}/texts.txt"]) == 0
    assert "probabilities" in capsys.readouterr().out
    positions = read(saved).config.max_position_embeddings
    assert settings_of(str(saved))[0].max_length == positions


@pytest.mark.parametrize("head", ["TokenClassification", "MaskedLM"])
def test_a_pooler_of_bert_beside_a_head_without_one_is_put_aside(head, tmp_path):
    """Old versions of transformers saved it, for example in published taggers."""
    pooler = {
        name: values
        for name, values in stored("BertForPreTraining").tensors.items()
        if "pooler" in name
    }
    files = stored(f"BertFor{head}")
    files.tensors |= pooler
    imported = read(files.write(tmp_path / "a"))
    assert set(imported.left_over) == set(pooler) == set(imported.unused)
    assert "pooler" not in imported.params
    export_huggingface(str(tmp_path / "a"), epath.Path(tmp_path / "out"))
    again = safetensors.numpy.load_file(tmp_path / "out" / "model.safetensors")
    assert again.keys() == files.tensors.keys()


def test_a_fine_tuned_model_without_the_rows_put_aside_can_be_exported(tmp_path):
    """A checkpoint of training has no such rows; transformers never reads them."""
    saved = write_model("DistilBertForSequenceClassification", tmp_path / "saved")
    imported = read(saved)
    segment = imported.params["encoder"]["embeddings"]["segment"]
    segment["embedding"] = segment["embedding"] + 0.5  # as training changes it
    write_imported(dataclasses.replace(imported, unused={}), epath.Path(tmp_path / "a"))
    export_huggingface(str(tmp_path / "a"), epath.Path(tmp_path / "out"))
    before, after = (
        safetensors.numpy.load_file(folder / "model.safetensors")
        for folder in (saved, tmp_path / "out")
    )
    name = "distilbert.embeddings.position_embeddings.weight"
    np.testing.assert_array_equal(after[name], before[name] + 0.5)


def test_a_run_on_pairs_is_exported_as_a_masked_language_model(tmp_path):
    """RoBERTa has no class with a head for pairs."""
    imported = read(write_model("RobertaForMaskedLM", tmp_path / "saved"))
    config = dataclasses.replace(imported.config, head="pretraining")
    rng = np.random.default_rng(0)
    params = dict(imported.params)
    for name in names_of(config):
        if name.ours.startswith(("pooler/", "next_sentence/")):
            room, part, leaf = name.ours.split("/")
            values = rng.standard_normal(name.shape).astype(np.float32)
            params.setdefault(room, {}).setdefault(part, {})[leaf] = values
    changed = dataclasses.replace(imported, config=config, params=params)
    write_imported(changed, epath.Path(tmp_path / "a"))
    export_huggingface(str(tmp_path / "a"), epath.Path(tmp_path / "out"))
    content = (tmp_path / "out" / "model.safetensors").read_bytes()
    assert content == (tmp_path / "saved" / "model.safetensors").read_bytes()
    receipt = json.loads((tmp_path / "out" / "conversion.json").read_text())
    assert receipt["left_out"] == ["next_sentence", "pooler"]
    assert huggingface_config(config, 1, {})["architectures"] == []  # as for ONNX


def test_an_activation_that_the_class_of_a_head_lacks_is_not_exported(tmp_path):
    """RoBERTa's masked-LM head computes by gelu, whatever the file says."""
    imported = read(write_model("RobertaForMaskedLM", tmp_path / "saved"))
    config = dataclasses.replace(imported.config, hidden_act="relu")
    changed = dataclasses.replace(imported, config=config)
    write_imported(changed, epath.Path(tmp_path / "a"))
    with pytest.raises(
        ValueError, match="hidden_act=relu has no counterpart in .*gelu"
    ):
        export_huggingface(str(tmp_path / "a"), epath.Path(tmp_path / "out"))


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("RobertaForMaskedLM", "lm_head.dense.weight"),
        ("RobertaForSequenceClassification", "classifier.out_proj.weight"),
        ("DistilBertForMaskedLM", "distilbert.transformer.layer.0.ffn.lin1.bias"),
        ("ElectraForMaskedLM", "generator_predictions.LayerNorm.bias"),
    ],
)
def test_a_missing_tensor_has_the_name_of_its_family(name, tensor, tmp_path):
    folder = write_model(name, tmp_path / "model")
    path = folder / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    del tensors[tensor]
    safetensors.numpy.save_file(tensors, path)
    with pytest.raises(ValueError, match=rf"lacks {re.escape(tensor)}; a model with"):
        read(folder)


def test_distilbert_has_one_epsilon_whatever_the_file_says(tmp_path):
    """transformers' class does not read the key."""
    folder = write_model("DistilBertModel", tmp_path / "model")
    assert read(folder).config.layer_norm_eps == 1e-12
    change_config(folder, layer_norm_eps=0.1)
    imported = read(folder)
    assert imported.config.layer_norm_eps == 1e-12
    assert imported.config_left_over["layer_norm_eps"] == 0.1
    write_imported(imported, epath.Path(tmp_path / "a"))
    export_huggingface(str(tmp_path / "a"), epath.Path(tmp_path / "b"))
    written = json.loads((tmp_path / "b" / "config.json").read_text())
    assert "layer_norm_eps" not in written
    config = dataclasses.replace(imported.config, layer_norm_eps=0.1)
    changed = dataclasses.replace(imported, config=config)
    write_imported(changed, epath.Path(tmp_path / "c"))
    with pytest.raises(ValueError, match="layer_norm_eps=0.1 has no counterpart in "):
        export_huggingface(str(tmp_path / "c"), epath.Path(tmp_path / "d"))


def test_a_class_with_transformers_own_name_is_read(tmp_path):
    folder = write_model("XLMRobertaModel", tmp_path / "model")
    auto_map = {"AutoConfig": "a.MyConfig", "AutoModel": "modeling.XLMRobertaModel"}
    change_config(folder, auto_map=auto_map)
    assert read(folder).config_left_over["auto_map"] == auto_map


def change_config(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("ElectraModel", {"embedding_size": 8}, "embedding_size=8 is not hidden_size"),
        ("RobertaForMaskedLM", {"hidden_act": "relu"}, "hidden_act='relu' is not supp"),
        ("DistilBertModel", {"n_layers": 3}, "says n_layers=3 and there are tensors o"),
        ("DistilBertModel", {"n_heads": 3}, "dim=16 is not a multiple of n_heads=3"),
        ("RobertaModel", {"pad_token_id": 0}, "the tokenizer pads with id 1"),
        ("RobertaModel", {"pad_token_id": "1"}, "must be the id of the padding token"),
        (
            "RobertaModel",
            {"position_embedding_type": "relative_key"},
            "is not supporte",
        ),
        (
            "XLMRobertaModel",
            {"architectures": ["XLMRobertaForCausalLM"]},
            "must hold o",
        ),
        (
            "ElectraForMultipleChoice",
            {"summary_activation": "tanh"},
            "summary_activation='tanh' is not supported",
        ),
        (
            "XLMRobertaModel",
            {"auto_map": {"AutoModel": "owner/code--modeling.FlashModel"}},
            "auto_map names 'owner/code--modeling.FlashModel' for AutoModel, a progr",
        ),
        (
            "DistilBertModel",
            {"model_type": "mpnet"},
            "attention has relative positions",
        ),
    ],
)
def test_another_variant_is_refused_by_name(name, values, message, tmp_path):
    folder = write_model(name, tmp_path / "model")
    change_config(folder, **values)
    with pytest.raises(ValueError, match=message) as error:
        load_pretrained(str(folder))
    assert "\n" not in str(error.value) and str(folder) in str(error.value)


@pytest.mark.parity
@pytest.mark.parametrize("name", MODELS)
def test_transformers_reads_what_is_exported(name, tmp_path):
    """Outputs and, from the files alone, the ids of a row."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("torch")
    saved = write_model(name, tmp_path / "saved")
    _, comparison, _ = export_huggingface(str(saved), epath.Path(tmp_path / "out"))
    assert comparison.largest_difference is not None, comparison.reason
    assert comparison.largest_difference < 1e-5
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    ours = load_pretrained(str(tmp_path / "out")).tokenizer
    for text in ("the cat sat, a mat.", "Ünïcode the  cat"):
        ids = ours.encode(text).ids.tolist()
        assert theirs(text)["input_ids"] == [ours.cls_id, *ids, ours.sep_id]
    assert theirs.mask_token_id == ours.mask_id
    assert theirs.pad_token_id == ours.pad_id

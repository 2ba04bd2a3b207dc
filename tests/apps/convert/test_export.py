"""Models written for transformers: the same bytes back, and nothing half written."""

import dataclasses
import json
import os
import re
import shutil
from pathlib import Path

import huggingface_hub
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from etils import epath
from huggingface_files import HEADS, reference, stored
from run_helpers import classifier_config
from small_world import SUBJECTS

import bert_jax
from bert_jax.apps.convert.export import export_huggingface, huggingface_config
from bert_jax.apps.convert.model_card import model_card
from bert_jax.apps.convert.origin import Origin, origin_of
from bert_jax.apps.convert.receipts import write_imported
from bert_jax.checkpoints.restore import read_params
from bert_jax.cli.main import main
from bert_jax.config import BertConfig
from bert_jax.data.records import Dataset
from bert_jax.formats.huggingface import read_huggingface
from bert_jax.model.bert import head_outputs
from bert_jax.model.inputs import Inputs
from bert_jax.pretrained import load_pretrained
from bert_jax.runs.finetuning import finetune
from bert_jax.runs.pretraining import pretrain
from bert_jax.storage.manifest import sha256_of
from bert_jax.tokenization import Tokenizer

FILES = {
    "README.md",
    "config.json",
    "conversion.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
}


def imported(head: str, folder: Path, **changes: object) -> Path:
    """A checkpoint of what transformers saved, with another configuration."""
    found = read_huggingface(epath.Path(stored(head).write(folder / "saved")))
    config = dataclasses.replace(found.config, **changes)
    write_imported(dataclasses.replace(found, config=config), epath.Path(folder / "a"))
    return folder / "a"


def export(source: Path, output: Path) -> Path:
    export_huggingface(os.fspath(source), epath.Path(output))
    return output


@pytest.mark.parametrize("head", HEADS)
def test_import_and_export_give_the_same_bytes(tmp_path, head):
    output = export(imported(head, tmp_path), tmp_path / "exported")
    assert {path.name for path in output.iterdir()} == FILES
    before = safetensors.numpy.load_file(tmp_path / "saved" / "model.safetensors")
    after = safetensors.numpy.load_file(output / "model.safetensors")
    assert before.keys() == after.keys()
    for name, values in before.items():
        assert values.tobytes() == after[name].tobytes(), name
        assert values.shape == after[name].shape, name
    one, other = (
        read_huggingface(epath.Path(folder)) for folder in (tmp_path / "saved", output)
    )
    assert one.config == other.config
    theirs = json.loads((tmp_path / "saved" / "config.json").read_text())
    ours = json.loads((output / "config.json").read_text())
    shared = (theirs.keys() & ours.keys()) - {"pad_token_id", "id2label", "label2id"}
    assert {name: theirs[name] for name in shared} == {n: ours[n] for n in shared}
    assert ours["architectures"] == [head] and ours["pad_token_id"] == 0


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_comes_back_by_the_recorded_dtype(tmp_path, dtype):
    files = stored("BertForMaskedLM")
    files.tensors = {name: x.astype(dtype) for name, x in files.tensors.items()}
    found = read_huggingface(epath.Path(files.write(tmp_path / "saved")))
    write_imported(found, epath.Path(tmp_path / "a"))
    said = json.loads((tmp_path / "a" / "conversion.json").read_text())["tensors"]
    recorded = {leaf["source"]: np.dtype(leaf["dtype"]) for leaf in said}
    after = safetensors.numpy.load_file(
        export(tmp_path / "a", tmp_path / "out") / "model.safetensors"
    )
    for name, values in after.items():
        assert values.dtype == np.float32 and recorded[name] == dtype
        before = files.tensors[name].tobytes()
        assert values.astype(recorded[name]).tobytes() == before, name


@pytest.mark.parametrize(
    ("kind", "activation"),
    [
        ("regression", "torch.nn.modules.linear.Identity"),
        ("multi_label_classification", None),
    ],
)
def test_sentence_transformers_applies_a_sigmoid_where_predict_does(kind, activation):
    """Its default for one score is a sigmoid, which a number must not get."""
    config = BertConfig.miniature(
        1, 16, head="sequence_classification", labels=("a",), problem_type=kind
    )
    said = huggingface_config(config, 0, {}).get("sentence_transformers", {})
    assert said.get("activation_fn") == activation


def test_labels_stand_both_ways(tmp_path):
    source = imported("BertForTokenClassification", tmp_path)
    config = json.loads((export(source, tmp_path / "out") / "config.json").read_text())
    assert config["id2label"] == {"0": "sad", "1": "calm", "2": "glad"}
    assert config["label2id"] == {"sad": 0, "calm": 1, "glad": 2}


def test_the_receipt_accounts_for_every_leaf_and_file(tmp_path):
    source = imported("BertForPreTraining", tmp_path)
    output = export(source, tmp_path / "out")
    receipt = json.loads((output / "conversion.json").read_text())
    params = read_params(epath.Path(source))
    tensors = safetensors.numpy.load_file(output / "model.safetensors")
    assert {entry["target"] for entry in receipt["tensors"]} == tensors.keys()
    for entry in receipt["tensors"]:
        leaf = params
        for part in entry["source"].split("/"):
            leaf = leaf[part]
        written = tensors[entry["target"]]
        np.testing.assert_array_equal(
            leaf, written.T if entry["transposed"] else written
        )
        assert (entry["shape"], entry["dtype"]) == (list(leaf.shape), "float32")
    for folder, entries in ((source, receipt["sources"]), (output, receipt["files"])):
        for entry in entries:
            assert sha256_of(epath.Path(folder / entry["path"])) == entry["sha256"]
    assert {entry["path"] for entry in receipt["files"]} == FILES - {"conversion.json"}


@pytest.fixture(scope="module")
def run(small_config, tmp_path_factory) -> Path:
    """A workdir after ten steps, of rows shorter than the model's positions."""
    workdir = tmp_path_factory.mktemp("run") / "small"
    model = dataclasses.replace(small_config.model, max_position_embeddings=48)
    pretrain(dataclasses.replace(small_config, model=model), workdir)
    return workdir


def test_the_card_of_a_run_tells_its_making(run, dataset: Dataset, tmp_path):
    card = (export(run, tmp_path / "out") / "README.md").read_text()
    assert "license: unknown  #" in card and "library_name: transformers" in card
    assert "| Steps | 10 |" in card and dataset.fingerprint in card
    assert "| Length | 32 tokens, [CLS] and [SEP] included |" in card
    lines = [
        json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()
    ]
    loss = [line["mlm_loss"] for line in lines if line["split"] == "validation"][-1]
    assert f"mlm_loss {loss:.4f}" in card and "(step 10)" in card
    middle = run / "checkpoints" / "8"
    card = (export(middle, tmp_path / "middle") / "README.md").read_text()
    assert "| Steps | 8 |" in card and "(step 5)" in card


def test_the_card_names_licence_languages_and_base_model(run, tmp_path, monkeypatch):
    """They are those of the model that a run began with, or as the options say."""
    card = tmp_path / "card.md"
    card.write_text("---\nlicense: MIT!\nlanguage: [no, en]\n---\nIts card.\n")

    def cached(repository, name, revision):
        assert (repository, name, revision) == ("owner/base", "README.md", "v1")
        return str(card)

    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", cached)
    moved = shutil.copytree(run, tmp_path / "run")
    for path in moved.rglob("config.json"):
        values = json.loads(path.read_text()) | {"init_from": "hf:owner/base@v1"}
        path.write_text(json.dumps(values))
    model = dataclasses.replace(
        load_pretrained(str(run)), directory=epath.Path(moved / "checkpoints" / "10")
    )
    assert origin_of(model) == Origin("", ("en",), "owner/base")
    card.write_text("---\nlicense: cc-by-4.0\nlanguage: 'no'\n---\n")
    origin = origin_of(model)
    assert origin == Origin("cc-by-4.0", ("no",), "owner/base")
    assert model_card(model, "BertForPreTraining", 32, origin).startswith(
        "---\nlibrary_name: transformers\npipeline_tag: fill-mask\nlicense: cc-by-4.0\n"
        'language:\n- "no"\nbase_model: owner/base\ntags:\n'
    )
    assert origin.stated("mit", ["de"]) == Origin("mit", ("de",), "owner/base")
    assert origin.stated("openrail++", "en").license == "openrail++"
    command = ["convert", "export", str(run), "--to", "huggingface", "--output"]
    assert main([*command, str(tmp_path / "a"), "--language", "German"]) == 2
    assert not (tmp_path / "a").exists()
    assert main([*command, str(tmp_path / "a"), "--license", "mit"]) == 0
    again = bert_jax.load(tmp_path / "a")
    with pytest.raises(ValueError, match="license and language need huggingface"):
        again.save(tmp_path / "b", "onnx", license="mit")
    again.save(tmp_path / "b", language="de")
    assert origin_of(load_pretrained(str(tmp_path / "b"))) == Origin("mit", ("de",))


def test_small_errors_and_thresholds_in_a_card_keep_their_digits(run, tmp_path):
    """With four decimals, both were 0.0000."""
    shutil.copytree(run, tmp_path / "run")
    scores = {"mean_squared_error": 1.25e-6, "f1_threshold": 3.0517578125e-05}
    line = {"step": 10, "split": "validation", **scores}
    with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
        file.write(f"{json.dumps(line)}\n")
    card = (export(tmp_path / "run", tmp_path / "out") / "README.md").read_text()
    shown = "mean_squared_error 1.25e-06, f1_threshold 3.0517578125e-05 (step 10)"
    assert f"| Validation | {shown} |" in card


def test_names_and_classes_in_a_card_are_text(tmp_path):
    source = stored("BertForTokenClassification").write(tmp_path / "<a>")
    model = load_pretrained(str(source))
    model = model.changed(model.params, labels=("<PER>", "A|B"))
    card = model_card(model, "BertForTokenClassification", 20, Origin())
    assert "\n# &lt;a&gt;\n" in card
    assert "| Classes | &lt;PER&gt;, A\\|B |" in card


def test_licence_and_language_survive_an_import(tmp_path):
    folder = stored("BertModel").write(tmp_path / "a")
    (folder / "README.md").write_text("---\nlicense: mit\nlanguage: de\n---\n")
    command = ["convert", "import", "--from", "huggingface", str(folder), "--output"]
    assert main([*command, str(tmp_path / "b")]) == 0
    output = export(tmp_path / "b", tmp_path / "c")
    assert origin_of(load_pretrained(str(output))) == Origin("mit", ("de",))


def test_the_tokenizer_goes_along(run, tmp_path):
    output = export(run, tmp_path / "out")
    tokenizer = Tokenizer.load(run / "tokenizer")
    again = read_huggingface(epath.Path(output)).tokenizer
    text = "The judge writes the LETTER in the harbour."
    assert again.encode(text).ids.tolist() == tokenizer.encode(text).ids.tolist()
    settings = json.loads((output / "tokenizer_config.json").read_text())
    assert settings["model_max_length"] == 32


@pytest.mark.slow
def test_the_length_of_fine_tuning_goes_along(encoder_checkpoint, tmp_path):
    """Also of a model that has more positions."""
    table = tmp_path / "table.csv"
    rows = "".join(f"The {s} reads.,{s}\n" for s in SUBJECTS[:2] * 4)
    table.write_text(f"review,who\n{rows}")
    config = classifier_config(table, encoder_checkpoint, num_steps=1)
    data = dataclasses.replace(config.data, max_length=24)
    finetune(dataclasses.replace(config, data=data), tmp_path / "run")
    output = export(tmp_path / "run", tmp_path / "out")
    settings = json.loads((output / "tokenizer_config.json").read_text())
    assert settings["model_max_length"] == 24
    assert "| Length | 24 tokens" in (output / "README.md").read_text()


def test_a_hugging_face_directory_can_be_exported_as_it_is(tmp_path):
    folder = tmp_path / "shards"
    stored("BertForMaskedLM").write_shards(folder)
    output = export(folder, tmp_path / "out")
    receipt = json.loads((output / "conversion.json").read_text())
    assert {entry["path"] for entry in receipt["sources"]} == {
        path.name for path in folder.iterdir()
    }
    assert "imported" in (output / "README.md").read_text()


@pytest.mark.parametrize(
    "command",
    ["convert export --to huggingface", "convert export --to page", "inspect"],
)
def test_a_model_whose_name_is_not_utf_8(tmp_path, command):
    source = stored("BertForMaskedLM").write(tmp_path / "b\udcff")
    output = tmp_path / ("out" if "huggingface" in command else "out.html")
    words = [*command.split(), str(source), "--output", str(output)]
    assert main([*words, *(["--attention", "cat"] * (command == "inspect"))]) == 0
    page = output / "README.md" if output.is_dir() else output
    assert "b?" in page.read_text()


def test_a_missing_pooler_is_told(tmp_path):
    files = stored("BertModel")
    files.tensors = {k: v for k, v in files.tensors.items() if "pooler" not in k}
    output = export(files.write(tmp_path / "in"), tmp_path / "out")
    assert "| Pooler | none; transformers" in (output / "README.md").read_text()


REFUSED = {
    "causal": ("BertForMaskedLM", {"attention": "causal"}, "attention='causal' has no"),
    "mean": (
        "BertForSequenceClassification",
        {"pooling": "mean"},
        "pooling='mean' with head=sequence_classification has no counterpart",
    ),
    "mean of choices": (
        "BertForMultipleChoice",
        {"pooling": "mean"},
        "pooling='mean' with head=multiple_choice has no counterpart",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_transformers_lacks_is_refused_by_name(tmp_path, case):
    head, changes, message = REFUSED[case]
    source = imported(head, tmp_path, **changes)
    with pytest.raises(ValueError, match=f"{message}.*--to stablehlo") as caught:
        export(source, tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_causal_model_of_characters_is_told_a_form_that_holds_both(tmp_path):
    (tmp_path / "a.txt").write_text("one two\n")
    words = ["--input", f"{tmp_path}/a.txt", "--output", f"{tmp_path}/v"]
    assert main(["vocab", "--kind", "char", *words]) == 0
    causal = imported("BertForMaskedLM", tmp_path, attention="causal")
    tokenizer = Tokenizer.load(tmp_path / "v")
    model = dataclasses.replace(load_pretrained(str(causal)), tokenizer=tokenizer)
    with pytest.raises(ValueError, match="kind char.*; use .* --to stablehlo`.$"):
        export_huggingface(model, epath.Path(tmp_path / "out"))


def test_pooling_does_not_matter_where_no_class_depends_on_it(tmp_path):
    output = export(
        imported("BertForPreTraining", tmp_path, pooling="mean"), tmp_path / "out"
    )
    assert read_huggingface(epath.Path(output)).config.head == "pretraining"


def test_an_output_that_holds_something_stays_as_it_is(tmp_path):
    source = imported("BertModel", tmp_path)
    output = tmp_path / "out"
    output.mkdir()
    (output / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match="is not an empty directory; remove it"):
        export(source, output)
    assert [path.name for path in output.iterdir()] == ["thesis.tex"]
    (output / "thesis.tex").unlink()
    assert {path.name for path in export(source, output).iterdir()} == FILES


def test_a_failed_export_leaves_nothing(tmp_path, monkeypatch):
    source = imported("BertModel", tmp_path)
    before = set(tmp_path.iterdir())

    def full(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("bert_jax.apps.convert.export.to_huggingface", full)
    with pytest.raises(OSError, match="No space left"):
        export(source, tmp_path / "out")
    assert set(tmp_path.iterdir()) == before


def test_a_damaged_source_is_refused(tmp_path):
    source = imported("BertModel", tmp_path)
    path = source / "tokenizer" / "vocab.txt"
    path.write_text(path.read_text().replace("cat", "car"))
    with pytest.raises(ValueError, match="vocab.txt has another sha256"):
        export(source, tmp_path / "out")


@pytest.mark.parity
@pytest.mark.parametrize("head", HEADS)
def test_transformers_computes_the_same(tmp_path, head, monkeypatch):
    """By the Auto class, from the files alone; float32 noise is below 1e-5 here.

    The example of the card runs, too.
    """
    auto = head.replace("BertFor", "AutoModelFor").replace("BertModel", "AutoModel")
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    output = export(imported(head, tmp_path), tmp_path / "out")
    model, report = getattr(transformers, auto).from_pretrained(
        output, output_loading_info=True, attn_implementation="eager"
    )
    assert type(model).__name__ == head
    assert not any(report.values()), report
    monkeypatch.chdir(output)
    exec(re.findall(r"```python\n(.*?)```", Path("README.md").read_text(), re.S)[0], {})
    inputs, _ = reference(head)
    bert = load_pretrained(os.fspath(output))
    arrays = [jnp.asarray(values) for values in inputs.values()]
    arrays[2] = arrays[2] > 0
    ours = head_outputs(bert.config, jax.device_put(bert.params), Inputs(*arrays))
    shape = (2, 2, -1) if head == "BertForMultipleChoice" else (4, -1)
    ids, segments, mask = (
        torch.from_numpy(values).long().reshape(shape) for values in inputs.values()
    )
    with torch.no_grad():
        theirs = model(ids, token_type_ids=segments, attention_mask=mask)
    name = {"encoder": "hidden_states", "pretraining": "token_scores"}
    name |= {"masked_lm": "token_scores"}
    mine = np.asarray(ours[name.get(bert.config.head, "scores")])
    if head == "BertModel":
        mine, expected = mine[-1], theirs.last_hidden_state
    elif head == "BertForPreTraining":
        expected = theirs.prediction_logits
    elif head == "BertForQuestionAnswering":
        expected = torch.stack([theirs.start_logits, theirs.end_logits], -1)
    else:
        expected = theirs.logits
    np.testing.assert_allclose(
        mine.reshape(expected.shape), expected.numpy(), rtol=0, atol=1e-5
    )


def test_the_configuration_survives(tmp_path):
    """At values that are no default of either side."""
    changes = {
        "hidden_act": "gelu_new",
        "layer_norm_eps": 1e-7,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.3,
        "initializer_range": 0.5,
    }
    source = imported("BertForMaskedLM", tmp_path, **changes)
    before = load_pretrained(os.fspath(source)).config
    assert {name: getattr(before, name) for name in changes} == changes
    output = export(source, tmp_path / "out")
    assert load_pretrained(os.fspath(output)).config == before

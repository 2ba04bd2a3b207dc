"""Every place that a model may lie in, and what the models there cannot do."""

import dataclasses
import json
import sys

import huggingface_hub
import numpy as np
import pytest
from etils import epath
from family_files import write_model
from huggingface_files import stored
from huggingface_hub.utils import filter_repo_objects
from run_helpers import classifier_config

import bert_jax
from bert_jax.apps.convert.export import export_huggingface
from bert_jax.cli.main import main
from bert_jax.config import FinetuneConfig
from bert_jax.pretrained import load_pretrained
from bert_jax.runs.finetuning import finetune
from bert_jax.runs.teacher import with_pinned_teacher

NAME = "hf:owner/model@main"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def hub(tmp_path, monkeypatch) -> dict[str, object]:
    """A stand-in for the hub's download: what it was asked for."""
    folder = stored("BertForMaskedLM").write(tmp_path / "hub")
    asked: dict[str, object] = {}

    def download(repository: str, **options: object) -> str:
        asked.update(options, repository=repository)
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    return asked


def test_a_name_at_the_hub_is_fetched_without_its_pickles(hub, tmp_path, capsys):
    bert = bert_jax.load(NAME)
    assert bert.config.head == "masked_lm"
    assert (hub["repository"], hub["revision"]) == ("owner/model", "main")
    assert not [name for name in hub["allow_patterns"] if "bin" in name]
    command = ["convert", "import", NAME, "--from", "huggingface", "--output"]
    assert main([*command, str(tmp_path / "checkpoint")]) == 0
    assert capsys.readouterr().out == (
        f"{tmp_path / 'checkpoint'}: 20,956 parameters, head masked_lm; "
        "42 tensors taken, 0 fresh, 0 left over; "
        "3 settings left over (dtype, transformers_version, use_cache).\n"
    )
    again = bert_jax.load(tmp_path / "checkpoint")
    assert again.pairs == bert.pairs == "none"


@pytest.mark.parametrize("name", ["hf:@main", "hf:a/b/c@main", "hf:", "hf:a/b@"])
def test_a_name_at_the_hub_must_be_whole(name):
    with pytest.raises(ValueError, match="must be hf:OWNER/NAME or hf:OWNER/NAME@REV"):
        bert_jax.load(name)


def test_a_name_without_a_revision_is_of_the_branch_main(hub):
    bert_jax.load("hf:owner/model")
    assert (hub["repository"], hub["revision"]) == ("owner/model", "main")


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("bert-base-uncased", "hf:google-bert/bert-base-uncased?"),
        ("google-bert/bert-base-uncased", "hf:google-bert/bert-base-uncased?"),
        ("owner/model@v1", "hf:owner/model@v1?"),
        ("bert-runs/base", "hf:bert-runs/base?"),
        ("runs/reviews", ""),
        ("./runs/reviews", ""),
        ("/nonexistent/model", ""),
    ],
)
def test_a_path_that_may_be_a_name_at_the_hub(path, meant, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    with pytest.raises(FileNotFoundError, match="does not exist; name a wor") as error:
        bert_jax.load(path)
    assert str(error.value).endswith(f"did you mean {meant}" if meant else "model.")


@pytest.mark.slow
def test_a_run_records_the_commit_and_keeps_it(tmp_path, monkeypatch):
    """A branch that moves between two starts of a run changes nothing."""
    table = tmp_path / "train.csv"
    rows = [f"the cat {i},{'yes' if i % 2 else 'no'}" for i in range(16)]
    table.write_text("\n".join(["review,who", *rows]) + "\n")
    (tmp_path / "snapshots").mkdir()
    folder = stored("BertForMaskedLM").write(tmp_path / "snapshots" / COMMIT)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: folder)
    workdir = tmp_path / "run"
    config = classifier_config(table, "hf:owner/model", num_steps=1)
    data = dataclasses.replace(config.data, validation_fraction=0.25, max_length=16)
    config = dataclasses.replace(config, data=data)
    finetune(config, workdir)
    pinned = f"hf:owner/model@{COMMIT}"
    assert json.loads((workdir / "config.json").read_text())["init_from"] == pinned
    moved = folder.rename(folder.with_name(COMMIT[::-1]))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: moved)
    longer = dataclasses.replace(config, num_steps=2)
    assert finetune(longer, workdir, extend=True)["accuracy"] >= 0
    assert json.loads((workdir / "config.json").read_text())["init_from"] == pinned
    other = dataclasses.replace(longer, init_from=f"hf:owner/model@{COMMIT[::-1]}")
    with pytest.raises(ValueError, match="belongs to another run: init_from was"):
        finetune(other, workdir)


@pytest.mark.slow
def test_a_pretraining_run_records_the_commit(corpus, tmp_path, monkeypatch):
    """Of a model that the command names without a revision."""
    folder = stored("BertForPreTraining").write(tmp_path / COMMIT)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: folder)
    data, workdir = str(tmp_path / "data"), tmp_path / "run"
    model = str(tmp_path / "imported")
    words = ["convert", "import", "hf:owner/model", "--from", "huggingface"]
    assert main([*words, "--output", model]) == 0
    words = ["prepare", "--input", f"{corpus}/a.txt", "--tokenizer", model]
    assert main([*words, "--sequence-length", "16", "--output", data]) == 0
    words = ["pretrain", "--init-from", "hf:owner/model", "--data.path", data]
    words += ["--num-steps", "1", "--batch-size", "8", "--workdir", str(workdir)]
    words += ["--masking.max-predictions", "3", "--optimizer.warmup-steps", "0"]
    assert main([*words, "--data.sequence-length", "16", "--mesh.data", "1"]) == 0
    record = json.loads((workdir / "config.json").read_text())
    assert record["init_from"] == f"hf:owner/model@{COMMIT}"


def test_the_commit_of_a_teacher_is_kept(tmp_path, monkeypatch):
    """By each of several runs, and where one resumes."""
    folder = tmp_path / COMMIT
    folder.mkdir()
    (folder / "model.safetensors").touch()
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: folder)
    config = FinetuneConfig(teacher="hf:owner/model")
    first = with_pinned_teacher(config, None)
    assert first.teacher == f"hf:owner/model@{COMMIT}"
    moved = f"hf:owner/model@{COMMIT[::-1]}"
    assert with_pinned_teacher(config, moved).teacher == moved
    named = dataclasses.replace(config, teacher="runs/a")
    assert with_pinned_teacher(named, None) == named


def only_names_in_the_map(folder):
    """XLM-R with the names of special tokens in special_tokens_map.json alone."""
    write_model("XLMRobertaForMaskedLM", folder)
    (folder / "tokenizer_config.json").rename(folder / "special_tokens_map.json")
    for path in (folder / "tokenizer.json", folder / "special_tokens_map.json"):
        path.write_text(path.read_text().replace("<mask>", "<my_mask>"))


def only_ids_in_added_tokens(folder):
    files = stored("BertForMaskedLM")
    files.vocabulary = files.vocabulary[:-1]
    files.write(folder)
    (folder / "added_tokens.json").write_text('{"mat": 59}')
    assert len(files.vocabulary) == 59


def in_shards(folder):
    stored("BertForMaskedLM").write_shards(folder)


def of_sentences(folder, place="", pooling="1_Pooling"):
    """Files of sentence-transformers, with the model at their root or below it."""
    folder.mkdir()
    stored("BertModel").write(folder / place)
    start = "sentence_transformers.models."
    modules = [("Transformer", place), ("Pooling", pooling)]
    listed = [{"type": start + kind, "path": path} for kind, path in modules]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / pooling).mkdir()
    (folder / pooling / "config.json").write_text('{"pooling_mode": "cls"}')
    general = {"prompts": {"query": "the "}}
    path = folder / "config_sentence_transformers.json"
    path.write_text(json.dumps(general))
    path = folder / place / "sentence_bert_config.json"
    path.write_text('{"max_seq_length": 12}')


def of_sentences_in_a_folder(folder):
    of_sentences(folder, "0_BERT", "pooling")


def exported(folder):
    stored("BertModel").write(folder.with_name("saved"))
    export_huggingface(str(folder.with_name("saved")), epath.Path(folder))


@pytest.mark.parametrize(
    "write",
    [
        only_names_in_the_map,
        only_ids_in_added_tokens,
        in_shards,
        of_sentences,
        of_sentences_in_a_folder,
        exported,
    ],
)
def test_every_file_that_is_read_is_fetched(write, tmp_path, monkeypatch):
    write(tmp_path / "whole")
    for name in ("flax_model.msgpack", "onnx/model.onnx", "pytorch_model.bin"):
        path = tmp_path / "whole" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"never fetched")

    def download(repository, revision, allow_patterns):
        """Copy what the hub's library would download."""
        whole = tmp_path / "whole"
        paths = [str(p.relative_to(whole)) for p in whole.rglob("*") if p.is_file()]
        for name in filter_repo_objects(paths, allow_patterns=allow_patterns):
            copy = tmp_path / "fetched" / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes((whole / name).read_bytes())
        return str(tmp_path / "fetched")

    whole = load_pretrained(str(tmp_path / "whole"))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    fetched = load_pretrained(NAME)
    assert fetched.sources == whole.sources and len(whole.sources) > 3
    assert fetched.embedding == whole.embedding
    assert fetched.tokenizer.fingerprint == whole.tokenizer.fingerprint
    names = {str(path.name) for path in (tmp_path / "fetched").rglob("*")}
    assert not names & {"flax_model.msgpack", "model.onnx", "pytorch_model.bin"}
    assert ("conversion.json" in names) == (write is exported)
    # The receipt of a model lists the files that it was read from.
    read = {source["path"].rpartition("/")[2] for source in whole.sources}
    assert names - read <= {
        "README.md",
        "conversion.json",
        "whole",
        "0_BERT",
        "1_Pooling",
        "pooling",
    }


@pytest.mark.parametrize(
    ("name", "content"),
    [("merges.txt", "t h"), ("sentencepiece.bpe.model", "piece")],
)
def test_old_files_of_a_vocabulary_are_refused_with_a_remedy(name, content, tmp_path):
    folder = write_model("XLMRobertaForMaskedLM", tmp_path / "model")
    (folder / "tokenizer.json").unlink()
    (folder / name).write_text(content)
    with pytest.raises(FileNotFoundError, match="makes tokenizer.json of") as error:
        load_pretrained(str(folder))
    assert "\n" not in str(error.value) and str(folder) in str(error.value)


def test_a_model_at_the_hub_that_is_only_a_pickle_is_refused(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setattr(
        huggingface_hub, "snapshot_download", lambda *_, **__: str(tmp_path)
    )
    with pytest.raises(ValueError, match="has no model.safetensors, and pickles are"):
        bert_jax.load(NAME)


def test_what_the_hub_cannot_give_is_one_line(monkeypatch):
    def fail(*_: object, **__: object) -> str:
        raise RuntimeError("no\nnetwork")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(ValueError, match="model@main cannot be fetched: no network "):
        bert_jax.load(NAME)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ValueError, match="needs huggingface_hub; install it by `pip"):
        bert_jax.load(NAME)


def test_a_tensorflow_checkpoint_must_be_imported_first(tmp_path):
    for name in ("bert_model.ckpt", "model.ckpt-7"):
        (tmp_path / f"{name}.index").touch()
        for path in (tmp_path, tmp_path / name):
            with pytest.raises(ValueError, match=f"--from tf1 {path} --output"):
                bert_jax.load(path)


def test_a_model_says_which_head_it_lacks(tmp_path):
    encoder = bert_jax.load(stored("BertModel").write(tmp_path / "encoder"))
    with pytest.raises(
        ValueError, match=r"no masked_lm head \(head=encoder\), which f"
    ):
        encoder.fill_mask("the [MASK]")
    with pytest.raises(ValueError, match="no next_sentence head .head=encoder., which"):
        encoder.next_sentence("the cat", "a mat")
    with pytest.raises(ValueError, match="is a file; name the directory, .*encoder"):
        bert_jax.load(tmp_path / "encoder" / "model.safetensors")
    (tmp_path / "texts.csv").touch()
    with pytest.raises(ValueError, match="texts.csv is a file; name a workdir"):
        bert_jax.load(tmp_path / "texts.csv")
    (tmp_path / "model.onnx").touch()
    with pytest.raises(FileNotFoundError, match="an export to ONNX, which is not read"):
        bert_jax.load(tmp_path)
    masked_lm = bert_jax.load(stored("BertForMaskedLM").write(tmp_path / "masked_lm"))
    with pytest.raises(ValueError, match="no next_sentence head .head=masked_lm., whi"):
        masked_lm.next_sentence("the cat", "a mat")
    assert len(masked_lm.fill_mask("the [MASK]", k=3)) == 3
    for bert in (encoder, masked_lm):
        vectors = bert.embed(["the cat", "a mat"])
        assert vectors.shape == (2, 32) and np.abs(vectors[0] - vectors[1]).max() > 0.01


@pytest.mark.parametrize("to", ["huggingface", "onnx", "stablehlo"])
def test_parameters_of_ones_own_are_named(to, tmp_path):
    bert = bert_jax.load(stored("BertModel").write(tmp_path / "encoder"))
    params = dict(bert.params)
    bert.config = dataclasses.replace(bert.config, head="question_answering")
    with pytest.raises(ValueError, match="lacks classifier/dense/bias, .* checkpoint"):
        bert.save(tmp_path / "out", to)
    bert.config = dataclasses.replace(bert.config, head="encoder")
    bert.params = params | {"my_head": {"bias": np.zeros(2, np.float32)}}
    if to == "huggingface":
        with pytest.raises(ValueError, match="has my_head/bias, unlike a model"):
            bert.save(tmp_path / "out", to)
        assert not (tmp_path / "out").exists()


def test_an_imported_model_says_so(tmp_path):
    folder = stored("BertForPreTraining").write(tmp_path / "model")
    model = load_pretrained(str(folder))
    assert (
        model.imported and model.pairs == "nsp" and str(model.directory) == str(folder)
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["improt"], "convert 'improt' must be convert import"),
        (["import"], "convert import needs SRC and --from and --output"),
        (["import", "a", "--from", "torch", "--output", "b"], "torch"),
        (
            ["import", "absent", "--from", "huggingface", "--output", "b"],
            "absent does not exist; name a directory",
        ),
    ],
)
def test_a_command_that_is_wrong(arguments, message, capsys):
    code = main(["convert", *arguments])
    assert code == 2 and message in capsys.readouterr().err


def test_convert_lists_its_verbs(capsys):
    assert main(["convert"]) == main(["convert", "--help"]) == 0
    assert "  import " in capsys.readouterr().out


def test_a_snapshot_of_links_into_blobs_opens_as_hubs_caches_have_it(tmp_path):
    folder = stored("BertForMaskedLM").write_shards(tmp_path / "model")
    expected = bert_jax.load(folder)
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "0a1b"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for number, path in enumerate(sorted(folder.iterdir())):
        path.rename(blobs / str(number))
        (snapshot / path.name).symlink_to(f"../../blobs/{number}")
    bert = bert_jax.load(snapshot)
    assert bert.fill_mask("the [MASK]") == expected.fill_mask("the [MASK]")

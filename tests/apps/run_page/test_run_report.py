"""The web page of a run: its data, and what it says where data are missing."""

import base64
import dataclasses
import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from etils import epath
from run_helpers import classifier_config, logged_lines

from bert_jax.apps.run_page.curves import charts, reference_lines, thinned
from bert_jax.apps.run_page.run_record import configuration, progress, read_run_record
from bert_jax.apps.run_page.run_report import write_run_report
from bert_jax.cli.main import main
from bert_jax.config import ExamplesConfig, PrepareConfig, PretrainConfig
from bert_jax.config.sentence_pairs import SentencePairsConfig
from bert_jax.data.masked_texts import masked_texts, spread
from bert_jax.data.prepare import prepare
from bert_jax.data.records import Dataset, open_dataset
from bert_jax.data.search import sequence_starts
from bert_jax.inference.predictor import load
from bert_jax.runs.finetuning import finetune
from bert_jax.runs.pretraining import pretrain, resolve
from bert_jax.tasks.pretraining.task import unigram_baseline
from bert_jax.training.lock import LOCK, this_process
from bert_jax.training.metrics_file import MetricsLine, read_metrics

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


def data_of(page: Path) -> dict[str, Any]:
    """The data that the script of a page reads."""
    pattern = '<script type="application/json" id="data">(.*)</script>'
    (data,) = re.findall(pattern, page.read_text())
    assert "<" not in data
    values: dict[str, Any] = json.loads(data, parse_constant=pytest.fail)
    return values


def reported(workdir: Path, page: Path) -> dict[str, Any]:
    write_run_report(str(workdir), page)
    return data_of(page)


def copied(workdir: Path, copy: Path, **data: str) -> Path:
    """A copy of a run, with changed fields of `data` in its config.json."""
    shutil.copytree(workdir, copy)
    path = copy / "config.json"
    values = json.loads(path.read_text())
    values["data"] |= data
    path.write_text(json.dumps(values))
    return copy


def by_name(values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {chart["name"]: chart for chart in values["charts"]}


@pytest.fixture(scope="module")
def page(pretrained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    assert main(["inspect", str(pretrained), "--output", str(path)]) == 0
    return path


def test_the_curves_are_those_of_the_metrics(page, pretrained, small_config, dataset):
    found = by_name(data_of(page))
    for split, place in (("train", 0), ("validation", 1)):
        lines = logged_lines(pretrained, split)
        for name in ("loss", "mlm_loss", "nsp_accuracy"):
            curve = found[name]["curves"][place]
            assert curve["steps"] == [line["step"] for line in lines]
            logged = [line[name] for line in lines]
            np.testing.assert_allclose(curve["values"], logged, rtol=1e-5)
    assert {"learning_rate", "grad_norm", "tokens_per_second"} <= found.keys()
    # Neither empty charts, nor functions of another one.
    assert not found.keys() & {"mlm_perplexity", "skipped_in_a_row", "bits_per_byte"}
    config = resolve(small_config, dataset)
    baseline = unigram_baseline(config, dataset)
    (line,) = found["mlm_loss"]["lines"]
    assert line == {"name": "unigram", "value": baseline["unigram_loss"]}
    assert "frequency in the training rows" in found["mlm_loss"]["note"]
    (clipped,) = found["grad_norm"]["lines"]
    assert clipped["value"] == small_config.optimizer.max_grad_norm


def test_the_scores_and_which_checkpoints_are_kept(page, pretrained):
    found = data_of(page)["evaluations"]
    lines = logged_lines(pretrained, "validation")
    assert [row["step"] for row in found["rows"]] == [5, 10]
    assert [row["kept"] for row in found["rows"]] == [False, True]
    (place,) = (
        i for i, column in enumerate(found["columns"]) if column["title"] == "Loss"
    )
    for row, line in zip(found["rows"], lines, strict=True):
        assert row["values"][place] == pytest.approx(line["loss"], rel=1e-5)


def test_the_samples_are_those_of_the_checkpoints(page, pretrained):
    found = data_of(page)["samples"]
    assert found["steps"] == [8, 10] and not found["problems"]
    assert len(found["texts"]) == 5
    for place, step in enumerate(found["steps"]):
        bert = load(pretrained / "checkpoints" / str(step))
        for text in found["texts"]:
            every = bert.fill_mask(text["text"], k=160)
            shown = text["by_step"][place]
            assert [name for name, _ in shown["top"]] == [t for t, _ in every[:5]]
            token, p = every[shown["rank"] - 1]
            assert token == text["answer"] and len(token) >= 4
            assert shown["probability"] == pytest.approx(p, rel=1e-4)


def test_configuration_and_origin(page, pretrained, small_config, dataset):
    values = data_of(page)
    fields = {field["name"]: field for field in values["configuration"]}
    assert fields["num_steps"]["value"] == "10"
    assert fields["num_steps"]["default"] == str(PretrainConfig().num_steps)
    assert "optimizer steps" in fields["num_steps"]["about"]
    assert (
        fields["data.pairs"] | {"value": "nsp", "resolved": True}
        == fields["data.pairs"]
    )
    assert fields["masking.unit"]["value"] == fields["masking.unit"]["default"]
    origin = dict(values["provenance"])
    sizes = [leaf.size for leaf in _leaves(load(pretrained).params)]
    assert origin["parameters"] == f"{sum(sizes):,}"
    assert origin["fingerprint of the data"] == dataset.fingerprint
    assert origin["seed"] == "0" and origin["initial parameters"] == "random"
    assert "device kind cpu" in origin["from step 0"]
    assert origin["kind of run"] == "pretraining, masked_lm, pairs nsp"


def test_numbers_of_the_configuration_are_text():
    """As of Matryoshka's sizes, and of the layers that a student learns from."""
    pairs = SentencePairsConfig(dimensions=(8, 4))
    fields = configuration(ExamplesConfig(sentence_pairs=pairs))
    shown = {field["name"]: field["value"] for field in fields}
    assert shown["sentence_pairs.dimensions"] == "8, 4"


def _leaves(tree):
    return [x for v in tree.values() for x in (_leaves(v) if type(v) is dict else [v])]


def test_a_page_is_complete_and_closed(page):
    """Nothing is loaded, and no other script may run."""
    content = page.read_text()
    assert "{{" not in content and "http:" not in content and "https:" not in content
    assert "Finished, at step 10 of 10." in content
    assert "default-src 'none'" in content
    for kind in ("script", "style"):
        (own,) = re.findall(f"<{kind}>(.*?)</{kind}>", content, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in content


def test_names_and_texts_do_not_become_html(pretrained, tmp_path):
    name = "<script>a<b>\udcff"
    workdir = copied(pretrained, tmp_path / name, path="</script><i>")
    with open(workdir / "metrics.jsonl", "a") as file:
        file.write('{"step": 10, "split": "<i>", "</script><u>": 1.5}\n')
    values = reported(workdir, tmp_path / "page.html")
    content = (tmp_path / "page.html").read_text()
    assert "<script>a" not in content and "&lt;script&gt;a&lt;b&gt;" in content
    assert "<i>" not in content and "<u>" not in content
    assert by_name(values)["</script><u>"]["curves"][0]["name"] == "<i>"
    assert "</script><i> is absent" in values["samples"]["problems"][0]


def test_damaged_lines_are_counted_and_a_torn_last_one_is_not(pretrained, tmp_path):
    workdir = copied(pretrained, tmp_path / "run")
    path = workdir / "metrics.jsonl"
    lines = path.read_text()
    path.write_text(lines + '{"step": 11, "split": "tr')
    values = reported(workdir, tmp_path / "a.html")
    assert values["notes"] == []
    before = by_name(values)["loss"]["curves"]
    assert before[0]["steps"] == list(range(1, 11))
    path.write_text(f'{lines}nonsense\n{{"step": "x", "split": "train"}}\n')
    values = reported(workdir, tmp_path / "b.html")
    assert values["notes"] == ["Left out of metrics.jsonl, as unreadable: 2 lines."]
    assert by_name(values)["loss"]["curves"] == before


@pytest.mark.parametrize(
    "line",
    ["3", "{}", '{"step": 1.5, "split": "a"}', '{"step": 1, "split": 2}']
    + ['{"step": 1, "split": "a", "b": "c"}', '{"step": 1, "split": "a", "b": [1]}'],
)
def test_lines_that_are_no_scalars(line, tmp_path):
    path = epath.Path(tmp_path / "metrics.jsonl")
    path.write_text(f'{line}\n{{"step": 2, "split": "train", "loss": null}}\n')
    (found,), damaged = read_metrics(path)
    assert damaged == 1 and (found.step, found.split) == (2, "train")
    assert np.isnan(found.scalars["loss"])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"path": "nowhere"}, "nowhere is absent or unfinished"),
        ({"path": ""}, "The configuration names no dataset."),
        ({"path": "gs://bucket/rows"}, "gs://bucket/rows, is in a bucket"),
        ({"fingerprint": "0" * 64}, "is not the dataset of the run: its fingerprint"),
    ],
)
def test_a_dataset_that_is_gone(change, reason, pretrained, tmp_path):
    workdir = copied(pretrained, tmp_path / "run", **change)
    values = reported(workdir, tmp_path / "page.html")
    (problem,) = values["samples"]["problems"]
    assert reason in problem and not values["samples"]["texts"]
    (note,) = values["notes"]
    assert note.startswith("There is no line of the unigram baseline.")
    assert by_name(values)["mlm_loss"]["lines"] == []


def test_what_is_printed_promises_no_samples_without_a_dataset(
    pretrained, tmp_path, capsys
):
    workdir, page = copied(pretrained, tmp_path / "run", path="nowhere"), tmp_path / "p"
    assert main(["inspect", str(workdir), "--output", f"{page}.html"]) == 0
    output = capsys.readouterr().out
    assert (
        output.count("samples") == output.count("The page has no samples. nowher") == 1
    )


def test_a_dataset_without_validation_rows(
    pretrained, corpus, tokenizer_directory, tmp_path
):
    output = tmp_path / "rows"
    prepare(
        PrepareConfig(
            input=(str(corpus / "a.txt"),),
            tokenizer=str(tokenizer_directory),
            output=str(output),
            sequence_length=32,
            validation_fraction=0.0,
            workers=1,
        )
    )
    data = {"path": str(output), "fingerprint": open_dataset(output).fingerprint}
    workdir = copied(pretrained, tmp_path / "run", **data)
    values = reported(workdir, tmp_path / "page.html")
    assert values["samples"]["problems"] == [f"{output} has no validation rows."]


def test_a_damaged_checkpoint_is_named(pretrained, tmp_path):
    workdir = copied(pretrained, tmp_path / "run")
    (workdir / "checkpoints" / "8" / "config.json").write_text("{}")
    found = reported(workdir, tmp_path / "page.html")["samples"]
    (problem,) = found["problems"]
    assert problem.startswith("checkpoint 8: ") and "config.json" in problem
    assert found["steps"] == [10] and len(found["texts"][0]["by_step"]) == 1


def test_a_run_that_has_just_begun(pretrained, tmp_path):
    workdir = tmp_path / "run"
    workdir.mkdir()
    shutil.copy(pretrained / "config.json", workdir)
    values = reported(workdir, tmp_path / "page.html")
    assert values["charts"] == [] and values["evaluations"]["rows"] == []
    problem = "The run has no complete checkpoint yet."
    assert values["samples"]["problems"] == [problem]
    begins = "Stopped at step 0 of 10, without a checkpoint; the same command begins it"
    assert begins in (tmp_path / "page.html").read_text()


def test_whether_a_run_goes_on(pretrained, tmp_path):
    workdir = copied(pretrained, tmp_path / "run")
    config = json.loads((workdir / "config.json").read_text()) | {"num_steps": 2000}
    (workdir / "config.json").write_text(json.dumps(config))
    stopped = (
        "Stopped at step 10 of 2,000; the same command resumes it from its checkpoint "
        "10."
    )
    assert progress(read_run_record(str(workdir))) == stopped
    for patience, expected in ((100, stopped), (1, "Ended at step 10 of 2,000: 1 ev")):
        (workdir / "config.json").write_text(
            json.dumps(config | {"patience": patience})
        )
        line = {"step": 10, "split": "validation", "loss": 99.0}
        metrics = (pretrained / "metrics.jsonl").read_text() + json.dumps(line) + "\n"
        (workdir / "metrics.jsonl").write_text(metrics)
        assert progress(read_run_record(str(workdir))).startswith(expected)
    (workdir / "config.json").write_text(json.dumps(config))
    owner = this_process()
    lock = workdir / LOCK
    for change, expected in (
        ({}, "Running, at step 10 of 2,000."),
        ({"pid": 2**22 + 1}, stopped),
        ({"host": "h1"}, "Perhaps running on h1, at step 10 of 2,000."),
    ):
        lock.write_text(json.dumps(owner | change))
        assert progress(read_run_record(str(workdir))) == expected
    lock.write_text("{")
    assert progress(read_run_record(str(workdir))) == stopped


def test_a_run_is_finished_when_its_last_checkpoint_is_complete(pretrained, tmp_path):
    """The last step is logged before its checkpoint is written."""
    workdir = copied(pretrained, tmp_path / "run")
    assert progress(read_run_record(str(workdir))) == "Finished, at step 10 of 10."
    (workdir / LOCK).write_text(json.dumps(this_process()))
    assert progress(read_run_record(str(workdir))) == "Running, at step 10 of 10."
    (workdir / LOCK).unlink()
    (workdir / "checkpoints" / "10" / "manifest.json").unlink()
    assert progress(read_run_record(str(workdir))) == (
        "Stopped at step 10 of 10; the same command resumes it from its checkpoint 8."
    )


@pytest.fixture(scope="module")
def causal(
    corpus: Path,
    tokenizer_directory: Path,
    small_config: PretrainConfig,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The workdir of a causal model, two steps long."""
    root = tmp_path_factory.mktemp("causal")
    prepare(
        PrepareConfig(
            input=(str(corpus / "*.txt"),),
            tokenizer=str(tokenizer_directory),
            output=str(root / "rows"),
            sequence_length=32,
            validation_fraction=0.1,
            pairs="none",
            workers=1,
        )
    )
    positions = {"max_position_embeddings": 64}  # more than are trained
    model = dataclasses.replace(small_config.model, attention="causal", **positions)
    data = dataclasses.replace(small_config.data, path=str(root / "rows"))
    config = dataclasses.replace(
        small_config, model=model, data=data, objective="causal_lm", num_steps=2
    )
    pretrain(config, root / "run")
    return root / "run"


def test_a_causal_model_continues_prompts(causal, tmp_path):
    values = reported(causal, tmp_path / "page.html")
    found = by_name(values)
    assert "loss" not in found and found["bits_per_byte"]["lines"][0]["name"] == (
        "unigram"
    )
    samples = values["samples"]
    assert samples["steps"] == [2] and not samples["problems"]
    *prompts, empty = samples["texts"]
    assert len(prompts) == 2 and empty["text"] == ""
    bert = load(causal)
    for text in samples["texts"]:
        tokens = min(30, 31 - len(bert.tokenizer.encode(text["text"]).ids))
        whole = bert.generate(text["text"], tokens, temperature=0.0)
        (shown,) = text["by_step"]
        assert text["text"] + shown["greedy"] == whole
        assert shown["drawn"] != shown["greedy"]


def test_a_causal_model_without_its_dataset_has_no_prompts(causal, tmp_path):
    workdir = copied(causal, tmp_path / "run", path="nowhere")
    found = reported(workdir, tmp_path / "page.html")["samples"]
    assert [text["text"] for text in found["texts"]] == [""]
    (problem,) = found["problems"]
    assert problem.startswith("There are no prompts of validation rows. nowhere")


def test_a_finetuning_run(encoder_checkpoint, tmp_path):
    table = tmp_path / "table.csv"
    rows = [f"The judge finds the {i}.,a\nThe clerk hides it.,b\n" for i in range(20)]
    table.write_text("review,who\n" + "".join(rows))
    config = classifier_config(table, encoder_checkpoint, num_steps=4, eval_every=2)
    finetune(config, tmp_path / "run")
    values = reported(tmp_path / "run", tmp_path / "page.html")
    assert values["samples"] is None
    found = by_name(values)
    best = max(
        line["accuracy"] for line in logged_lines(tmp_path / "run", "validation")
    )
    (rule,) = found["accuracy"]["lines"]
    assert rule["name"] == "the commonest label" and 0 <= rule["value"] <= 1
    assert len(values["notes"]) == (best <= rule["value"])
    lines = logged_lines(tmp_path / "run", "validation")
    (curve,) = found["accuracy"]["curves"]
    assert curve["steps"] == [line["step"] for line in lines] == [2, 4]
    titles = [column["title"] for column in values["evaluations"]["columns"]]
    assert titles[:2] == ["Loss", "Accuracy"]
    origin = dict(values["provenance"])
    assert origin["kind of run"] == "fine-tuning, text-classification"
    assert origin["data"] == str(table)
    assert origin["initial parameters"] == str(encoder_checkpoint)


def test_a_peak_survives_thinning():
    values = np.sin(np.arange(100_000) / 5000)
    values[[777, 54_321]] = 9, -9
    kept = thinned(values, 1000)
    assert 500 < len(kept) <= 1000 and (np.diff(kept) > 0).all()
    assert {0, 777, 54_321, 99_999} <= set(kept.tolist())
    np.testing.assert_array_equal(thinned(values[:1000], 1000), np.arange(1000))


def test_long_curves_say_how_many_points_they_had():
    lines = [MetricsLine(n, "train", {"loss": 1.0 / n}) for n in range(1, 5001)]
    lines[9] = MetricsLine(10, "train", {"loss": float("nan")})
    ((curve,),) = (chart["curves"] for chart in charts(lines, {}))
    assert len(curve["steps"]) <= 1000 and curve["steps"][-1] == 5000
    assert curve["logged"] == 4999 and curve["not_finite"] == 1
    assert 10 not in curve["steps"]


def test_a_scalar_without_a_finite_value_has_no_chart():
    scalars = {"loss": float("inf"), "skipped_in_a_row": 0.0, "own": 2.0}
    (chart,) = charts([MetricsLine(1, "train", scalars)], {"loss": ("a", 1.0)})
    assert (chart["name"], chart["title"]) == ("own", "Own")


@pytest.mark.parametrize("taught", [False, True])
def test_the_loss_has_a_chart_unless_it_equals_its_only_part(taught):
    scalars = {"mlm_loss": 2.0} | ({"distillation_loss": 1.0} if taught else {})
    lines = [MetricsLine(1, "train", {"loss": sum(scalars.values()), **scalars})]
    names = {chart["name"] for chart in charts(lines, {})}
    assert names == scalars.keys() | ({"loss"} if taught else set())


def test_reference_lines_are_on_the_charts_to_which_they_apply(small_config):
    """A fork that was causal before: its metrics have both losses."""
    baseline = {"unigram_loss": 5.0, "unigram_accuracy": 0.1}
    lines = reference_lines(small_config, [{"step": 0}], baseline)
    assert lines["mlm_loss"] == ("unigram", 5.0) and "clm_loss" not in lines
    assert lines["mlm_accuracy"] == ("unigram", 0.1)
    assert lines["grad_norm"] == ("limit of clipping", 1.0)
    model = dataclasses.replace(small_config.model, attention="causal")
    causal = dataclasses.replace(small_config, model=model, objective="causal_lm")
    lines = reference_lines(causal, [], baseline | {"unigram_bits_per_byte": 2.0})
    assert lines["clm_loss"] == ("unigram", 5.0) and "mlm_loss" not in lines
    assert lines["bits_per_byte"] == ("unigram", 2.0)


def test_a_limit_of_clipping_that_was_changed_has_no_line(pretrained, tmp_path):
    workdir = copied(pretrained, tmp_path / "run")
    path = workdir / "config.json"
    values = json.loads(path.read_text())
    change = {"field": "optimizer.max_grad_norm", "before": 2.0, "now": 1.0}
    values["history"].append({"step": 5, "changed": [change]})
    path.write_text(json.dumps(values))
    assert (
        by_name(reported(workdir, tmp_path / "page.html"))["grad_norm"]["lines"] == []
    )


def test_the_rows_are_not_hashed_for_a_report(pretrained, dataset, tmp_path):
    """Only the manifest is compared: a dataset may have tens of gigabytes."""
    rows = tmp_path / "rows"
    shutil.copytree(dataset.path, rows)
    (shard,) = rows.glob("train-*.npy")
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    workdir = copied(pretrained, tmp_path / "run", path=str(rows))
    lines: list[str] = []
    write_run_report(str(workdir), tmp_path / "page.html", lines.append)
    assert len(data_of(tmp_path / "page.html")["samples"]["texts"]) == 5
    assert lines == [
        "Samples of checkpoint 8, 1 of 2.",
        "Samples of checkpoint 10, 2 of 2.",
    ]


def test_a_text_that_holds_the_letters_of_a_mask_is_skipped(tmp_path):
    """The rest of the samples stay. Sentencepiece keeps the letters as they are."""
    text, sentence = (
        tmp_path / "text.txt",
        "The judge reads the letter to the old clerk",
    )
    # The trainer leaves the name out, and has its letters from elsewhere.
    documents = [f"{sentence} in house {n} [A] MKS." for n in range(40)]
    documents += [f"{sentence} with a [MASK] in house {n}." for n in range(40)]
    text.write_text("\n\n".join(documents))
    words, rows = tmp_path / "words", tmp_path / "rows"
    inputs = ["--input", str(text)]
    kind = ["--kind", "bpe", "--cased", "--vocab-size", "80"]
    assert main(["vocab", *inputs, *kind, "--output", str(words)]) == 0
    options = ["--tokenizer", str(words), "--sequence-length", "64", "--pairs", "none"]
    options += ["--validation-fraction", "0.5", "--output", str(rows)]
    assert main(["prepare", *inputs, *options, "--workers", "1"]) == 0
    data = open_dataset(rows)
    every = data.validation.gather(np.arange(len(data.validation)))["tokens"]
    literal = data.tokenizer.encode("[MASK]").ids.tolist()
    words_only = np.zeros(data.tokenizer.vocab_size, bool)
    with_mask = sequence_starts(every, literal, words_only).any(1)
    assert 0 < with_mask.sum() < len(every)
    texts = masked_texts(data, 10, 62)
    assert texts
    for masked in texts:
        ids = data.tokenizer.encode(masked.text, mask_token=True).ids.tolist()
        assert ids.count(data.tokenizer.mask_id) == 1


def test_few_of_many_checkpoints_are_shown():
    assert spread([1, 2, 3], 8) == [1, 2, 3]
    found = spread(list(range(100, 10_001, 100)), 8)
    assert len(found) == 8 and (found[0], found[-1]) == (100, 10_000)


def test_a_masked_text_is_cut_to_what_a_model_takes(dataset: Dataset):
    """No text is longer than the model, and each holds one [MASK]."""
    texts = masked_texts(dataset, 10, 30)
    assert len(texts) > 5
    for text in texts:
        ids = dataset.tokenizer.encode(text.text, mask_token=True).ids.tolist()
        assert len(ids) <= 30 and ids.count(dataset.tokenizer.mask_id) == 1
        assert text.answer.isalpha()
    assert not masked_texts(dataset, 10, 5)


def shown_by_browser(page: Path, profile: Path) -> str:
    """The part of a page that its script makes, as HTML."""
    words = "--headless --no-sandbox --disable-gpu --no-first-run --dump-dom".split()
    quiet = "--disable-background-networking --disable-sync --disable-component-update"
    command = [str(CHROMIUM), *words, *quiet.split(), f"--user-data-dir={profile}"]
    done = subprocess.run([*command, page.as_uri()], capture_output=True, timeout=120)
    (content,) = re.findall("<main>(.*)</main>", done.stdout.decode(), re.DOTALL)
    return str(content)


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize("kind", ["masked", "causal"])
def test_a_page_in_a_browser(kind, page, causal, tmp_path):
    path = page if kind == "masked" else tmp_path / "page.html"
    values = data_of(path) if kind == "masked" else reported(causal, path)
    content = shown_by_browser(path, tmp_path / "profile")
    assert content.count("<figure>") == len(values["charts"])
    curves = sum(len(chart["curves"]) for chart in values["charts"])
    assert content.count("<polyline") == curves
    assert "NaN" not in content and "undefined" not in content
    last = "10" if kind == "masked" else "2"
    assert re.search(rf"Step {last}: training [\d.]+, validation [\d.]+", content)
    for title in ("Curves", "Evaluations", "Samples", "Configuration", "Provenance"):
        assert re.search(rf"<h2 id=\S+>{title}</h2>", content)
    text = values["samples"]["texts"][0]
    assert (text["answer"] if kind == "masked" else text["text"]) in content


DRIVER = """<script>
document.querySelectorAll("button").forEach(button => button.click());
const chart = document.querySelector("figure > svg");
const press = key => chart.dispatchEvent(new KeyboardEvent("keydown", { key }));
["Home", "ArrowRight", "ArrowRight", "ArrowRight"].forEach(press);
</script></body>"""


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_a_chart_is_read_by_the_keyboard(page, pretrained, tmp_path):
    """On a copy without its policy, which would not run the keys' script."""
    content = re.sub("<meta http-equiv[^>]*>", "", page.read_text())
    copy = tmp_path / "page.html"
    copy.write_text(content.replace("</body>", DRIVER))
    shown = shown_by_browser(copy, tmp_path / "profile")
    loss = logged_lines(pretrained, "train")[3]["loss"]
    assert f"Step 4: training {loss:.4g}" in shown
    assert " at step 5</p>" in shown
    assert 'aria-pressed="true"' in shown and 'aria-pressed="false"' not in shown
    assert "NaN" not in shown

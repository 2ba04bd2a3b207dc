"""Runs that learn from a teacher: what they record, resume from, and refuse."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from etils import epath
from run_helpers import (
    assert_same_run,
    classifier_config,
    logged_lines,
    read_arrays,
    read_params,
    write_config,
)
from small_world import SUBJECTS

from bert_jax.apps.convert.shrink import keep_layers
from bert_jax.apps.dry_run.pretraining import dry_run
from bert_jax.checkpoints.optimizer_state import drop_optimizer_state
from bert_jax.config import (
    DistillationConfig,
    FinetuneConfig,
    MeshConfig,
    PretrainConfig,
    PretrainDistillationConfig,
)
from bert_jax.config.serialization import to_dict
from bert_jax.data.example_cache import content_key
from bert_jax.data.records import Dataset
from bert_jax.pretrained import Model, load_pretrained, write_checkpoint
from bert_jax.runs.finetuning import finetune
from bert_jax.runs.pretraining import pretrain
from bert_jax.runs.teacher import pretraining_teacher
from bert_jax.runs.workdir import changes
from bert_jax.storage.manifest import read_manifest, write_manifest
from bert_jax.tokenization import Tokenizer
from bert_jax.training.resume import Resume


@pytest.fixture(scope="module")
def config(small_config: PretrainConfig, teacher_checkpoint: Path) -> PretrainConfig:
    """The small run, with dropout, and a teacher of four layers."""
    distillation = PretrainDistillationConfig(
        scores_weight=1.0, hidden_weight=0.5, relations_weight=0.25, relation_heads=2
    )
    return dataclasses.replace(
        small_config,
        teacher=str(teacher_checkpoint),
        distillation=distillation,
        keep_checkpoints=9,
    )


@pytest.fixture(scope="module")
def run(config: PretrainConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    workdir = tmp_path_factory.mktemp("taught") / "run"
    pretrain(config, workdir)
    return workdir


def test_the_losses_add_up(run):
    lines = logged_lines(run)
    assert {line["split"] for line in lines} == {"train", "validation"}
    for line in lines:
        labels = 0.5 * (line["mlm_loss"] + line["nsp_loss"])
        total = pytest.approx(labels + line["distillation_loss"], rel=1e-5)
        assert line["loss"] == total and line["distillation_loss"] > 0.01


def test_a_checkpoint_has_the_student_alone(run, small_config, pretrained):
    assert read_params(run).keys() == read_params(pretrained).keys()
    optimizers = [
        read_arrays(workdir / "checkpoints" / "10", "optimizer").keys()
        for workdir in (run, pretrained)
    ]
    assert optimizers[0] == optimizers[1]


@pytest.mark.slow
def test_a_stopped_run_resumes_bit_by_bit(run, config, tmp_path):
    stopped = tmp_path / "run"
    shutil.copytree(run, stopped)
    for step in (8, 10):
        shutil.rmtree(stopped / "checkpoints" / str(step))
    pretrain(config, stopped)
    assert_same_run(stopped, run)


def test_another_teacher_is_refused(run, config, teacher_checkpoint, tmp_path):
    model = load_pretrained(str(teacher_checkpoint))
    recorded = json.loads((run / "config.json").read_text())
    assert recorded["teacher"] == str(teacher_checkpoint)
    assert len(recorded["distillation"]["fingerprint"]) == 64
    params = model.params | {"masked_lm": dict(model.params["masked_lm"])}
    params["masked_lm"]["bias"] = params["masked_lm"]["bias"] + 1
    other = tmp_path / "other"
    write_checkpoint(dataclasses.replace(model, params=params), {}, epath.Path(other))
    changed = dataclasses.replace(config, teacher=str(other))
    with pytest.raises(ValueError, match="distillation.fingerprint was .* teacher was"):
        pretrain(changed, run)
    without = dataclasses.replace(
        config, teacher="", distillation=PretrainDistillationConfig()
    )
    with pytest.raises(ValueError, match=r"teacher was .* and is ''"):
        pretrain(without, run)
    # The same files in another place are another name, and not another model.
    moved = tmp_path / "moved"
    shutil.copytree(teacher_checkpoint, moved)
    with pytest.raises(ValueError, match="another run: teacher was .*moved'") as error:
        pretrain(dataclasses.replace(config, teacher=str(moved)), run)
    assert "fingerprint" not in str(error.value)


def test_a_teacher_is_the_same_without_its_optimizer(
    pretrained, config, dataset, tmp_path
):
    """Its newest checkpoint may be another one later; the earlier one can be named."""
    workdir = tmp_path / "teacher"
    shutil.copytree(pretrained, workdir)
    new = dataclasses.replace(
        config, teacher=str(workdir), distillation=PretrainDistillationConfig()
    )
    _, recorded = pretraining_teacher(new, dataset, None)
    resume = Resume(10, to_dict(recorded), [], [])
    # Older versions recorded a hash of all files.
    model = load_pretrained(str(workdir))
    values = to_dict(model.config)
    del values["target_mean"], values["target_deviation"]
    old = content_key(values, sorted(file["sha256"] for file in model.sources))
    before = dataclasses.replace(recorded.distillation, fingerprint=old)
    older = Resume(
        10, to_dict(dataclasses.replace(recorded, distillation=before)), [], []
    )
    assert pretraining_teacher(new, dataset, older)[1].distillation == before
    assert drop_optimizer_state(epath.Path(workdir / "checkpoints" / "10"))
    assert pretraining_teacher(new, dataset, resume)[1] == recorded
    # The teacher goes on.
    older_step, newest = workdir / "checkpoints" / "10", workdir / "checkpoints" / "12"
    shutil.copytree(workdir / "checkpoints" / "8", newest)
    path = epath.Path(newest)
    write_manifest(read_manifest(path) | {"step": 12}, path)
    with pytest.raises(ValueError, match=r"name that one, as --teacher .*/STEP"):
        pretraining_teacher(new, dataset, resume)
    new = dataclasses.replace(new, teacher=str(older_step))
    _, completed = pretraining_teacher(new, dataset, resume)
    assert changes(completed, resume, "run") == []


@pytest.mark.slow
def test_the_dry_run_shows_the_loss(config):
    lines = list(dry_run(config, "", devices=2))
    (line,) = (line for line in lines if line.startswith("teacher: "))
    assert "parameters that are not trained" in line
    assert "0.5 x the loss on the labels + 1 x scores + 0.5 x hidden" in line
    (size,) = (line for line in lines if line.startswith("memory a device"))
    assert "parameters" in size


@pytest.fixture
def teacher(teacher_checkpoint: Path) -> Model:
    return load_pretrained(str(teacher_checkpoint))


def written(teacher: Model, folder: Path, **changes: Any) -> str:
    """A checkpoint of the teacher with other fields; those of its model by `config`."""
    config = dataclasses.replace(teacher.config, **changes.pop("config", {}))
    model = dataclasses.replace(teacher, config=config, **changes)
    write_checkpoint(model, {}, epath.Path(folder / "other"))
    return str(folder / "other")


def other_vocabulary(tokenizer: Tokenizer) -> Tokenizer:
    """The same tokens, of which two have each other's ids."""
    lines = tokenizer.files["vocab.txt"].splitlines()
    lines[-1], lines[-2] = lines[-2], lines[-1]
    return Tokenizer(tokenizer.config, b"\n".join(lines) + b"\n")


def test_a_teacher_with_another_vocabulary_is_one_line(
    teacher, config, tmp_path, refused
):
    tokenizer = other_vocabulary(teacher.tokenizer)
    name = written(teacher, tmp_path, tokenizer=tokenizer)
    changed = dataclasses.replace(config, teacher=name)
    file = write_config(changed, tmp_path / "config.py")
    error = refused("pretrain", str(file), "--workdir", str(tmp_path / "run"))
    assert f"teacher={name} is a teacher with another vocabulary" in error
    assert not (tmp_path / "run").exists()


def misfit(config: PretrainConfig, dataset: Dataset, **changes: Any) -> str:
    """The message that a run with other fields of its distillation ends with."""
    fields = changes.pop("distillation", {})
    distillation = dataclasses.replace(config.distillation, **fields)
    config = dataclasses.replace(config, distillation=distillation, **changes)
    with pytest.raises(ValueError, match="teacher|distillation") as error:
        pretraining_teacher(config, dataset, None)
    return str(error.value)


def test_teachers_that_do_not_fit(teacher, config, dataset, tmp_path):
    """Each message names the field, and what to do."""
    for fields, message in (
        ({"relation_heads": 3}, "relation_heads=3 does not divide hidden_size=16"),
        ({"relation_layer": 4}, "relation_layer=4 but .* has 4 layers"),
        ({"teacher_layers": (1, 2)}, "teacher_layers has 2 layers for the 1"),
        ({"fingerprint": "ab"}, "distillation.fingerprint=ab but teacher="),
    ):
        pattern = message.split(" .* ")
        error = misfit(config, dataset, distillation=fields)
        assert all(part in error for part in pattern), error
    wide = dataclasses.replace(config.model, hidden_size=32, num_attention_heads=8)
    error = misfit(config, dataset, model=wide)
    assert "has hidden_size=16 and the model 32" in error
    error = misfit(config, dataset, model=wide, mesh=MeshConfig(1, 32))
    assert "mesh.fsdp=32 does not divide the teacher's hidden_size=16; 16" in error
    causal = dataclasses.replace(config.model, attention="causal")
    error = misfit(
        config,
        dataset,
        model=causal,
        objective="causal_lm",
        data=dataclasses.replace(config.data, pairs="none"),
    )
    assert "has attention=bidirectional and the run causal" in error


def test_a_teacher_needs_what_is_learned_from_it(teacher, config, dataset, tmp_path):
    params = {"encoder": teacher.params["encoder"]}
    name = written(teacher, tmp_path, params=params, config={"head": "encoder"})
    error = misfit(config, dataset, teacher=name)
    assert "has no scores of the 160 tokens" in error
    distillation = PretrainDistillationConfig(scores_weight=0.0, relations_weight=1.0)
    changed = dataclasses.replace(config, teacher=name, distillation=distillation)
    found, completed = pretraining_teacher(changed, dataset, None)
    assert found is not None and found.params.keys() == {"encoder"}
    assert completed.distillation.fingerprint
    short = tmp_path / "short"
    short.mkdir()
    table = teacher.params["encoder"]["embeddings"]["position"]["embedding"][:16]
    encoder = teacher.params["encoder"]
    embeddings = encoder["embeddings"] | {"position": {"embedding": table}}
    params = teacher.params | {"encoder": encoder | {"embeddings": embeddings}}
    sizes = {"max_position_embeddings": 16}
    name = written(teacher, short, params=params, config=sizes)
    error = misfit(config, dataset, teacher=name)
    assert "has 16 positions, and the rows have up to 32 tokens" in error


@pytest.fixture(scope="module")
def tuned(
    teacher_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[FinetuneConfig, Path]:
    """The configuration of a student of two layers, and a teacher of its task."""
    folder = tmp_path_factory.mktemp("tuned")
    rows = [f"The {SUBJECTS[i % 2]} reads {i}.,{SUBJECTS[i % 2]}" for i in range(40)]
    table = folder / "train.csv"
    table.write_text("review,who\n" + "\n".join(rows) + "\n")
    options = {"num_steps": 4, "log_every": 1, "eval_every": 4}
    config = classifier_config(table, teacher_checkpoint, **options)
    finetune(config, folder / "teacher")
    student = keep_layers(load_pretrained(str(teacher_checkpoint)), [1, 3])
    write_checkpoint(student, {}, epath.Path(folder / "student"))
    config = dataclasses.replace(
        config, init_from=str(folder / "student"), teacher=str(folder / "teacher")
    )
    return config, folder


@pytest.mark.slow
def test_a_classifier_learns_from_a_teacher(tuned):
    config, folder = tuned
    distillation = DistillationConfig(label_weight=0.3, scores_weight=0.7)
    config = dataclasses.replace(config, distillation=distillation)
    scores = finetune(config, folder / "taught")
    assert 0 <= scores["accuracy"] <= 1
    lines = logged_lines(folder / "taught")
    for line in lines:
        total = 0.3 * line["label_loss"] + line["distillation_loss"]
        assert line["loss"] == pytest.approx(total, rel=1e-5)
    names = list(
        json.loads((folder / "taught" / "metrics.jsonl").read_text().splitlines()[-1])
    )
    assert names.index("accuracy") < names.index("distillation_loss")
    recorded = json.loads((folder / "taught" / "config.json").read_text())
    assert recorded["distillation"]["fingerprint"]
    assert "classifier/dense/kernel" in read_params(folder / "taught")
    # Its temperature alone makes another run.
    warmer = dataclasses.replace(distillation, temperature=4.0)
    with pytest.raises(ValueError, match=r"distillation.temperature was 2.0 and is 4"):
        finetune(dataclasses.replace(config, distillation=warmer), folder / "taught")


def test_teachers_of_other_classes_or_tasks_are_refused(
    classifier, encoder_checkpoint, reviews, tmp_path
):
    config = classifier_config(reviews, encoder_checkpoint)
    teacher = load_pretrained(str(classifier))
    for fields, message in (
        ({"labels": ("a", "b")}, r"has labels=\('a', 'b'\) and the run \('clerk'"),
        ({"problem_type": "multi_label_classification"}, "has problem_type=multi"),
        ({"head": "encoder", "labels": ()}, "has head=encoder and the run sequence"),
        ({"labels": teacher.config.labels[::-1]}, "set data.labels to "),
    ):
        name = written(teacher, tmp_path / message[4:8], config=fields)
        with pytest.raises(ValueError, match=message):
            finetune(dataclasses.replace(config, teacher=name), tmp_path / "run")
    assert not (tmp_path / "run").exists(), "neither tokenized examples"

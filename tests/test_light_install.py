"""The light installation: its list of packages, and every verb without TensorFlow."""

import configparser
import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from run_helpers import NO_TENSORFLOW, flags_for_one_device

from bert_jax.config.serialization import to_dict

ROOT = Path(__file__).parent.parent
HEAVY = ("tensorflow", "tensorflow-cpu", "tensorflow-datasets", "importlib-resources")
"""What tf.data and TFDS need, and nothing else does."""
PROGRAM = """
import csv, dataclasses, json, shutil, sys
from pathlib import Path
from bert_jax.cli.main import main
from bert_jax.config import DataConfig, PretrainConfig
from bert_jax.config.serialization import from_dict

def run(*arguments):
    code = main([str(argument) for argument in arguments])
    assert not code, (arguments, code)

corpus, root, config = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
small = from_dict(PretrainConfig, config)
run("vocab", "--input", f"{corpus}/*.txt", "--vocab-size", 160, "--output", root / "v")
run(
    *("prepare", "--input", f"{corpus}/*.txt", "--tokenizer", root / "v"),
    *("--output", root / "data", "--sequence-length", 32, "--workers", 1),
    *("--validation-fraction", 0.1),
)
(root / "config.json").write_text(sys.argv[3])
pretrain = ["pretrain", root / "config.json", "--data.path", root / "data"]
run(*pretrain, "--workdir", root / "run", "--num-steps", 4)
run(*pretrain, "--workdir", root / "run", "--num-steps", 6, "--extend")
words = {"fox": "red", "mole": "blind"}
rows = [(f"the {name} is {words[name]}", name) for name in list(words) * 8]
with open(root / "t.csv", "w", newline="") as file:
    csv.writer(file).writerows([("text", "label"), *rows])
run(
    *("finetune", "text-classification", "--init-from", root / "run"),
    *("--workdir", root / "ft", "--data.train", root / "t.csv", "--num-steps", 2),
    *("--batch-size", 4, "--data.max-length", 32, "--mesh.data", 1),
    *("--report", "tensorboard", "csv"),
)
run("evaluate", "--model", root / "ft", "--input", root / "t.csv")
for suffix in ("jsonl", "csv", "parquet"):
    output = root / f"p.{suffix}"
    run("predict", "--model", root / "ft", "--input", root / "t.csv",
        "--output", output)
run("convert", "export", "--to", "huggingface", root / "ft", "--output", root / "hf")
run("convert", "import", "--from", "huggingface", root / "hf", "--output", root / "im")
run("inspect", root / "run", "--output", root / "report.html")

from bert_jax.apps.demo import demo as module

def write_corpus(directory):
    shutil.copytree(corpus, directory)
    modules = {name: [f"{name}.m{i}" for i in range(40)] for name in "abc"}
    facts = {"words": 5, "documents": 9, "duplicates": 0, "sha256": "0" * 64}
    (directory / "corpus.json").write_text(json.dumps(facts | {"modules": modules}))

finetuning = dataclasses.replace(
    module.FINETUNING,
    data=dataclasses.replace(module.FINETUNING.data, max_length=32),
    mesh=small.mesh, num_steps=2, eval_every=2, checkpoint_every=2,
)
demo = dataclasses.replace(
    small, data=DataConfig(sequence_length=32), num_steps=4
)
module.demo(root / "demo", demo, finetuning, write_corpus)
heavy = {name.split(".")[0] for name in sys.modules if sys.modules[name]}
assert not heavy & {"tensorflow", "tensorflow_datasets", "keras"}, heavy
"""


def packages(lines: str) -> set[str]:
    return {
        line.partition(";")[0].strip()
        for line in lines.splitlines()
        if line.strip() and not line.strip().startswith("#")
    }


def test_the_light_list_is_the_whole_one_without_tensorflow():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    whole = packages(setup["options"]["install_requires"])
    light = packages((ROOT / "requirements-light.txt").read_text())
    assert light < whole
    names = {line.partition(">")[0] for line in whole - light}
    assert names == set(HEAVY)


def test_make_demo_installs_no_more_than_the_light_list():
    """Not the developers' tools, and not TensorFlow."""
    make = ["make", "--no-print-directory", "--dry-run", "--always-make", "demo"]
    printed = subprocess.run(make, capture_output=True, text=True, cwd=ROOT)
    installs = [line for line in printed.stdout.splitlines() if "pip install" in line]
    assert [line.partition("--quiet ")[2] for line in installs] == [
        "--upgrade pip",
        "--requirement requirements-light.txt",
        "--no-deps --editable .",
    ]
    assert printed.stdout.splitlines()[-1] == "build/light/bin/bert-jax demo"


@pytest.mark.slow
def test_every_verb_runs_without_tensorflow(corpus, small_config, tmp_path):
    config = dataclasses.replace(
        small_config,
        data=dataclasses.replace(small_config.data, path=""),
        eval_every=2,
        checkpoint_every=2,
    )
    paths = [str(NO_TENSORFLOW), str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "XLA_FLAGS": flags_for_one_device(),
    }
    arguments = [str(corpus), str(tmp_path), json.dumps(to_dict(config))]
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-3000:]
    assert "library_pretrained" in result.stdout

"""Benchmarks run, and print what they measured."""

import dataclasses
import functools
import importlib.util
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from run_helpers import flags_for_one_device

from bert_jax.apps.benchmark import main
from bert_jax.apps.benchmark.command import WHAT, parse, print_table
from bert_jax.apps.benchmark.figures import alternate, rates, ratios
from bert_jax.apps.benchmark.steps import synthetic_task
from bert_jax.cli.command import parse as parse_by_tyro
from bert_jax.cli.main import main as cli_main
from bert_jax.config import BertConfig
from bert_jax.distributed.peaks import peak_flops_per_second
from bert_jax.model.flops import encoding_flops, pretraining_flops
from bert_jax.terminal.messages import UsageError

SIZE = ["--model", "tiny", "--batch-size", "8", "--sequence-length", "16"]
TURNS = ["--repeats", "2", "--steps", "1"]
HAVE_TORCH = all(importlib.util.find_spec(name) for name in ("torch", "transformers"))


def parity(test):
    """For where PyTorch and transformers are installed."""
    reason = "needs the extra parity"
    return pytest.mark.parity(pytest.mark.skipif(not HAVE_TORCH, reason=reason)(test))


ABSENT = "tensorflow tensorflow_datasets tyro tensorboardX sentencex".split()
BLOCKED = f"""
import runpy, sys
from importlib.machinery import PathFinder

class Present(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.split(".")[0] in {ABSENT}:
            return None
        return super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Present
for name in {ABSENT}:
    try:
        __import__(name)
    except ModuleNotFoundError:
        continue
    raise AssertionError(name)
runpy.run_module("bert_jax.benchmark", run_name="__main__", alter_sys=True)
"""


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Measures where much is not installed, as on GPU hosts; figures and output.

    Preparation is for where the text is, with sentencex.
    """

    @functools.cache
    def measure(what, *words):
        path = tmp_path_factory.mktemp(what) / "figures.json"
        command = [sys.executable, "-c", BLOCKED, what, *words, "--json", str(path)]
        flags = f"{flags_for_one_device()} --xla_force_host_platform_device_count=2"
        environment = os.environ | {"XLA_FLAGS": flags}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        return json.loads(path.read_text()), done.stdout

    return measure


@pytest.mark.slow
def test_train(measured):
    figures, output = measured("train", *SIZE, *TURNS)
    assert figures["parameters"] == 4_433_468
    # Every row is full, so tokens and sequences tell the same time.
    assert figures["tokens_per_second"] == pytest.approx(
        16 * figures["sequences_per_second"]
    )
    assert figures["step_seconds_fastest"] <= figures["step_seconds"]
    assert 9 < figures["loss"] < 13
    # The use of all devices is by the peak of all devices.
    assert figures["mfu_of_measured_matmul"] == pytest.approx(
        figures["model_flops_per_second"]
        / figures["measured_matmul_flops_per_second"]
        / figures["devices"]
    )
    assert figures["compile_seconds"] > 0 and figures["program_memory_mib"] > 50
    assert "step_seconds" in output


def test_options_of_the_step_reach_it():
    words = "--remat layer --microbatches 2 --no-dropout --dtype bfloat16".split()
    config, _ = synthetic_task(parse(["train", *SIZE, *words]))
    model = config.model
    assert (model.remat, model.dtype, config.microbatches) == ("layer", "bfloat16", 2)
    assert model.hidden_dropout_prob == model.attention_probs_dropout_prob == 0
    words = "--attention-kernel fused --no-attention-dropout".split()
    fused, _ = synthetic_task(parse(["train", *SIZE, *words]))
    assert fused.model.attention_kernel == "fused"
    rates = fused.model.hidden_dropout_prob, fused.model.attention_probs_dropout_prob
    assert rates == (0.1, 0.0)
    muon, _ = synthetic_task(parse(["train", *SIZE, "--optimizer", "muon"]))
    assert muon.optimizer.algorithm == "muon"
    plain, _ = synthetic_task(parse(["train", *SIZE]))
    assert plain.model == BertConfig.tiny() and plain.microbatches == 1
    assert plain.optimizer.algorithm == "adamw"


@pytest.mark.slow
def test_inference(measured):
    figures, _ = measured("inference", *SIZE, *TURNS, "--dtype", "bfloat16")
    # Encoder and pooler, without the heads of pretraining.
    assert figures["parameters"] == 4_385_920
    assert figures["tokens_per_second"] * figures["step_seconds"] == pytest.approx(128)
    assert figures["model_flops_per_second"] * figures["step_seconds"] == pytest.approx(
        encoding_flops(BertConfig.tiny(), 8, 16)
    )


@pytest.mark.slow
def test_input(measured, capsys):
    assert main(["input", "--rows", "3000", "--repeats", "1"]) == 0
    output = capsys.readouterr().out
    assert "tf_data_tokens_per_second" in output
    assert "plain_tokens_per_second" in output
    _, output = measured("input", "--rows", "600", "--repeats", "1")
    assert "plain_tokens_per_second" in output and "tf_data" not in output


def test_prepare(corpus, capsys):
    text = str(corpus / "*.txt")
    assert main(["prepare", "--input", text, "--vocab-size", "160"]) == 0
    assert "prepare_seconds" in capsys.readouterr().out


def test_no_repeats_is_no_measurement():
    with pytest.raises(ValueError, match="repeats=0 must be at least 1"):
        main(["train", "--repeats", "0"])


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("train", ""),
        ("train", "--model tiny --dtype bfloat16 --steps 3 --no-dropout --threads 2"),
        ("inference", "--compare torch --torch-compile --json out.json"),
        ("input", "--rows 100 --repeats 2 --sequence-length 64"),
        ("prepare", "--input a.txt b.txt --vocab-size 99"),
    ],
)
def test_argparse_reads_what_tyro_reads(what, words):
    options = parse([what, *words.split()])
    assert options == parse_by_tyro(WHAT[what][0], words.split(), f"benchmark {what}")
    assert (options == WHAT[what][0]()) == (not words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "the following arguments are required: what"),
        ("nothing", "invalid choice: 'nothing'"),
        ("train --model huge", "argument --model: invalid choice: 'huge'"),
        ("train --zz", "unrecognized arguments: --zz"),
    ],
)
def test_what_argparse_refuses_is_one_line(words, message):
    with pytest.raises(UsageError, match=message) as refused:
        main(words.split())
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("what", WHAT)
def test_argparse_has_the_help_of_the_fields(what, capsys):
    with pytest.raises(SystemExit):
        parse([what, "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "File for the figures, which are printed too. (default: )" in text
    assert "Tokens per row. (default: 128)" in text


def test_all_take_a_turn_before_any_has_another():
    taken = []

    def timer(name, seconds):
        return lambda steps: taken.append((name, steps)) or seconds

    timers = {"ours": timer("ours", 1.0), "theirs": timer("theirs", 3.0)}
    seconds = alternate(timers, repeats=2, steps=4)
    assert taken == [("ours", 4), ("theirs", 4)] * 2
    assert seconds == {"ours": [1.0, 1.0], "theirs": [3.0, 3.0]}


def test_rates_and_ratios_by_hand():
    found = rates([2.0, 1.0, 9.0], sequences=4, tokens=40, flops=10.0)
    assert (found["step_seconds"], found["tokens_per_second"]) == (2.0, 20.0)
    assert found["model_flops_per_second"] == 5.0
    # Alternation by alternation: their medians would be 3 / 2.
    found = ratios([1.0, 2.0, 4.0], [3.0, 2.0, 20.0])
    assert found["ratios"] == [3.0, 1.0, 5.0]
    assert (found["ratio"], found["ratio_lowest"], found["ratio_highest"]) == (3, 1, 5)


def test_the_table_has_a_column_for_each(capsys):
    theirs = {"step_seconds": 3.0, "threads": 2} | ratios([1.0, 2.0], [3.0, 8.0])
    print_table(
        {"what": "train"}, {"step_seconds": 1.5, "torch": {"torch_as_shipped": theirs}}
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["what", "train"]
    assert ["step_seconds", "1.5", "3"] in [line.split() for line in lines]
    assert ["threads", "-", "2"] in [line.split() for line in lines]
    told = "ours / torch_as_shipped: 3.5 times the tokens/s (3 to 4 in 2 alternations)"
    assert lines[-1] == told


@pytest.mark.skipif(HAVE_TORCH, reason="PyTorch is here")
def test_without_pytorch_there_is_nothing_to_compare_with(capsys):
    assert cli_main(["benchmark", "inference", *SIZE, "--compare", "torch"]) == 2
    error = capsys.readouterr().err
    assert "--compare torch needs torch, which is not installed" in error
    assert "bert_jax[parity]" in error and error.count("\n") == 1


def test_a_process_that_cannot_run_says_why():
    """Without PyTorch its import fails there; with it the variant has no name."""
    from bert_jax.apps.benchmark.pytorch import TorchProcess
    from bert_jax.config import PretrainConfig
    from bert_jax.config.serialization import to_dict

    job = {"variant": "nothing", "compile": False, "device": "cpu", "threads": 1}
    job["config"] = to_dict(PretrainConfig(model=BertConfig.tiny()))
    with (
        TorchProcess(job, {"input_ids": np.ones((1, 4), np.int64)}) as process,
        pytest.raises(RuntimeError, match=r"torch|transformers|KeyError"),
    ):
        process.wait_until_ready()


def compared(words, path):
    words = [*words, *SIZE, *TURNS, "--compare", "torch", "--json", str(path)]
    assert main(words) == 0
    return json.loads(path.read_text())


@parity
@pytest.mark.parametrize("parts", [1, 2])
def test_training_beside_pytorch(tmp_path, parts):
    found = compared(["train", "--microbatches", str(parts)], tmp_path / "figures.json")
    assert list(found["torch"]) == ["torch_as_shipped", "torch_masked_head"]
    for theirs in found["torch"].values():
        assert theirs["parameters"] == found["parameters"]
        assert len(theirs["ratios"]) == 2
    assert found["devices"] == 1


@parity
def test_inference_beside_pytorch(tmp_path):
    found = compared(["inference", "--dtype", "bfloat16"], tmp_path / "figures.json")
    assert list(found["torch"]) == ["torch_encoder"]
    assert found["torch"]["torch_encoder"]["parameters"] == found["parameters"]


@parity
def test_both_variants_of_pytorch_have_the_same_loss():
    """One scores all positions, the other the masked ones, of the same model."""
    import jax
    import torch
    import transformers

    from bert_jax.apps.benchmark.pytorch_child import (
        AsShipped,
        MaskedHead,
        their_config,
    )
    from bert_jax.apps.benchmark.steps import torch_rows

    config, task = synthetic_task(parse(["train", *SIZE]))
    rows = task.corrupt(task.batch(0), jax.random.key(0))
    weights = rows.masked.weights
    # 2 of 16 tokens are predicted, and there are 3 slots.
    assert (weights.sum(1) == 2).all() and weights.shape == (8, 3)
    arrays = torch_rows(rows)
    assert (arrays["labels"] >= 0).sum() == (arrays["predicted_labels"] >= 0).sum()
    tensors = {name: torch.from_numpy(values) for name, values in arrays.items()}
    theirs = their_config(dataclasses.asdict(config.model))
    assert theirs.num_hidden_layers == 2
    model = transformers.BertForPreTraining(theirs).eval()
    with torch.no_grad():
        losses = [float(kind(model)(tensors)) for kind in (AsShipped, MaskedHead)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_model_flops_of_base_by_hand():
    """12 layers of 4·768² + 2·768·3072 weights, 128 tokens, 20 predictions."""
    layers = 12 * (6 * (4 * 768**2 + 2 * 768 * 3072) + 12 * 128 * 768) * 128
    head = 20 * 6 * (768**2 + 768 * 30522)
    pooler = 6 * (768**2 + 2 * 768)
    found = pretraining_flops(BertConfig.base(), 1, 128, 20)
    assert found == layers + head + pooler
    # Forward is a third, without what is for pretraining alone.
    assert encoding_flops(BertConfig.base(), 2, 128) == 2 * (layers / 3 + 2 * 768**2)


def test_peaks():
    assert peak_flops_per_second("NVIDIA H100 80GB HBM3") == 989e12
    assert peak_flops_per_second("TPU v5 lite") == 197e12
    assert peak_flops_per_second("cpu") is None

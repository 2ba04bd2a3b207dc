"""Several real processes in one run, joined over loopback, with one device each."""

import contextlib
import dataclasses
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np
import pytest
from etils import epath
from jax.sharding import Mesh
from run_helpers import (
    flags_for_one_device,
    logged_lines,
    read_params,
    write_config,
)

from bert_jax.checkpoints.steps import list_steps
from bert_jax.config import (
    ExamplesConfig,
    FinetuneConfig,
    MeshConfig,
    OptimizerConfig,
    PretrainConfig,
    RunConfig,
)
from bert_jax.distributed.mesh import (
    AXES,
    group_by_process,
    host_shard,
    order_by_topology,
)
from bert_jax.distributed.startup import (
    check_device_counts,
    initialize_arguments,
    start,
)
from bert_jax.runs.finetuning import finetune
from bert_jax.runs.pretraining import pretrain

WORKER = Path(__file__).with_name("worker.py")


def job(
    config: RunConfig | Sequence[RunConfig],
    workdir: Path | Sequence[Path],
    sigterm: tuple[int, int] | None = None,
) -> dict[str, Any]:
    """What each process is to do: one for all, or one for each.

    Args:
        sigterm: which process gets the signal, before which of its batches.
    """
    configs = [config] * 4 if isinstance(config, RunConfig) else config
    workdirs = [workdir] * 4 if isinstance(workdir, Path) else workdir
    arguments = []
    for number, (own, directory) in enumerate(zip(configs, workdirs, strict=False)):
        file = workdirs[0].with_name(f"{workdirs[0].name}_{number}.py")
        write_config(own, file)
        verb = "pretrain" if isinstance(own, PretrainConfig) else "finetune"
        arguments.append([verb, str(file), "--workdir", str(directory)])
    return {"arguments": arguments, "sigterm": sigterm}


@dataclasses.dataclass
class Processes:
    """Workers that were started, each with its output in files."""

    folder: Path
    children: list[subprocess.Popen[bytes]]

    def wait(self, seconds: float = 400) -> list[int]:
        """Exit codes, all there in time."""
        deadline = time.monotonic() + seconds
        return [child.wait(deadline - time.monotonic()) for child in self.children]

    def output(self, process: int, stream: str = "out") -> str:
        return (self.folder / f"{process}.{stream}").read_text()

    def codes(self, process: int) -> list[int]:
        """Exit code of each job."""
        return json.loads((self.folder / f"jobs.json.{process}").read_text())


@contextlib.contextmanager
def started(number: int, jobs: Sequence[Any], folder: Path) -> Iterator[Processes]:
    """That many processes at work on `jobs`; who has not ended at the end is killed."""
    folder.mkdir()
    (folder / "jobs.json").write_text(json.dumps(jobs))
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    children = []
    for process in range(number):
        environment = os.environ | {
            "BERT_JAX_COORDINATOR": f"127.0.0.1:{port}",
            "BERT_JAX_NUM_PROCESSES": str(number),
            "BERT_JAX_PROCESS_ID": str(process),
            "JAX_NUM_CPU_DEVICES": "1",
            "XLA_FLAGS": flags_for_one_device(),
        }
        with (
            (folder / f"{process}.out").open("wb") as out,
            (folder / f"{process}.err").open("wb") as err,
        ):
            command = [sys.executable, str(WORKER), str(folder / "jobs.json")]
            children.append(
                subprocess.Popen(command, stdout=out, stderr=err, env=environment)
            )
    try:
        yield Processes(folder, children)
    finally:
        for child in children:
            child.kill()
            child.wait()


ROUNDING_OF_200_STEPS = 5e-5
"""The most measured is 1.2e-5, by AVX2; a step moves a parameter by up to 1e-2."""


def assert_close_runs(
    one: Path, other: Path, rel: float = 1e-6, atol: float = 1e-5
) -> None:
    """Each step is logged once, with losses within `rel` of the other run's.

    Parameters are within `atol` and 1e-4 of their size. Devices add in another order,
    and each step of Adam divides that rounding by a root that may be small.
    """
    ours, theirs = logged_lines(one), logged_lines(other)
    keys = [(line["step"], line["split"]) for line in ours]
    assert keys == [(line["step"], line["split"]) for line in theirs]
    assert len(set(keys)) == len(keys)
    for line, other_line in zip(ours, theirs, strict=True):
        for name in line:
            if name.endswith("loss"):
                assert line[name] == pytest.approx(other_line[name], rel=rel), line
    other_params = read_params(other)
    for name, values in read_params(one).items():
        # Softmax cancels the biases of keys: their gradient is rounding, which Adam
        # scales up.
        if not name.endswith("key/bias"):
            np.testing.assert_allclose(
                values, other_params[name], rtol=1e-4, atol=atol, err_msg=name
            )
    examples = [logged_lines(run, name="examples.jsonl") for run in (one, other)]
    assert examples[0] == examples[1]


def on(config: Any, devices: int, **mesh: int) -> Any:
    return dataclasses.replace(config, mesh=MeshConfig(data=devices, **mesh))


@pytest.fixture(scope="module", autouse=True)
def without_tensorflow() -> Iterator[None]:
    """Its import takes seconds; the same batches are read without it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "tensorflow", None)
        yield


@pytest.fixture(scope="module")
def with_dropout(small_config: PretrainConfig) -> PretrainConfig:
    """A dozen steps on all devices there are."""
    return dataclasses.replace(
        on(small_config, -1),
        num_steps=12,
        eval_every=6,
        checkpoint_every=6,
    )


@pytest.fixture(scope="module")
def config(with_dropout: PretrainConfig) -> PretrainConfig:
    """The same without dropout, which each device draws for itself."""
    rates = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = dataclasses.replace(with_dropout.model, **rates)
    return dataclasses.replace(with_dropout, model=model)


@pytest.fixture(scope="module")
def eight(config: PretrainConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run on eight devices of one process."""
    pretrain(on(config, 8), workdir := tmp_path_factory.mktemp("eight"))
    return workdir


def begun(run: Path, copy: Path) -> Path:
    """The run as it was when the first of its checkpoints had just been written."""
    shutil.copytree(run, copy)
    *later, _ = list_steps(epath.Path(copy) / "checkpoints")
    assert later
    for step in later:
        shutil.rmtree(copy / "checkpoints" / str(step))
    return copy


@pytest.fixture(scope="module")
def tuning(eight: Path, tmp_path_factory: pytest.TempPathFactory) -> FinetuneConfig:
    """Fine-tuning on whom a sentence is about."""
    file = tmp_path_factory.mktemp("texts") / "train.csv"
    who = ["judge", "clerk", "baker"]
    texts = [f"The {who[i % 3]} reads the letter.,{i % 3}" for i in range(30)]
    file.write_text("\n".join(["text,label", *texts]) + "\n")
    return FinetuneConfig(
        task="text-classification",
        data=ExamplesConfig(
            train=str(file),
            text_columns=("text",),
            validation_fraction=0.3,
            max_length=16,
            num_buckets=1,
        ),
        optimizer=OptimizerConfig(peak_learning_rate=1e-2, warmup_steps=1),
        init_from=str(eight),
        num_steps=6,
        batch_size=4,
        log_every=1,
        eval_every=3,
    )


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def two(
    config: PretrainConfig, tuning: FinetuneConfig, eight: Path, root: Path
) -> Iterator[Processes]:
    """Two processes: a run that is stopped, fine-tuning, and four jobs they refuse."""
    others = []
    for name in ("judge", "baker"):
        file = root / f"{name}.csv"
        file.write_text(f"text,label\nThe {name} reads.,1\nThe clerk reads.,0\n")
        data = dataclasses.replace(tuning.data, validation=str(file), test=str(file))
        others.append(dataclasses.replace(tuning, data=data))
    elsewhere = dataclasses.replace(config.data, path=str(root / "nowhere"))
    jobs = [
        job(config, root / "stopped", sigterm=(1, 4)),
        job(tuning, root / "tuned"),
        job(config, [root / "one", root / "another"]),
        job([config, dataclasses.replace(config, seed=3)], root / "seeds"),
        job([config, dataclasses.replace(config, data=elsewhere)], root / "no_data"),
        job(others, root / "others"),
    ]
    with started(2, jobs, root / "two") as processes:
        assert processes.wait() == [143] * 2, processes.output(0, "err")[-2000:]
        for process in range(2):
            errors = processes.output(process, "err")[-2000:]
            assert processes.codes(process) == [143, 0, 2, 2, 2, 2], errors
        yield processes


@pytest.mark.slow
@pytest.mark.parametrize("number", [2, 4])
def test_a_checkpoint_moves_to_several_processes(number, config, eight, tmp_path):
    """It was written by one process on eight devices."""
    moved = begun(eight, tmp_path / "moved")
    with started(number, [job(config, moved)], tmp_path / "processes") as processes:
        assert processes.wait() == [0] * number, processes.output(0, "err")[-2000:]
    assert_close_runs(moved, eight)


@pytest.mark.slow
def test_four_processes_equal_eight_devices_of_one(config, eight, tmp_path):
    fresh = tmp_path / "fresh"
    with started(4, [job(config, fresh)], tmp_path / "processes") as processes:
        assert processes.wait() == [0] * 4, processes.output(0, "err")[-2000:]
    assert_close_runs(fresh, eight)


def test_a_signal_to_one_process_stops_all_at_one_step(two, root):
    for process in range(2):
        errors = two.output(process, "err")
        assert errors.count("Stopped by SIGTERM at step 5, with a checkpoint") == 1
    # No other checkpoint is due there.
    assert list_steps(epath.Path(root / "stopped" / "checkpoints")) == [5]


def test_a_run_of_two_processes_goes_on_on_one_device(
    config, eight, two, root, tmp_path
):
    """All losses, from the first step on, are those of eight devices of one process."""
    workdir = tmp_path / "run"
    shutil.copytree(root / "stopped", workdir)
    pretrain(on(config, 1), workdir)
    assert_close_runs(workdir, eight)


@pytest.mark.slow
def test_a_checkpoint_moves_to_devices_that_share_parameters(config, eight, tmp_path):
    """On four devices, in two microbatches."""
    moved = begun(eight, tmp_path / "moved")
    changed = dataclasses.replace(on(config, 1, fsdp=4), microbatches=2)
    pretrain(changed, moved)
    assert_close_runs(moved, eight, rel=1e-5)


def test_fine_tuning_on_two_processes_gives_the_scores_of_one(
    tuning, root, two, tmp_path
):
    scores = finetune(on(tuning, 2), tmp_path)
    assert_close_runs(root / "tuned", tmp_path)
    shown = json.dumps({name: round(value, 4) for name, value in scores.items()})
    assert shown in two.output(0)


def test_only_the_primary_process_writes_and_prints(root, two):
    output = two.output(1)
    assert not [x for x in output.splitlines() if not x.startswith("[Gloo]")]
    names = {path.name for path in (root / "stopped").iterdir()}
    wanted = (
        "checkpoints config.json examples.jsonl metrics.jsonl tensorboard tokenizer"
    )
    assert names == set(wanted.split())
    assert len(list((root / "stopped" / "tensorboard").iterdir())) == 1


def test_what_is_wrong_with_one_process_ends_all(root, two):
    for process, prefix in ((0, "bert-jax: Process 1 of 2: "), (1, "bert-jax: ")):
        shared, seeds, data, files = [
            line
            for line in two.output(process, "err").splitlines()
            if line.startswith("bert-jax: ")
        ]
        another = root / "another"
        assert shared.startswith(f"{prefix}workdir={another} is not shared")
        assert seeds.startswith(f"{prefix}Processes 0 and 1 were given different opti")
        assert "seed is 0 and 3" in seeds
        assert data.startswith(f"{prefix}{root / 'nowhere'}/manifest.json is missing")
        assert "data.validation_fingerprint is '" in files
        assert "data.test_fingerprint is '" in files
    assert not (root / "another").exists() and not (root / "seeds/config.json").exists()


@pytest.mark.slow
@pytest.mark.precise
def test_a_run_of_two_hundred_steps_moves_anywhere(config, tmp_path):
    """Begun on eight devices; then on fewer of one process, and on processes."""
    config = dataclasses.replace(
        config, num_steps=220, checkpoint_every=20, eval_every=100, keep_checkpoints=20
    )
    uninterrupted = tmp_path / "uninterrupted"
    pretrain(on(config, 8), uninterrupted)
    for devices in (1, 2, 4):
        moved = begun(uninterrupted, tmp_path / f"devices_{devices}")
        pretrain(on(config, devices), moved)
        assert_close_runs(moved, uninterrupted, atol=ROUNDING_OF_200_STEPS)
    for number in (2, 4):
        moved = begun(uninterrupted, tmp_path / f"processes_{number}")
        with started(number, [job(config, moved)], tmp_path / f"{number}") as processes:
            assert processes.wait() == [0] * number, processes.output(0, "err")
        assert_close_runs(moved, uninterrupted, atol=ROUNDING_OF_200_STEPS)


@pytest.mark.slow
def test_dropout_and_tensor_groups_over_processes(with_dropout, tmp_path):
    """Dropout depends on the number of devices; a tensor group reads the same rows."""
    model = dataclasses.replace(with_dropout.model, num_attention_heads=2)
    with_dropout = dataclasses.replace(with_dropout, model=model)
    runs = {
        "rows": on(with_dropout, 2),
        "parameters": on(with_dropout, 1, fsdp=2),
        "heads": on(with_dropout, 1, tensor=2),
    }
    jobs = [job(config, tmp_path / name) for name, config in runs.items()]
    with started(2, jobs, tmp_path / "two") as processes:
        assert processes.wait() == [0] * 2, processes.output(0, "err")
    for name, config in runs.items():
        pretrain(config, tmp_path / f"one_{name}")
        assert_close_runs(tmp_path / name, tmp_path / f"one_{name}")


THREE = {
    "BERT_JAX_COORDINATOR": "10.0.0.1:1234",
    "BERT_JAX_NUM_PROCESSES": "4",
    "BERT_JAX_PROCESS_ID": "3",
}


def test_where_the_other_processes_are():
    assert initialize_arguments({}) is None
    assert initialize_arguments({"BERT_JAX_DISTRIBUTED": "0"}) is None
    assert initialize_arguments({"BERT_JAX_DISTRIBUTED": "1"}) == {}
    assert initialize_arguments(THREE | {"BERT_JAX_DISTRIBUTED": "1"}) == {
        "coordinator_address": "10.0.0.1:1234",
        "num_processes": 4,
        "process_id": 3,
        "cluster_detection_method": "deactivate",
    }
    assert start({}), "one process alone prints"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"BERT_JAX_PROCESS_ID": ""}, "PROCESSES without BERT_JAX_PROCESS_ID: set all"),
        ({"BERT_JAX_PROCESS_ID": "4"}, "PROCESS_ID=4 and BERT_JAX_NUM_PROCESSES=4: "),
        ({"BERT_JAX_NUM_PROCESSES": "-1"}, "NUM_PROCESSES=-1: the first must be a num"),
        ({"BERT_JAX_COORDINATOR": "host"}, "COORDINATOR=host must be HOST:PORT"),
        ({"BERT_JAX_DISTRIBUTED": "yes"}, "DISTRIBUTED=yes must be 1, for JAX to find"),
    ],
)
def test_variables_that_do_not_fit_are_named(changed, message):
    with pytest.raises(ValueError, match=message):
        initialize_arguments(THREE | changed)


def device(number: int, process: int) -> Any:
    """A device of no machine."""
    return mock.Mock(spec=jax.Device, id=number, process_index=process)


def mesh_of(devices: Sequence[Any], *shape: int) -> Any:
    """What is read of a mesh."""
    sizes = dict(zip(AXES, shape, strict=True))
    arranged = np.array(devices).reshape(shape)
    return mock.Mock(spec=Mesh, devices=arranged, shape=sizes, size=len(devices))


def test_the_devices_of_a_process_stay_together():
    """As on a torus of which each host has a square, read row by row."""
    torus = [device(i, process) for i, process in enumerate([2, 2, 0, 0, 2, 2, 0, 0])]
    assert [device.id for device in group_by_process(torus)] == [0, 1, 4, 5, 2, 3, 6, 7]


def test_processes_with_different_numbers_of_devices_are_refused():
    check_device_counts([device(0, 0), device(1, 1)])
    with pytest.raises(ValueError, match="process 0 has 1, process 1 has 2. Give each"):
        check_device_counts([device(0, 0), device(1, 1), device(2, 1)])


def test_hosts_that_are_slices_of_their_own_make_a_mesh():
    """As GPUs of several hosts are; jax.make_mesh refuses them."""
    devices = [device(i, i % 2) for i in range(4)]
    for one in devices:
        one.slice_index = one.process_index
    ordered = group_by_process(order_by_topology(devices, (4, 1, 1)))
    assert [device.id for device in ordered] == [0, 2, 1, 3]


@pytest.mark.parametrize(
    ("tensor", "per_process", "expected"),
    [
        (1, 2, [(0, 4), (1, 4), (2, 4), (3, 4)]),
        (2, 4, [(0, 2), (1, 2)]),
        (4, 2, [(0, 2), (0, 2), (1, 2), (1, 2)]),
    ],
)
def test_each_process_reads_its_shard_in_the_meshs_order(tensor, per_process, expected):
    processes = 8 // per_process
    # The last process comes first, and reads the first shard.
    devices = [device(i, processes - 1 - i // per_process) for i in range(8)]
    mesh = mesh_of(devices, 8 // tensor, 1, tensor)
    shards = [host_shard(mesh, process) for process in range(processes)]
    assert shards == expected[::-1]


def test_a_tensor_group_does_not_part_a_host():
    mesh = mesh_of([device(i, i // 4) for i in range(12)], 2, 1, 6)
    with pytest.raises(
        ValueError, match="mesh.tensor=6 splits the 4 devices of a host"
    ):
        host_shard(mesh, 0)

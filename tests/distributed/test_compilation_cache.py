"""Connected processes keep compiled programs in their workdir, if all see the same."""

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from run_helpers import flags_for_one_device

TESTS = Path(__file__).parents[1]
PROGRAM = """
import os, sys
import jax, jax.numpy as jnp, numpy as np
from etils import epath
from fake_bucket import Bucket, install
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from bert_jax.distributed.compilation_cache import share_compilation_cache
from bert_jax.distributed.startup import start

install(Bucket(os.environ["BUCKETS"]), setattr)
start(os.environ)
share_compilation_cache(epath.Path(sys.argv[1]))
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name))
rows = NamedSharding(Mesh(np.array(jax.devices()), ("data",)), P("data"))
values = jax.make_array_from_callback(
    (4,), rows, lambda index: np.arange(4.0, dtype=np.float32)[index]
)
total = float(jax.jit(lambda x: (x * x).sum(), out_shardings=NamedSharding(
    rows.mesh, P()))(values))
print(total, hits.count("/jax/compilation_cache/cache_hits"))
"""


def run_connected(
    workdirs: Sequence[Path | str], buckets: Path = Path()
) -> list[tuple[str, str]]:
    """The last line of standard output, and all output, of each process."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    environment = {k: v for k, v in os.environ.items() if k[:9] != "JAX_COMPI"} | {
        "BERT_JAX_COORDINATOR": f"127.0.0.1:{port}",
        "BERT_JAX_NUM_PROCESSES": str(len(workdirs)),
        "BUCKETS": str(buckets),
        "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]),
        "JAX_NUM_CPU_DEVICES": "1",
        "XLA_FLAGS": flags_for_one_device(),
    }
    children = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(workdir)],
            env=environment | {"BERT_JAX_PROCESS_ID": str(process)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for process, workdir in enumerate(workdirs)
    ]
    try:
        texts = [child.communicate(timeout=120) for child in children]
    finally:
        for child in children:
            child.kill()
    assert not any(child.returncode for child in children), texts
    return [(out.splitlines()[-1], out + err) for out, err in texts]


@pytest.mark.slow
def test_a_second_start_finds_the_programs_of_the_first(tmp_path):
    """On CPUs in process 0 alone: see docs/distributed.md."""
    workdir = tmp_path / "run"
    workdir.mkdir()
    (first, _), (others, _) = run_connected([workdir] * 2)
    assert first == others == "14.0 0"
    cache = workdir / "compilation_cache"
    assert list(cache.glob("*-cache")) and cache.stat().st_mode & 0o77 == 0
    (first, _), (others, _) = run_connected([workdir] * 2)
    total, hits = first.split()
    assert total == "14.0" and int(hits) > 0
    assert others.startswith("14.0")

    # As on a network's disk that shows a file late.
    late = tmp_path / "late"
    late.mkdir()
    (late / "compilation_cache").mkdir()
    (first, told), (others, _) = run_connected([workdir, late])
    assert first == others == "14.0 0"
    assert "process 1 does not see those of process 0 there" in told


@pytest.mark.slow
def test_a_connected_run_of_one_process_keeps_its_programs_too(tmp_path):
    """As on a TPU slice of one host, whose home directory is lost with it; in a bucket,
    where no directory has a mode.
    """
    ((first, _),) = run_connected(["gs://bucket/run"], tmp_path)
    programs = tmp_path / "bucket" / "run" / "compilation_cache"
    assert first == "14.0 0" and list(programs.glob("*-cache"))
    ((again, _),) = run_connected(["gs://bucket/run"], tmp_path)
    assert int(again.split()[1]) > 0


def test_a_run_goes_on_where_no_program_can_be_kept(tmp_path):
    (tmp_path / "compilation_cache").write_text("a file")
    (first, told), (others, _) = run_connected([tmp_path] * 2)
    assert first == others == "14.0 0"
    assert "Compiled programs are not kept in" in told and "File exists" in told

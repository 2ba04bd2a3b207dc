"""What a process is told before JAX starts."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest
from compilers import needs_libtpu

from bert_jax.distributed import environment as backend

FLAG = "--xla_gpu_deterministic_ops=true"


def printed(code: str, tmp_path: Path, **environment: str) -> str:
    """What a process of its own prints, with `environment` beside a bare one."""
    bare = {"HOME": str(tmp_path), "JAX_PLATFORMS": "cpu", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=bare | environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    "verb", ["pretrain", pytest.param("finetune", marks=pytest.mark.slow)]
)
def test_the_verbs_ask_for_determinism(verb, tmp_path):
    """Seen in the environment of the process, and by JAX when it starts.

    The user's own flags stay. A run without a dataset is refused after that.
    """
    asked = [verb, "--workdir", str(tmp_path / "run"), "--deterministic"]
    if verb == "finetune":
        asked.insert(1, "text-classification")
    code = (
        "import os\nfrom bert_jax.cli.main import main\n"
        f"assert main({asked}) == 2\n"
        "import jax\n"
        "assert jax.device_count() == 3\n"
        "print(os.environ['XLA_FLAGS'], jax.config.jax_compilation_cache_dir)"
    )
    own = "--xla_force_host_platform_device_count=3"
    flags = printed(code, tmp_path, XLA_FLAGS=own)
    cache = tmp_path / ".cache" / "bert_jax" / "programs"
    assert flags == f"{own} {FLAG} {cache}"
    assert cache.stat().st_mode & 0o777 == 0o700
    assert not (tmp_path / "run").exists()


def test_nothing_is_set_that_was_not_asked_for():
    environment = {"XLA_FLAGS": "--own=1", "JAX_PLATFORMS": "cpu"}
    backend.configure_jax(environment, compilation_cache=False)
    assert environment == {"XLA_FLAGS": "--own=1", "JAX_PLATFORMS": "cpu"}


@pytest.mark.parametrize("given", [FLAG, FLAG.removesuffix("=true")])
def test_a_flag_that_is_there_stays_once(given):
    environment = {"XLA_FLAGS": f"--xla_gpu_deterministic_ops=false {given}"}
    before = dict(environment)
    backend.make_deterministic(environment)
    assert environment == before


def test_the_opposite_flag_is_refused():
    environment = {"XLA_FLAGS": "--xla_gpu_deterministic_ops=false"}
    with pytest.raises(ValueError, match="=false, and --deterministic asks for"):
        backend.make_deterministic(environment)


def test_determinism_asked_for_too_late_is_refused():
    jax.devices()
    environment: dict[str, str] = {}
    with pytest.raises(ValueError, match="too late: JAX has started and read XLA_"):
        backend.configure_jax(environment, deterministic=True)
    assert not environment, "nor are libtpu's variables set too late"


def test_imported_but_not_started_is_not_too_late(tmp_path):
    code = (
        "import os, jax\nfrom bert_jax.distributed import environment as backend\n"
        "assert not backend.backend_is_initialized()\n"
        "backend.configure_jax(os.environ, deterministic=True)\n"
        "backend.set_num_cpu_devices(os.environ, 5)\n"
        "print(os.environ['XLA_FLAGS'], jax.device_count())\n"
        "assert backend.backend_is_initialized()\n"
        "print(jax.config.jax_compilation_cache_dir)"
    )
    told = printed(code, tmp_path, XDG_CACHE_HOME=str(tmp_path / "mine"))
    assert told.split() == [FLAG, "5", str(tmp_path / "mine/bert_jax/programs")]


@pytest.mark.parametrize(
    "chosen",
    [
        {"JAX_COMPILATION_CACHE_DIR": "elsewhere"},
        {"JAX_COMPILATION_CACHE_DIR": ""},
        {"BERT_JAX_COORDINATOR": "host:1"},
        {"BERT_JAX_DISTRIBUTED": "1"},
    ],
)
def test_a_choice_of_cache_is_kept_and_several_processes_get_none(chosen, tmp_path):
    environment = {"XDG_CACHE_HOME": str(tmp_path), "JAX_PLATFORMS": "cpu"} | chosen
    before = dict(environment)
    backend.configure_jax(environment)
    assert environment == before
    assert not list(tmp_path.iterdir())


def test_a_cache_that_others_may_write_to_is_not_used(tmp_path):
    """C3."""
    cache = tmp_path / ".cache" / "bert_jax" / "programs"
    cache.mkdir(parents=True)
    code = (
        "import os, sys\nsys.stderr = sys.stdout\n"
        "from bert_jax.distributed import environment as backend\n"
        "backend.configure_jax(os.environ)\nprint(os.environ.get(backend.CACHE))"
    )
    for mode in (0o770, 0o702, 0o777):
        cache.chmod(mode)
        line, used = printed(code, tmp_path).splitlines()
        assert used == "None"
        assert line == (
            f"Compiled programs are not kept: others may write to {cache} (mode "
            f"{mode:o}); see what is in it, then `chmod 700 {cache}`, or name another "
            "directory in JAX_COMPILATION_CACHE_DIR."
        )
    cache.chmod(0o755)
    assert printed(code, tmp_path) == str(cache)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="without users")
def test_a_cache_of_another_user_is_not_used(monkeypatch):
    """C3: of a directory that is there on every machine."""
    monkeypatch.setattr(os, "getuid", lambda: Path("/").stat().st_uid + 1)
    assert backend.permission_problem(Path("/")).startswith("/ belongs to user ")


def test_a_cache_chosen_in_jax_is_kept(tmp_path):
    assert jax.config.jax_compilation_cache_dir
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    backend.configure_jax(environment)
    assert not list(tmp_path.iterdir())


def test_a_home_that_cannot_be_written_to_is_no_error(tmp_path):
    (tmp_path / "file").write_text("")
    code = (
        "import os\nfrom bert_jax.distributed import environment as backend\n"
        "backend.configure_jax(os.environ)\n"
        "print('JAX_COMPILATION_CACHE_DIR' in os.environ)"
    )
    where = str(tmp_path / "file")
    assert printed(code, tmp_path, XDG_CACHE_HOME=where) == "False"


@pytest.mark.skipif(
    backend.LIBC not in getattr(os, "confstr_names", ()), reason="for glibc alone"
)
def test_a_process_is_re_executed_with_huge_pages(tmp_path):
    """Once: with the variable set it goes on. Arguments and number stay."""
    code = (
        "import os, sys\nfrom bert_jax.distributed import environment as backend\n"
        "print(os.getpid(), os.environ.get('GLIBC_TUNABLES'), flush=True)\n"
        "backend.reexec_with_huge_pages(os.environ)"
    )
    first, second = printed(code, tmp_path).split("\n")
    assert first.split()[0] == second.split()[0]
    assert first.endswith("None") and second.endswith("glibc.malloc.hugetlb=1")
    own = printed(code, tmp_path, GLIBC_TUNABLES="glibc.malloc.check=0")
    assert own.endswith("glibc.malloc.check=0") and "\n" not in own


def pci_device(root: Path, name: str, vendor: str, kind: str) -> None:
    device = root / "sys/bus/pci/devices" / name
    device.mkdir(parents=True)
    (device / "vendor").write_text(f"{vendor}\n")
    (device / "class").write_text(f"{kind}\n")


def test_a_tpu_is_a_device_of_googles_but_no_disk_and_no_network_card(tmp_path):
    assert not backend.has_tpu(tmp_path), "a machine without a PCI bus"
    pci_device(tmp_path, "0000:00:03.0", "0x10de", "0x030200")  # a GPU
    pci_device(tmp_path, "0000:00:04.0", "0x1ae0", "0x020000")  # gVNIC
    pci_device(tmp_path, "0000:00:05.0", "0x1ae0", "0x010802")  # a disk
    assert not backend.has_tpu(tmp_path)
    pci_device(tmp_path, "0000:00:06.0", "0x1ae0", "0x120000")
    assert backend.has_tpu(tmp_path)


def test_a_device_file_is_a_tpu_too(tmp_path):
    """In a container that sees no PCI bus."""
    (tmp_path / "dev" / "vfio" / "0").mkdir(parents=True)
    assert backend.has_tpu(tmp_path)


@pytest.mark.parametrize(
    "variable", ["JAX_PLATFORMS", "TPU_WORKER_HOSTNAMES", "JAX_FORCE_TPU_INIT"]
)
def test_libtpu_is_left_alone_where_it_is_told_what_to_do(variable, tmp_path):
    environment = {variable: "cpu"}
    backend.silence_libtpu(environment, tmp_path)
    assert environment == {variable: "cpu"}


@pytest.mark.slow
@needs_libtpu
@pytest.mark.skipif(backend.has_tpu(), reason="has a TPU")
def test_libtpu_without_a_tpu_prints_nothing(tmp_path):
    """JAX loads it; by itself it prints what it lacks, and with the package nothing."""

    def errors(code: str) -> str:
        names = ("PATH", "PYTHONPATH")
        bare = {name: os.environ[name] for name in names if name in os.environ}
        code += "import jax\nassert jax.default_backend() == 'cpu'"
        command = [sys.executable, "-c", code]
        bare["HOME"] = str(tmp_path)
        done = subprocess.run(command, capture_output=True, text=True, env=bare)
        assert done.returncode == 0, done.stderr
        return done.stderr

    pci_device(tmp_path, "0000:00:06.0", "0x1ae0", "0x120000")
    check = (
        "import os, pathlib\nfrom bert_jax.distributed import environment\n"
        "on_a_host_of_tpus = {}\n"
        f"root = pathlib.Path({str(tmp_path)!r})\n"
        "environment.silence_libtpu(on_a_host_of_tpus, root)\n"
        "assert not on_a_host_of_tpus\n"
        "assert 'TPU_WORKER_ID' in os.environ\n"
    )
    # Else it does not look, and prints nothing, while the process of another test has
    # loaded it.
    several = "import os\nos.environ['ALLOW_MULTIPLE_LIBTPU_LOAD'] = '1'\n"
    assert "TPU_ACCELERATOR_TYPE" in errors(several)
    assert errors(check) == ""
    assert errors("import jax\nfrom bert_jax.model.bert import Bert\n") == ""


@pytest.mark.parametrize(
    "chosen", ["", pytest.param("tpu,cpu", marks=pytest.mark.slow)]
)
def test_a_chosen_platform_is_kept(chosen, tmp_path):
    """Whether JAX is imported before or after; the variable may be set and empty."""
    expected = chosen or "cpu"
    code = (
        "import os\n"
        "from bert_jax.distributed import environment\n"
        "{}environment.set_platform_to_cpu(os.environ)\n"
        "import jax\n"
        "print(os.environ['JAX_PLATFORMS'], jax.config.jax_platforms)"
    )
    for first in ("", "import jax\n"):
        told = printed(code.format(first), tmp_path, JAX_PLATFORMS=chosen)
        assert told.split() == [expected, expected]


@pytest.mark.parametrize(
    "options",
    [
        "--output page.html",
        pytest.param("--when word", marks=pytest.mark.slow),
    ],
)
def test_reading_a_run_leaves_the_accelerator_to_it(options, tmp_path):
    code = (
        "import os\n"
        "from bert_jax.cli.main import main\n"
        f"assert main('inspect absent {options}'.split()) == 2\n"
        "import jax\n"
        "print(jax.config.jax_platforms, jax.default_backend())"
    )
    told = printed(code, tmp_path, JAX_PLATFORMS="")
    assert told.split() == ["cpu", "cpu"]

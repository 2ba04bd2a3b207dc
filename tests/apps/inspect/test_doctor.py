"""What `doctor` finds."""

import functools
import re
from pathlib import Path

import jax
import numpy as np
import pytest

from bert_jax.apps.inspect import doctor
from bert_jax.apps.inspect.doctor import (
    TESTED_PYTHONS,
    Check,
    check_cache,
    check_disk,
    check_open_files,
    check_python,
    check_settings,
    model_gradient,
    self_test,
)
from bert_jax.cli.main import main


@pytest.mark.parametrize(
    ("has_tensorflow", "name"), [(True, "whole"), (False, "light")]
)
def test_it_tells_which_installation_it_is(has_tensorflow, name, monkeypatch):
    found = {"tensorflow": object()} if has_tensorflow else {}
    monkeypatch.setattr("importlib.util.find_spec", found.get)
    assert doctor.installation().startswith(f"The {name} installation")


@pytest.mark.parametrize(
    "dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.slow)]
)
def test_this_machine_computes_right(dtype):
    check = self_test(jax.devices()[0], dtype)
    assert check.passed, check.message
    apart = float(check.message.split()[-4])
    assert apart == 0 if dtype == "float32" else 1e-4 < apart < 0.1


def test_a_device_that_computes_wrong_is_found():
    @functools.cache
    def wrong(device, dtype):
        found = model_gradient(device, dtype).copy()
        if device.id:
            found[: found.size // 10] *= 1.1
        return found

    assert self_test(jax.devices()[0], "float32", wrong).passed
    check = self_test(jax.devices()[1], "float32", wrong)
    assert not check.passed
    assert "Do not train on it." in check.message


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"XLA_FLAGS": "--xla_cpu_use_onednn=true"}, "oneDNN"),
        ({"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}, "splits the CPU"),
        ({"JAX_ENABLE_X64": "True"}, "JAX_ENABLE_X64"),
        ({"JAX_DISABLE_JIT": "1"}, "JAX_DISABLE_JIT"),
    ],
)
def test_mistakes_are_named(variables, says):
    (check,) = check_settings(variables)
    assert not check.passed and says in check.message


def test_no_mistake_is_invented():
    assert not list(check_settings({"XLA_FLAGS": "", "JAX_ENABLE_X64": "0"}))


def test_a_place_that_cannot_be_written_to(tmp_path):
    (check,) = check_disk(tmp_path / "absent")
    assert not check.passed and "cannot be written to: No such file" in check.message
    assert next(check_disk(tmp_path)).passed


@pytest.mark.parametrize("version", [(3, 11), (3, 12), (3, 13)])
def test_a_supported_python_is_fine(version):
    """E: each that the README names."""
    assert not list(check_python(version))


@pytest.mark.parametrize("version", [(3, 10), (3, 14), (4, 0)])
def test_another_python_is_not(version):
    """E."""
    (check,) = check_python(version)
    assert not check.passed
    assert check.message == (
        f"Python {version[0]}.{version[1]} has not been tested with this version; "
        "3.11, 3.12, 3.13 have."
    )


def test_the_pythons_are_those_of_the_package():
    text = (Path(__file__).parents[3] / "setup.cfg").read_text()
    named = set(re.findall(r"Language :: Python :: (\d\.\d+)\n", text))
    assert named == {f"{major}.{minor}" for major, minor in TESTED_PYTHONS}


def test_the_limit_of_open_files():
    (check,) = check_open_files((256, 512))
    assert not check.passed
    assert check.message.startswith("256 files may be open at once, 512 if a program")
    assert "raise the hard limit (`ulimit -Hn`) to 1,024 or more." in check.message
    assert next(check_open_files((256, 4096))).passed
    assert "any number of if" in next(check_open_files((1024, -1))).message
    assert next(check_open_files()).message.count("open at once") == 1


def test_whose_the_program_cache_is(tmp_path):
    """C3: others could have us run their programs."""
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    cache = tmp_path / "bert_jax/programs"
    check = check_cache(environment)
    assert check.passed and check.message.endswith(f"will be kept in {cache}")
    cache.mkdir(parents=True, mode=0o700)
    check = check_cache(environment)
    assert check.passed and check.message.endswith(f"are kept in {cache}")
    cache.chmod(0o777)
    check = check_cache(environment)
    assert not check.passed and f"`chmod 700 {cache}`" in check.message
    check = check_cache({"JAX_COMPILATION_CACHE_DIR": str(cache)})
    assert not check.passed
    check = check_cache({"JAX_COMPILATION_CACHE_DIR": ""})
    assert check.passed and "not kept" in check.message
    check = check_cache({"JAX_COMPILATION_CACHE_DIR": "gs://bucket/programs"})
    assert check.passed


def test_the_verb_ends_with_what_is_to_mend(capsys, monkeypatch):
    """The tests themselves split the CPU."""
    tested = []

    def fine(device, dtype):
        tested.append((device.id, dtype))
        return Check(True, "fine")

    monkeypatch.setattr(doctor, "self_test", fine)
    code = main(["doctor"])
    printed = capsys.readouterr().out
    assert code == 1
    assert "BAD  XLA_FLAGS splits the CPU into devices, as tests do." in printed
    assert len(set(tested)) == 2 * len(jax.devices())
    assert np.all([line[:4] in ("ok  ", "BAD ") for line in printed.splitlines()[:-1]])

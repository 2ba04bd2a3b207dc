"""What `doctor` finds."""

import jax
import numpy as np
import pytest

from bert_jax import doctor
from bert_jax.cli import main
from bert_jax.doctor import Finding, disk_findings, mistakes, self_test


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_this_machine_computes_right(dtype):
    finding = self_test(jax.devices()[0], dtype)
    assert finding.good, finding.what
    apart = float(finding.what.split()[-4])
    assert apart == 0 if dtype == "float32" else 1e-4 < apart < 0.1


def test_a_device_that_computes_wrong_is_found(monkeypatch):
    right = doctor._gradient

    def wrong(device, dtype):
        found = right(device, dtype).copy()
        if device.id:
            found[: found.size // 10] *= 1.1
        return found

    monkeypatch.setattr(doctor, "_gradient", wrong)
    assert self_test(jax.devices()[0], "float32").good
    finding = self_test(jax.devices()[1], "float32")
    assert not finding.good
    assert "Do not train on it." in finding.what


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
    (finding,) = mistakes(variables)
    assert not finding.good and says in finding.what


def test_no_mistake_is_invented():
    assert not list(mistakes({"XLA_FLAGS": "", "JAX_ENABLE_X64": "0"}))


def test_a_place_that_cannot_be_written_to(tmp_path):
    (finding,) = disk_findings(tmp_path / "absent")
    assert not finding.good and "cannot be written to: No such file" in finding.what
    assert next(disk_findings(tmp_path)).good


def test_the_verb_ends_with_what_is_to_mend(capsys, monkeypatch):
    """The tests themselves split the CPU."""
    tested = []

    def fine(device, dtype):
        tested.append((device.id, dtype))
        return Finding(True, "fine")

    monkeypatch.setattr(doctor, "self_test", fine)
    code = main(["doctor"])
    printed = capsys.readouterr().out
    assert code == 1
    assert "BAD  XLA_FLAGS splits the CPU into devices, as tests do." in printed
    assert len(set(tested)) == 2 * len(jax.devices())
    assert np.all([line[:4] in ("ok  ", "BAD ") for line in printed.splitlines()[:-1]])

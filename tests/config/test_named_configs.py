"""Configurations of the package, by name."""

import json
from pathlib import Path

import pytest

from bert_jax.cli.main import main
from bert_jax.config import FinetuneConfig
from bert_jax.config.files import finetuning_config, given_config
from bert_jax.runs.finetuning_examples import chosen_config

CONFIGS = Path(__file__).parents[2] / "configs"


def printed(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> object:
    assert main([*arguments, "--print-config"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("verb", "name", "file"),
    [
        ("pretrain", "bert-base-128", "bert_base_128.py"),
        ("pretrain", "bert_base_128", "bert_base_128.py"),
        ("finetune", "squad-v2", "squad_v2.py"),
        ("finetune", "mrpc", "mrpc.py"),
    ],
)
def test_a_name_is_a_file_of_the_package(
    verb, name, file, tmp_path, monkeypatch, capsys
):
    expected = printed([verb, str(CONFIGS / file)], capsys)
    monkeypatch.chdir(tmp_path)
    assert printed([verb, name], capsys) == expected


def test_a_file_here_comes_before_a_name(tmp_path, monkeypatch, capsys):
    text = (CONFIGS / "bert_tiny_128.py").read_text()
    (tmp_path / "bert-base-128").write_text(text)
    monkeypatch.chdir(tmp_path)
    expected = printed(["pretrain", "bert-tiny-128"], capsys)
    assert printed(["pretrain", "bert-base-128"], capsys) == expected


def test_python_takes_a_path_of_a_configuration():
    config = chosen_config(CONFIGS / "mrpc.py", "a")
    assert (config.init_from, config.data.glue) == ("a", "mrpc")
    with pytest.raises(ValueError, match="^config=.'task'.* must be a FinetuneConfig"):
        given_config({"task": "mrpc"}, FinetuneConfig, finetuning_config)


def test_all_are_listed_with_what_they_are_for(capsys):
    assert main(["configs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [line.split()[0] for line in lines if line.startswith("  ")]
    assert sorted(names) == sorted(
        path.stem.replace("_", "-") for path in CONFIGS.glob("*.py")
    )
    assert all(len(line.split()) > 3 for line in lines if line.startswith("  "))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pretrain", "bert-bse-128"], "did you mean 'bert-base-128'?"),
        (["pretrain", "configs/bert_bse_128.py"], "did you mean 'bert-base-128'?"),
        (
            ["pretrain", "none.py"],
            "none.py is not a file; name a configuration file, or",
        ),
        (["pretrain", "squad-v2"], "must bind the name config to a PretrainConfig"),
        (["finetune", "bert-base-128"], "must bind the name config to a FinetuneConf"),
    ],
)
def test_another_name_is_refused(arguments, message, refused):
    assert message in refused(*arguments)

"""One thing has one name in every verb; other names of it are understood, and said."""

import json

import pytest

from bert_jax.cli.command import option_value, parse
from bert_jax.cli.main import main, run_verb
from bert_jax.cli.names import MODEL_FIRST, option_names, with_present_names
from bert_jax.cli.verbs import VERBS
from bert_jax.terminal.messages import UsageError


def present(verb, *arguments):
    return with_present_names(VERBS[verb].load(VERBS[verb].options), arguments, verb)


def config_of(capsys, *arguments):
    assert run_verb([*arguments, "--print-config"]) == 0
    return capsys.readouterr()


@pytest.mark.parametrize("verb", MODEL_FIRST)
def test_the_model_is_the_first_argument_or_an_option(verb, capsys):
    others = ["--output=x", "--seed", "1"]
    assert present(verb, "M", *others) == ["M", *others]
    assert present(verb, "--output=x", "--model", "M", "--seed", "1") == ["M", *others]
    assert not capsys.readouterr().err
    for name in ("--checkpoint", "--init-from", "--init_from"):
        assert present(verb, *others, f"{name}=M") == ["M", *others]
        [line] = capsys.readouterr().err.splitlines()
        assert line == f"bert-jax: {name.replace('_', '-')} is now --model."
    with pytest.raises(UsageError, match=f"{verb} is given two models; name one"):
        present(verb, "M", "--model=N")
    with pytest.raises(UsageError, match="--model needs a value"):
        present(verb, "--model")


@pytest.mark.parametrize("option", ["--text-column", "--data.labels", "--columns"])
def test_an_option_of_several_values_needs_one(option):
    command = ["predict", "m"] if option == "--columns" else ["finetune"]
    options_class = VERBS[command[0]].load(VERBS[command[0]].options)
    arguments = [*command[1:], option, "--data.max-length", "8"]
    with pytest.raises(UsageError, match=f"^{option} needs a value; `bert-jax "):
        parse(options_class, arguments, command[0])


def test_metrics_may_go_nowhere_else(capsys):
    config = json.loads(config_of(capsys, "finetune", "mrpc", "--report").out)
    assert config["report"] == []


@pytest.mark.parametrize(
    ("verb", "before", "now"),
    [
        ("finetune", "--model m", "--init-from m"),
        ("pretrain", "--checkpoint=m", "--init-from=m"),
        ("finetune", "--data.text_columns a b", "--text-column a b"),
        ("finetune", "--data.label-column=mark", "--label-column=mark"),
        ("finetune", "--data.delimiter ;", "--delimiter ;"),
    ],
)
def test_a_former_name_gives_the_same_configuration(verb, before, now, capsys):
    command = [verb, *["text-classification"] * (verb == "finetune")]
    old = config_of(capsys, *command, *before.split())
    new = config_of(capsys, *command, *now.split())
    assert old.out == new.out and not new.err
    assert new.out != config_of(capsys, *command).out
    names = [text.split("=")[0].split()[0] for text in (before, now)]
    is_silent = names[0] == "--model"
    expected = f"bert-jax: {names[0].replace('_', '-')} is now {names[1]}.\n"
    assert old.err == ("" if is_silent else expected)


@pytest.mark.parametrize(
    ("verb", "before", "now"),
    [
        ("vocab", "--text-field", "--text-column"),
        ("prepare", "--text_field", "--text-column"),
        ("embed", "--text-field", "--text-column"),
        ("predict", "--data.text-columns", "--text-column"),
        ("predict", "--data.delimiter", "--delimiter"),
        ("evaluate", "--data.validation", "--input"),
    ],
)
def test_a_former_name_becomes_that_of_today(verb, before, now):
    words = present(verb, "M", before, "x")
    assert now in words and before.replace("_", "-") not in words[:2]


@pytest.mark.parametrize("verb", ["evaluate", "inspect"])
def test_the_former_option_of_a_page_names_no_directory(verb):
    assert present(verb, "M", "--report=a.html") == ["M", "--output=a.html"]
    for words in (["--report", "predictions"], ["--report=a.pdf"], ["--report"]):
        with pytest.raises(UsageError, match=r"^report=.* must end in \.html\.$"):
            present(verb, "M", *words)


def test_the_size_of_a_benchmark_may_come_first():
    assert present("benchmark inference", "tiny") == ["--model", "tiny"]


def test_a_thing_has_the_same_name_in_every_verb():
    names = {n: option_names(v.load(v.options)) for n, v in VERBS.items()}
    words = {name.rpartition(".")[2].strip("-") for of in names.values() for name in of}
    assert "text-column" in words
    assert not words & {"checkpoint", "text-field", "text-columns"}
    with_report = {verb for verb, of in names.items() if "--report" in of}
    assert with_report == {"pretrain", "finetune", "fork"}  # loggers
    with_input = {verb for verb, of in names.items() if "--input" in of}
    assert with_input > {"vocab", "evaluate", "predict", "embed", "features", "search"}


def test_one_thing_is_given_by_one_name(capsys):
    assert main(["inspect", "x", "--report", "a.html", "--output", "b.html"]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert "--report and --output are two names of --output; give it once." in line


def test_the_underscore_of_an_option_is_seen_before_it_is_parsed(tmp_path, capsys):
    """The shape of a model is not an option where a run starts from one."""
    source = str(tmp_path / "none")
    for option in ("--init_from", "--init-from", "--model"):
        command = ["pretrain", option, source, "--model.hidden_size", "many"]
        assert main([*command, "--workdir", str(tmp_path / "run")]) == 2
        assert "must be a whole number" not in capsys.readouterr().err


def test_the_files_of_each_input_are_read():
    once = ["--output=x", "--input", "a", "b", "-", "c"]
    assert (
        present("prepare", "--input", "a", "b", "-", "--output=x", "--input=c") == once
    )
    assert present("prepare", *once) == once
    # One file is scored: the last one, as of other options.
    assert present("evaluate", "M", "--input=a", "--input=b")[1:] == [
        "--input=a",
        "--input=b",
    ]
    assert option_value(["--input", "a", "--input=b"], "--input") == "b"
    assert option_value(["--at=b", "--input"], "--input") is None

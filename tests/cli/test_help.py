"""A help that one can take in, and the refusal of options that nothing reads."""

import json
import re
import shlex

import pytest

from bert_jax.cli.command import parse
from bert_jax.cli.finetuning import FinetuneOptions, read_finetune
from bert_jax.cli.help import HELPS, TASKS
from bert_jax.cli.main import main
from bert_jax.cli.names import options_of
from bert_jax.cli.pretraining import PretrainOptions, read_pretrain
from bert_jax.cli.readers import READ_BY, is_read
from bert_jax.cli.verbs import VERBS


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(list(words)) == 0
    return capsys.readouterr().out


def options_in(text: str) -> set[str]:
    return set(re.findall(r"^(?:  |│ )(--[a-z][a-z.-]*)", text, re.M))


def test_every_verb_and_task_has_a_help():
    assert set(HELPS) == {*VERBS, *(f"finetune {task}" for task in TASKS)}


@pytest.mark.parametrize("subject", HELPS)
def test_a_help_is_a_screen_of_ten_options(subject, capsys, monkeypatch):
    """Of an example, whose words the verb takes, and what all options are listed by."""
    monkeypatch.setenv("COLUMNS", "80")
    text = printed(capsys, *subject.split(), "--help")
    assert text == printed(capsys, *subject.split(), "help")
    assert text == printed(capsys, "help", *subject.split())
    lines = text.splitlines()
    assert len(lines) <= 40 and max(map(len, lines)) <= 80
    every = options_in(printed(capsys, *subject.split(), "--help-all"))
    shown = options_in(text)
    assert shown <= every and (len(shown) <= 10 or shown == every)
    assert shown == every or "--help-all` lists all" in lines[-1]
    (example,) = re.findall(r"^  (bert-jax (?:.*\\\n)*.*)$", text, re.M)
    words = shlex.split(example.replace("\\\n", ""))[1:]
    if subject.startswith(("finetune", "pretrain")):
        assert printed(capsys, *words, "--print-config")
    elif subject.split()[0] in ("evaluate", "predict", "fork"):
        named = [word for word in words if word.startswith("--")]
        assert set(named) <= every
    else:
        options = VERBS[subject].load(VERBS[subject].options)
        assert parse(options, words[len(subject.split()) :], subject)


@pytest.mark.parametrize("subject", HELPS)
def test_an_example_can_be_pasted_from_a_narrow_terminal(subject, capsys, monkeypatch):
    examples = []
    for columns in ("200", "40"):
        monkeypatch.setenv("COLUMNS", columns)
        text = printed(capsys, *subject.split(), "--help")
        examples += re.findall(r"^  (bert-jax (?:.*\\\n)*.*)$", text, re.M)
    wide, narrow = (shlex.split(text.replace("\\\n", "")) for text in examples)
    assert narrow == wide


@pytest.mark.parametrize("task", TASKS)
def test_a_task_shows_only_what_it_reads(task, capsys):
    ours = options_in(printed(capsys, "finetune", task, "--help-all"))
    assert ("--data.num-best" in ours) == (task == "question-answering")
    assert ("--data.sentence-pairs.temperature" in ours) == (task == "sentence-pairs")
    assert ("--data.balance" in ours) == (task == "text-classification")
    assert "--model.hidden-size" not in ours and "--model.dtype" in ours
    assert ours < options_in(printed(capsys, "finetune", "--help-all"))


@pytest.mark.parametrize("verb", ["evaluate", "predict"])
def test_a_verb_of_a_trained_model_shows_only_what_it_reads(verb, capsys):
    ours = options_in(printed(capsys, verb, "--help-all"))
    assert not {"--data.train", "--data.sentence-pairs.temperature"} & ours
    assert {"--input", "--text-column", "--data.null-threshold"} <= ours


def test_predict_reads_no_column_of_texts_for_questions_and_choices():
    tasks = {task for task in TASKS if is_read("data.text_columns", "predict", task)}
    assert {*TASKS} - tasks == {"question-answering", "multiple-choice"}


def test_a_configuration_has_the_help_of_its_task(capsys, refused):
    text = printed(capsys, "finetune", "squad-v2", "--help")
    assert "--data.null-threshold" in text and "Default: 384" in text
    assert "--data.path DIRECTORY" in printed(capsys, "finetune", "mrpc", "--help")
    assert "lists all" in printed(capsys, "pretrain", "bert-base-128", "--help")
    assert "'tagging' is neither a task" in refused("finetune", "tagging", "--help")


def test_the_table_names_fields_and_tasks():
    fields = {o.field for o in options_of(VERBS["finetune"].load("FinetuneOptions"))}
    parents = {field.rpartition(".")[0] for field in fields}
    assert set(READ_BY) <= fields | parents
    assert {task for tasks in READ_BY.values() for task in tasks.split()} == {*TASKS}
    assert not is_read("data.num_best", "finetune", "text-classification")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            "text-classification --data.num-best 20",
            "data.num_best=20 is not used by finetune text-classification, but by "
            "question-answering; leave --data.num-best out.",
        ),
        (
            "mrpc --data.sentence-pairs.temperature=0.1",
            "finetune text-classification, but by sentence-pairs; leave --data.sent",
        ),
        ("question-answering --data.no-balance", "but by text-classification; leave"),
        ("token-classification --text-column x", "; leave --text-column out."),
        (
            "question-answering --data.label-column x",
            "but by all tasks but question-answering; leave --label-column out.",
        ),
        ("sentence-pairs --data.path x", "name the file by --data.train."),
        ("text-regression --model.pooling mean --class-weights none", "class_weights="),
        ("mrpc --task text-regression", "mrpc is a text-classification, and --task="),
        ("mrpc --delimiter ;", "mrpc is read from GLUE's own files, whose columns"),
    ],
)
def test_an_option_that_the_task_does_not_read_is_refused(words, says, capsys):
    """A former name is said in a line of its own before."""
    assert main(["finetune", *words.split(), "--print-config"]) == 2
    error = capsys.readouterr().err
    assert says in error.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "other", "reason"),
    [
        ("--data.validation-fraction 0.2", "--data.validation b.csv", "b.csv is scor"),
        ("--num-epochs 2", "--num-steps 9", "--num-steps is given"),
        ("--reinitialise-layers 1", "--from-scratch", "--from-scratch draws all."),
    ],
)
def test_an_option_that_another_one_leaves_idle_is_said(words, other, reason, caplog):
    option = words.partition(" ")[0]
    for given, is_said in (words, False), (f"{words} {other}", True):
        read_finetune(FinetuneOptions, f"text-regression {given}".split(), "finetune")
        assert (f"{option} has no effect: {reason}" in caplog.text) == is_said


@pytest.mark.parametrize(
    ("words", "other", "reason"),
    [
        (
            "text-classification --data.label-separator ;",
            "--data.multi-label",
            "no --data.multi-label.",
        ),
        (
            "sentence-pairs --data.sentence-pairs.temperature .1 "
            "--data.sentence-pairs.objective cosine",
            "--data.sentence-pairs.objective contrastive",
            "the objective is cosine.",
        ),
        (
            "sentence-pairs --model.pooling mean",
            "--data.sentence-pairs.objective rank",
            "see --data.sentence-pairs.pooling.",
        ),
    ],
)
def test_an_option_that_needs_another_one_is_said(words, other, reason, caplog):
    read_finetune(FinetuneOptions, f"{words} {other}".split(), "finetune")
    assert not caplog.text
    read_finetune(FinetuneOptions, words.split(), "finetune")
    assert f"{words.split()[1]} has no effect: {reason}" in caplog.text


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--masking.max-span 3", "max-span has no effect: --masking.unit is token."),
        ("--masking.unit span --masking.max-span 3", ""),
        (
            "--objective causal_lm --model.attention causal --masking.rate .3",
            "--masking.rate has no effect: --objective causal_lm masks nothing.",
        ),
    ],
)
def test_options_of_the_masking_that_are_not_read_are_said(words, says, caplog):
    read_pretrain(PretrainOptions, words.split(), "pretrain")
    assert says in caplog.text and bool(says) == bool(caplog.text)


def test_what_is_said_is_beside_no_error_and_no_configuration(refused, capsys):
    words = ("pretrain", "--masking.max-span", "3")
    assert "nowhere" in refused(*words, "--data.path", "nowhere", "--workdir", "run")
    assert json.loads(printed(capsys, *words, "--print-config"))


@pytest.mark.parametrize("name", ["squad-v2", "conll2003"])
def test_named_configurations_go_on_working(name, capsys):
    assert printed(capsys, "finetune", name, "--seed", "1", "--print-config")


def test_a_task_of_glue_has_no_columns_to_name(capsys):
    for ask in ("--help", "--help-all"):
        assert main(["finetune", "mrpc", ask]) == 0
        printed = capsys.readouterr().out
        assert "--data.path" in printed and "-column" not in printed, ask
        assert (
            ask == "--help-all" or "pairs of texts; from the files of GLUE." in printed
        )

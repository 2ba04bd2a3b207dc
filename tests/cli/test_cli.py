"""The command line as a user meets it: one line for a mistake, exit code 2."""

import dataclasses
import inspect
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from run_helpers import NO_TENSORFLOW

from bert_jax.apps.experiments.catalogue import EXPERIMENTS
from bert_jax.cli.inference import PredictOptions, predict
from bert_jax.cli.main import main, run_verb, with_home
from bert_jax.cli.verbs import GROUPS, USAGE, VERBS
from bert_jax.config import ExamplesConfig, PretrainConfig
from bert_jax.config.checks import RESOLVED
from bert_jax.config.serialization import to_dict


def options(config: PretrainConfig, **changes: str) -> list[str]:
    """The small run as options."""
    flat = {
        "data.path": config.data.path,
        "data.sequence-length": config.data.sequence_length,
        "model.vocab-size": config.model.vocab_size,
        "model.hidden-size": 16,
        "model.num-hidden-layers": 1,
        "model.num-attention-heads": 1,
        "model.intermediate-size": 64,
        "masking.max-predictions": 5,
        "optimizer.warmup-steps": 2,
        "mesh.data": 1,
        "num-steps": 10,
        "batch-size": 8,
    }
    for name, value in changes.items():
        flat[name.replace("__", ".").replace("_", "-")] = value
    return [word for name, value in flat.items() for word in (f"--{name}", str(value))]


def test_help_lists_every_verb(capsys):
    assert main([]) == 0
    usage = capsys.readouterr().out
    assert main(["--help"]) == 0
    assert capsys.readouterr().out == usage
    for verb in ("vocab", "prepare", "pretrain", "convert", "benchmark", "demo"):
        assert f"  {verb} " in usage


@pytest.mark.parametrize("name", VERBS)
def test_the_table_of_verbs(name):
    verb = VERBS[name]
    first, *rest = name.split()
    assert f"\n  {first} " in USAGE and (first in GROUPS) == bool(rest)
    options = verb.load(verb.options)
    assert dataclasses.is_dataclass(options) and inspect.isfunction(verb.load(verb.run))
    assert options.__dataclass_params__.frozen
    if verb.read:
        parameters = [*inspect.signature(verb.load(verb.read)).parameters]
        assert parameters == ["options_class", "arguments", "verb"]


@pytest.mark.parametrize("name", [name for name in VERBS if name != "finetune"])
def test_help_describes_every_option(name, capsys):
    assert main([*name.split(), "--help-all"]) == 0
    output = " ".join(capsys.readouterr().out.split())
    options = VERBS[name].load(VERBS[name].options)
    assert " ".join(options.__doc__.split()) in output
    source = "".join(inspect.getsource(base) for base in options.__mro__[:-1])
    pattern = r'^    (\w+): .*\n(?:     .*\n|    \].*\n)*    """(\S+)'
    described = dict(re.findall(pattern, source, re.MULTILINE))
    fields = {f.name for f in dataclasses.fields(options) if f.metadata != RESOLVED}
    assert fields - {"config", "data"} <= set(described)
    assert all(word in output for word in described.values())


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_lists_its_verbs(group, capsys, refused):
    assert main([group]) == main([group, "help"]) == 0
    usage = capsys.readouterr().out
    assert main([group, "--help"]) == 0
    output = capsys.readouterr().out
    verbs = [name.split()[1] for name in VERBS if name.startswith(f"{group} ")]
    assert len(verbs) >= 3 and all(f"\n  {verb} " in output for verb in verbs)
    assert usage == 2 * output
    assert f"{group} 'x' must be {group} {verbs[0]}" in refused(group, "x")


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("pre", "predict prepare pretrain"),
        ("--vers", "--version"),
        ("help conv", "convert"),
        ("convert im", "import"),
        ("convert import --from ", "huggingface tf1"),
        ("finetune tex", "text-classification text-regression"),
        ("finetune mr", "mrpc"),
        ("finetune bert-t", ""),
        ("pretrain bert-t", "bert-tiny-128 bert-tiny-two-cores"),
        ("pretrain run.py --mesh.d", "--mesh.data"),
        ("pretrain --no-pair", "--no-pair-loss"),
        ("pretrain --model.dtype=b", "--model.dtype=bfloat16"),
        ("pretrain --model.dtype = ", "float32 bfloat16"),
        ("finetune mrpc --optimizer.fr", "--optimizer.frozen-layers"),
        ("finetune mrpc --workdir w --workd", ""),
        ("finetune question-answering --data.num-be", "--data.num-best"),
        ("finetune text-regression --data.num-be", ""),
        ("finetune text-regression --data.train ", ""),
        ("--debug fork runs/a --at 8 --masking.rat", "--masking.rate"),
        ("fork runs/a --deb", ""),
        ("fill a --mod", "--model"),
        ("inspect a ", ""),
        ("predict a --input b ", ""),
        ("features --model m --layers -1 --inp", "--input"),
        ("convert shrink m --output o --hel", "--help --help-all"),
        ("reproduce ", " ".join(EXPERIMENTS)),
        ("reproduce masking --budget ", "toy small base"),
        ("benchmark train --no-dr", "--no-dropout"),
        ("benchmark inference --no-dr", ""),
        ("xyzzy ", ""),
    ],
)
def test_completion(line, completed, capsys):
    assert main(["--complete", *line.split(" ")]) == 0
    assert sorted(capsys.readouterr().out.split()) == sorted(completed.split())


BASH = """
eval "$SCRIPT"
bert-jax() { "$PYTHON" -m bert_jax "$@"; }
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
words=($(complete -p bert-jax))
"${words[-2]}" bert-jax
echo "${words[*]:0:5} ${COMPREPLY[@]}"
"""
DEFAULT = "complete -o bashdefault -o default"
"""The beginning of what has bash complete the names of files, too."""


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("bert-jax finetune tok", "token-classification"),
        ("bert-jax predict ", ""),
    ],
)
def test_completion_in_bash(line, completed, capsys):
    script = completion("bash", capsys)
    environment = {**os.environ, "SCRIPT": script, "PYTHON": sys.executable}
    command = ["bash", "-c", BASH, "bash", *line.split(" ")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == f"{DEFAULT} {completed}".strip(), done.stderr


def completion(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["--completion", shell]) == 0
    script = capsys.readouterr().out
    assert main(["--tyro-print-completion", shell]) == 0
    assert capsys.readouterr().out == script
    return script


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_in_other_shells(shell, capsys, tmp_path):
    path = tmp_path / "script"
    path.write_text(completion(shell, capsys))
    if program := shutil.which(shell):
        assert not subprocess.run([program, "-n", path], capture_output=True).stderr


def test_completion_in_tcsh(capsys, tmp_path, monkeypatch):
    assert "`bert-jax --complete`" in completion("tcsh", capsys)
    monkeypatch.chdir(tmp_path)
    Path("train.csv").touch()
    for line, completed in (("predict --inp", "--input"), ("predict t", "train.csv")):
        monkeypatch.setenv("COMMAND_LINE", f"bert-jax {line}")
        assert main(["--complete"]) == 0
        assert capsys.readouterr().out.split() == [completed]


def test_shells_without_completion(refused):
    message = "--completion needs one of bash, zsh, fish, tcsh"
    for arguments in ([], ["csh"], ["bash", "zsh"]):
        assert message in refused("--completion", *arguments)


@pytest.mark.parametrize(
    "verb",
    "vocab,prepare,pretrain,fork,convert,convert import,benchmark,demo".split(","),
)
def test_help_of_a_verb_loads_neither_jax_nor_tensorflow(verb):
    code = (
        "import sys\nfrom bert_jax.cli.main import main\n"
        f"main([*{verb.split()}, '--help'])\n"
        f"main(['--complete', *{verb.split()}, ''])\n"
        "assert not {'jax', 'tensorflow'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"usage: bert-jax {verb} " in done.stdout


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("bert_jax 0.")


def test_a_verb_that_is_not(refused):
    assert "'pretrian' is not a verb; did you mean pretrain?" in refused("pretrian")
    assert "bert-jax --help lists them" in refused("xyzzy")


def test_a_typo_in_an_option(refused):
    error = refused("pretrain", "--num-stps", "3")
    assert "does not take --num-stps; did you mean --num-steps?" in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--optimizer.peak-learning-rate", "nan"], "peak_learning_rate=nan must be"),
        (["--optimizer.peak-learning-rate", "-1"], "peak_learning_rate=-1.0 must be"),
        (["--batch-size", "0"], "batch_size=0 must be finite and greater than 0"),
        (["--model.hidden-size", "770"], "hidden_size=770 is not a multiple"),
        (["--num-steps", "5"], "optimizer.warmup_steps=10000 is more than the 5"),
        (["--keep-optimizer"], "keep_optimizer needs init_from"),
        ([], "--workdir is missing"),
        (["--workdir", "w"], "data.path is empty; pass --data.path"),
        (["--workdir", "w", "--data.path", "none"], "none is absent or unfinished"),
        (["none.py", "--workdir", "w"], "none.py is not a file"),
    ],
)
def test_refused_options(arguments, message, refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in refused("pretrain", *arguments)
    assert not list(tmp_path.iterdir()), "nothing is left behind"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("config = 3", "must bind the name config to a PretrainConfig"),
        ("1 / 0", "fails: ZeroDivisionError"),
        ("import sys; sys.exit(0)", "fails: SystemExit: 0; correct it"),
        ("raise BaseException('stop')", "fails: BaseException: stop"),
        ("raise ValueError('a=1; lower it.')", "a=1; lower it. Correct it."),
    ],
)
def test_refused_configuration_files(text, message, refused, tmp_path):
    path = tmp_path / "c.py"
    path.write_text(text)
    assert message in refused("pretrain", str(path))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model__vocab_size": "100"},
            "model.vocab_size=100 but .* has 160; leave it out",
        ),
        ({"data__sequence_length": "64"}, "data.sequence_length=64 but .* 32"),
        ({"batch_size": "10", "mesh__data": "4"}, "batch_size=10 is not a multiple"),
        ({"mesh__data": "99"}, "mesh.data=99, .* do not make 8 devices"),
        ({"mesh__tensor": "8"}, "mesh.tensor=8 does not divide model.num_attention"),
        ({"microbatches": "3"}, "of the 3 microbatches; 9 would be"),
        ({"batch_size": "5000"}, "training rows, fewer than batch_size=5000"),
        (
            {"masking__mask_token_id": "9"},
            "pretrain does not take --masking.mask-token-id",
        ),
        ({"init_from": "nowhere"}, "nowhere does not exist; name a workdir"),
        ({"workdir": __file__}, "test_cli.py is a file; name a directory"),
    ],
)
def test_runs_that_do_not_fit(changes, message, refused, tmp_path, small_config):
    workdir = tmp_path / "run"
    arguments = options(small_config, **{"workdir": str(workdir)} | changes)
    line = refused("pretrain", *arguments)
    assert re.search(message, line), line
    assert not workdir.exists(), "nothing is left behind"


@pytest.mark.parametrize("damage", ["truncated", "flipped", "missing", "tokenizer"])
def test_a_damaged_dataset_is_refused(damage, refused, tmp_path, small_config):
    data = tmp_path / "data"
    shutil.copytree(small_config.data.path, data)
    shard = next(data.glob("train-*.npy"))
    if damage == "truncated":
        shard.write_bytes(shard.read_bytes()[:-7])
        message = f"{shard} has"
    elif damage == "flipped":
        content = bytearray(shard.read_bytes())
        content[-9] ^= 4
        shard.write_bytes(content)
        message = f"{shard} has another sha256"
    elif damage == "missing":
        shard.unlink()
        message = f"{shard} is missing"
    else:
        vocabulary = data / "tokenizer" / "vocab.txt"
        vocabulary.write_text(vocabulary.read_text().replace("[MASK]", "[MUSK]"))
        message = f"{vocabulary} has another sha256"
    arguments = options(small_config, data__path=str(data), workdir=str(tmp_path / "w"))
    assert message in refused("pretrain", *arguments)
    assert not (tmp_path / "w").exists()


def test_print_config_is_the_configuration(capsys, small_config):
    assert main(["pretrain", *options(small_config), "--print-config"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert set(values) == set(to_dict(small_config))
    assert values["model"]["num_hidden_layers"] == 1


@pytest.mark.slow
def test_a_dry_run_measures_first_and_starts_nothing(
    capsys, refused, small_config, tmp_path, monkeypatch
):
    """Ten lines, and the hours are those of all steps at the measured seconds."""
    monkeypatch.chdir(tmp_path)
    dry_run = ["pretrain", *options(small_config), "--num-steps", "8000000"]
    assert "--verbose needs --dry-run" in refused(*dry_run, "--verbose")
    assert main([*dry_run, "--dry-run"]) == 0
    memory, seconds, hours, *rest = capsys.readouterr().out.splitlines()
    assert re.match(r"memory a device: parameters .* of .* that are free$", memory)
    (one,) = re.findall(r"time: (\S+) s a step, the median of \d+ on 1 CPU d", seconds)
    (total,) = re.findall(r"in all: 8,000,000 steps take (\S+) hours", hours)
    assert float(total.replace(",", "")) * 3600 / 8e6 == pytest.approx(float(one), 0.01)
    output = "\n".join(rest)
    assert "parameters: " in output and "model FLOPs a step: " in output
    assert "learning rate: 0.0001 after 2 steps, 0 after 8,000,000" in output
    assert "masking rate: 0.15" in output
    assert len(rest) <= 7 and "float32" not in output and "--verbose" in rest[-1]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("verb", "arguments", "message"),
    [
        ("vocab", ["--input", "none*.txt", "--output", "v"], "none*.txt"),
        ("vocab", ["--input", "empty.txt", "--output", "v"], "empty.txt"),
        ("vocab", ["--input", "one.txt", "--output", "taken"], "taken"),
        ("prepare", ["--input", "none*.txt", "--output", "d"], "none*.txt"),
        ("prepare", ["--input", "empty.txt", "--output", "d"], "empty.txt"),
        ("prepare", ["--input", "one.txt", "--output", "d"], "single document"),
        ("prepare", ["--input", "two.txt", "--output", "taken"], "taken"),
    ],
)
def test_refused_input(
    verb, arguments, message, refused, tmp_path, monkeypatch, tokenizer_directory
):
    monkeypatch.chdir(tmp_path)
    Path("empty.txt").write_text("\n \n")
    Path("one.txt").write_text("A single document. It has two sentences.\n")
    Path("two.txt").write_text("A first document.\n\nA second one.\n" * 4)
    Path("taken").mkdir()
    Path("taken/file").write_text("mine")
    before = sorted(Path(".").rglob("*"))
    if verb == "prepare":
        arguments = [*arguments, "--tokenizer", str(tokenizer_directory)]
    assert message in refused(verb, *arguments)
    assert sorted(Path(".").rglob("*")) == before, "nothing half-written"


@pytest.mark.parametrize(
    ("verb", "option", "message"),
    [
        ("vocab", "--vocab-size=-5", "vocab_size=-5 must be"),
        ("prepare", "--sequence-length=4", "sequence_length=4 must be from 8"),
        ("prepare", "--seed=-1", "seed=-1 must be from 0"),
    ],
)
def test_refused_values(verb, option, message, refused, tmp_path):
    arguments = ["--input", "a", "--output", str(tmp_path / "out"), option]
    if verb == "prepare":
        arguments += ["--tokenizer", "t"]
    assert message in refused(verb, *arguments)


def test_text_without_a_pair_leaves_nothing(refused, tmp_path, tokenizer_directory):
    text, output = tmp_path / "text.txt", tmp_path / "out"
    text.write_text("\x00\n\n\x00\n\n\x00\n\n\x00\n\n\x00\n")
    line = refused(
        "prepare",
        *("--input", str(text), "--tokenizer", str(tokenizer_directory)),
        *("--output", str(output), "--workers", "1"),
    )
    assert "no pair of sentences" in line
    assert not output.exists()


@pytest.mark.slow
def test_a_reader_that_leaves_is_no_success(tmp_path, small_config):
    """Exit code 0 means that the last step was reached."""
    command = [sys.executable, "-m", "bert_jax", "pretrain", *options(small_config)]
    command += ["--workdir", str(tmp_path / "run"), "--log-every", "1"]
    paths = [str(NO_TENSORFLOW), os.environ.get("PYTHONPATH", "")]
    run = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )
    assert run.stdout is not None
    run.stdout.close()
    assert run.wait(timeout=300) == 141


def test_a_device_that_is_too_small(capsys):
    def too_small(_: list[str]) -> int:
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory\nat 1 GiB.")

    assert main(["doctor"], too_small) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("bert-jax: RESOURCE_EXHAUSTED: Out of memory at 1 GiB. The ")
    assert "--dry-run --memory-gib" in line


def test_a_tokenizer_without_mask(refused, tmp_path, corpus, tokenizer_directory):
    broken = tmp_path / "tokenizer"
    shutil.copytree(tokenizer_directory, broken)
    path = broken / "vocab.txt"
    path.write_text(path.read_text().replace("[MASK]\n", ""))
    line = refused(
        "prepare",
        *("--input", str(corpus / "*.txt"), "--tokenizer", str(broken)),
        *("--output", str(tmp_path / "out")),
    )
    assert "[MASK]" in line
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_another_tokenizer_than_the_source(
    capsys, refused, tmp_path, small_config, corpus, pretrained
):
    """A run does not begin from a model that reads other ids."""
    from bert_jax.config import PrepareConfig, VocabularyConfig
    from bert_jax.data.prepare import prepare
    from bert_jax.data.vocabulary import train_vocabulary

    text = (str(corpus / "*.txt"),)
    other = str(tmp_path / "other")
    train_vocabulary(
        VocabularyConfig(input=text, output=other, vocab_size=160, cased=True)
    )
    data = str(tmp_path / "data")
    prepare(
        PrepareConfig(
            input=text, tokenizer=other, output=data, sequence_length=32, workers=1
        )
    )
    capsys.readouterr()
    arguments = options(
        small_config,
        data__path=data,
        workdir=str(tmp_path / "run"),
        init_from=str(pretrained),
    )
    assert "have different tokenizers" in refused("pretrain", *arguments)


def test_every_id_of_the_dataset_is_in_the_vocabulary(dataset):
    numbers = np.arange(len(dataset.train))
    tokens = dataset.train.gather(numbers)["tokens"]
    assert tokens.max() < dataset.tokenizer.vocab_size


def test_a_tilde_is_the_home_directory_as_in_a_shell(
    corpus, tmp_path, monkeypatch, capsys
):
    """A shell does not replace it after `=`, or in the quotes of a pattern."""
    home = tmp_path / "home"
    shutil.copytree(corpus, home / "text")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(tmp_path)
    words = ["vocab", "--vocab-size", "160", "--output=~/vocabulary"]
    assert main([*words, "--input", "~/text/*.txt"]) == 0
    assert (home / "vocabulary" / "vocab.txt").exists() and not Path("~").exists()
    assert f"{home / 'vocabulary'}: wordpiece" in capsys.readouterr().out


def test_a_tilde_in_the_text_of_an_option_stays():
    words = ["a ~/b", "--prompt=see ~/b", "x~", "~user/b", "--mesh.data=-1"]
    assert [*map(with_home, words)] == words
    home = os.path.expanduser("~")
    assert (
        with_home("--tasks=a=~/1.csv,~/2.csv") == f"--tasks=a={home}/1.csv,{home}/2.csv"
    )


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("generate M The dog", "did you mean --prompt 'The dog'?"),
        ("search M The dog --corpus c.csv", "did you mean --query 'The dog'?"),
        (
            "embed M 'She signs.' --output b --input a",
            "texts are read from the file of",
        ),
        ("embed M a.csv --output b --input a", "did you mean --input a.csv?"),
        *(
            (f"{verb} {config}", f"{config} there; a configuration is the first word")
            for verb in ("pretrain --seed 1", "finetune text-regression --seed 1")
            for config in ("a/b.py", "runs/a/config.json", "bert-tiny-two-cores")
        ),
    ],
)
def test_a_text_in_place_of_an_option_is_told_where_it_belongs(words, hint, refused):
    assert hint in refused(*shlex.split(words))


def test_a_share_of_warmup_that_is_named_is_the_runs(capsys):
    """Whatever steps the configuration has, which would hide it."""
    for name in ("--optimizer.warmup-share", "--optimizer.warmup_share"):
        command = ["pretrain", "--num-steps", "30", name, "0.1", "--print-config"]
        assert main(command) == 0
        optimizer = json.loads(capsys.readouterr().out)["optimizer"]
        assert (optimizer["warmup_steps"], optimizer["warmup_share"]) == (0, 0.1)
    named = ["--optimizer.warmup-steps", "100", "--print-config"]
    assert main(["pretrain", "lamb_large_128", *named]) == 0
    assert json.loads(capsys.readouterr().out)["optimizer"]["warmup_steps"] == 100


def test_an_output_that_no_one_takes_has_the_exit_code_of_its_error():
    """Also where Python holds the output back until the end."""
    command = [sys.executable, "-m", "bert_jax", "--version"]
    environment = dict(os.environ)
    environment.pop("PYTHONUNBUFFERED", None)
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment
        )
    assert done.returncode == 2 and done.stderr == (
        "bert-jax: standard output cannot be written: No space left on device; free "
        "space there, and give the same command again.\n"
    )
    with open("/dev/full", "w") as full:
        refused = subprocess.run([*command[:3], "no-verb"], stderr=full, check=False)
    assert refused.returncode == 2, "also where its line finds no room"
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as closed:
        done = subprocess.run(
            command, stdout=closed, stderr=subprocess.PIPE, text=True, env=environment
        )
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


def test_an_output_that_the_verb_has_closed_is_not_written_again(
    monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr(sys, "stdout", open(tmp_path / "out.txt", "w"))
    assert main([], run=lambda _: print("a") or sys.stdout.close() or 0) == 0
    assert (tmp_path / "out.txt").read_text() == "a\n"
    assert capsys.readouterr().err == ""


def test_predictions_need_a_standard_output(monkeypatch):
    """Python has none where a shell closed it (`>&-`), and drops what is printed."""
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(ValueError, match="standard output is closed; name a file"):
        predict(PredictOptions(model="runs/none", data=ExamplesConfig()))
    for verb in (
        "fill a[MASK] --model runs/none",
        "generate runs/none",
        "inspect runs/none",
        "search runs/none --query a --corpus a.txt",
        "search runs/none --input a",
    ):
        with pytest.raises(ValueError, match="standard output is closed; open it"):
            run_verb(verb.split())


def test_an_output_that_no_one_takes_hides_no_other_error():
    run = "lambda _: print('a') or int('x')"
    command = f"from bert_jax.cli.main import main; raise SystemExit(main([], {run}))"
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", command],
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment,
        )
    assert (done.returncode, done.stderr.split()[:2]) == (2, [b"bert-jax:", b"invalid"])

"""docs/migrating.md: its names exist, and its program runs."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from huggingface_files import stored

import bert_jax
from bert_jax.cli.finetuning import TASKS
from bert_jax.cli.foreign import COMMANDS, THEIRS, of_option
from bert_jax.cli.main import main
from bert_jax.cli.names import names_of as options_of
from bert_jax.cli.verbs import VERBS
from bert_jax.config import BertConfig
from bert_jax.formats.names import names_of

PAGE = (Path(__file__).parents[1] / "docs" / "migrating.md").read_text()
TF1_ROWS = re.findall(
    r"^\| `([\w/]+)` \| `([\w/]+)` \| \[(.*)\] \|$", PAGE, re.MULTILINE
)
ROWS = re.findall(r"^\| `([^`]*)` \| `([^`]*)` \|$", PAGE, re.MULTILINE)
PARAMETERS = [row for row in ROWS if re.match("(bert|cls)/", row[0])]


def test_the_table_of_parameters_is_that_of_the_importer():
    """FlaxBert's names are those of TensorFlow's, but for the ends of leaves."""
    ours = {name.ours: name.tf1 for name in names_of(BertConfig())}
    assert len(PARAMETERS) == 15
    for theirs, name in PARAMETERS:
        tf1 = theirs.replace("layer/0", "layer_0").removesuffix("/embedding")
        matches = {leaf: path for leaf, path in ours.items() if leaf.startswith(name)}
        assert matches, name
        for leaf, path in matches.items():
            if leaf in ("masked_lm/bias", "next_sentence/dense/kernel"):
                assert "output_" in path  # named otherwise in TensorFlow
            elif leaf != "next_sentence/dense/bias":
                assert path.startswith(tf1), (leaf, path)


def test_tensorflows_names_and_shapes_are_those_of_the_importer():
    config = BertConfig(head="pretraining")
    names = {name.tf1: name for name in names_of(config)}
    sizes = {
        "V": config.vocab_size,
        "P": config.max_position_embeddings,
        "D": config.hidden_size,
        "F": config.intermediate_size,
        "2": 2,
    }
    assert len(TF1_ROWS) == 17
    for theirs, ours, shape in TF1_ROWS:
        assert names[theirs].ours == ours
        assert names[theirs].shape == tuple(sizes[key] for key in shape.split(", "))


def test_options_exist(capsys):
    """Those of google-research/bert's two programs, each at the verb that has it."""
    texts = {}
    for verb in ("prepare", "pretrain"):
        main([verb, "--help-all"])
        texts[verb] = capsys.readouterr().out
    part = PAGE[PAGE.index("| `create_pretraining_data.py`") :]
    verb, found = "", 0
    for row in part[: part.index("| `run_classifier.py")].splitlines():
        ours = row.split("|")[2]
        if command := re.search("bert-jax ([a-z]+)", ours):
            verb = command[1]
        for option in re.findall("--[a-z.-]+", ours):
            assert option in texts["pretrain" if "of `pretrain`" in ours else verb]
            found += 1
    assert found > 15


def names_table(rows):
    """The lines of a table of names, as the page has it."""

    def code(words):
        return ", ".join(f"`{word}`" for word in words)

    yield from ("| there | here | |", "|---|---|---|")
    for row in rows:
        ours = row.ours.split("|") if row.ours else []
        other = f"else: {row.absent}" if ours and row.absent else row.absent
        said = "; ".join(note for note in (row.note, other) if note)
        said = re.sub(
            r"`.*?`|(--[\w.-]*\w)", lambda m: f"`{m[1]}`" if m[1] else m[0], said
        )
        yield f"| {code(row.names.split())} | {code(ours)} | {said} |"


@pytest.mark.parametrize("library", THEIRS)
def test_the_page_has_the_names_that_hints_know(library):
    lines = [f"### {library}", "", *names_table(THEIRS[library])]
    assert "\n".join([*lines, ""]) in PAGE


OPTIONS = {name: options_of(v.load(v.options), name) for name, v in VERBS.items()}


@pytest.mark.parametrize("library", THEIRS)
def test_a_hint_names_what_there_is(library):
    """Each of ours is an option of some verb; a hint, one of the verb at hand."""
    for row in THEIRS[library]:
        names, ours = row.names.split(), row.ours.split("|")
        if not names[0].startswith("-"):
            assert all(COMMANDS[name] == row.ours for name in names)
            assert all(verb in VERBS or verb.split()[1] in TASKS for verb in ours)
            continue
        found = set()
        for options in OPTIONS.values():
            hint, note = of_option(names[0], options)
            found |= {hint} if hint else set()
            assert not hint or hint.split()[0] in options
            assert hint or note in (row.absent, "")
        assert found == set(ours) - {""}, "no verb gets this hint"


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("finetune T --lr=1e-5", "did you mean --optimizer.peak-learning-rate?"),
        ("finetune T --epochs 3", "did you mean --num-epochs?"),
        ("finetune T --output_dir x", "did you mean --workdir?"),
        ("finetune T --data x", "did you mean --data.train?"),
        ("finetune T x.csv", "did you mean --data.train x.csv?"),
        ("finetune T -epoch 3 -lr 1", "--num-epochs for -epoch, --optimizer.peak-"),
        ("finetune T -wordNgrams 2", "leave -wordNgrams out: the model reads all"),
        ("finetune T --do_train --bf16", "bfloat16 for --bf16? Leave --do-train out:"),
        ("finetune T --temperature 1", "sentence-pairs.temperature or --distillation"),
        (
            "finetune T --keep-optimizer",
            "leave --keep-optimizer out: it is an option of pretrain",
        ),
        ("pretrain --data x", "did you mean --data.path?"),
        ("pretrain --learning_rate 1", "did you mean --optimizer.peak-learning-rate?"),
        (
            "prepare --data x",
            "needs --input and --output and --tokenizer, and does not "
            "take --data; did you mean --input?",
        ),
        ("embed --model_name x", "does not take --model-name; did you mean --model?"),
        ("train", "'train' is not a verb; did you mean finetune or pretrain?"),
        ("supervised", "did you mean finetune text-classification?"),
    ],
)
def test_names_of_other_libraries_are_understood(command, says, refused):
    assert says in refused(*command.replace(" T ", " text-classification ").split())


def test_the_program_runs(tmp_path):
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    folder = stored("BertForMaskedLM").write(tmp_path / "model")
    program = program.replace("hf:google-bert/bert-base-uncased", str(folder))
    program = program.replace("101, 1996, 103, 2938, 1012, 102", "2, 7, 4, 9, 8, 3")
    values: dict[str, object] = {}
    exec(program, values)
    hidden, probabilities = values["hidden"], values["probabilities"]
    config = bert_jax.load(folder).config
    assert hidden.shape == (1, 6, config.hidden_size) and hidden.dtype == jnp.float32
    assert probabilities.shape == (1, 1, config.vocab_size)
    assert jax.device_get(probabilities).sum() == pytest.approx(1, abs=1e-5)

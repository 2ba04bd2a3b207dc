"""Configurations: what they refuse, their JSON, and that every field is read."""

import ast
import dataclasses
import json
import math
import re
import runpy
from pathlib import Path

import numpy as np
import pytest
from etils import epath

from bert_jax import config as module
from bert_jax.config import (
    PRESETS,
    BertConfig,
    DataConfig,
    ExamplesConfig,
    FinetuneConfig,
    MaskingConfig,
    MeshConfig,
    OptimizerConfig,
    PrepareConfig,
    PretrainConfig,
    PretrainDistillationConfig,
    RunConfig,
    VocabularyConfig,
)
from bert_jax.config.checks import require_types
from bert_jax.config.serialization import differences, from_dict, to_dict
from bert_jax.storage.files import write_json
from bert_jax.tasks.texts.glue import GLUE

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: BertConfig(hidden_size=100), "hidden_size=100 is not a multiple.*108"),
        (lambda: ExamplesConfig(label_separator=""), "label_separator is empty; name"),
        (
            lambda: BertConfig(vocab_size=-1),
            "vocab_size=-1 must be",
        ),
        (
            lambda: BertConfig(hidden_dropout_prob=1.0),
            "hidden_dropout_prob=1.0 must be at least 0 and less than 1",
        ),
        (
            lambda: OptimizerConfig(peak_learning_rate=math.nan),
            "peak_learning_rate=nan must be finite",
        ),
        (
            lambda: OptimizerConfig(peak_learning_rate=-1e-4),
            "peak_learning_rate=-0.0001 must be finite and greater than 0",
        ),
        (
            lambda: OptimizerConfig(weight_decay=math.inf),
            "weight_decay=inf must be finite",
        ),
        (lambda: OptimizerConfig(warmup_steps=-1), "warmup_steps=-1 must be"),
        (lambda: MaskingConfig(rate=0.0), "rate=0.0 must be between 0 and 1"),
        (lambda: MeshConfig(data=0), "data=0 must be greater than 0, or -1"),
        (lambda: PretrainConfig(batch_size=0), "batch_size=0 must be"),
        (lambda: PretrainConfig(keep_checkpoints=0), "keep_checkpoints=0 must be"),
        (
            lambda: PretrainConfig(data=DataConfig(sequence_length=1024)),
            "data.sequence_length=1024 is more than model.max_position_embeddings=512",
        ),
        (
            lambda: PretrainConfig(num_steps=5),
            "optimizer.warmup_steps=10000 is more than the 5 steps .* "
            "or set optimizer.decay_steps to 10000",
        ),
        (
            lambda: PretrainConfig(optimizer=OptimizerConfig(decay_steps=20_000)),
            "20000 is less than num_steps=900000; .* Raise it to that, or leave",
        ),
        (
            lambda: PrepareConfig(
                input=(), tokenizer="t", output="o", sequence_length=4
            ),
            "sequence_length=4 must be from 8",
        ),
        (
            lambda: PrepareConfig(
                input=(), tokenizer="t", output="o", validation_fraction=1.0
            ),
            "validation_fraction=1.0 must be",
        ),
        (
            lambda: PrepareConfig(input=(), tokenizer="t", output="o", workers=-1),
            "workers=-1 must be",
        ),
        (
            lambda: PrepareConfig(input=(), tokenizer="t", output="o", seed=-1),
            "seed=-1 must be from 0 to",
        ),
        (lambda: PretrainConfig(seed=1 << 32), "seed=4294967296 must be from 0 to"),
        (
            lambda: VocabularyConfig(input=(), output="o", vocab_size=-3),
            "vocab_size=-3 must be",
        ),
    ],
)
def test_refusals_name_value_and_rule(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@dataclasses.dataclass(frozen=True)
class Numbers:
    """Unlike the package's, this class is not checked when it is made in a test."""

    steps: int = 3
    rate: float = 0.5


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        (Numbers(steps=1e6), "steps=1000000.0 must be a whole number"),
        (Numbers(steps=True), "steps=True must be a whole number"),
        (Numbers(rate="0.1"), "rate='0.1' must be a number"),
    ],
)
def test_numbers_of_another_kind_are_refused(numbers, message):
    require_types(Numbers(rate=1))
    with pytest.raises(ValueError, match=message):
        require_types(numbers)


def test_numbers_of_numpy_are_those_of_python():
    config = BertConfig(hidden_size=np.int64(24), dtype=np.str_("bfloat16"))
    assert json.dumps(to_dict(config)) == json.dumps(
        to_dict(BertConfig(hidden_size=24, dtype="bfloat16"))
    )
    rate = OptimizerConfig(peak_learning_rate=np.float64(3e-4))
    assert repr(rate) == "OptimizerConfig(peak_learning_rate=0.0003)"
    several = PretrainDistillationConfig(
        hidden_weight=np.float32(0.5), student_layers=tuple(np.array([0, 1]))
    )
    assert several == PretrainDistillationConfig(
        hidden_weight=0.5, student_layers=(0, 1)
    )
    assert [type(number) for number in several.student_layers] == [int, int]
    with pytest.raises(ValueError, match="hidden_size=24.0 must be a whole number"):
        BertConfig(hidden_size=np.float32(24))


@pytest.mark.parametrize(
    ("labels", "tuple_"),
    [
        (np.array(["a", "b"]), ("a", "b")),
        (dict.fromkeys("ab"), ("a", "b")),
        (range(3), (0, 1, 2)),
        (None, ()),
    ],
)
def test_the_tuple_that_is_named_in_place_of_a_value_holds_its_items(labels, tuple_):
    with pytest.raises(ValueError, match=f"; write {re.escape(repr(tuple_))}.$"):
        ExamplesConfig(labels=labels)


def test_a_message_on_a_value_of_several_lines_is_one():
    with pytest.raises(ValueError, match="^train=rows a b must be a string"):
        ExamplesConfig(train=type("Table", (), {"__repr__": lambda _: "rows\na\n b"})())


def test_many_class_names_are_compared_in_one_pass():
    """By pairs, it would take minutes."""
    names = tuple(f"class {number}" for number in range(50_000))
    assert BertConfig(labels=names).labels == names
    with pytest.raises(ValueError, match="labels has 'class 7' twice, as .* 7 and 5"):
        BertConfig(labels=(*names, "class 7"))


def test_paths_are_taken_as_their_names():
    config = PrepareConfig(
        input=(Path("a.txt"), "b.txt"), tokenizer=Path("v"), output=epath.Path("gs://o")
    )
    assert config == PrepareConfig(
        input=("a.txt", "b.txt"), tokenizer="v", output="gs://o"
    )
    with pytest.raises(ValueError, match=r"a tuple of words; write \('a.txt',\)\."):
        PrepareConfig(input=[Path("a.txt")], tokenizer="v", output="o")


def test_json_gives_the_same_configuration_back():
    config = PretrainConfig(
        model=BertConfig.tiny(attention="causal"),
        objective="causal_lm",
        masking=MaskingConfig(rate=0.3),
    )
    values = json.loads(json.dumps(to_dict(config)))
    assert from_dict(PretrainConfig, values) == config
    prepare = PrepareConfig(input=("a", "b"), tokenizer="t", output="o")
    values = json.loads(json.dumps(to_dict(prepare)))
    assert from_dict(PrepareConfig, values) == prepare


def test_an_unknown_key_is_refused():
    with pytest.raises(ValueError, match="BertConfig has no field hiden_size"):
        from_dict(PretrainConfig, {"model": {"hiden_size": 3}})


def test_the_schedule_may_be_longer_than_the_run():
    longer = OptimizerConfig(decay_steps=1_000_000)
    assert PretrainConfig(optimizer=longer).schedule_steps == 1_000_000
    assert PretrainConfig().schedule_steps == PretrainConfig().num_steps


def test_the_phases_of_a_schedule():
    """The steps at which the warm-up ends and the decay begins."""
    linear = OptimizerConfig(warmup_steps=100)
    assert linear.phases(1000) == (100, 100)
    constant = dataclasses.replace(linear, schedule="constant")
    assert constant.phases(1000) == (100, 800)
    assert dataclasses.replace(constant, decay_share=0.0).phases(1000) == (100, 1000)
    shares = dataclasses.replace(constant, warmup_steps=0, warmup_share=0.3)
    assert shares.phases(1000) == (300, 800)


def test_a_configuration_with_other_values():
    config = PretrainConfig(num_steps=20_000, model=BertConfig(hidden_act="relu"))
    changed = config.changed(seed=3, model={"hidden_size": 96, "num_hidden_layers": 2})
    assert (changed.seed, changed.num_steps) == (3, 20_000)
    model = changed.model
    assert (model.hidden_size, model.hidden_act) == (96, "relu")
    assert config.model.hidden_size == 768
    with pytest.raises(ValueError, match="hidden_size=100 is not a multiple of"):
        config.changed(model={"hidden_size": 100})
    with pytest.raises(TypeError, match="'hiden_size'"):
        config.changed(model={"hiden_size": 96})


def test_differences_name_nested_fields():
    old = PretrainConfig(model=BertConfig.base())
    new = PretrainConfig(seed=1, model=BertConfig.large())
    found = {name: (a, b) for name, a, b in differences(to_dict(old), to_dict(new))}
    assert found["seed"] == (0, 1)
    assert found["model.hidden_size"] == (768, 1024)
    assert set(found) == {"seed"} | {
        f"model.{name}"
        for name in (
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "intermediate_size",
        )
    }


def test_write_json_leaves_no_temporary_file(tmp_path):
    write_json({"a": 1}, epath.Path(tmp_path) / "x.json")
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": 1}


def test_presets():
    assert len(PRESETS) == 6 + 24
    assert PRESETS["base"] == BertConfig()
    large = PRESETS["large"]
    assert (large.num_attention_heads, large.intermediate_size) == (16, 4096)
    assert PRESETS["L2_H128"] == PRESETS["tiny"]


def attributes_read(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def test_every_field_is_read_somewhere():
    """An option that nothing reads is a lie to whoever sets it."""
    files = [
        path
        for path in (ROOT / "bert_jax").rglob("*.py")
        if path.parent.name not in ("config", "benchmark") and path.name != "demo.py"
    ]
    # Read by the configuration's own `schedule_steps` and `phases`, tested above.
    of_schedule = {"decay_steps", "decay_share", "warmup_steps", "warmup_share"}
    # Read by `Embedding.prompts`.
    own = of_schedule | {"prompt_texts"}
    # Compared by their names, between hosts and with the run before.
    own |= {"validation_fingerprint", "test_fingerprint"}
    read = set().union(*map(attributes_read, files)) | own
    classes = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and dataclasses.is_dataclass(value)
    ]
    assert {ExamplesConfig, FinetuneConfig} < set(classes) and len(classes) >= 10
    for cls in classes:
        unread = {field.name for field in dataclasses.fields(cls)} - read
        assert not unread, f"{cls.__name__}: nothing reads {unread}"


@pytest.mark.parametrize(
    "path", sorted((ROOT / "configs").glob("*.py")), ids=lambda path: path.stem
)
def test_every_config_file_builds(path):
    assert isinstance(runpy.run_path(str(path))["config"], RunConfig)
    assert len(path.read_text().splitlines()) <= 40


TUNED = "squad_v1 squad_v2 conll2003 swag".split()


@pytest.mark.parametrize("name", [*GLUE, *TUNED])
def test_every_task_of_the_paper_has_its_numbers(name):
    """Devlin et al. 2018, §4 and A.3: the grid, warm-up over 10 %, no warm-up steps."""
    config = runpy.run_path(str(ROOT / "configs" / f"{name}.py"))["config"]
    assert isinstance(config, FinetuneConfig)
    optimizer = config.optimizer
    assert optimizer.peak_learning_rate in (2e-5, 3e-5, 4e-5, 5e-5)
    assert (optimizer.warmup_steps, optimizer.warmup_share) == (0, 0.1)
    assert config.num_epochs in (2.0, 3.0, 4.0) and config.num_steps == 0
    assert config.batch_size in (16, 32, 48) and config.init_from == ""
    assert config.data.max_length == (384 if name.startswith("squad") else 128)
    if name in GLUE:
        assert config.data.glue == name
        assert (config.task == "text-regression") == (name == "stsb")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ExamplesConfig(max_length=7), "max_length=7 must be at least 8, or 0"),
        (lambda: ExamplesConfig(num_buckets=0), "num_buckets=0 must be"),
        (
            lambda: ExamplesConfig(validation_fraction=1.0),
            "validation_fraction=1.0 must be",
        ),
        (
            lambda: ExamplesConfig(text_columns=("a", "b", "c")),
            "text_columns names 3 columns; BERT takes one text or a pair",
        ),
        (lambda: ExamplesConfig(labels=("a", " ")), "labels has ' '; a class name"),
        (lambda: BertConfig(labels=("a", "b", "a")), "labels has 'a' twice, as cl"),
        (
            lambda: ExamplesConfig(labels=("a", "a")),
            "labels has 'a' twice, as classes 0 and 1",
        ),
        (
            lambda: ExamplesConfig(path="d", validation="f"),
            "path=d and files are both given; give only one",
        ),
        (lambda: FinetuneConfig(num_epochs=0.0), "num_epochs=0.0 must be"),
        (
            lambda: FinetuneConfig(reinitialise_layers=-1),
            "reinitialise_layers=-1 must be",
        ),
    ],
)
def test_refusals_of_fine_tuning(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize("mark", ["'", '"', "a", "1", "\n", "##", "é"])
def test_a_separator_of_columns_is_any_mark(mark):
    with pytest.raises(ValueError, match="must be a character such as ; or |, or tab"):
        ExamplesConfig(delimiter=mark)
    for other in ("", "tab", "\t", "#", "!", "¦", "\x1f"):
        assert ExamplesConfig(delimiter=other).delimiter == other


def test_a_fine_tuning_run_as_json():
    data = ExamplesConfig(labels=("a", "b"), text_columns=("t",), multi_label=True)
    config = FinetuneConfig(data=data, task="text-classification")
    values = json.loads(json.dumps(to_dict(config)))
    assert from_dict(FinetuneConfig, values) == config


@pytest.mark.parametrize(
    ("algorithm", "rate"), [("adamw", 2.0), ("adamw", 0.1), ("muon", 1.0)]
)
def test_a_rate_far_above_the_usual_ones_is_named(algorithm, rate):
    usual = OptimizerConfig(algorithm=algorithm, peak_learning_rate=2e-3)
    assert usual.rate_warning() == ""
    line = dataclasses.replace(usual, peak_learning_rate=rate).rate_warning()
    assert line.startswith(f"peak_learning_rate={rate:g} is far above")

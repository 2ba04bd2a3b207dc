"""The `repr` of a configuration: short, and Python that makes an equal object."""

import dataclasses
import typing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax import config as module
from bert_jax.config import (
    PRESETS,
    BertConfig,
    DataConfig,
    FinetuneConfig,
    OptimizerConfig,
    PretrainConfig,
    VocabularyConfig,
)
from bert_jax.config.files import load_config, named_configs

CLASSES = {
    name: value
    for name, value in vars(module).items()
    if isinstance(value, type) and dataclasses.is_dataclass(value)
}
REQUIRED = {"input": ("a",), "output": "o", "tokenizer": "t"}
VALUES: dict[Any, tuple[Any, ...]] = {
    bool: (True, False),
    int: (0, 1, 2, 3, 8, 64, 512, 2**31 - 1),
    float: (0, 0.0, 0.1, 1 / 3, 1e-6, 1, 2, 3.5),
    str: ("", "x", 'it\'s "so"', "日本\n\\"),
}


def evaluated(text: str) -> Any:
    return eval(text, {"__builtins__": {}}, CLASSES)


def required(cls: type) -> dict[str, Any]:
    names = {field.name for field in dataclasses.fields(cls)}
    return {name: value for name, value in REQUIRED.items() if name in names}


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Values of the type of a field, which its class may still refuse."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is type(None):
        return st.none()
    if dataclasses.is_dataclass(hint):
        return configs(hint)
    if origin is typing.Literal:
        return st.sampled_from(arguments)
    if origin is tuple:
        return st.lists(values_of(arguments[0]), max_size=2).map(tuple)
    if arguments:  # one of several types
        return st.one_of(*map(values_of, arguments))
    return st.sampled_from(VALUES[hint])


@st.composite
def configs(draw: st.DrawFn, cls: Any) -> Any:
    """A configuration that differs from the defaults in a few fields."""
    hints, config = typing.get_type_hints(cls), cls(**required(cls))
    names = [field.name for field in dataclasses.fields(cls)]
    for name in draw(st.lists(st.sampled_from(names), max_size=4, unique=True)):
        change = {name: draw(values_of(hints[name]))}
        try:
            config = dataclasses.replace(config, **change)
        except ValueError:  # it does not go with the other fields
            continue
    return config


@pytest.mark.parametrize("cls", CLASSES.values(), ids=CLASSES)
@settings(max_examples=30)
@given(data=st.data())
def test_it_makes_an_equal_object_and_names_what_differs(cls, data):
    config = data.draw(configs(cls))
    text = repr(config)
    again = evaluated(text)
    assert again == config and type(again) is cls
    assert repr(again) == text and hash(again) == hash(config)
    for field in dataclasses.fields(cls):
        differs = getattr(config, field.name) != field.default
        starts = (f"{cls.__name__}({field.name}=", f", {field.name}=")
        if differs:
            assert any(start in text for start in starts)
        else:
            assert starts[0] not in text


@pytest.mark.parametrize("cls", CLASSES.values(), ids=CLASSES)
def test_every_field_that_differs_is_shown(cls):
    hints, shown = typing.get_type_hints(cls), 0
    default = cls(**required(cls))
    for field in dataclasses.fields(cls):
        for value in VALUES.get(hints[field.name], ()):
            try:
                config = dataclasses.replace(default, **{field.name: value})
            except ValueError:
                continue
            assert (f"{field.name}={value!r}" in repr(config)) == (
                value != field.default
            )
            shown += value != field.default
    assert shown, "no field of the class was changed"


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (BertConfig(), "BertConfig()"),
        (
            BertConfig.tiny(vocab_size=4096),
            "BertConfig(vocab_size=4096, hidden_size=128, num_hidden_layers=2, "
            "num_attention_heads=2, intermediate_size=512)",
        ),
        (PretrainConfig(), "PretrainConfig()"),
        (
            PretrainConfig(data=DataConfig("data"), num_steps=20_000),
            "PretrainConfig(num_steps=20000, data=DataConfig(path='data'))",
        ),
        # The default of this field has another peak, and no warm-up steps.
        (
            FinetuneConfig(optimizer=OptimizerConfig(warmup_steps=0)),
            "FinetuneConfig(optimizer=OptimizerConfig(warmup_steps=0))",
        ),
        (
            VocabularyConfig(input=("a.txt",), output="o"),
            "VocabularyConfig(input=('a.txt',), output='o')",
        ),
    ],
)
def test_what_it_looks_like(config, text):
    assert repr(config) == str(config) == text


def test_presets_and_named_configurations_come_back():
    for config in PRESETS.values():
        assert evaluated(repr(config)) == config
    for name in named_configs():
        try:
            config = load_config(name, PretrainConfig)
        except ValueError:
            config = load_config(name, FinetuneConfig)
        assert evaluated(repr(config)) == config
        assert len(repr(config)) < 1000


def test_equality_is_that_of_a_dataclass():
    assert BertConfig(vocab_size=8) == BertConfig(vocab_size=8)
    assert BertConfig(vocab_size=8) != BertConfig()
    assert module.RunConfig() != module.PretrainConfig()

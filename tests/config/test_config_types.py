"""Every field of every configuration refuses what is not of its type.

A class or field that is added is covered without a line here.
"""

import dataclasses
import math
import types
import typing
from typing import Any

import pytest

from bert_jax import config as module
from bert_jax.config import (
    BertConfig,
    ExamplesConfig,
    FinetuneConfig,
    MaskingConfig,
    OptimizerConfig,
    PretrainConfig,
)
from bert_jax.config.serialization import from_dict, to_dict

REQUIRED = {"input": ("a",), "output": "o", "tokenizer": "t"}
CLASSES = [
    value
    for value in vars(module).values()
    if isinstance(value, type) and dataclasses.is_dataclass(value)
]
VALUES: tuple[Any, ...] = (
    *(None, True, 0, 1, -1, 2**31, 10**400, 10**5000, 0.5, 1e-320, 1e39, math.nan),
    *(math.inf, "", "x", "true", "0", "nul\0", b"x", (), ("a",), (1,), ((),), (None,)),
    *([], ["a"], {}, {"a": 1}, object(), int),
)


def good(cls: type) -> dict[str, Any]:
    """The values that a class cannot be made without."""
    names = {field.name for field in dataclasses.fields(cls)}
    return {name: value for name, value in REQUIRED.items() if name in names}


def is_of(value: Any, hint: Any) -> bool:
    """Whether `value` is of the type `hint`, by rules written apart from checks.py."""
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Literal:
        return any(value is choice or value == choice for choice in arguments)
    if typing.get_origin(hint) is tuple:
        return type(value) is tuple and all(is_of(v, arguments[0]) for v in value)
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return any(is_of(value, part) for part in arguments)
    if hint is float:
        if type(value) not in (int, float) or not -1e38 < value < 1e38:
            return False
        return value == 0 or abs(value) > 1e-37
    if hint is str:
        return type(value) is str and "\0" not in value
    if hint is int:
        return type(value) is int and abs(value) < 1 << 31
    return type(value) is hint


FIELDS = [
    (cls, field.name, typing.get_type_hints(cls)[field.name])
    for cls in CLASSES
    for field in dataclasses.fields(cls)
]


@pytest.mark.parametrize(
    ("cls", "name", "hint"), FIELDS, ids=lambda part: getattr(part, "__name__", None)
)
def test_b1_a_field_refuses_what_is_not_of_its_type(cls, name, hint):
    assert len(FIELDS) > 100
    for value in VALUES:
        if is_of(value, hint) or (name == "seed" and value == 2**31):
            continue
        with pytest.raises(ValueError, match=rf"^{name}(\[0\])?=") as refused:
            cls(**good(cls) | {name: value})
        assert "must" in str(refused.value) or "float32" in str(refused.value)
        assert len(str(refused.value)) < 400


@pytest.mark.parametrize(
    ("cls", "name", "hint"), FIELDS, ids=lambda part: getattr(part, "__name__", None)
)
def test_b1_json_of_another_type_is_refused(cls, name, hint):
    values = to_dict(cls(**good(cls)))
    for value in VALUES:
        is_json = value is None or isinstance(value, (bool, int, float, str))
        is_json = is_json or isinstance(value, (list, dict))
        as_read = tuple(value) if isinstance(value, list) else value
        part_of_it = isinstance(value, dict) and dataclasses.is_dataclass(hint)
        if not is_json or is_of(as_read, hint) or (part_of_it and not value):
            continue
        if name != "seed" or value != 2**31:
            with pytest.raises(ValueError):  # noqa: PT011
                from_dict(cls, values | {name: value})


@pytest.mark.parametrize("cls", CLASSES)
def test_b1_json_that_is_no_object(cls):
    for value in (None, [], "x", 3, True):
        with pytest.raises(ValueError, match=f"{cls.__name__} must be a JSON object"):
            from_dict(cls, value)
    for name in good(cls):
        values = to_dict(cls(**good(cls)))
        del values[name]
        with pytest.raises(ValueError, match=f"{cls.__name__} lacks {name}"):
            from_dict(cls, values)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: MaskingConfig(unit="whole-word"),  # type: ignore[arg-type]
            "unit='whole-word' must be one of token, whole_word, span; did you mean "
            "'whole_word'[?]",
        ),
        (lambda: OptimizerConfig(algorithm="LAMB"), "did you mean 'lamb'[?]"),
        (lambda: BertConfig(hidden_act="swish"), "one of gelu, gelu_new, relu[.]$"),
        (lambda: BertConfig(attention="casual"), "did you mean 'causal'[?]"),
        (lambda: BertConfig(remat="layers"), "did you mean 'layer'[?]"),
        (
            lambda: BertConfig(dtype="int7"),
            "dtype='int7' must be one of float32, bfloat16",
        ),
        (lambda: PretrainConfig(log_examples="false"), "must be True or False"),
        (lambda: PretrainConfig(model={}), "model={} must be a BertConfig"),
        (lambda: PretrainConfig(data=ExamplesConfig()), "must be a DataConfig"),
        (lambda: FinetuneConfig(task="text_classification"), "mean 'text-classif"),
        (lambda: ExamplesConfig(text_columns="a"), r"write \('a',\)"),
        (lambda: ExamplesConfig(labels=["a", "b"]), r"write \('a', 'b'\)"),
        (lambda: OptimizerConfig(epsilon=1e-320), "epsilon=1e-320 is 0 in float32"),
        (lambda: OptimizerConfig(beta2=1 - 1e-9), "is 1 in float32"),
        (lambda: OptimizerConfig(peak_learning_rate=1e39), "is infinite in float32"),
    ],
)
def test_b1_refusals_say_the_rule_and_the_remedy(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_b1_json_with_a_misspelt_key():
    with pytest.raises(ValueError, match="did you mean 'hidden_size'"):
        from_dict(PretrainConfig, {"model": {"hiden_size": 3}})
    with pytest.raises(ValueError, match="BertConfig must be a JSON object, not 3"):
        from_dict(PretrainConfig, {"model": 3})

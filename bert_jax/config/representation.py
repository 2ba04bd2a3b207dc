"""What all configurations share: checks, a short `repr`, and help for their fields."""

import dataclasses
import functools
import inspect
import math
import re
import struct
from typing import Any

from bert_jax.config.checks import require, require_types


class CheckedConfig:
    """A base of frozen dataclasses that are made with `repr=False`."""

    def __post_init__(self) -> None:
        """Check each field against its type."""
        require_types(self)

    def __repr__(self) -> str:
        """Return Python that makes an equal object, without fields at their default.

        The default is the field's: of a nested configuration it may be another than
        what its class begins with.
        """
        config: Any = self
        arguments = [
            f"{field.name}={getattr(config, field.name)!r}"
            for field in dataclasses.fields(config)
            if getattr(config, field.name) != field.default
        ]
        return f"{type(self).__qualname__}({', '.join(arguments)})"

    def require_positive(self, *names: str) -> None:
        """Check that fields are finite and greater than 0."""
        for name in names:
            value = getattr(self, name)
            holds = 0 < value < math.inf
            require(holds, f"{name}={value} must be finite and greater than 0.")

    def require_not_negative(self, *names: str) -> None:
        """Check that fields are finite and at least 0."""
        for name in names:
            value = getattr(self, name)
            holds = 0 <= value < math.inf
            require(holds, f"{name}={value} must be finite and at least 0.")

    def require_fraction(self, *names: str) -> None:
        """Check that fields are at least 0 and less than 1, also in float32."""
        for name in names:
            value = getattr(self, name)
            holds = 0 <= value < 1
            require(holds, f"{name}={value} must be at least 0 and less than 1.")
            holds = struct.unpack("f", struct.pack("f", value))[0] < 1
            require(holds, f"{name}={value} is 1 in float32; it must be less than 1.")

    def require_effect(self, name: str, holds: bool, why_not: str) -> None:
        """Check that a field is at its default unless another one gives it an effect.

        The message ends with `why_not`, which has a remedy.
        """
        value, default = getattr(self, name), getattr(type(self), name)
        rule = f"{name}={value} has no effect with {why_not}"
        require(holds or value == default, rule)


@functools.cache
def field_descriptions(cls: type) -> dict[str, str]:
    """Return the string below each field of a dataclass, in one line.

    They become the help of options. Python does not keep them: the source is read.
    """
    source = "".join(inspect.getsource(base) for base in reversed(cls.__mro__[:-1]))
    field = r'^    (\w+): .*(?:\n    [ \])].*)*\n    """([^"]*)"""'
    docstrings = re.findall(field, source, re.MULTILINE)
    return {name: " ".join(docstring.split()) for name, docstring in docstrings}

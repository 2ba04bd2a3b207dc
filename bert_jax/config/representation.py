"""The `repr` of configurations: the fields that differ from the defaults."""

import dataclasses
from typing import Any


class ShortRepr:
    """A base of dataclasses that are made with `repr=False`."""

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

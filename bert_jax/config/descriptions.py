"""The docstrings of a dataclass's fields, as help for the options that they become."""

import functools
import inspect
import re


@functools.cache
def field_descriptions(cls: type) -> dict[str, str]:
    """Return the string below each field of a dataclass, in one line.

    Python does not keep these strings, so they are read from the source.
    """
    source = "".join(inspect.getsource(base) for base in reversed(cls.__mro__[:-1]))
    field = r'^    (\w+): .*(?:\n    [ \])].*)*\n    """([^"]*)"""'
    docstrings = re.findall(field, source, re.MULTILINE)
    return {name: " ".join(docstring.split()) for name, docstring in docstrings}

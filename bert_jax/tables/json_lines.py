"""JSON in which every value is one that can be computed with, and rows of JSON."""

import json
import math
from typing import Any, NoReturn

from bert_jax.storage.files import object_of_unique_keys
from bert_jax.tables.rows import TableRow

_MAX_DIGITS = 1000


def json_row(line: str, where: str) -> TableRow:
    """Return the row of a line with a JSON object; of another, say why it is none."""
    try:
        values = parse_json(line, where)
    except ValueError as error:
        return TableRow({}, where, str(error))
    if not isinstance(values, dict):
        problem = f"{where} must be a JSON object with a field for each column."
        return TableRow({}, where, problem)
    return TableRow(values, where)


def parse_json(text: str, where: str) -> Any:
    """Parse JSON (RFC 8259) in which no object has a key twice.

    Raise ValueError if it is not JSON, or holds NaN, Infinity, a number beyond float64
    or a key twice.
    """
    try:
        return json.loads(
            text,
            object_pairs_hook=object_of_unique_keys,
            parse_constant=_constant,
            parse_float=_float,
            parse_int=_int,
        )
    except RecursionError as error:
        raise ValueError(f"{where} is nested too deep to be read.") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"{where} is not JSON: {error}.") from error
    except ValueError as error:
        raise ValueError(f"{where}: {str(error).rstrip('.')}.") from error


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON; write a number, or null.")


def _float(digits: str) -> float:
    if not math.isfinite(number := float(digits)):
        raise ValueError(f"{digits:.40} is beyond the largest number of 64 bits.")
    return number


def _int(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError(
            f"the integer {digits:.20}… has {len(digits)} digits; at most "
            f"{_MAX_DIGITS} are read."
        )
    return int(digits)

"""`--margins FILE`: how far below its tolerance each comparison of numbers stays.

It runs the tests that compare numbers, and writes the margin of each line and test that
compares with a tolerance to the file; smallest first. A margin is what is allowed
divided by the error: another processor adds up in another order, and has another error.
"""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import pytest

TESTS = Path(__file__).parent
COMPARISONS = {
    "allclose",
    "approx",
    "assert_array_equal",
    "assert_trees_all_equal",
    "assert_allclose",
    "assert_trees_all_close",
    "largest_difference",
}
"""What a function that compares numbers names, with a tolerance or to the last bit."""


def compares(function: Any, seen: frozenset[Any] = frozenset()) -> bool:
    """Whether a function of the tests, or one that it calls, compares numbers."""
    given = getattr(function, "hypothesis", None)
    function = inspect.unwrap(given.inner_test if given else function)
    if not isinstance(function, FunctionType) or function in seen:
        return False
    if TESTS not in Path(function.__code__.co_filename).parents:
        return False
    names = set(_names(function.__code__))
    called = (function.__globals__.get(name) for name in names)
    seen |= {function}
    return bool(names & COMPARISONS) or any(compares(other, seen) for other in called)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _line_of_test() -> str:
    """The innermost line of the tests that is being run."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if TESTS in path.parents and path != Path(__file__):
            return f"{path.relative_to(TESTS.parent)}:{frame.f_lineno}"
        frame = frame.f_back
    return "?"


class Margins:
    """Measures the comparisons of each test."""

    def __init__(self, config: pytest.Config, file: str) -> None:
        self.config, self.file = config, Path(file)
        self.found: dict[str, float] = {}

    def pytest_sessionstart(self) -> None:
        self._measure_numpy()
        self._measure_pytest()

    def _measure_numpy(self) -> None:
        exact = np.testing.assert_allclose

        def assert_allclose(
            actual: Any, desired: Any, rtol: float = 1e-7, atol: float = 0, **more: Any
        ) -> None:
            exact(actual, desired, rtol=rtol, atol=atol, **more)
            a, b = (np.asarray(x, np.float64) for x in (actual, desired))
            self.record(np.abs(a - b), atol + rtol * np.abs(b))

        np.testing.assert_allclose = assert_allclose

    def _measure_pytest(self) -> None:
        scalar = type(pytest.approx(1.0))
        equals = scalar.__eq__

        def measured(expected: Any, actual: Any) -> bool:
            equal = bool(equals(expected, actual))
            if equal and isinstance(expected.expected, float | np.floating):
                error = np.abs(np.float64(actual) - np.float64(expected.expected))
                self.record(error, np.float64(expected.tolerance))
            return equal

        scalar.__eq__ = measured

    def record(self, errors: Any, allowed: Any) -> None:
        """Keep the margin of a comparison that holds, if it is the line's smallest."""
        errors, allowed = np.broadcast_arrays(errors, allowed)
        inexact = (errors > 0) & np.isfinite(errors)
        if inexact.any():
            margin = float((allowed[inexact] / errors[inexact]).min())
            line = _line_of_test()
            self.found[line] = min(margin, self.found.get(line, np.inf))

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        chosen: dict[bool, list[pytest.Item]] = {True: [], False: []}
        for item in items:
            chosen[compares(getattr(item, "function", None))].append(item)
        self.config.hook.pytest_deselected(items=chosen[False])
        items[:] = chosen[True]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        self.found.clear()
        yield
        item.user_properties.extend(("margin", found) for found in self.found.items())

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        margins = sorted(
            (value[1], value[0], report.nodeid)
            for report in terminalreporter.stats.get("passed", [])
            if report.when == "call"
            for name, value in report.user_properties
            if name == "margin"
        )
        rows = (f"{margin:.3g}\t{line}\t{test}\n" for margin, line, test in margins)
        self.file.write_text("".join(rows))

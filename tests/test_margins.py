"""Which tests are numeric, and what the margin of a comparison is."""

import numpy as np
import pytest
from machines import margins_of
from margins import Margins, compares


def helper(number: float) -> None:
    assert number == pytest.approx(1.0)


def through_a_helper() -> None:
    helper(1.0)


def exact() -> None:
    assert [1] == [1]


def test_tests_that_compare_numbers_are_chosen():
    assert compares(helper) and compares(through_a_helper)
    assert not compares(exact) and not compares(np.testing.assert_allclose)


def test_the_margin_is_what_is_allowed_over_the_error(request, tmp_path):
    margins = Margins(request.config, str(tmp_path / "margins.tsv"))
    margins.record(np.array([0.0, 0.5, 0.25]), np.array([1.0, 2.0, 4.0]))
    margins.record(0.0, 1.0)  # equal: no margin
    (line,) = margins.found
    assert line.startswith("tests/test_margins.py:") and margins.found[line] == 4.0
    (tmp_path / "margins.tsv").write_text(f"4\t{line}\ttest\n")
    assert margins_of(tmp_path / "margins.tsv") == {(line, "test"): 4.0}

"""Many values in one case: all are used, and a failure says with which."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from loops import each

pytest_plugins = ["pytester"]


def calls(decorate: Callable[..., Any], **options: Any) -> list[Any]:
    """The values with which a test is called."""
    found: list[Any] = []

    @decorate
    def test(a: Any, b: Any = None) -> None:
        found.append((a, b))

    test(**options)
    return found


def test_all_values_are_used_in_their_order() -> None:
    assert calls(each("a", (i for i in (3, 1, 2)))) == [(3, None), (1, None), (2, None)]
    assert calls(each("a, b", [(1, 2), pytest.param(3, 4, id="other")])) == [(1, 2), (3, 4)]
    assert calls(each(("a", "b"), {1: 2, 3: 4}.items())) == [(1, 2), (3, 4)]
    assert calls(each("a", [(1, 2), pytest.param((3, 4))])) == [((1, 2), None), ((3, 4), None)]


def test_what_could_not_be_used_is_refused() -> None:
    with pytest.raises(AssertionError, match="a have no values"):
        each("a", [])
    with pytest.raises(AssertionError, match="has marks"):
        each("a", [1, pytest.param(2, marks=pytest.mark.slow)])
    with pytest.raises(ValueError, match="shorter"):
        calls(each("a, b", [(1,)]))


CASES = """
import pytest
from loops import each

made, called = [], []

@pytest.fixture
def number():
    made.append(1)
    return len(made)

@pytest.mark.parametrize("c", "pq")
@each("a", [1, 2])
@each("b", [3, 4], few=1)
def test_of_all(a, b, c, number):
    called.append((a, b, c, number))

def test_calls():
    assert sorted(called) == sorted(
        (a, b, c, number) for (c, few), number in zip([("p", 1), ("q", 1), ("p", 2), ("q", 2)], ORDER)
        for a in (1, 2) for b in (3, 4)[:few]
    )

@each("a", [1, 2, 3])
def test_of_a_failure(a):
    assert a != 2

@each("a", [1, 2, 3])
def test_of_one_skip(a):
    called.append(a)
    if a == 2:
        pytest.skip("no 2")

def test_the_others_are_called():
    assert called[-3:] == [1, 2, 3]

@each("a", [1, 2])
def test_of_skips(a):
    pytest.skip(f"no {a}")

class TestOfClass:
    @each("a", [1, 2])
    def test_method(self, a, number):
        assert number and a in (1, 2)
"""


def test_pytest_runs_loops_with_cases_and_fixtures(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(CASES.replace("ORDER", "[1, 3, 2, 4] if called[1][1] == 4 else [1, 2, 3, 4]"))
    done = pytester.inline_run("-p", "no:cacheprovider")
    reports = {report.nodeid.partition("::")[2]: report for report in done.getreports("pytest_runtest_logreport")}
    cases = [name for name in reports if name.startswith("test_of_all[")]
    assert sorted(cases) == [f"test_of_all[{few}-{c}]" for few in ("all", "few") for c in "pq"]
    passed, skipped, failed = done.listoutcomes()
    assert [report.head_line for report in failed] == ["test_of_a_failure"]
    assert "with {'a': 2}" in failed[0].longreprtext
    assert [report.head_line for report in skipped] == ["test_of_skips"]
    assert len(passed) == len(cases) + 4

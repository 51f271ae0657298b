"""Which tests are slow, and which of them a commit runs, by a clock and a list of these tests' own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import times

pytest_plugins = ["pytester"]
TEXTS = [f"commit {i}" for i in range(80)]


class Case:
    def __init__(self, name: str) -> None:
        self.nodeid, self.is_slow = name, False

    def add_marker(self, mark: Any) -> None:
        self.is_slow = mark.name == "slow"


Draw = Callable[..., tuple[set[str], set[str]]]


@pytest.fixture
def draw(monkeypatch: pytest.MonkeyPatch) -> Draw:
    """The names of the fast cases and of the slow ones that run."""

    def of(
        names: Sequence[str], listed: Mapping[str, tuple[float, int]], text: str = "", fast_k: int = 1
    ) -> tuple[set[str], set[str]]:
        monkeypatch.setattr(times, "read", lambda: listed)
        monkeypatch.setenv("PODS_TEST_SHARE", text)
        monkeypatch.setenv("PODS_TEST_FAST_K", str(fast_k))
        items: list[Any] = [Case(name) for name in names]
        config: Any = SimpleNamespace(hook=SimpleNamespace(pytest_deselected=lambda items: None))
        times.pytest_collection_modifyitems(config, items)
        return {case.nodeid for case in items if not case.is_slow}, {case.nodeid for case in items if case.is_slow}

    return of


def cases(num: int) -> list[str]:
    return [f"f[{i}]" for i in range(num)]


def test_what_is_listed_is_slow_and_all_of_it_runs_without_a_text(draw: Draw) -> None:
    assert draw(["f", "g", "h[0]", "h[1]"], {"f": (0.3, 1), "h": (9.0, 2)}) == ({"g"}, {"f", "h[0]", "h[1]"})


def test_as_many_cheap_cases_are_fast_as_take_the_seconds_of_fast_ones(draw: Draw) -> None:
    fast, slow = draw(cases(60), {"f": (2.4, 60)})  # 0.04 s each: 5 take 0.2 s
    assert len(fast) == 5 and fast | slow == set(cases(60))
    assert draw(cases(60), {"f": (2.4, 60)}) == (fast, slow)
    assert len(draw(cases(60), {"f": (2.4, 60)}, "a text")[0]) == 5
    alone = sorted(fast)[0]
    fast_but, _ = draw(cases(60), {"f": (2.4, 60), alone: (0.5, 1)})  # one that is long by itself is slow
    assert fast_but == fast - {alone}


def test_the_same_text_draws_the_same_and_others_draw_all(draw: Draw) -> None:
    listed = {"f": (2.4, 60), "g": (12.0, 10), "alone": (27.0, 1), "short": (0.27, 1)}
    names = [*cases(60), *(f"g[{i}]" for i in range(10)), "alone", "short", "other"]
    draws = [draw(names, listed, text) for text in TEXTS]
    assert draws == [draw(names, listed, text) for text in TEXTS]
    assert len({frozenset(fast) for fast, _ in draws}) == len({frozenset(slow) for _, slow in draws}) == len(TEXTS)
    assert set().union(*(fast for fast, _ in draws)) == {*cases(60), "other"}
    assert set().union(*(slow for _, slow in draws)) == {*names} - {"other"}
    for _, slow in draws:
        # The 55 slow cases of f take 2.2 s: one in 8 runs. Those of g take 12 s: one in 24, of ten one or none.
        assert len([name for name in slow if name.startswith("f[")]) in (6, 7)
        assert len([name for name in slow if name.startswith("g[")]) in (0, 1)
        assert "short" in slow
    assert 1 <= sum("alone" in slow for _, slow in draws) <= 20  # one text in 24


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("def test_f(): ...\ndef test_g(): ...", {"slow", "not slow"}),  # f has fast cases, g is in no list
        ("def test_alone(): ...", {"slow"}),
        ("def test_g(): ...", {"not slow"}),
        ("pytestmark = pytest.mark.slow\ndef test_g(): ...", {"slow"}),
        ("pytestmark = [\n    pytest.mark.slow,\n]\ndef test_g(): ...", {"slow"}),
        ("class TestIt(Contract):\n    x = 1", {"not slow"}),
        ("def test_alone(): ...\nclass TestIt(Contract):\n    x = 1", {"slow", "not slow"}),
    ],
)
def test_a_file_is_imported_where_it_has_wanted_tests(
    text: str, kinds: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = {"test_x.py::test_f": (2.4, 60), "test_x.py::test_alone": (27.0, 1)}
    (tmp_path / "test_x.py").write_text(text)
    monkeypatch.setattr(times, "_list", lambda: {row: listed[row] for row in listed if row[11:] in text})
    for wanted in ("slow", "not slow"):
        config: Any = SimpleNamespace(getoption={"markexpr": wanted}.get, rootpath=tmp_path)
        assert times.pytest_ignore_collect(tmp_path / "test_x.py", config) is (None if wanted in kinds else True)


def test_the_list_has_long_functions_and_the_long_cases_of_those_whose_cases_are_short() -> None:
    found = {"b": 0.19, "c": 0.5, "d[x]": 0.05, "d[y]": 0.25, "e[x]": 0.1, "e[y]": 0.05, "a[x]": 1.0, "a[y]": 3.0}
    found["w[x]"] = 3.0  # one case of two, so its row stays
    before = {"w": (5.0, 2), "z": (7.0, 1), "c": (9.0, 1), "e": (2.0, 2), "e[x]": (2.0, 1)}
    assert times._text(found, before).splitlines()[1:] == [
        "   4.00    2  a",
        "   0.50    1  c",
        "   0.30    2  d",
        "   0.25    1  d[y]",
        "   5.00    2  w",
        "   7.00    1  z",
    ]


# --- runs, by a clock that only tests advance ---

CONFTEST = """
from pathlib import Path
import pytest
import times

times.clock = [0.0]
times._seconds = lambda: times.clock[0]
times._work = lambda: times.NOMINAL
times.LIST = Path(__file__).with_name("slow.txt")

def spend(seconds):
    times.clock[0] += seconds

times.spend = spend

def pytest_configure(config):
    config.addinivalue_line("markers", "slow: is listed")
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[dict[str, str], str]]:
    """The tests that failed, what was said of them, and the list that was left."""
    monkeypatch.delenv("PODS_TEST_SHARE", raising=False)
    monkeypatch.setenv("PODS_TEST_TIMES", "check")

    def of(text: str, listed: str = "") -> tuple[dict[str, str], str]:
        monkeypatch.delitem(sys.modules, "times")  # these runs have one of their own
        pytester.makeconftest(CONFTEST)
        pytester.makepyfile(test_it=f"import pytest\nfrom times import spend\n{text}")
        (pytester.path / "slow.txt").write_text(listed, encoding="utf-8")
        done = pytester.inline_run("-p", "times", "-p", "no:cacheprovider")
        _, _, failed = done.listoutcomes()
        return (
            {report.nodeid: report.longreprtext for report in failed},
            (pytester.path / "slow.txt").read_text(encoding="utf-8"),
        )

    return of


def test_a_case_that_is_slow_each_time_fails_with_its_name_and_seconds(run: Any) -> None:
    failed, _ = run("""
ran = []

def test_short():
    spend(0.19)

def test_long():
    spend(1.25)

def test_long_only_the_first_time():
    ran.append(1)
    spend(5.0 if len(ran) == 1 else 0.1)

def test_it_ran_twice():
    assert len(ran) == 2
""")
    assert failed == {
        "test_it.py::test_long": "test_it.py::test_long takes 1.25 s of processor time, a fast test 0.2 s: "
        "see tests/times.py"
    }


def test_cases_share_what_their_module_s_fixtures_cost_and_a_session_s_cost_none(run: Any) -> None:
    failed, _ = run("""
@pytest.fixture(scope="session")
def of_session():
    spend(3)
    yield
    spend(3)

@pytest.fixture(scope="module")
def of_module(request):
    request.getfixturevalue("of_session")
    spend(0.1)
    yield
    spend(3)

@pytest.fixture(scope="module")
def costly():
    spend(2.5)

@pytest.fixture
def own():
    spend(0.65)
    yield
    spend(0.65)

def test_first(of_module):
    spend(0.1)

def test_whose_own_fixture_is_slow(own):
    pass

def test_that_is_slow_and_asks_for_them_first():
    spend(1.25)

def test_one_of_two(costly):
    pass

def test_last(of_module):
    spend(0.1)

def test_the_other_of_two(costly):
    pass
""")
    assert {name.partition("::")[2] for name in failed} == {
        "test_one_of_two",
        "test_the_other_of_two",
        "test_whose_own_fixture_is_slow",
        "test_that_is_slow_and_asks_for_them_first",
    }


def test_the_list_is_written_and_keeps_what_did_not_run(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODS_TEST_TIMES", "write")
    failed, listed = run(
        """
def test_long():
    spend(1.25)

@pytest.mark.parametrize("i", range(3))
def test_cases(i):
    spend((0.05, 0.1, 0.25)[i])

def test_no_longer_long():
    spend(0.1)

@pytest.mark.skip(reason="not here")
def test_skipped():
    pass

@pytest.mark.xfail(reason="known")
def test_that_fails():
    spend(0.5)
    assert False
""",
        "# old\n   9.00    1  test_it.py::test_no_longer_long\n   8.00    1  test_it.py::test_skipped\n"
        "   7.00    2  another.py::test_of_two\n",
    )
    assert failed == {}
    assert listed.splitlines() == [
        "# Seconds of processor time, cases, test: written by `make times`.",
        "   7.00    2  another.py::test_of_two",
        "   0.40    3  test_it.py::test_cases",
        "   0.25    1  test_it.py::test_cases[2]",
        "   1.25    1  test_it.py::test_long",
        "   8.00    1  test_it.py::test_skipped",
        "   0.50    1  test_it.py::test_that_fails",
    ]


def test_the_processor_time_of_a_process_counts_once_it_is_waited_for() -> None:
    program = "import time\nwhile time.process_time() < 0.1: pass"
    before = times._seconds()
    subprocess.run([sys.executable, "-I", "-S", "-c", program], check=True)
    assert times._seconds() - before >= 0.1

"""A pytest plugin: which tests are slow is measured, and which cases a commit runs is drawn.

The processor time of a case is its own, that of the processes that it waited for, and its part of what the fixtures of
its module cost, whichever case asked for them first; fixtures of a session count for none. `slow.txt` lists each test
function that takes more than LIMIT with all its cases, and the list alone gives the mark `slow`. It is written, never
edited: `make times` runs all tests and writes it anew.

Of a listed function, as many cases are fast as take FAST seconds together, if one takes less than LIMIT; the others are
slow. Where PODS_TEST_SHARE is a text, such as a commit's hash, it draws which cases are fast, and of the slow ones as
many as take FULL seconds, one in MAX_K at least; with PODS_TEST_FAST_K=k it draws one fast case in k. So the commits
together run all. Without a text every slow case runs, and the same cases are fast each time.

A case that is not listed and takes longer than LIMIT runs again, since its first run may have imported something for
all that come later. If it takes much longer again, it fails, where PODS_TEST_TIMES=check.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import resource
import time
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from _pytest.reports import TestReport
from _pytest.runner import runtestprotocol

import children

LIST = Path(__file__).with_name("slow.txt")
LIMIT = 0.2
"""Seconds of processor time that a fast case takes at most, on the machine that wrote the list."""
FAST, FULL, MAX_K = 0.2, 0.3, 24
"""Seconds of a function's fast cases, of those slow ones that a commit draws, and one in how many of these at least."""
TOLERANCE = 5.0
"""A case that is not listed fails beyond so many times LIMIT: no two measurements agree, on two machines still less."""
OF_NURSERY = 0.2
"""Seconds of its start that a forked child is charged with, so that no fast test needs it."""
NOMINAL = 0.0055
"""Seconds that `_work` takes on that machine."""

TIMES = os.environ.get("PODS_TEST_TIMES", "")
"""check: an unlisted case that is slow fails (make unit); write: the list is written (make times)."""

_of_fixtures, _since = [0.0], [0.0]
"""Seconds that fixtures of a module or session have cost, and when the last one of any kind was torn down."""
_of_fixture: dict[str, float] = {}
_num_asking: Counter[str] = Counter()
"""Seconds of each fixture of a module, and how many cases ask for it."""
_found: dict[str, float] = {}
"""Seconds of each case that ran; in the process that starts the others, of all."""
_skipped: set[str] = set()
_listed: set[str] = set()
"""Test functions in the list."""


def read() -> dict[str, tuple[float, int]]:
    """Test function, or a single case -> seconds of all its cases, and their number."""
    lines = LIST.read_text(encoding="utf-8").splitlines() if LIST.exists() else []
    rows = [line.split(maxsplit=2) for line in lines if not line.startswith("#")]
    return {name: (float(seconds), int(number)) for seconds, number, name in rows}


_list = cache(read)


def function_of(name: str) -> str:
    return name.partition("[")[0]


# --- the mark, and the draw ---


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what -m does not want
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    text, listed = os.environ.get("PODS_TEST_SHARE", ""), read()
    _listed.update(map(function_of, listed))
    fast_k = int(os.environ.get("PODS_TEST_FAST_K", "1")) if text else 1
    functions: dict[str, list[pytest.Item]] = {}
    for item in items:
        _num_asking.update(_asked(item))
        functions.setdefault(function_of(item.nodeid), []).append(item)
    left_out = set()
    for name, cases in functions.items():
        cases = sorted(cases, key=lambda item: _draw(text, item))
        fast = set(cases[: _num_fast(name, len(cases), listed)])
        fast -= {item for item in fast if item.nodeid != name and item.nodeid in listed}
        slow = [item for item in cases if item not in fast]
        for item in slow:
            item.add_marker(pytest.mark.slow)
        left_out |= {item for item in fast if _draw(text, item) % fast_k}
        left_out |= set(slow[_num_slow(text, name, slow, listed) :]) if text else set()
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A file that has none of the wanted tests is not imported, unless the command names it."""
    wanted = config.getoption("markexpr")
    if wanted not in ("slow", "not slow") or not fnmatch(collection_path.name, "test_*.py"):
        return None
    text, folder = collection_path.read_text(encoding="utf-8"), collection_path.with_name("conftest.py")
    place = f"{collection_path.relative_to(config.rootpath).as_posix()}::"
    listed = {name: row for name, row in _list().items() if name.startswith(place)}
    if wanted == "slow":
        by_hand = "mark.slow" in text + (folder.read_text(encoding="utf-8") if folder.exists() else "")
        return None if listed or by_hand else True
    tests = [place + name for name in re.findall(r"^def (test_\w+)", text, re.MULTILINE)]
    are_slow = all(name in listed and not _num_fast(name, listed[name][1], listed) for name in tests)
    is_slow = re.search(r"^pytestmark = (\[\s*)?pytest\.mark\.slow", text, re.MULTILINE)
    return True if is_slow or ("class Test" not in text and are_slow) else None


def _draw(text: str, item: pytest.Item) -> int:
    return int.from_bytes(hashlib.blake2b(f"{text} {item.nodeid}".encode(), digest_size=8).digest())


def _num_fast(name: str, num_cases: int, listed: Mapping[str, tuple[float, int]]) -> int:
    if name not in listed:
        return num_cases
    seconds = listed[name][0] / listed[name][1]
    return 0 if seconds > LIMIT or num_cases == 1 else int(FAST / seconds)


def _num_slow(text: str, name: str, slow: Sequence[pytest.Item], listed: Mapping[str, tuple[float, int]]) -> int:
    """How many of a function's slow cases a text draws: one that takes long by itself in one text of k."""
    of_all = listed.get(name, (0.0, 1))
    seconds = sum(listed.get(item.nodeid, of_all)[0] / listed.get(item.nodeid, of_all)[1] for item in slow)
    k = min(MAX_K, max(1, math.ceil(seconds / FULL)))
    if not slow:
        return 0
    num, rest = divmod(len(slow), k)
    return num + (_draw(f"rest {text}", slow[0]) % k < rest)


# --- the measure ---


def _seconds() -> float:
    """Of this process and those that it has waited for; each forked child has its part of the nursery's start."""
    own, others = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime + OF_NURSERY * children.num_forked[0]


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any) -> Generator[None, Any, Any]:
    start, before = _seconds(), _of_fixtures[0]
    try:
        return (yield)
    finally:
        if fixturedef.scope != "function":
            whole, inner = _seconds() - start, _of_fixtures[0] - before  # inner: of those that it has asked for
            _of_fixtures[0] = before + whole
            if fixturedef.scope != "session":
                _of_fixture[_place(fixturedef)] = whole - inner


def _place(fixturedef: Any) -> str:
    return f"{fixturedef.baseid} {fixturedef.argname}"


def _of_module(item: Any) -> float:
    """A case's part of the seconds of its module's fixtures."""
    return sum(_of_fixture.get(place, 0.0) / _num_asking[place] for place in _asked(item))


def _asked(item: Any) -> list[str]:
    info = getattr(item, "_fixtureinfo", None)
    return [_place(found[-1]) for found in info.name2fixturedefs.values()] if info else []


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    _since[0] = _seconds()


def pytest_fixture_post_finalizer(fixturedef: Any) -> None:
    """Fixtures of a module are torn down after the last test's own, in its time."""
    before, _since[0] = _since[0], _seconds()
    if fixturedef.scope != "function":
        _of_fixtures[0] += _since[0] - before


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, Any, Any]:
    if not TIMES:
        return (yield)
    start = _now()
    found = yield
    shared = _of_module(item)
    seconds = _now() - start + shared
    is_listed = function_of(item.nodeid) in _listed
    if seconds > LIMIT and (not is_listed or (TIMES == "write" and seconds < 2)):
        seconds = min(seconds, _again(item, nextitem) + shared)
    if TIMES == "write" or (seconds > LIMIT * TOLERANCE and not is_listed):
        _tell(item, seconds, is_failed=TIMES == "check")
    return found


def _now() -> float:
    return _seconds() - _of_fixtures[0]


def _again(item: Any, nextitem: pytest.Item | None) -> float:
    """Seconds of a second run, as if this machine were as fast as that of the list."""
    start = _now()
    item._initrequest()
    runtestprotocol(item, log=False, nextitem=nextitem)
    return (_now() - start) / max(1.0, min(_work() for _ in range(5)) / NOMINAL)


def _work() -> float:
    """Seconds of processor time for something that is always the same."""
    start, total = time.process_time(), 0
    for i in range(170_000):
        total += i % 7
    return time.process_time() - start


def _tell(item: pytest.Item, seconds: float, is_failed: bool) -> None:
    """Send the seconds to where they are collected, and fail a fast test that is none."""
    words = f"{item.nodeid} takes {seconds:.2f} s of processor time, a fast test {LIMIT} s: see tests/times.py"
    report = TestReport(
        nodeid=item.nodeid,
        location=item.location,
        keywords={},
        outcome="failed" if is_failed else "passed",
        longrepr=words if is_failed else None,
        when="call" if is_failed else "teardown",
        user_properties=[("processor_seconds", seconds)],
    )
    item.ihook.pytest_runtest_logreport(report=report)


# --- the list ---


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        _skipped.add(report.nodeid)
    for name, value in report.user_properties:
        if name == "processor_seconds" and report.nodeid not in _skipped:
            _found[report.nodeid] = value


def pytest_sessionfinish(session: pytest.Session) -> None:
    if TIMES == "write" and not hasattr(session.config, "workerinput") and _found:
        LIST.write_text(_text(_found, read()), encoding="utf-8")


def _text(found: Mapping[str, float], before: Mapping[str, tuple[float, int]]) -> str:
    """The list: functions that take long with all their cases, and single long cases of cheap ones.

    A function of which not all cases have run keeps its row.
    """
    functions: dict[str, dict[str, float]] = {}
    for name, seconds in found.items():
        functions.setdefault(function_of(name), {})[name] = seconds
    whole = {name for name, cases in functions.items() if len(cases) >= before.get(name, (0.0, 0))[1]}
    listed = {name: row for name, row in before.items() if function_of(name) not in whole}
    for function in whole:
        cases = functions[function]
        if (seconds := sum(cases.values())) > LIMIT:
            listed[function] = (seconds, len(cases))
            if seconds / len(cases) < LIMIT:
                listed |= {name: (seconds, 1) for name, seconds in cases.items() if seconds > LIMIT}
    lines = [f"{seconds:7.2f} {number:4d}  {name}" for name, (seconds, number) in sorted(listed.items())]
    return "\n".join(["# Seconds of processor time, cases, test: written by `make times`.", *lines, ""])

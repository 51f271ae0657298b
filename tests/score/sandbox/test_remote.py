"""Programs on a service: the verdicts are those of this machine's sandbox, and a failure of it is no program's."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from podsrl.errors import PodsError, RewardError
from podsrl.score.base import Rows
from podsrl.score.panel import Panel
from podsrl.score.rewards.code import remote_code_share
from podsrl.score.sandbox import REMOTE, Limits, ProgramTests, remote, run_tests
from podsrl.types import Task

sys.path.insert(0, str(Path(__file__).parent))
from fusion import Fusion, fusion
from test_verdicts import PROGRAM

pytestmark = pytest.mark.usefixtures("bubblewrap")
PAIRS = ProgramTests(pairs=(("1", "1"), ("2", "3")))
ECHO = "print(input())"


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fusion]:
    with fusion() as found:
        monkeypatch.setenv(remote.ADDRESS, found.url)
        monkeypatch.delenv(remote.KEY, raising=False)
        monkeypatch.setattr(remote, "WAITS", (0.01, 0.01, 0.01, 0.01))
        remote.service.cache_clear()
        yield found
    remote.service.cache_clear()


COUNTS = "number = 0\ndef f():\n    global number\n    number += 1\n    return number"
ASKS_BACK = "def apply(function, *given):\n    try: return function(*given) + 1\n    except Exception: return 0"
RANDOM = "import time\ndef f(x): return (x, time.time())"


@pytest.mark.parametrize(
    "program, tests, num_requests",
    [
        (ECHO, PAIRS, 1),
        # names; the first call, whose tests guess the others; these; and one more run, which shows that they were right
        ("def f(x): return x * x", ProgramTests(asserts=tuple(f"assert f({x}) == {x * x}" for x in range(8))), 5),
        (COUNTS, ProgramTests(asserts=("assert f() == 1", "assert f() == 2", "assert f() == 4")), None),
        (ASKS_BACK, ProgramTests(asserts=("assert apply(max, 3, 5) == 6", "assert apply(lambda x: x, 2) == 3")), None),
        (RANDOM, ProgramTests(asserts=("assert f(1)[0] == 1", "assert f(2)[0] == 2", "assert f(2)[0] == 3")), None),
        ("x = (", ProgramTests(asserts=("assert f(1) == 1",)), 2),
        ("def f(x): exit()", ProgramTests(asserts=("assert f(1) == 1", "assert 1 == 1")), None),
        ("import os\ndef f(x): os._exit(0)", ProgramTests(asserts=("assert f(1) == 1", "assert 1 == 1")), None),
        ("def f(x): return x", ProgramTests(text="def check(g):\n    assert g(g(2)) == 2", entry_point="f"), 6),
        (PROGRAM, ProgramTests(text="class Cases: pass\ndef test_a():\n    stack = Stack(1)\n    stack.push(2)\n"
            "    assert len(stack) == 2 and stack.items == [1, 2]\ndef test_b(): assert double(2) == 5"), None),
        ("print(input(), end='')", ProgramTests(pairs=tuple((str(x) * 300_000,) * 2 for x in range(4))), None),
    ],
)  # fmt: skip
def test_verdicts_are_those_of_this_machine(
    there: Fusion, program: str, tests: ProgramTests, num_requests: int | None
) -> None:
    assert run_tests(program, tests, kind=REMOTE) == run_tests(program, tests)
    assert num_requests is None or len(there.bodies) == num_requests


def test_a_program_that_does_not_end_has_failed_what_it_did_not_answer(
    there: Fusion, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = "import time\ndef f(x):\n    if x == 2: time.sleep(60)\n    return x"
    tests = ProgramTests(asserts=tuple(f"assert f({x}) == {x}" for x in range(4)))
    assert run_tests(program, tests, limits=Limits(seconds=1), kind=REMOTE) == [True, True, False, False]
    rounds = ProgramTests(asserts=("assert next(f()) == 0", "assert 7 in f()", "assert next(f()) == 0"))
    assert run_tests("import itertools\nf = itertools.count", rounds, kind=REMOTE) == [True, True, True]
    monkeypatch.setattr(remote, "MAX_ROUNDS", 5)
    assert run_tests("import itertools\nf = itertools.count", rounds, kind=REMOTE) == [True, False, False]
    endless = "import time\nif input() == '2': time.sleep(60)\nprint(1)"
    pairs = ProgramTests(pairs=(("1", "1"), ("2", "1"), ("3", "1")))
    assert run_tests(endless, pairs, limits=Limits(seconds=1), kind=REMOTE) == [True, False, False]


def test_the_request_is_sandboxfusion_s_and_no_test_stands_beside_the_program(there: Fusion) -> None:
    run_tests("def f(x): return x", ProgramTests(asserts=("assert f(1) == 731",)), kind=REMOTE)
    for body in there.bodies:
        assert set(body) == {"language", "code", "stdin", "run_timeout"}
        assert (body["language"], body["run_timeout"]) == ("python", 10.0)
    seen = [(b"def f(x)" in form, b"731" in form) for form in map(remote.binascii.a2b_base64, stdins(there))]
    assert (True, False) in seen and (True, True) in seen  # the tests' own requests name the program that they send


def stdins(there: Fusion) -> list[str]:
    return [body["stdin"] for body in there.bodies]


BAD_ANSWERS = [
    500,
    503,
    429,
    "drop",
    "nonsense",
    "[]",
    '{"status": "SandboxError", "message": "no cgroup", "run_result": null}',
    '{"status": "Success", "message": "", "run_result": {"status": "Finished", "stdout": "1\\n"}}',
    '{"status": "Failed", "message": "", "run_result": {"status": "Error", "stdout": null}}',
]


@pytest.mark.parametrize("fault", BAD_ANSWERS, ids=str)
def test_a_request_that_fails_is_sent_again(there: Fusion, fault: Any) -> None:
    there.faults = [fault, fault]
    assert run_tests(ECHO, PAIRS, kind=REMOTE) == [True, False]
    assert len(there.bodies) == 3


@pytest.mark.parametrize("fault", BAD_ANSWERS, ids=str)
def test_a_service_that_always_fails_is_an_error_and_no_value(there: Fusion, fault: Any) -> None:
    there.always = fault
    with pytest.raises(RewardError, match=r"service at http://127\.0\.0\.1:.* does not work: .*; start the"):
        remote_code_share(
            Task(id="t", prompt="", answer="", columns={"tests": ["assert f() == 1"]}), "def f(): return 1"
        )
    assert len(there.bodies) == 6  # five tries, and one of another program


def test_no_answer_in_time_is_an_error(there: Fusion, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_QUEUE_SECONDS", 0.0)
    there.faults = ["silent"]
    assert run_tests(ECHO, PAIRS, limits=Limits(seconds=3.0), kind=REMOTE) == [True, False]


def test_a_program_on_which_the_service_fails_has_no_value_and_stops_nothing(there: Fusion) -> None:
    there.always, there.spoilt = 500, b"a = 1"
    with pytest.raises(PodsError, match="fails on this program alone: status 500") as caught:
        run_tests("a = 1", PAIRS, kind=REMOTE)
    assert not isinstance(caught.value, RewardError)


def test_a_key_is_sent_and_asked_for(there: Fusion, monkeypatch: pytest.MonkeyPatch) -> None:
    there.key = "k"
    with pytest.raises(RewardError, match=f"status 401: .*; set {remote.KEY} to a key of this service"):
        run_tests(ECHO, PAIRS, kind=REMOTE)
    assert len(there.bodies) == 1
    monkeypatch.setenv(remote.KEY, "k")
    remote.service.cache_clear()
    assert run_tests(ECHO, PAIRS, kind=REMOTE) == [True, False]


@pytest.mark.parametrize(
    "url", ["", "here:80", "ftp://here", "http://", "http://a:b@here", "http://here?x=1", "http://h h"]
)
def test_an_address_that_is_none_is_named(url: str) -> None:
    with pytest.raises(RewardError, match=f"{remote.ADDRESS}.*wanted the address of SandboxFusion, http://HOST:PORT"):
        remote.Service(url)
    with pytest.raises(RewardError, match=f"{remote.KEY} holds no key"):
        remote.Service("http://here:80", "a\nb")


def test_a_service_that_is_gone_is_an_error(there: Fusion, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(remote.ADDRESS, "http://127.0.0.1:9")
    remote.service.cache_clear()
    with pytest.raises(RewardError, match=r"does not work: .*refused"):
        run_tests(ECHO, PAIRS, kind=REMOTE)


def test_a_run_gets_real_rewards_from_a_service_and_no_value_where_it_fails(there: Fusion) -> None:
    name = "remote_code_tests"
    task = Task(id="t", prompt="", answer="", columns={"tests": ["assert f(1) == 2", "assert f(2) == 3"]})
    texts = ["def f(x): return x + 1", "def f(x): return 2"]
    with Panel({name: "task.rewards"}, num_workers=1, timeout_seconds=60.0, is_run=True) as panel:
        rows = Rows(tasks=[task] * 2, texts=texts, token_ids=[()] * 2)
        assert panel.judge(name, rows).values == [1.0, 0.0]
        there.always = 401
        with pytest.raises(RewardError, match="status 401"):
            panel.judge(name, Rows(tasks=[task], texts=["def f(x): return 3"], token_ids=[()]))
    with pytest.raises(RewardError, match="status 401"):
        Panel({name: "task.rewards"})
    there.always = None
    with Panel({name: "task.rewards"}, num_workers=1, timeout_seconds=0.5, is_run=True) as panel:
        there.faults = ["silent"]
        found = panel.judge(name, Rows(tasks=[task], texts=["def f(x): return 3"], token_ids=[()]))
    assert (found.faults[0].kind, found.stopped) == ("timeout", {})

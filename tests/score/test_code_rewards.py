"""Which piece of an answer is the program, how a task's tests are read, and what a run pays for it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from podsrl.errors import UsageError
from podsrl.lib.below import kill_below
from podsrl.score import Scorer
from podsrl.score.panel import Panel
from podsrl.score.rewards.code import (
    code_share,
    code_tests,
    find_code,
    read_tests,
    weaker_code_share,
    weaker_code_tests,
)
from podsrl.types import Task

sys.path.insert(0, str(Path(__file__).parent))
from test_scorer import score

from waiting import wait_for

DEFINED, OTHER = "def f(): return 1", "def g(): return 2"


def block(code: str, mark: str = "python") -> str:
    return f"```{mark}\n{code}\n```\n"


@pytest.mark.parametrize(
    "completion, code",
    [
        (block(DEFINED), DEFINED),
        (f"So:\n{block(DEFINED)}It gives 1.", DEFINED),
        (block(DEFINED) + block("print(f())"), DEFINED),
        (block(DEFINED) + block(OTHER), OTHER),
        (block("x = 1") + block("print(2)"), "print(2)"),
        (block(DEFINED) + block("1", mark=""), DEFINED),
        (block(DEFINED, mark="") + block("pip install x", mark="bash"), DEFINED),
        (block("class A: ...", mark="Python3") + block("x", mark="py"), "class A: ..."),
        (block("    def inner(): ...") + block("x = 1"), "x = 1"),
        (block("ls", mark="sh"), None),
        (f"<think>{block(OTHER)}</think>\n{block(DEFINED)}", DEFINED),
        (f"<think>{block(OTHER)}</think>\n{DEFINED}", "\n" + DEFINED),
        (f"```python\n{DEFINED}", DEFINED),
        (f"  ```python\n{DEFINED}\n  ```", DEFINED),
        ("1. So:\n   ```python\n   def f():\n       return 1\n\n x\n   ```", "def f():\n    return 1\n\nx"),
        (f"````python\n{DEFINED}\n````", DEFINED),
        (DEFINED, DEFINED),
        ("I do not know.", "I do not know."),
        ("", ""),
    ],
)
def test_one_piece_of_an_answer_is_the_program(completion: str, code: str | None) -> None:
    assert find_code(completion) == code


def task(**columns: Any) -> Task:
    return Task(id="t", prompt="", answer=DEFINED, columns=columns)


def test_tests_are_read_from_the_columns_of_common_data_sets() -> None:
    mbpp = read_tests(task(test_list=["assert f() == 1"], test_setup_code="x = 1", test_imports=["import math"]))
    assert (mbpp.asserts, mbpp.setup) == (("assert f() == 1",), "import math\nx = 1")
    human_eval = read_tests(task(test="def check(candidate): pass", entry_point="f", tests=None))
    assert (human_eval.text, human_eval.entry_point) == ("def check(candidate): pass", "f")
    pairs = read_tests(task(tests=[{"input": "1", "output": "2", "kind": 3}], test="other"))
    assert pairs.pairs == (("1", "2"),) and not pairs.text


@pytest.mark.parametrize(
    "columns, words",
    [
        ({}, "task 't' has no tests; wanted one of the columns tests, test_list, test: a list of assert statements"),
        ({"tests": []}, "column 'tests' of task 't': it holds []"),
        ({"tests": ["assert f()", {"input": "", "output": ""}]}, "column 'tests' of task 't': it holds ['assert f()'"),
        ({"test_list": 5}, "column 'test_list' of task 't': it holds 5"),
        ({"tests": [{"input": "1"}]}, "column 'tests' of task 't': it holds [{'input': '1'}]"),
        ({"test": "def check("}, "column 'test' of task 't': the test 'def check(' is no Python"),
        ({"test": " "}, "column 'test' of task 't': there are no tests"),
    ],
)
def test_a_task_without_tests_is_an_error_before_training(columns: dict[str, Any], words: str) -> None:
    with Scorer({"weaker_code_tests": 1.0}, "weaker_code_tests") as scorer, pytest.raises(UsageError) as caught:
        scorer.probe(task(**columns))
    assert words in str(caught.value)


HANGS = "def f(n=[]):\n    n.append(1)\n    while len(n) > 1: pass\n    return 1"
TESTS = ["assert f() == 1", "assert f() + 1 == 2", "assert f() == 2"]


def test_all_tests_or_the_share_of_them_is_paid(bubblewrap: None) -> None:
    both = task(tests=TESTS[:2])
    rewards = (code_tests, code_share, weaker_code_tests, weaker_code_share)
    assert [reward(both, DEFINED) for reward in rewards] == [1] * 4
    assert code_tests(task(tests=TESTS), DEFINED) == weaker_code_tests(task(tests=TESTS), DEFINED) == 0
    assert code_share(task(tests=TESTS), DEFINED) == weaker_code_share(task(tests=TESTS), DEFINED) == 2 / 3
    assert code_share(both, block("ls", mark="sh")) == code_share(both, " ") == code_share(both, "I do not know.") == 0


def test_a_run_judges_programs_in_workers_and_an_endless_one_keeps_what_it_passed(bubblewrap: None) -> None:
    with Scorer({"code_share": 1.0}, "code_share", workers=2, timeout_seconds=1.5) as scorer:
        assert scorer.probe(task(tests=TESTS)) == [] and scorer.has_workers
        judged = task(tests=TESTS[:2])
        scorer.prefetch(judged, DEFINED)
        [rollouts] = score(scorer, (judged, [DEFINED, "def f(): return 3", HANGS, DEFINED]))
        stopped = scorer.stats.num_stopped
    found = [(each.reward, each.is_correct, each.invalid_reason) for each in rollouts]
    assert found == [(1.0, True, None), (0.0, False, None), (0.5, False, None), (1.0, True, None)]
    assert stopped == 1


def test_programs_that_are_killed_leave_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with Panel({"weaker_code_tests": "x"}, num_workers=1, timeout_seconds=100.0) as panel:
        panel.submit([task(tests=TESTS)], ["while True: pass"])
        wait_for(lambda: len([*tmp_path.glob("*/*")]) == 2)  # of the program and its tests
        old = {*tmp_path.glob("*/*")}
        kill_below(panel._row_workers._workers[0].supervisor_pid)
        wait_for(lambda: len({*tmp_path.glob("*/*")} - old) == 2)  # a worker that was killed tries it again
        assert not old & {*tmp_path.glob("*/*")}
    assert not [*tmp_path.iterdir()]

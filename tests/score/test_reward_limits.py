"""What a known reward cannot judge is a wrong answer; and the time-outs of one step cannot take the step over."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from test_reward_workers import rows
from test_scorer import score
from test_scorer_workers import SUM

from podsrl.lib.channel import Frame
from podsrl.score import REWARDS, Scorer
from podsrl.score.base import Rows
from podsrl.score.panel import Panel
from podsrl.score.workers.dispatcher import LEAST_LIMIT_SECONDS, LEAST_PROGRAM_SECONDS, Dispatcher
from podsrl.score.workers.worker import Setup
from podsrl.types import Task
from waiting import is_alive, wait_for

BOMB = r"\boxed{9^{9^{9^9}}}"
GOOD = {"values": [1.0], "faults": []}
DEADLY = """
import os, signal, sys, time

def known(task, text):
    if text == "hang":
        time.sleep(600)
    if text == "die":
        os.kill(os.getpid(), signal.SIGSEGV)
    if text == "once" and not os.path.exists(task.prompt):
        open(task.prompt, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    if text == "memory":
        return float(len([0] * (1 << 29)))
    if text == "deep":
        return known(task, text)
    if text == "wrong":
        raise ValueError("the reference answer cannot be parsed")
    return float(len(text))

"""


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A function that counts as one of the known rewards that run in workers."""
    (tmp_path / "deadly.py").write_text(DEADLY)
    monkeypatch.syspath_prepend(tmp_path)
    for module in ("workers.dispatcher", "panel"):
        monkeypatch.setattr(f"podsrl.score.{module}.SLOW", frozenset({"deadly:known"}))
    return "deadly:known"


def test_what_a_known_reward_cannot_judge_is_wrong_and_what_the_task_spoils_is_invalid(known: str) -> None:
    texts = ["a", "hang", "bb", "die", "memory", "deep", "wrong", "ccc"]
    with Panel({known: "--reward"}, num_workers=2, timeout_seconds=0.5) as workers:
        values = workers.judge(known, rows(texts))
    assert [value for row, value in enumerate(values.values) if row != 6] == [1.0, 0.0, 2.0, 0.0, 0.0, 0.0, 3.0]
    kinds = {row: fault.kind for row, fault in values.stopped.items()}
    assert kinds == {1: "timeout", 3: "died", 4: "exhausted", 5: "exhausted"}
    assert [fault.kind for fault in values.faults.values()] == ["raised"] and math.isnan(values.values[6])


def test_a_worker_that_something_else_killed_is_no_answer_s_fault(known: str, tmp_path: Path) -> None:
    task = Task(id="a", prompt=str(tmp_path / "flag"), answer="1")
    with Panel({known: "--reward"}, num_workers=1) as workers:
        values = workers.judge(known, rows(["a", "once", "bb"], task))
    assert values.values == [1.0, 4.0, 2.0] and not values.stopped and not values.faults


def test_a_stopped_row_keeps_its_place_where_a_batch_is_judged_in_parts(known: str) -> None:
    with Panel({known: "--reward"}, num_workers=1, timeout_seconds=0.4) as panel:
        values = panel.judge_in_parts(known, rows(["a", "bb", "ccc", "hang"]), 3, lambda done: None)
    assert values.values == [1.0, 2.0, 3.0, 0.0]
    assert {row: fault.kind for row, fault in values.stopped.items()} == {3: "timeout"}


def test_a_step_counts_the_answers_that_it_could_not_judge(known: str) -> None:
    with Scorer({known: 1.0, "format": 0.5}, known, timeout_seconds=0.4) as scorer:
        [[good, hung, twin, spoilt]] = score(scorer, (SUM, ["aaa", "hang", "hang", "wrong"]))
        assert (good.reward, hung.reward, twin.reward) == (3.0, 0.0, 0.0)
        assert hung.is_valid and not hung.is_correct and not spoilt.is_valid
        assert (scorer.stats.num_stopped, scorer.stats.num_hurried) == (2, 0)
        assert list(scorer.stats.reasons) == [f"reward '{known}' took longer than 0.4 s and was stopped"]
        score(scorer, (SUM, ["die"]))
        assert scorer.stats.num_stopped == 3


def test_real_bombs_are_wrong_answers() -> None:
    with Scorer({"boxed_correct": 1.0}, "boxed_correct", workers=1, timeout_seconds=0.5) as scorer:
        [[right, bomb]] = score(scorer, (SUM, [r"\boxed{3}", BOMB]))
    assert (right.reward, bomb.reward, bomb.is_valid) == (1.0, 0.0, True)
    assert "boxed_correct" in REWARDS


def test_many_time_outs_lower_the_limit_for_the_rest_of_the_step(user_folder: Path) -> None:
    name = "worker_rewards:odd"
    tasks = [Task(id=f"{i}", prompt="x", answer="1") for i in range(40)]
    bombs = Rows(tasks=tasks, texts=["hang"] * 40, token_ids=[()] * 40)
    with Panel({name: "--reward"}, num_workers=2, timeout_seconds=1.0, is_run=True) as workers:
        values = workers.judge(name, bombs)
        limits = {fault.reason.split(" s ")[0].split()[-1] for fault in values.faults.values()}
        hurried = [fault.is_hurried for fault in values.faults.values()]
        assert len(values.faults) == 40 and limits == {"1", "0.5", "0.25"}
        assert 5 <= hurried.count(False) <= 12  # three limits of each worker, and what had begun
        assert sum(values.seconds) < 25  # 40 without the cap
        assert "(lowered from 1 s by this step's other time-outs)" in next(
            fault.reason for fault in values.faults.values() if fault.is_hurried
        )
        workers.forget(bombs.tasks, bombs.texts)
        workers.new_step()
        again = workers.judge(name, rows(["hang"]))
        assert not again.faults[0].is_hurried


def test_the_limit_is_halved_and_has_a_floor() -> None:
    dispatcher = Dispatcher(Setup(names=(), memory_bytes=None), 4, 8.0, is_capped=True)
    for lost, limit in ((0, 8.0), (95, 8.0), (96, 4.0), (192, 2.0), (10_000, LEAST_LIMIT_SECONDS), (1e9, 0.25)):
        dispatcher._lost_seconds = lost
        assert dispatcher._limit_seconds() == limit
    dispatcher.new_step()
    assert dispatcher._limit_seconds() == 8.0
    uncapped = Dispatcher(Setup(names=(), memory_bytes=None), 4, 8.0)
    uncapped._lost_seconds = 1e9
    assert uncapped._limit_seconds() == 8.0
    programs = Dispatcher(Setup(names=("code_share",), memory_bytes=None), 1, 8.0, is_capped=True)
    programs._lost_seconds = 1e9
    assert programs._limit_seconds() == LEAST_PROGRAM_SECONDS
    task = Task(id="a", prompt="", answer="", columns={"tests": ["f()"]})
    with Panel({"weaker_code_tests": "--reward"}, num_workers=1, timeout_seconds=0.2) as panel:
        assert len(panel.judge("weaker_code_tests", rows(["while True: pass"], task)).stopped) == 1
        assert panel._row_workers._lost_seconds >= 0.2
    short = Dispatcher(Setup(names=(), memory_bytes=None), 4, 0.1, is_capped=True)
    short._lost_seconds = 1e9
    assert short._limit_seconds() == 0.1


@pytest.mark.parametrize(
    "message",
    [[0, 0.1, GOOD], [1, 0.1, GOOD, 2], [1, -1.0, GOOD], [1, math.inf, GOOD], [1, 0.1, 5], "ready", {"failed": "no"},
     None],
    ids=repr,
)  # fmt: skip
def test_an_answer_that_is_none_ends_its_worker_and_its_own_row(user_folder: Path, message: Any) -> None:
    """As if the function had written to the socket: the message comes instead of the first job's answer."""
    name = "worker_rewards:odd"
    with Panel({name: "--reward"}, num_workers=1, timeout_seconds=100) as workers:
        workers.judge(name, rows(["a"]))
        workers.submit(rows(["x"]).tasks, ["hang"])
        [worker] = workers._row_workers._workers
        wait_for(lambda: bool(worker.jobs))
        [job] = worker.jobs.values()
        frame = Frame(message)
        worker.channel.read = lambda: iter([frame])  # type: ignore[method-assign]
        worker.channel._end.shutdown(0)  # wakes the thread
        wait_for(lambda: job.outcome is not None)
        [fault] = job.faults
        assert fault.kind == "died"
        assert "what is no answer" in fault.reason or "no value" in fault.reason
        assert workers.judge(name, rows(["bb"])).values == [2.0]
        assert is_alive(worker.supervisor_pid)

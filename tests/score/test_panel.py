"""Reward functions behind one call: which process each runs in, and batches judged part by part."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from podsrl.errors import RewardError
from podsrl.score.base import Rows
from podsrl.score.panel import Panel
from podsrl.types import Task

FUNCTIONS = """
import os

calls = []

def process(task, text): return os.getpid()
def picky(task, text): return 1 / text.count("a")
def sizes(completions): return [len(completions)] * len(completions)
def picky_trl(completions): return [1 / text.count("a") for text in completions]
def checks(completions, checker): return [checker[0](text) for text in completions]
"""


@pytest.fixture(autouse=True)
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "panel_rewards.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "panel_rewards", raising=False)


def rows_of(texts: str, task: Task | None = None) -> Rows:
    """One row per character; all of one task."""
    task = task or Task(id="a", prompt="x", answer="1")
    return Rows(tasks=[task] * len(texts), texts=list(texts), token_ids=[()] * len(texts))


@pytest.mark.parametrize("name", ["picky", "picky_trl"])
def test_parts_give_each_row_what_it_gets_in_one_batch(name: str) -> None:
    name, rows, told = f"panel_rewards:{name}", rows_of("aabaaba"), list[int]()
    with Panel({name: "--reward"}, num_workers=1) as panel:
        values = panel.judge_in_parts(name, rows, 3, told.append)
        whole = panel.judge(name, rows)
    assert told == [3, 6, 7] and len(values.seconds) == 7 and min(values.seconds) > 0
    assert values.faults == whole.faults and list(values.faults) == [2, 5]
    assert [value for value in values.values if value == value] == [1.0] * 5 and values.values[0] == 1.0


def test_the_part_is_what_a_function_of_trl_s_form_gets_in_one_call() -> None:
    name = "panel_rewards:sizes"
    with Panel({name: "--reward"}) as panel:
        assert panel.judge_in_parts(name, rows_of("abcde"), 2, lambda done: None).values == [2, 2, 2, 2, 1]
        assert panel.judge_in_parts(name, rows_of(""), 2, lambda done: None).values == []


def test_a_function_that_no_worker_finds_runs_here_and_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    name, row = "panel_rewards:process", rows_of("a")
    with Panel({name: "--reward"}) as panel:
        assert panel.judge(name, row).values != [os.getpid()] and panel.warnings == []
    monkeypatch.setattr("podsrl.score.panel.is_importable_by_workers", lambda name: False)
    with Panel({name: "--reward"}) as panel:
        assert panel.judge_in_parts(name, row, 1, lambda done: None).values == [os.getpid()]
        [warning] = panel.warnings
        assert warning.startswith(f"reward '{name}' runs in the main process, without a time limit: ")
        assert not panel.has_workers


def test_a_column_that_cannot_be_sent_is_an_error_and_another_value_is_not() -> None:
    name = "panel_rewards:checks"
    sent, kept = (Task(id="a", prompt="x", answer="1", columns={"checker": value}) for value in (len, lambda text: 1))
    with Panel({name: "--reward"}) as panel:
        assert panel.judge_in_parts(name, rows_of("ab", sent), 2, lambda done: None).values == [1.0, 1.0]
        with pytest.raises(RewardError, match="column 'checker'"):
            panel.judge(name, rows_of("a", kept))
    with Panel({"panel_rewards:picky": "--reward"}) as panel, pytest.raises(RewardError, match="column 'checker'"):
        panel.judge("panel_rewards:picky", rows_of("a", kept))


def test_quick_known_functions_may_be_sent_to_workers_too_and_read_no_columns() -> None:
    task = Task(id="a", prompt="x", answer="1", columns={"checker": lambda text: 1})
    for is_run in (True, False):
        with Panel({"format": "--reward"}, num_workers=1, is_run=is_run) as panel:
            assert panel.has_workers is not is_run
            assert panel.judge("format", rows_of("a", task)).values == [0.0]

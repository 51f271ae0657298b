"""Judges of a search: what they may return, and what becomes of everything else."""

from __future__ import annotations

import math
from typing import Any

import pytest

from podsrl.errors import UsageError
from podsrl.evaluation.search.base import Leaf
from podsrl.evaluation.search.judge import StepJudge
from podsrl.lib.user_function import given_name
from podsrl.types import Task

TASK = Task(id="q", prompt="?", answer="7")
STORY = Task(
    id="s", prompt="Ann has 47 pens. First she finds 5. Second she sells 3. How many pens are left?\n", answer="49"
)


def scores(name: str, *texts: str, task: Task = TASK) -> tuple[list[float], list[str], int]:
    judge = StepJudge(name)
    found = judge.scores([task] * len(texts), [Leaf(text=text) for text in texts])
    return found, judge.faults, judge.num_judged


def test_what_has_no_score_is_counted_and_the_others_keep_theirs() -> None:
    said: dict[str, Any] = {"a": 0.25, "none": None, "nan": math.nan, "large": 1.5, "small": -0.1, "text": "x", "b": 1}

    def judged(task: Task, text: str) -> Any:
        if text == "raise":
            raise ValueError("no idea")
        return said[text]

    found, faults, num_judged = scores(given_name(judged), *said, "raise")
    assert found == [0.25, 0, 0, 0, 0, 0, 1.0, 0]
    assert (len(faults), num_judged) == (6, 8)
    assert all("judge '" in fault for fault in faults)
    for part in ("returned None", "nan", "1.5", "-0.1", "'x'", "ValueError: no idea"):
        assert sum(part in fault for fault in faults) == 1, part


def test_a_judge_may_have_either_form_of_a_reward() -> None:
    def by_row(task: Task, text: str) -> float:
        return len(text) / 10

    def by_batch(completions: list[str], **columns: Any) -> list[float]:
        return [len(text) / 10 for text in completions]

    assert scores(given_name(by_row), "a", "bcd") == scores(given_name(by_batch), "a", "bcd") == ([0.1, 0.3], [], 2)


def test_the_judge_of_stories_finds_every_wrong_step() -> None:
    texts = ("First 47+5=52.", "First 47-5=42.", "First 47+5=52. Second 52-3=49. Answer: 49.", "")
    assert scores("steps", *texts, task=STORY) == ([1, 0, 1, 1], [], 4)
    found, [fault], _ = scores("steps", "First 47+5=52.")
    assert found == [0] and "no question of the task set 'steps'" in fault


def test_an_unknown_judge_and_one_without_the_form_are_refused() -> None:
    with pytest.raises(UsageError, match=r"--judge = 'step' is no judge. Did you mean 'steps'\?"):
        StepJudge("step")
    with pytest.raises(UsageError, match="wanted"):
        StepJudge(given_name(lambda: 0.5))

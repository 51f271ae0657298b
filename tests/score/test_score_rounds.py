"""Groups may be scored in any number of calls per step, and some completions are never judged."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from test_scorer import completion

from made import ended
from podsrl.score import Scorer
from podsrl.types import Rollout, Task

TASKS = [Task(id=f"{i}+2", prompt=f"{i}+2=", answer=str(i + 2)) for i in range(3)]
TEXTS = [["Answer: 2.", "Answer: 3.", "2"], ["Answer: 3."], ["Answer: 4.", "4", "4"]]


def completions(texts: list[str]) -> list[Rollout]:
    return [completion(index) for index in range(len(texts))]


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("own_rounds")
    module.batches = []
    module.f = lambda completions, **columns: module.batches.append(completions) or [float(len(t)) for t in completions]
    monkeypatch.setitem(sys.modules, "own_rounds", module)
    return module


def test_groups_scored_in_rounds_get_the_same_rollouts_as_all_at_once(user_folder: Path) -> None:
    rewards = {"correct": 1.0, "worker_rewards:length": 0.25, "worker_rewards:draw": 0.5}
    with Scorer(rewards, "correct", format="format", workers=2) as scorer:
        groups = [completions(texts) for texts in TEXTS]
        at_once = scorer.score(TASKS, groups, TEXTS)
        for task, texts in zip(TASKS, TEXTS, strict=True):
            for text in texts:
                scorer.prefetch(task, text)
        rounds: list[list[Rollout]] = []
        for places in ([1], [0, 2]):
            chosen = [[TASKS[i] for i in places], [groups[i] for i in places], [TEXTS[i] for i in places]]
            rounds += scorer.score(*chosen, is_last=places == [0, 2])  # type: ignore[arg-type]
    assert [rounds[1], rounds[0], rounds[2]] == at_once


@pytest.mark.parametrize("is_last", [True, False])
def test_the_lowered_time_limit_holds_until_the_last_call_of_a_step(user_folder: Path, is_last: bool) -> None:
    name = "worker_rewards:odd"
    with Scorer({name: 1.0}, name, workers=1, timeout_seconds=0.6) as scorer:
        tasks = [replace(TASKS[0], id=f"{i}") for i in range(5)]  # equal texts of one task are judged once
        scorer.score(tasks[:4], [[completion(0)]] * 4, [["hang"]] * 4, is_last=is_last)
        before = scorer.stats.num_hurried
        scorer.score(tasks[4:], [[completion(0)]], [["hang"]])
        assert (before, scorer.stats.num_hurried - before) == (1, 0 if is_last else 1)


def test_a_pruned_completion_has_no_reward_is_no_failure_and_is_not_judged(own: ModuleType) -> None:
    scorer = Scorer({"own_rounds:f": 2.0, "correct": 1.0}, "correct", format="format")
    group = [completion(0), replace(completion(1), **ended("pruned")), completion(2)]
    [[first, pruned, last]] = scorer.score(TASKS[:1], [group], [["Answer: 2.", "Answer: 2", "ab"]])
    assert own.batches == [["Answer: 2.", "ab"]]
    assert (first.reward, last.reward, first.is_valid, last.is_pruned) == (21.0, 4.0, True, False)
    assert (pruned.token_ids, pruned.index, pruned.text) == (group[1].token_ids, 1, "Answer: 2")
    assert math.isnan(pruned.reward) and all(map(math.isnan, pruned.parts.values()))
    assert set(pruned.parts) == {"own_rounds:f", "correct"}
    assert (pruned.is_pruned, pruned.is_valid, pruned.invalid_reason) == (True, False, None)
    assert (pruned.is_correct, pruned.is_formatted, pruned.answer) == (False, False, None)


def test_a_call_may_hold_pruned_completions_alone_or_none_at_all(own: ModuleType) -> None:
    scorer = Scorer({"own_rounds:f": 1.0}, "correct")
    [[pruned]] = scorer.score(TASKS[:1], [[replace(completion(0), **ended("pruned"))]], [[""]])
    assert pruned.is_pruned and own.batches == []
    assert scorer.score([], [], []) == [] and scorer.score(TASKS[:1], [[]], [[]]) == [[]]


def test_an_open_rollout_cannot_be_scored() -> None:
    with pytest.raises(ValueError, match="rollout 1 of 's0' is open"):
        Scorer({"correct": 1.0}, "correct").score(
            TASKS[:1], [[completion(0), replace(completion(1), **ended("open"))]], [["", ""]]
        )

"""PROF: which rollouts stay where max-variance leaves a choice."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import made
from loops import each
from podsrl.config.load import load_config
from podsrl.errors import UsageError
from podsrl.run.step.step import training_step
from podsrl.run.step.trainer import Trainer
from podsrl.select import max_variance, select_groups
from podsrl.systems.prof import Prof
from podsrl.tasks.arithmetic import addition_task, right_steps
from podsrl.types import Group
from tests.systems.whole_steps import check_refused

SCORE = "podsrl.tasks.arithmetic:right_steps"
TASK = addition_task(47, 85)
LUCKY, SOUND = "7+5=11 4+8+1=13 Answer: 132.", "7+5=12 4+8+1=13 Answer: 132."
SLIP, LOST = "7+5=12 4+8+1=13 Answer: 133.", "7+5=13 4+8=12 Answer: 133."


def group_of(*texts: str) -> Group:
    rollouts = [
        made.rollout(float(text in (LUCKY, SOUND)), 1 + i % 3, index=i, text=text) for i, text in enumerate(texts)
    ]
    return made.group("g", *rollouts, task=TASK)


def test_steps_by_hand() -> None:
    assert [right_steps(TASK, text) for text in (LUCKY, SOUND, SLIP, LOST, "", "132")] == [0.5, 1, 1, 0, 0, 0]


@each(("wrong", "kept"), [("worst", (1, 3)), ("any", (1, 2))])
def test_of_right_ones_the_soundest_and_of_wrong_ones_the_worst_stay(wrong: Any, kept: tuple[int, ...]) -> None:
    group = group_of(LUCKY, SOUND, SLIP, LOST)
    part = Prof(score=SCORE, wrong=wrong)
    assert part.prefer([group]) == [[0.5, 1.0, *([-1.0, -0.0] if wrong == "worst" else [0.0, 0.0])]]
    [found] = select_groups([group], max_variance, 2, preferences=part.prefer([group]))
    assert found.kept == kept


def test_a_run_keeps_the_rewards_of_pods_and_the_soundest_of_them() -> None:
    result = training_step(Trainer(load_config("systems/prof", threads=1, rollouts={"num_prompts": 6})))
    part, num_changed = Prof(score=SCORE), 0
    plain = select_groups(result.groups, max_variance, 4)
    for group, before, after in zip(result.groups, plain, result.selections, strict=True):
        rewards, [numbers] = [rollout.reward for rollout in group.rollouts], part.prefer([group])
        assert Counter(rewards[i] for i in before.kept) == Counter(rewards[i] for i in after.kept)
        num_changed += before.kept != after.kept
        for i in after.kept:
            others = [j for j in after.dropped if rewards[j] == rewards[i]]
            assert all(numbers[i] >= numbers[j] for j in others)
    assert num_changed > 0


@pytest.mark.parametrize(
    ("message", "options"),
    [
        ("prefer of systems = 'prof'.* nothing else decides", ("select.ties=short", "select.rule=max_variance")),
        ("prefer of systems = 'prof'.* keeps the first of equal", ("select.rule=both_ends",)),
    ],
)
def test_what_does_not_go_with_it_is_one_line(message: str, options: tuple[str, ...]) -> None:
    check_refused(message, "systems=prof", f"options.prof.score={SCORE}", "select.num_kept=4", *options)


def test_ties_want_a_rule_that_keeps_the_first() -> None:
    check_refused(r"select\.ties = 'short' wants that the rule keeps", "select.ties=short", "select.rule=both_ends")


def test_a_score_that_raises_is_named() -> None:
    part = Prof(score="operator:floordiv")
    with pytest.raises(UsageError, match=r"options\.prof\.score = 'operator:floordiv'"):
        part.prefer([group_of(SOUND, LOST)])

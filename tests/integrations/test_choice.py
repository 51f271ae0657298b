"""The choice within one group, as other trainers use it."""

from __future__ import annotations

import math
import random

import pytest

from podsrl.errors import UsageError
from podsrl.integrations.choice import Choice
from podsrl.select import RULES


def by_groups(groups, num_kept, *, generator=None):  # type: ignore[no-untyped-def]
    return [range(2) for _ in groups]


def lowest(rewards, num_kept, *, below: float = 0.0, generator=None):  # type: ignore[no-untyped-def]
    return (rewards - below).abs().argsort(dim=-1)[:, :num_kept]


@pytest.mark.parametrize("rule", sorted(RULES.keys() - {"keep_all", "random", "max_signal", "drop_surplus"}))
def test_it_chooses_what_the_rule_chooses(rule: str) -> None:
    draws = random.Random(0)
    for size in range(5, 40, 7):
        rewards = [draws.choice([0.0, 0.1, 1.0]) for _ in range(size)]
        assert Choice(4, rule)(rewards) == RULES[rule](rewards, 4)


def test_max_signal_keeps_fewer_where_right_answers_are_rare() -> None:
    choose = Choice(8, "max_signal", {"overhead": 13.0})
    assert len(choose([1.0] + [0.0] * 63)) == 5  # as in tests/select/test_select_max_signal.py
    assert choose([0.0] * 16) == [0, 1]
    assert choose([0.0, 1.0, 0.0]) == [0, 1, 2] and choose([1.0]) == [0]


@pytest.mark.parametrize("size", range(5))
def test_a_group_of_no_more_than_is_kept_stays_whole(size: int) -> None:
    assert Choice(4)([1.0] * size) == list(range(size))


def test_the_random_rule_draws_by_its_seed() -> None:
    def chosen(seed: int) -> list[list[int]]:
        choose = Choice(4, "random", seed=seed)
        return [choose([0.0] * 32) for _ in range(5)]

    assert chosen(1) == chosen(1) != chosen(2)
    assert all(len(set(kept)) == 4 for kept in chosen(1))
    assert len(set(map(tuple, chosen(1)))) > 1


def test_a_rule_of_ones_own_gets_its_options() -> None:
    choose = Choice(2, f"{__name__}:lowest", {"below": 0.5})
    assert choose([0.0, 0.4, 1.0, 0.6]) == [1, 3]


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf])
def test_a_reward_that_is_not_finite_is_named(reward: float) -> None:
    for others in ([], [0.0] * 9):
        with pytest.raises(UsageError, match=f"rollout 1 .*{reward}"):
            Choice(4)([0.5, reward, *others])


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"num_kept": 1}, "num_kept = 1"),
        ({"num_kept": 2.0}, "num_kept = 2.0"),
        ({"num_kept": True}, "num_kept = True"),
        ({"num_kept": 4, "rule": "max_varianse"}, "^rule = .*Did you mean 'max_variance'"),
        ({"num_kept": 4, "rule": "keep_all"}, "keep_all"),
        ({"num_kept": 4, "rule": f"{__name__}:by_groups"}, "by_groups"),
        ({"num_kept": 4, "options": {"below": 1}}, r"^options\.below"),
        ({"num_kept": 4, "rule": None}, "rule = None"),
        ({"num_kept": 4, "rule": "random", "options": [1]}, r"options = \[1\]"),
    ],
)
def test_what_does_not_fit_is_an_error_at_once(arguments: dict[str, object], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        Choice(**arguments)  # type: ignore[arg-type]

"""When groups are closed: when a choice is certain, against all that could still come; and right and wrong ones."""

from __future__ import annotations

import itertools
import random
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from loops import each
from podsrl.control.close import Certain, UntilMixed
from podsrl.errors import UsageError
from podsrl.run.before.closing import kept_of_plenty
from podsrl.select import max_variance, resolve_rule
from podsrl.types import group_of_rewards

NAN = float("nan")
VIEW: Any = None


def certain(num_kept: int, bounds: tuple[float, float] | None = (0.0, 1.0), **options: float) -> Certain:
    part = Certain(**options)
    part.check_rewards(num_kept, bounds)
    return part


def is_certain(rewards: list[float], num_kept: int, bounds: tuple[float, float] = (0.0, 1.0)) -> bool:
    return certain(num_kept, bounds).close(VIEW, group_of_rewards("q", rewards))


@pytest.mark.parametrize(
    ("rewards", "num_kept", "is_closed"),
    [
        ([1, 0, 1, 0], 4, True),
        ([1, 0, 1, 1, 1, 1], 4, False),
        ([1, 0, 0], 3, True),  # one high and two low: of two splits equally near m / 2 the rule takes the lower
        ([1, 1, 0], 3, False),
        ([0, NAN, 1, NAN, 0, 1], 4, True),
        ([0.5, 0.5, 0.5, 0.5, 0.5], 4, False),
        ([1, 1, 0, 0.1], 4, False),
    ],
)
def test_it_is_certain_with_half_of_the_highest_and_half_of_the_lowest(
    rewards: list[float], num_kept: int, is_closed: bool
) -> None:
    assert is_certain(rewards, num_kept) is is_closed


LEVELS = (0.0, 0.5, 1.0)


def kept_of(groups: list[tuple[float, ...]], num_kept: int) -> list[list[int]]:
    """Of groups of one size; one of no more than m keeps all."""
    size = len(groups[0])
    return max_variance(np.array(groups), num_kept).tolist() if size > num_kept else [list(range(size))] * len(groups)


@each("num_kept", range(2, 6))
def test_it_is_certain_if_and_only_if_nothing_that_can_come_changes_the_choice(num_kept: int) -> None:
    """All groups of three levels: what the first rollouts give is kept whatever one or two others are, or it is not."""
    for size in range(num_kept, 7):
        first = list(itertools.product(LEVELS, repeat=size))
        now, is_kept = kept_of(first, num_kept), [True] * len(first)
        for rest in (rest for count in (1, 2) for rest in itertools.product(LEVELS, repeat=count)):
            later = kept_of([(*group, *rest) for group in first], num_kept)
            is_kept = [is_still and one == other for is_still, one, other in zip(is_kept, now, later, strict=True)]
        assert is_kept == [is_certain(list(group), num_kept) for group in first] and any(is_kept)


@pytest.mark.parametrize("overhead", [0.3, 1.0, 5.0])
@pytest.mark.parametrize("most", [2, 3, 4])
def test_with_max_signal_it_is_certain_if_and_only_if_nothing_that_can_come_changes_the_choice(
    most: int, overhead: float
) -> None:
    rule = resolve_rule("max_signal", {"overhead": overhead})
    num_kept = kept_of_plenty(rule, most)
    few = [rest for count in (0, 1, 2) for rest in itertools.product(LEVELS, repeat=count)]
    for first in (list(itertools.product(LEVELS, repeat=size)) for size in (most, 4)):
        kept = [rule([group_of_rewards("q", [*own, *rest]) for own in first], most) for rest in [*few, (0, 1) * most]]
        is_kept = [all(each == now for each in later) for now, *later in zip(*kept, strict=True)]
        assert is_kept == [is_certain(list(own), num_kept) for own in first]


@each("seed", range(100))
def test_of_a_large_group_the_first_rollouts_that_are_certain_give_what_all_of_them_give(seed: int) -> None:
    draws = random.Random(seed)
    size, num_kept = draws.randint(3, 80), draws.randint(2, 20)
    if num_kept >= size:
        return
    low, high = draws.choice([(0.0, 1.0), (-0.3, 1.1), (0.1, 0.7)])
    share, inner = draws.random(), draws.choice([0.0, 0.1])
    rewards = [
        draws.uniform(low, high) if draws.random() < inner else (high if draws.random() < share else low)
        for _ in range(size)
    ]
    part = certain(num_kept, (low, high))
    for count in range(num_kept, size + 1):
        if part.close(VIEW, group_of_rewards("q", rewards[:count])):
            assert kept_of([tuple(rewards[:count])], num_kept) == [max_variance(rewards, num_kept)]
            return


def test_what_is_enough_stays_enough() -> None:
    group = group_of_rewards("q", [1.0, 0.0, 0.5, 1.0, 0.0, NAN, 1.0])
    for part in (certain(2), UntilMixed(right=2, wrong=1)):
        for kept in itertools.product((False, True), repeat=7):
            some = [one for one, is_in in zip(group.rollouts, kept, strict=True) if is_in]
            answers = [part.close(VIEW, replace(group, rollouts=tuple(some))), part.close(VIEW, group)]
            assert answers == sorted(answers)


def test_right_and_wrong_ones_are_counted_among_the_valid() -> None:
    close = UntilMixed(right=1, wrong=2).close
    assert not close(VIEW, group_of_rewards("q", [1.0, 0.0, NAN]))
    assert close(VIEW, group_of_rewards("q", [1.0, 0.0, NAN, 0.4]))


def test_a_reward_outside_of_its_bounds_is_named_and_ends_the_closing_for_good() -> None:
    part, group = certain(2, None, lowest=0.0, highest=1.0), group_of_rewards("q", [1.0, 0.0, 3.0])
    assert part.close(VIEW, group)
    with pytest.warns(
        UserWarning, match=r"rollout 2 of group 'q' has the reward 3.*0 \.\. 1.*options\.certain\.lowest"
    ):
        part.learn([group_of_rewards("fine", [0.0, NAN, 1.0]), group])
    assert not part.close(VIEW, group)
    resumed = certain(2)
    resumed.restore(part.state())
    assert not resumed.close(VIEW, group)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        resumed.learn([group])


def test_bounds_that_are_missing_or_mistaken_are_errors() -> None:
    with pytest.raises(UsageError, match=r"options\.certain\.lowest and options\.certain\.highest"):
        certain(2, None)
    for options in ({"lowest": 1.0}, {"highest": 1.0}, {"lowest": 1.0, "highest": 1.0}):
        with pytest.raises(UsageError, match="wanted lowest < highest"):
            Certain(**options)

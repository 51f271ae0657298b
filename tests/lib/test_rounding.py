"""Rewards that differ by rounding alone are equal wherever it is decided whether a group teaches something."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import torch

from loops import each
from made import selection
from podsrl.lib.rounding import are_equal, has_signal
from podsrl.run.group_log import group_line, parse_group
from podsrl.select import max_signal
from podsrl.systems.aero import Posterior, drop_surplus
from podsrl.systems.dapo import Mixed
from podsrl.systems.vigor import _variance
from podsrl.types import Group, group_of_rewards
from podsrl.update import ADVANTAGES, group_advantages, step_advantages, to_samples
from tests.systems.made_up_groups import view

SUM = 0.1 + 0.2
ROUNDED = [0.3, SUM] * 3
"""Two numbers that are neighbours."""
MEANT = [1.0, 1.0 + 1e-9] * 3


def group_of(rewards: list[float]) -> Group:
    group = group_of_rewards("g", rewards)
    return replace(group, rollouts=tuple(replace(one, is_correct=False) for one in group.rollouts))


@each(
    "low, high, wanted",
    [
        (0.3, SUM, True),
        (-SUM, -0.3, True),
        (0.0, 0.0, True),
        (1.0, 1.0 + 2**-50, True),
        (1.0, 1.0 + 2**-48, False),
        (0.0, 5e-324, False),
        (-1e308, 1e308, False),
        (1e308, math.nextafter(1e308, math.inf), True),
        (1.0, 1.0 + 1e-9, False),
        (1e9, 1e9 + 1e-3, False),
    ],
)
def test_eight_units_in_the_last_place_are_rounding_and_a_billionth_is_not(
    low: float, high: float, wanted: bool
) -> None:
    assert bool(are_equal(torch.tensor(low, dtype=torch.float64), torch.tensor(high, dtype=torch.float64))) is wanted
    assert has_signal([high, low, high]) is not wanted


@pytest.mark.parametrize("name", ADVANTAGES)
def test_advantages_are_exactly_0(name: str) -> None:
    for rewards, is_zero in ((ROUNDED, True), (MEANT, False)):
        group = group_of(rewards)
        [found] = step_advantages([group], [selection(group, range(6))], ADVANTAGES[name])
        assert (not found.any()) == is_zero
    rows = torch.tensor([ROUNDED, MEANT, [0.0, 1.0, 0.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    if name != "batch_std":
        assert group_advantages(rows, name).any(-1).tolist() == [False, True, True]


@each("rewards, is_equal", [(ROUNDED, True), (MEANT, False)])
def test_everything_that_asks_whether_a_group_teaches_answers_alike(rewards: list[float], is_equal: bool) -> None:
    group = group_of(rewards)
    kept = selection(group, range(6))
    trained = Mixed(metric="reward").keep(view(1, 6, groups=(group,)))
    [constant] = Posterior().shape([group], [kept], [torch.zeros(6)])
    samples = to_samples([group], [kept], [torch.tensor([1.0, -1.0] * 3)])
    assert parse_group(json.loads(json.dumps(group_line(1, group, kept, samples)))).is_zero_signal == is_equal
    assert (max_signal([group], 6) == [[0, 1]]) == is_equal
    assert (drop_surplus([group], 6) == [[0, 1, 2, 3]]) == is_equal
    assert (_variance(group) == 0) == is_equal
    assert (not trained) == is_equal and bool(constant.any()) == is_equal

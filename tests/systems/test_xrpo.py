"""XRPO's allocation: quantiles against printed tables, the greedy choice against brute force, the exact budget."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from loops import each
from podsrl.control import Ask, View
from podsrl.errors import UsageError
from podsrl.lib.parts import make_parts
from podsrl.systems.xrpo import Confidence, half_widths, t_quantiles
from podsrl.tasks.stream import Stream
from podsrl.types import Group, Rollout
from population import Population, simulate
from tests.systems import made_up_groups
from tests.systems.made_up_groups import rollout

ALLOCATION = "podsrl.systems.xrpo:Confidence"

# Student's t, two-sided, as printed in tables of statistics: freedom -> quantile.
TABLE = {
    0.5: {1: 1.000, 2: 0.816, 5: 0.727, 10: 0.700, 30: 0.683},
    0.1: {1: 6.314, 2: 2.920, 3: 2.353, 4: 2.132, 9: 1.833, 20: 1.725, 60: 1.671, 120: 1.658},
    0.05: {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 7: 2.365, 15: 2.131, 30: 2.042, 120: 1.980},
    0.01: {1: 63.657, 2: 9.925, 3: 5.841, 8: 3.355, 25: 2.787, 120: 2.617},
    0.001: {1: 636.619, 2: 31.599, 6: 5.959, 30: 3.646, 120: 3.373},
}


def rollouts_of(rewards: list[float]) -> Iterator[Rollout]:
    return (rollout(index, is_correct=reward == 1, reward=reward) for index, reward in enumerate(rewards))


def group_of(rewards: list[float], place: int = 0, *, is_trained: bool = True) -> Group:
    return made_up_groups.group(f"s0/{place}", rollouts_of(rewards), index=place, is_trained=is_trained)


def view(groups: list[Group], n: int, round: int = 1, num_prompts: int | None = None) -> View:
    return made_up_groups.view(num_prompts or len(groups), n, 99, step=0, round=round, groups=tuple(groups))


@pytest.mark.parametrize("alpha", TABLE)
def test_quantiles_are_those_of_printed_tables(alpha: float) -> None:
    found = t_quantiles(alpha, np.array(list(TABLE[alpha])))
    assert found == pytest.approx(list(TABLE[alpha].values()), abs=6e-4)


def test_quantiles_of_one_and_two_degrees_of_freedom_are_the_closed_forms() -> None:
    for alpha in (1e-6, 0.05, 0.3, 0.99):
        p = 1 - alpha / 2
        closed = [math.tan(math.pi * (p - 0.5)), (2 * p - 1) * math.sqrt(1 / (2 * p * (1 - p)))]
        assert t_quantiles(alpha, np.array([1, 2])) == pytest.approx(closed, rel=1e-8)


def test_half_widths_fall_ever_more_slowly() -> None:
    widths = half_widths(0.05, 3000)[2:]
    gains = widths[:-1] - widths[1:]
    assert (gains > 0).all() and (np.diff(gains) < 0).all()


def priority(part: dict[str, float], rewards: list[float], k: int, total: int) -> float:
    """By the formulas, with quantiles of its own."""
    t = {k: TABLE[0.05].get(k - 1) or float(t_quantiles(0.05, np.array([k - 1]))[0]) for k in (k, k + 1)}
    mean = sum(rewards) / len(rewards)
    squares = sum((reward - mean) ** 2 for reward in rewards)
    s = math.sqrt((squares + part["prior"] / 4) / (len(rewards) - 1 + part["prior"]))
    gain = t[k] * s / math.sqrt(k) - t[k + 1] * s / math.sqrt(k + 1)
    return gain + part["explore"] * math.sqrt(math.log(1 + total) / k)


@pytest.mark.parametrize("explore", [0.0, 0.02, 0.5])
@pytest.mark.parametrize("prior", [0.1, 1.0])
def test_one_by_one_and_all_at_once_are_the_best_of_all_allocations(explore: float, prior: float) -> None:
    rewards = [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0, 0.0, 0.25]]
    groups = [group_of(each, place) for place, each in enumerate(rewards)]
    options = {"explore": explore, "prior": prior}
    total, n = sum(map(len, rewards)), 5
    share = (n * 3 - total + 1) // 2

    sizes = [len(each) for each in rewards]
    for _ in range(share):
        best = max(range(3), key=lambda q: priority(options, rewards[q], sizes[q], total))
        sizes[best] += 1

    def gained(counts: tuple[int, ...]) -> float:
        return sum(
            priority(options, each, len(each) + j, total)
            for each, count in zip(rewards, counts, strict=True)
            for j in range(count)
        )

    every = [counts for counts in product(range(share + 1), repeat=3) if sum(counts) == share]
    asks = Confidence(**options).rollouts(view(groups, n), [])
    counts = [next((ask.num_rollouts for ask in asks if ask.joins == group.id), 0) for group in groups]
    assert counts == [size - len(each) for size, each in zip(sizes, rewards, strict=True)]
    assert gained(tuple(counts)) == pytest.approx(max(map(gained, every)), abs=1e-9)


@each(("num_prompts", "n"), [(1, 2), (3, 2), (5, 3), (7, 8), (4, 33)])
@pytest.mark.parametrize("options", [{}, {"phases": 1}, {"phases": 5, "largest": 1}, {"phases": 16, "explore": 3.0}])
def test_a_step_asks_for_its_whole_budget_and_no_group_for_more_than_it_says(
    num_prompts: int, n: int, options: dict[str, Any]
) -> None:
    parts = make_parts([ALLOCATION], {ALLOCATION: options})
    _, largest = parts.most(num_prompts, n)
    stream, logits = Stream(30, seed=1), np.random.default_rng(2).normal(0, 3, 30)
    part = Confidence(**options)
    first = view([], n, round=0, num_prompts=num_prompts)
    asks = part.rollouts(first, [Ask(index=i, num_rollouts=n) for i in range(num_prompts)])
    assert len({ask.num_rollouts for ask in asks}) == 1 and asks[0].num_rollouts >= 2
    steps = simulate(parts, Population(logits), stream, num_prompts=num_prompts, num_rollouts=n, num_steps=4, seed=3)
    assert [step.num_rollouts for step in steps] == [num_prompts * n] * 4
    assert all(step.num_rounds <= options.get("phases", 3) for step in steps)
    hopeless = [group_of([0.0, 1.0] * (asks[0].num_rollouts // 2) + [0.0] * (asks[0].num_rollouts % 2))]
    calm = [group_of([0.0] * asks[0].num_rollouts, place) for place in range(1, num_prompts)]
    groups = {group.id: group for group in (*hopeless, *calm)}
    for round in range(1, 17):
        for ask in part.rollouts(view(list(groups.values()), n, round), []):
            grown = [0.0, 1.0] * ((len(groups[ask.joins or ""].rollouts) + ask.num_rollouts) // 2 + 1)
            size = len(groups[ask.joins or ""].rollouts) + ask.num_rollouts
            rewards = grown[:size] if ask.index == 0 else [0.0] * size
            groups[ask.joins or ""] = group_of(rewards, ask.index)
    sizes = [len(group.rollouts) for group in groups.values()]
    assert sum(sizes) == num_prompts * n and max(sizes) <= largest


def test_the_first_of_three_phases_asks_a_third_and_the_two_others_share_the_rest() -> None:
    part = Confidence()
    asks = [Ask(index=i, num_rollouts=10, is_trained=i > 0) for i in range(3)]
    first = part.rollouts(view([], 10, round=0, num_prompts=3), asks)
    assert first == [replace(ask, num_rollouts=3) for ask in asks]
    groups = [
        group_of([0.0, 1.0, 0.0]),
        group_of([0.0] * 3, 1),
        group_of([1.0] * 3, 2),
        group_of([0.0], 9, is_trained=False),
    ]
    second = part.rollouts(view(groups, 10), [])
    assert sum(ask.num_rollouts for ask in second) == 11 and {ask.index for ask in second} <= {0, 1, 2}
    assert second[0].index == 0 and second[0].num_rollouts > max(ask.num_rollouts for ask in second[1:])


def test_groups_without_a_valid_reward_get_their_share() -> None:
    nothing = replace(
        group_of([0.0] * 3), rollouts=tuple(replace(r, invalid_reason="raised") for r in rollouts_of([0.0] * 3))
    )
    asks = Confidence().rollouts(view([nothing, group_of([0.0] * 3, 1), group_of([], 2)], 9), [])
    assert sum(ask.num_rollouts for ask in asks) == 11
    assert {ask.index for ask in asks} == {0, 1, 2}


def test_new_questions_of_later_rounds_get_the_whole_of_n() -> None:
    asks = [Ask(index=7, num_rollouts=6)]
    assert Confidence().rollouts(view([], 6), asks) == asks
    later = Confidence().rollouts(view([group_of([0.0, 1.0])], 6), asks)
    assert later[0] == asks[0] and sum(ask.num_rollouts for ask in later[1:]) == 2


def test_less_than_two_rollouts_per_question_is_an_error_at_the_start() -> None:
    with pytest.raises(UsageError, match=r"rollouts.num_rollouts = 5 rollouts to give; wanted at least 2 of each of 5"):
        make_parts(["xrpo"], {}).most(5, 1)


def variance(systems: list[str], options: dict[str, Any], success: np.ndarray[Any, Any]) -> float:
    """Mean variance p (1 - p) / k of the groups' mean rewards over 20 steps of 16 questions and 512 rollouts."""
    parts = make_parts(systems, options)
    found = []
    signals: list[Group] = []
    simulate(
        parts,
        Population(np.log(success / (1 - success)), rate=1e-12),
        Stream(len(success), seed=0),
        num_prompts=16,
        num_rollouts=32,
        num_steps=20,
        signal=lambda group: (signals.append(group), 0.0)[1],
    )
    for group in signals:
        assert group.index is not None
        p = success[group.index]
        found.append(p * (1 - p) / len(group.rollouts))
    assert sum(len(group.rollouts) for group in signals) == 20 * 512
    return float(np.mean(found))


def test_where_most_questions_are_nearly_always_right_or_wrong_means_are_more_certain() -> None:
    success = np.clip(np.random.default_rng(0).beta(0.2, 0.2, 300), 1e-4, 1 - 1e-4)
    equal = variance([], {}, success)
    assert variance([ALLOCATION], {ALLOCATION: {"explore": 0.0}}, success) <= 0.8 * equal
    assert variance([ALLOCATION], {}, success) <= 0.85 * equal

"""DUET's allocation against the multiplier by bisection and the best of all allocations, and what it knows by hand."""

from __future__ import annotations

import math
import random
from itertools import product
from typing import Any

import numpy as np
import pytest

from podsrl.control import Ask, Budget
from podsrl.errors import UsageError
from podsrl.lib.parts import Parts, make_parts
from podsrl.systems.duet import Neyman, allocated
from podsrl.types import Group
from tests.systems.made_up_groups import group, right_of, rollout, view


def bisected(spread: list[float], length: list[float], tokens: float, least: int, most: int) -> list[int]:
    """Sizes at the largest multiplier that fits, as in the authors' code, but to the last bit of a float."""

    def sizes(log: float) -> list[int]:
        wanted = (math.exp(log) * s / math.sqrt(own) for s, own in zip(spread, length, strict=True))
        return [min(max(math.floor(each + 0.5), least), most) for each in wanted]

    low, high = -50.0, 50.0
    for _ in range(80):
        middle = (low + high) / 2
        used = sum(n * own for n, own in zip(sizes(middle), length, strict=True))
        low, high = (middle, high) if used <= tokens else (low, middle)
    return sizes(low)


def cases(count: int, questions: int) -> list[tuple[list[float], list[float], float, int, int]]:
    found = []
    for case in range(count):
        rng = random.Random(case)
        size = rng.randint(1, questions)
        spread, length = ([rng.uniform(low, high) for _ in range(size)] for low, high in ((0.05, 0.5), (4, 400)))
        n, least = rng.randint(2, 9), rng.choice((2, 2, 3))
        found.append((spread, length, rng.uniform(0.5, 1) * n * sum(length), least, least + rng.choice((0, 1, 6, 30))))
    return found


def test_sizes_are_those_of_the_largest_multiplier_that_fits() -> None:
    for spread, length, tokens, least, most in cases(60, 8):
        found = allocated(np.array(spread), np.array(length), tokens, least, most).tolist()
        assert found == bisected(spread, length, tokens, least, most)


def test_the_sum_of_the_variances_is_near_the_least_of_all_allocations_and_below_that_of_equal_sizes() -> None:
    ratios, gains = [], []
    for spread, length, _, _, _ in cases(15, 3):
        tokens = 6 * sum(length)

        def variance(sizes: tuple[int, ...], spread: list[float] = spread) -> float:
            return sum(s * s / n for s, n in zip(spread, sizes, strict=True))

        fitting = [
            sizes
            for sizes in product(range(2, 15), repeat=len(spread))
            if sum(n * own for n, own in zip(sizes, length, strict=True)) <= tokens
        ]
        found = variance(tuple(allocated(np.array(spread), np.array(length), tokens, 2, 14).tolist()))
        ratios.append(found / min(map(variance, fitting)))
        gains.append(found / variance((6,) * len(spread)))
    assert np.mean(ratios) < 1.03 and np.mean(gains) < 0.95


def parts_of(**options: Any) -> Parts:
    return make_parts(["duet"], {"duet": options})


def answered(index: int, right: int, size: int, tokens: int) -> Group:
    own = (rollout(i, is_correct=i < right, logprobs=(-1.0,) * tokens) for i in range(size))
    return group(str(index), own, index=index)


def test_a_question_counts_its_own_rollouts_and_one_of_the_mean_and_a_new_one_is_the_mean() -> None:
    part = Neyman(memory=0.5)
    part.learn([answered(0, 1, 4, 10), answered(3, 3, 4, 40)])  # 4 of 8 right, 25 tokens: the mean rollout
    spread, length = part.known(np.array([0, 3, 1, 99]))
    p = np.array([1.5 / 5, 3.5 / 5, 0.5, 0.5])
    assert spread.tolist() == pytest.approx(np.sqrt(p * (1 - p)).tolist())
    assert length.tolist() == [65 / 5, 185 / 5, 25, 25]
    part.learn([answered(0, 4, 4, 20)])  # (0.5 + 4) of (2 + 4), 20 + 80 tokens; in all 7.5 of 10, 260 tokens
    spread, length = part.known(np.array([0]))
    p0 = (4.5 + 8 / 11) / 7
    assert spread[0] == pytest.approx(math.sqrt(p0 * (1 - p0))) and length[0] == pytest.approx(126 / 7)


def test_invalid_rollouts_teach_nothing_and_what_is_always_right_has_a_spread_above_0() -> None:
    broken = [rollout(i, is_correct=False, is_valid=False, logprobs=(-1.0,) * 90) for i in range(3)]
    part = Neyman()
    part.learn([group("x", broken, index=7), group("y", [*broken, *answered(2, 2, 5, 4).rollouts[:2]], index=2)])
    assert part.state()["counts"].tolist() == [[0, 0, 0], [0, 0, 0], [2, 2, 8]]
    spread, length = part.known(np.array([2]))
    assert spread[0] > 0 and length[0] == 4


def test_a_step_asks_n_before_anything_was_seen_then_where_it_pays_and_the_same_after_a_restore() -> None:
    parts, others = parts_of(), parts_of()
    budget, again = Budget(parts), Budget(others)
    assert [ask.num_rollouts for ask in budget.ask(view(4))] == [8] * 4
    drawn = view(4).stream.draw(4)
    kinds = ((4, 10), (4, 40), (8, 10), (4, 10))
    parts.learn([answered(i, right, 8, tokens) for i, (right, tokens) in zip(drawn, kinds, strict=True)])
    sizes = [ask.num_rollouts for ask in budget.ask(view(4))]
    assert sizes[0] == sizes[3] > 8 > sizes[1] and sizes[0] > sizes[2]
    others.restore(parts.state())
    assert [ask.num_rollouts for ask in again.ask(view(4))] == sizes


def test_rollouts_that_join_a_group_stay() -> None:
    part = Neyman(least=5, most=5)
    part.learn([right_of("a", 4, 8)])
    join = Ask(index=1, num_rollouts=3, joins="s")
    assert part.rollouts(view(), [join, Ask(index=2, num_rollouts=8)]) == [join, Ask(index=2, num_rollouts=5)]
    assert part.rollouts(view(), [join]) == [join]


def test_bounds_that_contradict_each_other_are_named() -> None:
    assert parts_of().most(3, 8) == (3, 32)
    with pytest.raises(UsageError, match=r"options.duet.least = 9 is more than options.duet.most = 8"):
        parts_of(least=9, most=8)
    with pytest.raises(UsageError, match=r"options.duet.share = 0.5 of rollouts.num_rollouts = 8 is less than"):
        parts_of(least=5, share=0.5).most(3, 8)

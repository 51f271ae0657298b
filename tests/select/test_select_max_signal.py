"""max_signal against a search over all subsets of all sizes, and against max-variance where a row costs nothing."""

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations

import pytest
import torch

from loops import each
from podsrl.errors import UsageError
from podsrl.select import max_signal, max_variance, resolve_rule, select_groups, try_rule
from podsrl.types import group_of_rewards


def spread(rewards: Sequence[Fraction]) -> Fraction:
    """The sum of squares about the mean, exactly."""
    mean = sum(rewards, Fraction(0)) / len(rewards)
    return sum(((reward - mean) ** 2 for reward in rewards), Fraction(0))


def best_rate(rewards: Sequence[float], most: int, overhead: Fraction) -> tuple[Fraction, int]:
    """The largest signal per cost of any subset of 2 .. most rollouts, and the smallest subset's size that has it."""
    exact = [Fraction(reward) for reward in rewards]
    rates = [
        (spread(subset) / (size + overhead), -size)
        for size in range(2, min(most, len(rewards)) + 1)
        for subset in combinations(exact, size)
    ]
    rate, size = max(rates)
    return rate, -size


def one(rewards: Sequence[float], most: int, overhead: float) -> list[int]:
    [kept] = max_signal([group_of_rewards("q", rewards)], most, overhead=overhead)
    return kept


def check(rewards: Sequence[float], most: int, overhead: Fraction) -> None:
    kept = one(rewards, most, float(overhead))
    rate, size = best_rate(rewards, most, overhead)
    assert kept == sorted(set(kept)) and len(kept) == size, (rewards, most, overhead)
    assert spread([Fraction(rewards[i]) for i in kept]) / (size + overhead) == rate, (rewards, most, overhead)


def test_all_binary_groups_of_up_to_six_equal_a_search_over_all_subsets_and_sizes() -> None:
    for n in range(2, 7):
        for right in range(n + 1):
            for overhead in (Fraction(1, 4), Fraction(13)):
                check([1.0] * right + [0.0] * (n - right), n, overhead)
    check([0.0, 1.0] + [0.0] * 6, 5, Fraction(13))


@each("seed", range(12))
def test_groups_of_several_rewards_equal_the_search(seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    n = 3 + seed % 6
    rewards = (torch.randint(0, 9, (n,), generator=draw) / 8).tolist()  # eighths are exact in floats
    check(rewards, 2 + seed % 5, Fraction(1 + seed, 2))


def test_large_groups_in_blocks_keep_the_best_of_all_max_variance_subsets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podsrl.select.signal._BLOCK_ELEMENTS", 1000)  # two groups at once
    rewards = torch.rand(7, 50, generator=torch.Generator().manual_seed(0), dtype=torch.float64) ** 4
    groups = [group_of_rewards(str(i), row) for i, row in enumerate(rewards.tolist())]
    kept = max_signal(groups, 20, overhead=9.0)
    for row, chosen in zip(rewards, kept, strict=True):
        subsets = [max_variance(row, size) for size in range(2, 21)]
        assert chosen == max(subsets, key=lambda s: float(row[s].var(correction=0)) * len(s) / (len(s) + 9)).tolist()
    assert len({len(chosen) for chosen in kept}) > 1


@pytest.mark.parametrize(
    ("num_right", "num_kept"), [(0, 2), (1, 5), (2, 7), (3, 10), (4, 12), (5, 14), (6, 16), (7, 16), (32, 16), (63, 5)]
)
def test_rare_answers_keep_few_rows_as_the_module_says(num_right: int, num_kept: int) -> None:
    # one right of k kept: (k - 1) / (k (k + 13)) is 4/90 = 0.0444 at 5, 3/68 = 0.0441 at 4 and 5/114 = 0.0439 at 6
    assert len(one([1.0] * num_right + [0.0] * (64 - num_right), 16, 13.0)) == num_kept


def test_a_tie_keeps_the_fewest() -> None:
    # one right of k kept at an overhead of 11: 3/4/15 at k = 4 and 4/5/16 at k = 5 are both 1/20
    assert one([1.0] + [0.0] * 9, 9, 11.0) == [0, 1, 2, 3]


@each("seed", range(20))
def test_where_a_row_costs_nothing_it_is_max_variance(seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    n, m = 4 + seed % 9, 2 + seed % 4
    rewards = torch.rand(3, n, generator=draw, dtype=torch.float64)
    rewards[0] = (rewards[0] * 2).floor()
    rewards[1] = 0.5
    groups = [group_of_rewards(str(i), row) for i, row in enumerate(rewards.tolist())]
    assert max_signal(groups, m, overhead=math.inf) == max_variance(rewards, m).tolist()


def test_a_large_overhead_is_near_enough_to_no_price() -> None:
    rewards = [0.0, 0.25, 0.5, 0.75, 1.0, 0.25]
    assert one(rewards, 4, 1e9) == max_variance(rewards, 4)


def test_groups_without_signal_keep_two_and_invalid_rollouts_none() -> None:
    groups = [
        group_of_rewards("solved", [1.0] * 6),
        group_of_rewards("mixed", [1.0, math.nan, 0.0, 0.0]),
        group_of_rewards("hopeless", [0.0] * 6),
        group_of_rewards("alone", [1.0, math.nan]),
    ]
    kept = [each.kept for each in select_groups(groups, max_signal, 4)]
    assert kept == [(0, 1), (0, 2, 3), (0, 1), ()]


def test_a_shift_and_a_scale_of_the_rewards_change_nothing() -> None:
    rewards = [0.0, 0.125, 1.0, 0.5, 0.0, 0.0, 0.875, 0.25]
    assert one(rewards, 6, 5.0) == one([1e6 + 8 * reward for reward in rewards], 6, 5.0)
    for scale in (1e200, 1e-200):  # whose squares overflow, or are 0
        assert one(rewards, 6, 5.0) == one([scale * reward for reward in rewards], 6, 5.0)


@pytest.mark.parametrize("overhead", [0.0, -1.0, math.nan])
def test_a_cost_that_is_not_above_0_is_refused(overhead: float) -> None:
    with pytest.raises(UsageError, match=r"overhead of max_signal is .*; wanted rows above 0"):
        one([0.0, 1.0], 2, overhead)
    if overhead <= 0:
        with pytest.raises(UsageError, match=r"select\.options\.overhead = "):
            resolve_rule("max_signal", {"overhead": overhead})


def test_one_rollout_is_refused_before_a_run() -> None:
    with pytest.raises(UsageError, match="num_kept = 1; wanted at least 2"):
        try_rule(max_signal, 8, 1)


def together(right: Sequence[int], n: int, most: int, overhead: float) -> float:
    """The largest signal per cost of a step whose groups are chosen together: every row at the step's own rate."""
    sizes = torch.arange(2, most + 1)
    ones = torch.arange(most + 1).unsqueeze(-1)
    signals = []
    for r in right:
        is_there = (ones <= r) & (sizes - ones <= n - r) & (ones <= sizes)
        signals.append(torch.where(is_there, ones * (sizes - ones) / sizes, 0.0).amax(0))
    rate = 0.0
    for _ in range(6):  # Dinkelbach's iteration
        chosen = [int((signal - rate * sizes).argmax()) for signal in signals]
        taught = sum(float(signal[place]) for signal, place in zip(signals, chosen, strict=True))
        rate = taught / sum(int(sizes[place]) + overhead for place in chosen)
    return rate


@pytest.mark.parametrize("share", [0.009, 0.014, 0.04, 0.18, 0.59])
def test_choosing_a_whole_step_together_would_give_little_more_signal_per_cost(share: float) -> None:
    draw = torch.Generator().manual_seed(0)
    own = best = 0.0
    for _ in range(20):
        right = torch.binomial(torch.full((8,), 64.0), torch.full((8,), share), generator=draw).int().tolist()
        groups = [group_of_rewards(str(i), [1.0] * r + [0.0] * (64 - r)) for i, r in enumerate(right)]
        kept = max_signal(groups, 16, overhead=12.8)
        ones = [sum(place < r for place in places) for places, r in zip(kept, right, strict=True)]
        taught = sum(a * (len(k) - a) / len(k) for a, k in zip(ones, kept, strict=True))
        one, other = taught / sum(len(k) + 12.8 for k in kept), together(right, 64, 16, 12.8)
        assert one <= other * (1 + 1e-6)
        own, best = own + one, best + other
    assert best <= 1.05 * own

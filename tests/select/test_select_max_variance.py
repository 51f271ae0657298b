"""max_variance against brute force over all subsets, in exact arithmetic wherever a tie must be judged."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from loops import each
from podsrl.select import max_variance

SIZES = [(2, 1), (3, 2), (4, 2), (5, 3), (6, 2), (6, 4), (7, 3), (8, 4), (8, 5), (9, 1), (10, 3), (10, 9)]


def subsets(n: int, m: int) -> np.ndarray:
    return np.array(list(itertools.combinations(range(n), m)))


def exact_spread(values: list[int]) -> int:
    """m² times the variance of whole numbers, without rounding."""
    return len(values) * sum(v * v for v in values) - sum(values) ** 2


def by_the_tie_rule(rewards: list[int], m: int) -> list[int]:
    """The documented choice, from exact arithmetic: best k, nearest m / 2, then the lower; of equals the earliest."""
    up, ends = sorted(range(len(rewards)), key=lambda i: rewards[i]), {}
    for k in range(m + 1):
        low = up[: m - k]
        down = sorted((i for i in range(len(rewards)) if i not in low), key=lambda i: -rewards[i])
        ends[k] = low + down[:k]
    spread = {k: exact_spread([rewards[i] for i in kept]) for k, kept in ends.items()}
    best = [k for k in spread if spread[k] == max(spread.values())]
    return sorted(ends[min(best, key=lambda k: (abs(2 * k - m), k))])


def integer_groups(n: int, num_groups: int, seed: int) -> np.ndarray:
    """Binary, few-valued, many-valued and negative rewards; the first group is all equal."""
    draw = np.random.default_rng(seed)
    top = draw.choice([1, 2, 12, 100], size=(num_groups, 1))
    groups = draw.integers(0, top + 1, size=(num_groups, n)) - draw.choice([0, 7], size=(num_groups, 1))
    groups[0] = 3
    return np.asarray(groups)


@each(("n", "m"), SIZES)
def test_no_subset_of_whole_numbers_has_a_larger_variance(n: int, m: int) -> None:
    groups = integer_groups(n, 400, seed=n * m)
    every = groups[:, subsets(n, m)]
    best = (m * (every**2).sum(-1) - every.sum(-1) ** 2).max(-1)
    kept = np.take_along_axis(groups, max_variance(groups, m), axis=-1)
    assert (m * (kept**2).sum(-1) - kept.sum(-1) ** 2).tolist() == best.tolist()


@each(("n", "m"), SIZES)
def test_ties_are_broken_as_documented_at_every_scale_and_offset(n: int, m: int) -> None:
    groups = integer_groups(n, 200, seed=1000 + n * m)
    wanted = [by_the_tie_rule(group.tolist(), m) for group in groups]
    assert max_variance(groups, m).tolist() == wanted
    for scale, offset in [
        (0.1, 0.0),
        (1e-12, 0.0),
        (1e200, 0.0),
        (1 / 3, 0.0),
        (1.0, 1e6),
        (0.25, -1e6),
        (1e-300, 0.0),
    ]:
        assert max_variance(groups * scale + offset, m).tolist() == wanted, (scale, offset)
    single = torch.tensor(groups, dtype=torch.float32)
    assert max_variance(single, m).tolist() == wanted
    assert max_variance(single + 1e6, m).tolist() == wanted
    assert max_variance(single.to(torch.float16), m).tolist() == wanted
    assert max_variance(single.to(torch.bfloat16), m).tolist() == wanted


@pytest.mark.parametrize("scale", [1.0, 1e-12, 1e12])
@each(("n", "m"), [(5, 2), (7, 4), (9, 3), (10, 5), (11, 8)])
def test_no_subset_of_continuous_rewards_has_a_larger_variance(n: int, m: int, scale: float) -> None:
    groups = np.random.default_rng(n).standard_normal((200, n)) ** 3 * scale
    best = groups[:, subsets(n, m)].var(-1).max(-1)
    kept = np.take_along_axis(groups, max_variance(groups, m), axis=-1).var(-1)
    np.testing.assert_allclose(kept, best, rtol=1e-11, atol=0)


def test_rewards_of_very_different_size_lose_nothing_against_exact_arithmetic() -> None:
    draw = np.random.default_rng(3)
    groups = draw.choice([-1.0, 1.0], (100, 8)) * 10.0 ** draw.integers(-12, 4, (100, 8)) * draw.random((100, 8))
    for group, kept in zip(groups.tolist(), max_variance(groups, 4).tolist(), strict=True):
        exact = [Fraction(reward) for reward in group]
        spread = [4 * sum(v * v for v in some) - sum(some) ** 2 for some in itertools.combinations(exact, 4)]
        chosen = [exact[i] for i in kept]
        assert 4 * sum(v * v for v in chosen) - sum(chosen) ** 2 >= max(spread) * (1 - Fraction(1, 10**11))


def test_a_shaped_group_by_hand_keeps_one_high_and_three_low() -> None:
    # k = 1: {0, 0, 0, 9} has variance 15.1875; k = 2: {0, 0, 1, 9} has 14.25
    assert max_variance([1.0, 0.0, 9.0, 0.0, 0.0, 1.0], 4) == [1, 2, 3, 4]


@pytest.mark.parametrize("m", [2, 3, 8, 15, 16])
def test_binary_rewards_split_evenly_whenever_there_are_enough_of_each(m: int) -> None:
    for num_right in range(33):
        rewards = [1.0] * num_right + [0.0] * (32 - num_right)
        kept_right = sum(rewards[i] for i in max_variance(rewards, m))
        assert kept_right == min(max(m // 2, m - (32 - num_right)), num_right)


def test_of_equal_rewards_the_first_are_kept_at_both_ends() -> None:
    assert max_variance([0.3] * 8, 4) == [0, 1, 2, 3]
    assert max_variance([0.3] * 8, 5) == [0, 1, 2, 3, 4]
    assert max_variance([0.0, 1.0, 0.0, 1.0, 1.0, 0.0], 2) == [0, 1]
    assert max_variance([0.5, 0.0, 0.5, 0.5, 1.0, 0.5], 4) == [0, 1, 2, 4]  # a half belongs to each end


def test_float32_rewards_are_weighed_in_float64() -> None:
    values = [0, 1, 2, 2**22 + 1, 2**23 - 1, 2**24 - 2, 2**24 - 1, 2**24]  # exact in float32, their sums are not
    groups = np.random.default_rng(0).choice(values, (300, 7))
    wanted = [by_the_tie_rule(group.tolist(), 5) for group in groups]
    assert max_variance(groups.astype(np.float32), 5).tolist() == wanted


def test_minus_zero_is_zero() -> None:
    assert max_variance([-0.0, 0.0, -0.0, 0.0, 1.0], 4) == max_variance([0.0, 0.0, 0.0, 0.0, 1.0], 4) == [0, 1, 2, 4]


def test_the_input_is_not_written_to() -> None:
    rewards = torch.rand(5, 12, generator=torch.Generator().manual_seed(0))
    before = rewards.clone()
    max_variance(rewards, 4)
    assert torch.equal(rewards, before)
    array = before.double().numpy().copy()
    max_variance(array, 4)
    assert (array == before.double().numpy()).all()


def test_groups_do_not_feel_each_other_however_many_are_selected_at_once() -> None:
    draw = torch.Generator().manual_seed(0)  # 600 groups of 1024 are worked on in several blocks, with and without ties
    rewards = torch.rand(600, 1024, generator=draw)
    rewards[::2] = (rewards[::2] * 5).floor()
    kept = max_variance(rewards, 100)
    for group in (0, 1, 255, 256, 257, 511, 512, 598, 599):
        assert kept[group].tolist() == max_variance(rewards[group].tolist(), 100)
    assert (kept.diff(dim=-1) > 0).all()


@given(st.data())
def test_the_order_of_rollouts_does_not_change_the_kept_rewards(data: st.DataObject) -> None:
    group = data.draw(st.lists(st.floats(-1e6, 1e6) | st.sampled_from([0.0, 0.1, 1.0]), min_size=2, max_size=12))
    m = data.draw(st.integers(1, len(group)))
    shuffled = data.draw(st.permutations(group))
    assert sorted(group[i] for i in max_variance(group, m)) == sorted(shuffled[i] for i in max_variance(shuffled, m))


@given(st.lists(st.integers(-(2**20), 2**20), min_size=3, max_size=9), st.data())
def test_any_whole_numbers_meet_the_exact_twin(group: list[int], data: st.DataObject) -> None:
    m = data.draw(st.integers(1, len(group) - 1))
    kept = max_variance([float(reward) for reward in group], m)
    assert kept == by_the_tie_rule(group, m)
    best = max(exact_spread(list(some)) for some in itertools.combinations(group, m))
    assert exact_spread([group[i] for i in kept]) == best


def test_the_variance_rises_then_falls_with_k() -> None:
    """The lemma that lets one pass find the best k: no second peak, on exact numbers."""
    for group in integer_groups(9, 300, seed=5).tolist():
        ordered = sorted(group)
        spread = [exact_spread(ordered[: 5 - k] + ordered[9 - k :]) for k in range(6)]
        steps = [math.copysign(1, b - a) for a, b in itertools.pairwise(spread) if a != b]
        assert steps == sorted(steps, reverse=True)

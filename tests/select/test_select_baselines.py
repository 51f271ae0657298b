"""The rules beside max-variance, by hand and against plain Python twins."""

import itertools
from collections import Counter

import pytest
import torch

from podsrl.errors import UsageError
from podsrl.select import both_ends, max_reward, max_variance, percentile, random


def test_max_reward_keeps_the_highest_and_the_latest_of_equal_ones() -> None:
    assert max_reward([0.1, 0.9, 0.5, 0.7], 2) == [1, 3]
    assert max_reward([1.0, 0.0, 1.0, 1.0, 0.0], 2) == [2, 3]
    assert max_reward([0.0, 0.0, 1.0, 0.0], 3) == [1, 2, 3]


def test_max_reward_meets_a_stable_sort() -> None:
    rewards = torch.randint(0, 6, (300, 11), generator=torch.Generator().manual_seed(1))
    for m in (1, 4, 10):
        wanted = [sorted(sorted(range(11), key=group.__getitem__)[11 - m :]) for group in rewards.tolist()]
        assert max_reward(rewards, m).tolist() == wanted


def test_both_ends_are_the_pairs_of_the_highest_and_the_lowest_rank_left() -> None:
    rewards = torch.randint(0, 4, (200, 9), generator=torch.Generator().manual_seed(2))
    for m in (1, 2, 5, 8):
        for group, kept in zip(rewards.tolist(), both_ends(rewards, m).tolist(), strict=True):
            left, wanted = sorted(range(9), key=group.__getitem__), []
            while len(wanted) < m:
                wanted.append(left.pop(-1 if len(wanted) % 2 else 0))
            assert kept == sorted(wanted)


def test_both_ends_keep_as_many_right_ones_as_max_variance_and_of_other_rewards_another_set() -> None:
    binary = torch.randint(0, 2, (200, 8), generator=torch.Generator().manual_seed(3)).double()
    for m in (2, 4, 6):
        ends, most = (binary.gather(1, rule(binary, m)).sum(1) for rule in (both_ends, max_variance))
        is_enough = (binary.sum(1) >= m / 2) & (binary.sum(1) <= 8 - m / 2)
        assert is_enough.any() and torch.equal(ends[is_enough], most[is_enough])
    far = [0.0, 0.1, 0.2, 0.3, 10.0, 9.0]
    assert both_ends(far, 3) == [0, 1, 4] == max_variance(far, 3)
    assert both_ends([0.0, 0.0, 0.0, 0.9, 1.0, 0.1], 4) == [0, 1, 3, 4]
    assert both_ends([0.0, 8.0, 9.0, 9.5, 10.0], 4) == [0, 1, 3, 4] != max_variance([0.0, 8.0, 9.0, 9.5, 10.0], 4)


def test_percentile_takes_the_middle_of_each_of_m_equal_parts() -> None:
    rewards = [float(i) for i in range(16)]
    assert percentile(rewards, 4) == [2, 6, 10, 14]
    assert percentile(rewards, 1) == [8]
    assert percentile(rewards, 3) == [2, 8, 13]  # 16/6 = 2.67, 8, 13.33
    assert percentile(rewards[::-1], 4) == [1, 5, 9, 13]


def test_percentile_ranks_are_distinct_and_as_defined_for_every_n_and_m() -> None:
    for n in range(1, 40):
        for m in range(1, n + 1):
            kept = percentile([float(i) for i in range(n)], m)
            assert kept == [int((i - 0.5) * n / m + 1e-9) for i in range(1, m + 1)]
            assert len(set(kept)) == m


def test_percentile_takes_the_earliest_position_first_among_equal_rewards() -> None:
    assert percentile([1.0, 0.0, 0.0, 1.0, 0.0], 2) == [0, 2]  # the order is 1, 2, 4, 0, 3; of it ranks 1 and 3


def test_random_keeps_every_subset_equally_often() -> None:
    kept = random(torch.zeros(12000, 5), 2, generator=torch.Generator().manual_seed(0))
    counts = Counter(map(tuple, kept.tolist()))
    assert set(counts) == set(itertools.combinations(range(5), 2))
    assert all(abs(count - 1200) < 5 * (12000 * 0.1 * 0.9) ** 0.5 for count in counts.values())


def test_random_follows_its_generator_and_nothing_else() -> None:
    rewards = torch.rand(6, 20)
    first = random(rewards, 7, generator=torch.Generator().manual_seed(3))
    torch.rand(100)
    again = random(-rewards, 7, generator=torch.Generator().manual_seed(3))
    other = random(rewards, 7, generator=torch.Generator().manual_seed(4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert (first.diff(dim=-1) > 0).all()


def test_random_draws_a_batch_as_it_draws_its_groups_one_by_one() -> None:
    draw = torch.Generator().manual_seed(5)
    one_by_one = [random(torch.zeros(9), 4, generator=draw).tolist() for _ in range(6)]
    assert random(torch.zeros(6, 9), 4, generator=torch.Generator().manual_seed(5)).tolist() == one_by_one


def test_random_refuses_a_generator_of_another_library() -> None:
    with pytest.raises(UsageError, match=r"generator is a int; wanted torch\.Generator"):
        random([0.0, 1.0], 1, generator=7)  # type: ignore[call-overload]  # a wrong type is what is tested


def test_random_without_a_generator_follows_torch_s_seed() -> None:
    torch.manual_seed(11)
    first = random([0.0] * 30, 10)
    torch.manual_seed(11)
    assert random([0.0] * 30, 10) == first

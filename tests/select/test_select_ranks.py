"""Ranks from sorted values and comparisons, against a stable argsort."""

import torch

from podsrl.select.variance import indices_of, is_among_first, ordered_rewards


def test_the_first_of_the_order_are_those_of_a_stable_argsort() -> None:
    draw = torch.Generator().manual_seed(0)
    rewards = torch.randint(0, 4, (500, 9), generator=draw).double()
    count = torch.randint(0, 10, (500, 1), generator=draw)
    inside = is_among_first(rewards, ordered_rewards(rewards), count)
    ranks = rewards.argsort(dim=-1, stable=True).argsort(dim=-1)
    assert torch.equal(inside, ranks < count)


def test_a_mask_becomes_ascending_positions() -> None:
    mask = torch.tensor([[0, 1, 1, 0], [1, 0, 0, 1], [1, 1, 0, 0]]).bool()
    assert indices_of(mask, 2).tolist() == [[1, 2], [0, 3], [0, 1]]

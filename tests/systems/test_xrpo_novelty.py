"""XRPO's novelty against numbers by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

import made
from podsrl.systems.xrpo import Novelty, likelihoods
from podsrl.types import Group, Rollout, Selection
from tests.systems import made_up_groups


def rollout(index: int, logprobs: tuple[float, ...], *, is_correct: bool = True) -> Rollout:
    return made_up_groups.rollout(index, is_correct=is_correct, logprobs=logprobs)


def group_of(*rollouts: Rollout) -> Group:
    return made_up_groups.group("q", rollouts)


def kept(*places: int) -> Selection:
    return Selection(group_id="q", kept=places, dropped={})


# Mean log-probs -1.0, -1.5, -0.5, -1.0: their mean is -1.
FOUR = group_of(
    rollout(0, (-1.0, -1.0)),
    rollout(1, (-1.0, -2.0)),
    rollout(2, (-0.25, -0.5, -0.75)),
    rollout(3, (-1.0,), is_correct=False),
)


def test_a_bonus_by_hand() -> None:
    advantages = torch.tensor([1.0, 0.5, 2.0, -1.0])
    [found] = Novelty().shape([FOUR], [kept(0, 1, 2, 3)], [advantages])
    # Answer 1: weight * (1 - exp(-0.5)) = 2.5 * 0.3935 = 0.98 is more than half of 0.5. Answer 2 is likelier than most.
    assert found.tolist() == pytest.approx([1.0, 0.75, 2.0, -1.0])
    [small] = Novelty(weight=0.5).shape([FOUR], [kept(0, 1, 2, 3)], [advantages])
    assert small[1] == pytest.approx(0.5 + 0.5 * (1 - math.exp(-0.5)))
    assert found.dtype == torch.float32 and advantages.tolist() == [1.0, 0.5, 2.0, -1.0]


def test_answers_that_are_not_kept_count_in_the_mean() -> None:
    [found] = Novelty(weight=0.1).shape([FOUR], [kept(1, 3)], [torch.tensor([1.0, -1.0])])
    assert found.tolist() == pytest.approx([1 + 0.1 * (1 - math.exp(-0.5)), -1.0])


def test_each_token_of_an_advantage_per_token_has_its_own_bound() -> None:
    advantages = torch.tensor([[1.0, 0.2, 0.0], [-0.5, 4.0, 0.0]])
    [found] = Novelty(weight=1.0).shape([FOUR], [kept(1, 1)], [advantages])
    bonus = 1 - math.exp(-0.5)
    rows = [[1 + bonus, 0.3, 0.0], [-0.5, 4 + bonus, 0.0]]
    assert found.tolist() == [pytest.approx(row) for row in rows]


def test_a_right_answer_with_a_negative_advantage_keeps_it() -> None:
    [found] = Novelty().shape([FOUR], [kept(0, 1)], [torch.tensor([0.0, -0.25])])
    assert found.tolist() == [0.0, -0.25]


def test_a_pruned_answer_is_in_no_mean_and_a_guided_one_is_compared_with_guided_ones() -> None:
    guided = [replace(rollout(i, (value,)), prompt_ids=(8, 9)) for i, value in ((4, -3.0), (5, -4.0))]
    pruned = rollout(6, (-50.0,))
    pruned = replace(pruned, **made.ended("pruned"))
    group = replace(FOUR, rollouts=(*FOUR.rollouts, *guided, pruned))
    expected = [1.0, math.exp(-0.5), math.exp(0.5), 1.0, math.exp(0.5), math.exp(-0.5), 1.0]
    assert likelihoods(group).tolist() == pytest.approx(expected)


def test_given_tokens_are_in_no_mean() -> None:
    said = rollout(1, (-1.0, 0.0, 0.0, -2.0))
    said = replace(said, given=((1, 3),))
    group = replace(FOUR, rollouts=(FOUR.rollouts[0], said, *FOUR.rollouts[2:]))
    assert likelihoods(group).tolist() == likelihoods(FOUR).tolist()


def test_an_advantage_rises_by_at_most_the_bound_and_never_falls() -> None:
    draw = torch.Generator().manual_seed(0)
    for _ in range(50):
        rows = torch.rand(8, 5, generator=draw) * -6
        group = group_of(*(rollout(i, tuple(row.tolist()), is_correct=i % 3 > 0) for i, row in enumerate(rows)))
        advantages = torch.randn(8, generator=draw)
        weight, bound = (4 * torch.rand(2, generator=draw)).tolist()
        [found] = Novelty(weight=weight, bound=bound).shape([group], [kept(*range(8))], [advantages])
        for i, (before, after) in enumerate(zip(advantages.tolist(), found.tolist(), strict=True)):
            if before >= 0 and i % 3 > 0:
                assert before <= after <= (1 + bound) * before * (1 + 1e-6)
            else:
                assert after == before


def test_a_group_of_which_nothing_was_kept_stays_empty() -> None:
    [found] = Novelty().shape([FOUR], [kept()], [torch.zeros(0)])
    assert found.shape == (0,)

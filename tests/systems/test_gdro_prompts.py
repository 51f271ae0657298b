"""Weights of difficulty bins: the closed form, a bin that stays empty, and rewards that are no numbers."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
import torch

from podsrl.lib.parts import make_parts
from podsrl.systems.gdro_prompts import BinWeights
from podsrl.types import Group, Selection
from podsrl.update import shape_advantages
from tests.systems import made_up_groups
from tests.systems.made_up_groups import rollout

names = count()


def group(num_right: int, n: int = 4, index: int = 0) -> Group:
    rollouts = (rollout(j, is_correct=j < num_right, logprobs=(-1.0, -1.0)) for j in range(n))
    return made_up_groups.group(f"s0/{next(names)}/a", rollouts, index=index)


def selection(of: Group) -> Selection:
    return Selection(group_id=of.id, kept=tuple(range(len(of.rollouts))), dropped={})


def weights(part: BinWeights, groups: list[Group]) -> list[float]:
    ones = [torch.ones(len(each.rollouts)) for each in groups]
    shaped = part.shape(groups, [selection(each) for each in groups], ones)
    assert all(each.eq(1).all() for each in ones), "the arguments are left alone"
    return [float(each[0]) for each in shaped]


EASY, MIDDLE, HARD = 4, 2, 1
"""Right ones of four, with k = 1 and the edges 0.4 and 0.75."""


def groups_of(*right: int) -> list[Group]:
    return [group(num_right, index=index) for index, num_right in enumerate(right)]


def test_omega_for_beta_1_is_the_exponential_of_the_newest_loss() -> None:
    part = BinWeights(beta=1.0, eta=2.0, k=1)
    assert weights(part, groups_of(EASY, MIDDLE, HARD)) == [1.0, 1.0, 1.0]
    part.learn(groups_of(EASY, MIDDLE, HARD, MIDDLE, 0))
    losses = [(0.75 + 1.0) / 2, 0.5, 0.0]  # hardest first
    assert part.omega() == pytest.approx(np.exp(2.0 * np.array(losses)))
    shaped = weights(part, groups_of(EASY, MIDDLE, HARD))
    assert shaped == pytest.approx([1.0, math.exp(1.0), math.exp(2 * losses[0])])


def test_scores_are_a_moving_mean_that_begins_with_the_first_loss() -> None:
    part = BinWeights(beta=0.25, eta=1.0, k=1, window=1)
    for num_right in (0, 1, 0):
        part.learn([group(num_right)])
    expected = 0.75 * (0.75 * 1.0 + 0.25 * 0.75) + 0.25 * 1.0
    assert np.log(part.omega()) == pytest.approx([expected, 0.0, 0.0])


def test_scores_are_clipped_and_weights_bounded() -> None:
    part = BinWeights(beta=1.0, eta=4.0, clip=0.5, largest=3.0, k=1)
    part.learn([group(0)])
    assert part.omega()[0] == pytest.approx(math.exp(2.0))
    assert weights(part, groups_of(0, 4)) == [3.0, 1.0]


def test_a_bin_that_stays_empty_keeps_its_score() -> None:
    part = BinWeights(beta=0.5, k=1)
    part.learn(groups_of(EASY, MIDDLE, HARD))
    before = part.omega()
    for _ in range(60):
        part.learn([group(EASY, index=0)])
    assert part.omega() == pytest.approx(before)
    assert np.isfinite(part.shares(0.01)).all()


def test_q_sums_to_1_and_is_the_weight_of_the_released_code() -> None:
    part, groups = BinWeights(beta=1.0, eta=1.0, gamma=0.1, k=1), groups_of(HARD, MIDDLE, EASY)
    assert weights(part, groups) == pytest.approx([1 / 3] * 3)
    part.learn(groups)
    assert part.shares(0.1).sum() == pytest.approx(1.0)
    omega = np.exp([0.75, 0.5, 0.0])
    assert weights(part, groups) == pytest.approx(0.9 * omega / omega.sum() + 0.1 / 3)


def test_rewards_that_are_no_numbers_change_nothing() -> None:
    part, broken = BinWeights(beta=1.0, k=1), group(0)
    invalid = [replace(r, reward=math.nan, invalid_reason="no number") for r in broken.rollouts]
    part.learn([replace(broken, rollouts=tuple(invalid))])
    assert part.omega().tolist() == [1.0, 1.0, 1.0]
    part.learn([replace(broken, rollouts=(*invalid[:2], *broken.rollouts[2:]))])
    assert part.omega() == pytest.approx([math.exp(0.65), 1.0, 1.0])


def test_advantages_per_token_are_weighted_as_well_by_the_system() -> None:
    options = {"gdro_prompts": {"beta": 1.0, "eta": 1.0, "k": 1}}
    parts, hard = make_parts(["gdro_prompts"], options), group(0)
    parts.learn([hard])
    shaped = shape_advantages([hard], [selection(hard)], [torch.ones(4, 2)], parts["shape"])
    assert shaped[0].shape == (4, 2) and shaped[0].numpy() == pytest.approx(math.e)
    again = make_parts(["gdro_prompts"], options)
    again.restore(parts.state())
    assert torch.equal(shape_advantages([hard], [selection(hard)], [torch.ones(4, 2)], again["shape"])[0], shaped[0])

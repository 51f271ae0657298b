"""Difficulty bins: pass@k of the last groups of a question, and a hysteresis by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from loops import each
from podsrl.errors import UsageError
from podsrl.systems.bins import DifficultyBins, pass_at_k
from podsrl.types import Group
from tests.systems import made_up_groups
from tests.systems.made_up_groups import rollout


def group(right: Sequence[bool | int], index: int = 0) -> Group:
    rollouts = (rollout(j, is_correct=bool(is_right)) for j, is_right in enumerate(right))
    return made_up_groups.group("s0/0/a", rollouts, index=index)


def made(edges: Sequence[float] = (0.4, 0.75), k: int = 1, window: int = 50, hysteresis: float = 0.0) -> DifficultyBins:
    return DifficultyBins("options.x", edges, k, window, hysteresis)


@each("n", [1, 2, 5, 8])
@pytest.mark.parametrize("k", [1, 2, 4, 9])
def test_pass_at_k_is_the_share_of_draws_that_hold_a_right_one(n: int, k: int) -> None:
    for num_right in range(n + 1):
        draws = [any(i < num_right for i in draw) for draw in combinations(range(n), min(k, n))]
        assert pass_at_k(n, num_right, k) == pytest.approx(sum(draws) / len(draws))


def test_a_question_on_an_edge_is_in_the_easier_bin() -> None:
    bins = made(edges=(0.25, 0.5))
    bins.learn([group([1, 0, 0, 0], 0), group([1, 1, 0, 0], 1), group([0, 0], 2), group([1, 1], 3)])
    assert [bins.bin_of(i) for i in range(5)] == [1, 2, 0, 2, None]


def test_hysteresis_by_hand() -> None:
    """Edges 0.4 and 0.75, hysteresis 0.12, a window of one group of ten."""
    bins, found = made(window=1, hysteresis=0.12), []
    for num_right in (3, 5, 6, 8, 9, 7, 6, 3, 2, 10, 0):
        bins.learn([group([1] * num_right + [0] * (10 - num_right))])
        found.append(bins.bin_of(0))
    # 0.5 is under 0.52, 0.8 under 0.87, 0.7 above 0.63 and 0.3 above 0.28, so these four stay.
    assert found == [0, 0, 1, 1, 2, 2, 1, 1, 0, 2, 0]


def test_only_the_last_groups_count() -> None:
    bins = made(edges=(0.5,), window=2)
    for right, expected in (([0, 0], 0), ([1, 1], 1), ([0, 1], 1), ([0, 0], 0)):
        bins.learn([group(right)])
        assert bins.bin_of(0) == expected


def test_a_group_is_looked_at_without_being_counted() -> None:
    bins = made(edges=(0.5,))
    assert bins.bin_with(group([1, 1])) == 1 and bins.bin_of(0) is None
    bins.learn([group([0, 0])])
    assert bins.bin_with(group([0, 1])) == 0 and bins.bin_with(group([1, 1])) == 1 and bins.bin_of(0) == 0


def test_rollouts_without_reward_or_asked_in_another_way_do_not_count() -> None:
    whole = group([1, 1, 0])
    invalid = replace(whole.rollouts[0], reward=float("nan"), invalid_reason="no number")
    hinted = replace(whole.rollouts[1], origin="hint", prompt_ids=(9,))
    assert replace(whole, rollouts=(invalid, hinted, whole.rollouts[2])).outcomes == [False]
    too_long = replace(whole.rollouts[1], is_unguided=True)  # it answered the question as it stands
    assert replace(whole, rollouts=(too_long, whole.rollouts[2])).outcomes == [True, False]
    bins = made()
    bins.learn([replace(whole, rollouts=(invalid, hinted))])
    assert bins.bin_of(0) is None and bins.bin_with(replace(whole, rollouts=(invalid,))) is None


def test_state_goes_on_as_if_it_had_not_stopped() -> None:
    rng = np.random.default_rng(0)
    steps = [[group(rng.random(4) < 0.5, index) for index in rng.integers(0, 9, 5).tolist()] for _ in range(12)]
    whole, first, second = (made(k=2, window=3, hysteresis=0.05) for _ in range(3))
    second.restore(first.state())  # empty
    for step in steps:
        whole.learn(step)
    for step in steps[:6]:
        first.learn(step)
    second.restore(first.state())
    for step in steps[6:]:
        second.learn(step)
    assert {name: array.tolist() for name, array in second.state().items()} == {
        name: array.tolist() for name, array in whole.state().items()
    }
    assert [second.bin_of(i) for i in range(9)] == [whole.bin_of(i) for i in range(9)]


@pytest.mark.parametrize("edges", [(), (0.5, 0.5), (0.7, 0.3), (0.0, 0.5), (0.5, 1.0), (float("nan"),)])
def test_edges_are_ascending_between_0_and_1(edges: tuple[float, ...]) -> None:
    with pytest.raises(UsageError, match=r"^options.x.edges = .*wanted at least one, ascending"):
        made(edges=edges)

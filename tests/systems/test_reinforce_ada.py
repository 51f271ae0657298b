"""Reinforce-Ada: rounds until there are right and wrong ones, against the published loop; the mean of the pool."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest
import torch

from loops import each
from made import group_of, selection
from podsrl.control import Ask, Budget
from podsrl.errors import UsageError
from podsrl.lib.parts import make_parts
from podsrl.select import max_variance, select_groups
from podsrl.systems.reinforce_ada import PoolMean, Seek
from podsrl.types import Group
from podsrl.update import ADVANTAGES, step_advantages
from tests.systems.made_up_groups import group, right_of, rollout, view


def budget_of(**options: Any) -> Budget:
    return Budget(make_parts(["reinforce_ada"], {"reinforce_ada": options}))


def grown(budget: Budget, outcomes: Sequence[Sequence[bool]], num_rollouts: int) -> list[Group]:
    """The groups of a step in which question i answers with `outcomes[i]`, one after the other."""
    now = view(len(outcomes), num_rollouts)
    while asks := budget.ask(now):
        of = {found.id: found for found in now.groups}
        for place, ask in enumerate(asks):
            name = ask.joins or str(place)
            size = ask.num_rollouts + (len(of[name].rollouts) if ask.joins else 0)
            own = [rollout(i, is_correct=outcomes[int(name)][i]) for i in range(size)]
            of[name] = group(name, own, index=ask.index)
        now = now.after(list(of.values()))
    return list(now.groups)


def published(outcomes: Sequence[bool], kept: int, size: int, rounds: int) -> tuple[int, list[int]]:
    """Rollouts seen, and the places of those that are kept, by the loop of the authors' code: balanced."""
    right: list[int] = []
    wrong: list[int] = []
    for number in range(rounds):
        for place in range(number * size, (number + 1) * size):
            (right if outcomes[place] else wrong).append(place)
        if len(right) >= kept // 2 and len(wrong) >= kept - kept // 2:
            break
    num_right = min(kept // 2, len(right))
    num_wrong = min(kept - num_right, len(wrong))
    num_right = kept - num_wrong
    return len(right) + len(wrong), sorted(right[:num_right] + wrong[:num_wrong])


@each("kept, size", [(4, 8), (5, 6), (8, 8), (2, 2)])
def test_who_gets_more_and_what_is_kept_are_those_of_the_published_loop(kept: int, size: int) -> None:
    rng = random.Random(kept * 100 + size)
    outcomes = [[rng.random() < share for _ in range(4 * size)] for share in (0.0, 0.03, 0.1, 0.3, 0.5, 0.9, 1.0) * 12]
    groups = grown(budget_of(right=kept // 2, wrong=kept - kept // 2), outcomes, size)
    selections = select_groups(groups, max_variance, kept)
    found = [(len(each.rollouts), list(chosen.kept)) for each, chosen in zip(groups, selections, strict=True)]
    assert found == [published(own, kept, size, 4) for own in outcomes]
    assert {number // size for number, _ in found} == {1, 2, 3, 4}


def test_with_one_right_one_wanted_two_at_a_time_come_until_it_is_there() -> None:
    """AERO's rescue: of 8, more for the all-wrong ones alone, and the last round of a group is cut to `most`."""
    rescue = budget_of(right=1, wrong=0, more=2, most=13)
    outcomes = [[place == first for place in range(13)] for first in (0, 7, 8, 10, 11, 12, 99)]
    assert [len(each.rollouts) for each in grown(rescue, outcomes, 8)] == [8, 8, 10, 12, 12, 13, 13]


def test_probes_and_groups_of_another_round_keep_their_place_and_invalid_rollouts_count_for_nothing() -> None:
    broken = [rollout(i, is_correct=False, is_valid=False) for i in range(4)]
    half = group("half", [*broken, *(rollout(i, is_correct=i < 6) for i in range(4, 8))], index=3)
    lacks = group("lacks", [*broken, *(rollout(i, is_correct=i < 7) for i in range(4, 8))], index=4)
    probe = right_of("probe", 0, 8, is_trained=False)
    second = view(groups=(half, lacks, probe, right_of("full", 0, 32)), round=1)
    assert budget_of().ask(second) == [Ask(index=4, num_rollouts=8, joins="lacks")]


def mean_share_at_the_stop(budget: Budget, share: Fraction, most: int) -> Fraction:
    """Over all outcomes, weighed by their probability: states of right and wrong ones, one rollout after the other."""
    states, found = {(0, 1): 1 - share, (1, 0): share}, Fraction(0)
    for size in range(1, most + 1):
        after: dict[tuple[int, int], Fraction] = {}
        for (right, wrong), chance in states.items():
            if budget.ask(view(num_rollouts=1, groups=(right_of("g", right, size),), round=1)):
                for state, own in (((right + 1, wrong), share), ((right, wrong + 1), 1 - share)):
                    after[state] = after.get(state, Fraction(0)) + chance * own
            else:
                found += chance * Fraction(right, size)
        states = after
    assert not states
    return found


@each("percent, biased", [(5, 0.066), (10, 0.139), (20, 0.266), (50, 0.5)])
def test_the_mean_of_all_is_biased_towards_one_half(percent: int, biased: float) -> None:
    found = mean_share_at_the_stop(budget_of(most=16), Fraction(percent, 100), 16)
    assert float(found) == pytest.approx(biased, abs=1e-3)


def test_the_baseline_is_the_mean_of_all_valid_rewards_of_the_group() -> None:
    of = group_of("a", 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, float("nan"))
    of = group("a", [*of.rollouts[:8], rollout(8, is_correct=False, is_valid=False)])
    chosen = [selection(of, (0, 1, 2, 4))]
    own = step_advantages([of], chosen, ADVANTAGES["none"])
    assert own[0].tolist() == [0.5, -0.5, -0.5, 0.5]
    assert PoolMean().shape([of], chosen, own)[0].tolist() == [0.75, -0.25, -0.25, 0.75]  # 2 of 8
    per_token = PoolMean().shape([of], chosen, [own[0].unsqueeze(1).expand(-1, 3)])
    assert per_token[0].tolist() == [[0.75] * 3, [-0.25] * 3, [-0.25] * 3, [0.75] * 3]
    assert own[0].tolist() == [0.5, -0.5, -0.5, 0.5]


def test_each_chunk_has_a_pool_of_its_own() -> None:
    of = group_of("a", 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0)
    chosen = [selection(of, (0, 1, 4, 7), chunks=((0, 1, 2, 3), (4, 5, 6, 7)))]
    own = step_advantages([of], chosen, ADVANTAGES["none"])
    assert PoolMean().shape([of], chosen, own)[0].tolist() == [0.75, -0.25, 0.25, -0.75]


def test_where_all_are_kept_or_equal_nothing_changes_by_a_bit() -> None:
    varied, equal = group_of("a", 0.1, 0.7, 0.3, 1.0), group_of("b", 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1)
    chosen = [selection(varied, range(4)), selection(equal, (0, 2, 5)), selection(equal, ())]
    groups = [varied, equal, equal]
    own = step_advantages(groups, chosen, ADVANTAGES["none"])
    for before, after in zip(own, PoolMean().shape(groups, chosen, own), strict=True):
        assert torch.equal(before, after)


def test_a_bound_below_n_or_of_too_many_rounds_is_named() -> None:
    assert Seek().most(3, 8) == (3, 32)
    assert Seek(more=2, most=38).most(3, 8) == (3, 38)
    with pytest.raises(UsageError, match=r"most \(options.aero.most\) = 7 is less than rollouts.num_rollouts = 8"):
        Seek(most=7).most(3, 8)
    with pytest.raises(UsageError, match=r"= 39 takes 17 rounds: 8 rollouts, then 2 at a time"):
        Seek(more=2, most=39).most(3, 8)

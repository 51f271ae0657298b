"""AERO: which rollouts stay, against a walk over them; the advantage of groups without contrast, by hand."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from made import selection
from podsrl.config.load import load_config
from podsrl.control import Budget
from podsrl.errors import UsageError
from podsrl.lib.parts import make_parts
from podsrl.select import resolve_rule, select_groups
from podsrl.systems.aero import Posterior, drop_surplus
from podsrl.types import Group, group_of_rewards
from podsrl.update import ADVANTAGES, step_advantages
from tests.systems.made_up_groups import group, right_of, rollout, view


def walked(outcomes: tuple[int, ...], uniform: int) -> list[int]:
    """The kept places, one rollout after the other."""
    right = sum(outcomes)
    if right in (0, len(outcomes)):
        return [*range(min(uniform, len(outcomes)))]
    kept, wrong_left = [], max(right, len(outcomes) if 2 * right >= len(outcomes) else 0)
    for place, is_right in enumerate(outcomes):
        if is_right or wrong_left > 0:
            kept.append(place)
            wrong_left -= not is_right
    return kept


def test_all_right_ones_stay_and_no_more_wrong_ones_where_these_are_more() -> None:
    for size in range(2, 7):
        of_size = [*product((0, 1), repeat=size)]
        for scale, shift in ((1.0, 0.0), (2.0, -1.0)):
            groups = [group_of_rewards("q", [scale * one + shift for one in each]) for each in of_size]
            assert drop_surplus(groups, 16) == [walked(each, 4) for each in of_size]


def test_no_more_than_m_stay_half_of_them_right() -> None:
    rewards = [0.0, 1.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    kept = drop_surplus([group_of_rewards("q", rewards), group_of_rewards("u", [0.1] * 10)], 4, uniform=6)
    assert kept == [[0, 1, 2, 3], [0, 1, 2, 3]]
    rule = resolve_rule("drop_surplus", {"uniform": 3})
    assert select_groups([group_of_rewards("u", [0.1] * 10)], rule, 8)[0].kept == (0, 1, 2)


def test_invalid_rollouts_are_neither_right_nor_wrong() -> None:
    broken = [rollout(i, is_correct=False, is_valid=False) for i in range(3)]
    of = group("q", [*broken, *(rollout(i, is_correct=i == 5) for i in range(3, 8))])
    [chosen] = select_groups([of], drop_surplus, 8)
    assert chosen.kept == (3, 5)
    uniform = group("u", [*broken, *(rollout(i, is_correct=True) for i in range(3, 9))])
    kept = selection(uniform, (3, 4))
    assert Posterior().shape([uniform], [kept], [torch.zeros(2)])[0].tolist() == [0.75, 0.75]  # (6 + 1) / (6 + 2)
    none = group("n", broken)
    assert Posterior().shape([none], [selection(none, ())], [torch.zeros(0)])[0].shape == (0,)


def test_groups_without_contrast_by_hand_and_others_as_they_are() -> None:
    groups = [right_of("all", 8, 8), right_of("none", 0, 16), right_of("some", 3, 8)]
    chosen = [selection(each, range(4)) for each in groups]
    own = [torch.zeros(4), torch.zeros(4, 3), torch.tensor([0.5, 0.5, 0.5, -1.5])]
    found = Posterior(weight=0.5).shape(groups, chosen, own)
    assert torch.equal(found[0], torch.full((4,), 0.5 * (2 * 9 / 10 - 1)))
    assert found[1].shape == (4, 3) and found[1].flatten().tolist() == pytest.approx([0.5 * (2 / 18 - 1)] * 12)
    assert torch.equal(found[2], own[2])
    assert own[0].tolist() == [0.0] * 4
    varied = group("v", [rollout(i, is_correct=False, reward=0.1 * i) for i in range(4)])
    assert torch.equal(Posterior().shape([varied], [selection(varied, range(4))], [own[2]])[0], own[2])


def test_the_parts_of_the_recipe_rescue_drop_and_train_uniform_groups() -> None:
    """The first right answer of question i is at 2i, then every fourth is right; of the last question all are."""
    config = load_config("systems/aero")
    outcomes = [[place >= first and (place - first) % 4 == 0 for place in range(16)] for first in range(0, 18, 2)]
    outcomes.append([True] * 16)
    parts = make_parts(config.systems, config.options)
    budget = Budget(parts)
    now = view(len(outcomes), config.rollouts.num_rollouts)
    groups = dict[str, Group]()
    while asks := budget.ask(now):
        for place, ask in enumerate(asks):
            name = ask.joins or str(place)
            size = ask.num_rollouts + (len(groups[name].rollouts) if ask.joins else 0)
            own = [rollout(i, is_correct=outcomes[int(name)][i]) for i in range(size)]
            groups[name] = group(name, own, index=ask.index)
        now = now.after(list(groups.values()))
    assert [len(each.rollouts) for each in now.groups] == [8, 8, 8, 8, 10, 12, 14, 16, 16, 8]
    rule = resolve_rule(config.select.rule, config.select.options)
    chosen = select_groups(now.groups, rule, config.select.num_kept)
    assert [len(each.kept) for each in chosen] == [4, 4, 2, 2, 2, 2, 2, 2, 4, 4]
    own = step_advantages(now.groups, chosen, ADVANTAGES["std"])
    [shaped] = parts["shape"]
    found = shaped(now.groups, chosen, own)
    assert all(torch.equal(*each) for each in zip(found[:-2], own[:-2], strict=True))
    assert [each.tolist() for each in found[-2:]] == [pytest.approx([-16 / 18] * 4), pytest.approx([0.8] * 4)]


def test_one_kept_rollout_is_refused() -> None:
    with pytest.raises(UsageError, match=r"num_kept = 1; wanted at least 2"):
        drop_surplus([group_of_rewards("q", [0, 1])], 1)
    with pytest.raises(UsageError, match=r"uniform"):
        resolve_rule("drop_surplus", {"uniform": 1})

"""DARS: more rollouts of hard questions, against a search and numbers by hand."""

from __future__ import annotations

from decimal import Decimal, localcontext
from typing import Any

import pytest

from podsrl.control import Ask, Budget
from podsrl.errors import UsageError
from podsrl.lib.parts import make_parts
from podsrl.systems.dars import Harder, Mode, group_size
from tests.systems.made_up_groups import group, right_of, rollout, view

ENDLESS = 1 << 40
CASES: list[tuple[Mode, bool]] = [("ET", False), ("HW", False), ("ET", True), ("HW", True)]


def budget_of(**options: Any) -> Budget:
    return Budget(make_parts(["dars"], {"dars": options}))


@pytest.mark.parametrize(
    ("mode", "most", "more"),
    [
        # S = 30/256, 7/32, 3/8, 15/32 for 0 (counted as half a rollout), 1, 2, 3 of 8; the goal is 4
        ("ET", 32, [24, 11, 3, 1, 0, 0, 0, 0, 0]),  # 26.1 -> bound 24; 10.3; 2.7; 0.5
        # goals 7.5, 7, 6, 5
        ("HW", 64, [56, 24, 8, 3, 0, 0, 0, 0, 0]),  # 56 exactly, 24 exactly, 8 exactly; 2.7
    ],
)
def test_groups_of_eight_by_hand(mode: Mode, most: int, more: list[int]) -> None:
    assert [group_size(k, 8, 8, most, mode, is_std=False) - 8 for k in range(9)] == more


def oracle(num_right: int, n: int, mode: Mode, *, is_std: bool) -> int:
    """The least number of more rollouts whose signal reaches the goal, in decimals of 60 digits."""
    with localcontext() as context:
        context.prec = 60
        a = Decimal(num_right) / n if num_right else Decimal("0.5") / n
        if a >= Decimal("0.5"):
            return 0
        signal = 2 * (a * (1 - a)).sqrt() if is_std else 2 * a * (1 - a)
        peak = Decimal(n) if is_std else Decimal(n) / 2
        goal = peak if mode == "ET" else 2 * (1 - a) * peak
        return next(more for more in range(ENDLESS) if (n + more) * signal >= goal - Decimal("1e-40"))


@pytest.mark.parametrize(("mode", "is_std"), CASES)
def test_all_counts_of_all_sizes_equal_a_search(mode: Mode, is_std: bool) -> None:
    for n in range(2, 17):
        for k in range(n + 1):
            wanted = oracle(k, n, mode, is_std=is_std)
            assert group_size(k, n, n, ENDLESS, mode, is_std=is_std) - n == wanted, (n, k)
            for most in (n, n + 1, 4 * n):
                assert group_size(k, n, n, most, mode, is_std=is_std) - n == min(wanted, most - n)


def test_only_groups_of_the_first_size_grow_and_they_grow_once() -> None:
    budget = budget_of(most=20)
    hard, easy, probe = right_of("h", 1, 8, index=3), right_of("e", 4, 8), right_of("p", 0, 8, is_trained=False)
    second = view(groups=(hard, easy, probe), round=1)
    assert budget.ask(second) == [Ask(index=3, num_rollouts=11, joins="h")]
    grown = hard.with_more(right_of("", 0, 11).rollouts)
    assert grown.num_first == 8 and budget.ask(second.after([grown])) == []
    assert budget.ask(view()) == [Ask(index=i, num_rollouts=8) for i in view().stream.draw(3)]


def test_with_dynamic_sampling_late_groups_get_their_second_round_too() -> None:
    budget = Budget(make_parts(["dars", "dapo"], {"dars": {"most": 9}}))
    asks = budget.ask(view(2, groups=(right_of("a", 0, 8), right_of("b", 3, 8)), round=1))
    assert [ask.joins for ask in asks] == [None, None, "a", "b"]  # one is missing, 1.5 are likely to hold it
    late = (right_of("a", 1, 9), right_of("b", 3, 9), right_of("c", 1, 8), right_of("d", 8, 8))
    assert [ask.joins for ask in budget.ask(view(2, groups=late, round=2))] == ["c"]


def test_invalid_rollouts_do_not_count_as_wrong() -> None:
    broken = [rollout(i, is_correct=False, is_valid=False) for i in range(4)]
    half = group("half", [rollout(i, is_correct=i < 2) for i in range(4)] + broken)
    nothing = group("nothing", broken * 2)
    assert budget_of().ask(view(groups=(half, nothing), round=1)) == []


def test_a_hard_group_gets_as_many_more_as_it_lacks_valid_ones() -> None:
    """1 of 6 valid: a = 1/6, the goal of 8 is 4, one rollout has 5/18: 15 in all, of which 6 are there."""
    broken = [rollout(i, is_correct=False, is_valid=False) for i in range(2)]
    hard = group("h", [*broken, *(rollout(i, is_correct=i == 2) for i in range(2, 8))], index=3)
    assert budget_of().ask(view(groups=(hard,), round=1)) == [Ask(index=3, num_rollouts=9, joins="h")]
    assert budget_of(most=14).ask(view(groups=(hard,), round=1)) == [Ask(index=3, num_rollouts=6, joins="h")]
    assert budget_of(most=8).ask(view(groups=(hard,), round=1)) == []


def test_a_group_of_another_first_size_gets_what_it_lacks_too() -> None:
    """1 of 4: a = 1/4, one rollout has 3/8: 11 in all."""
    small = right_of("s", 1, 4, index=2)
    assert budget_of().ask(view(groups=(small,), round=1)) == [Ask(index=2, num_rollouts=7, joins="s")]


def test_the_bound_is_the_published_one_unless_it_is_set() -> None:
    assert Harder().most(3, 8) == (3, 32)
    assert Harder(mode="HW").most(3, 8) == (3, 64)
    assert Harder(most=9).most(3, 8) == (3, 9)
    assert Harder(most=8).most(3, 8) == (3, 8)
    with pytest.raises(UsageError, match=r"options.dars.most = 7 is less than rollouts.num_rollouts = 8"):
        Harder(most=7).most(3, 8)

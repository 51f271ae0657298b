"""Worth: expected shares against enumeration in fractions, sizes against numbers by hand, and what it remembers."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from loops import each
from podsrl.config.schema import CostsConfig
from podsrl.control import Ask, Budget
from podsrl.lib.parts import Parts, make_parts
from podsrl.systems.worth import POWER, Worth, mixed_shares
from podsrl.types import Group
from tests.systems.made_up_groups import group, right_of, rollout, view


def costs(group_ms: float, rollout_ms: float, row_ms: float = 1.0) -> CostsConfig:
    return CostsConfig(group_ms=group_ms, rollout_ms=rollout_ms, row_ms=row_ms)


def enumerated(seen: list[tuple[int, int]], n: int) -> Fraction:
    """The share of mixed groups: every sequence of n further outcomes of each group, one by one from Pólya's urn."""
    pooled = (sum(r for r, _ in seen) + Fraction(1, 2)) / (sum(v for _, v in seen) + 1)
    found = Fraction(0)
    for right, valid in seen:
        for outcomes in range(2**n):
            chance, a, b = Fraction(1), pooled + right, 1 - pooled + valid - right
            drawn = [outcomes >> i & 1 for i in range(n)]
            for is_right in drawn:
                chance *= (a if is_right else b) / (a + b)
                a, b = a + is_right, b + 1 - is_right
            found += chance if len(set(drawn)) == 2 else 0
    return found / len(seen)


@each("seen", [[(0, 4)], [(4, 4)], [(1, 3), (0, 8)], [(2, 4), (7, 8), (0, 2)], [(0, 1), (0, 1)]])
def test_shares_of_mixed_groups_equal_an_enumeration_of_all_outcomes(seen: list[tuple[int, int]]) -> None:
    shares = mixed_shares(seen, 6)
    assert shares == pytest.approx([float(enumerated(seen, n)) for n in range(1, 7)], abs=1e-15)
    assert shares[0] == 0


def best_by_enumeration(seen: list[tuple[int, int]], sizes: list[int], price: CostsConfig, rows: float) -> int:
    def rate(n: int) -> float:
        mixed = float(enumerated(seen, n))
        return mixed**POWER / (price.group_ms + price.rollout_ms * n + price.row_ms * rows * mixed)

    return max(sizes, key=rate)


@each("price", [costs(9.6, 0.05), costs(4, 0.1), costs(0.5, 1), costs(1, 3), costs(0.01, 1)])
def test_the_size_is_that_of_the_enumeration(price: CostsConfig) -> None:
    for seen in ([(0, 4), (1, 4)], [(2, 4), (3, 4)], [(4, 4)]):
        part = Worth(sizes=(2, 4, 6), rows=3)
        part.restore({"seen": np.array(seen)})
        assert part.best(price) == best_by_enumeration(seen, [2, 4, 6], price, 3), (seen, price)


def parts_of(**options: Any) -> Parts:
    return make_parts(["worth"], {"worth": options})


def asked(parts: Parts, **changes: Any) -> list[int]:
    return [ask.num_rollouts for ask in Budget(parts).ask(view(**changes))]


def learned(*groups: Group, **options: Any) -> Parts:
    parts = parts_of(**options)
    parts.learn(groups)
    return parts


def test_rare_answers_get_large_groups_and_half_solved_questions_small_ones() -> None:
    rare = [right_of(str(i), int(i == 0), 64) for i in range(8)]  # 1 of 512
    half = [right_of(str(i), 4, 8) for i in range(8)]
    assert asked(parts_of(), num_rollouts=64) == [64] * 3  # nothing is known
    assert asked(learned(*rare)) == [64] * 3
    assert asked(learned(*half)) == [8] * 3
    dear = costs(0.5, 1.0)  # where a rollout costs as much as its update
    assert asked(learned(*rare), costs=dear)[0] < 64


def test_all_solved_and_all_hopeless_are_one_size_each_and_the_run_goes_on() -> None:
    for right in (0, 16):
        groups = [right_of(str(i), right, 16) for i in range(32)]
        [size] = set(asked(learned(*groups)))
        assert size == 64  # of 512 answers alike, one of the 513th


def test_only_the_last_groups_count() -> None:
    rare = [right_of(str(i), 0, 64) for i in range(8)]
    half = [right_of(str(i), 4, 8) for i in range(4)]
    assert asked(learned(*rare, *half, window=4)) == [8] * 3


def test_rollouts_that_join_a_group_stay() -> None:
    part = Worth()
    part.learn([right_of("a", 4, 8)])
    join = Ask(index=1, num_rollouts=5, joins="s")
    assert part.rollouts(view(), [join, Ask(index=2, num_rollouts=64)]) == [join, Ask(index=2, num_rollouts=8)]


def test_invalid_rollouts_and_groups_without_any_valid_one_do_not_count() -> None:
    broken = [rollout(i, is_correct=False, is_valid=False) for i in range(4)]
    parts = learned(group("g", [*broken, rollout(4, is_correct=True)]), group("h", broken))
    assert parts.state()["worth"]["seen"].tolist() == [[1, 1]]


def test_what_it_remembers_asks_the_same_after_a_restore() -> None:
    parts, again, empty = learned(*(right_of(str(i), i % 3, 8) for i in range(20))), parts_of(), parts_of()
    again.restore(parts.state())
    assert asked(again) == asked(parts)
    empty.restore(parts_of().state())
    assert asked(empty) == [8] * 3


def test_the_largest_group_is_told() -> None:
    assert parts_of().most(3, 8) == (3, 128)
    assert parts_of(sizes=[4, 2]).most(3, 8) == (3, 8)

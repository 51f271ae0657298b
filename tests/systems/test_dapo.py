"""Dynamic sampling trains on what filtering an endless list of questions would give."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from podsrl.control import Budget, View
from podsrl.errors import UsageError
from podsrl.lib.parts import make_parts
from podsrl.systems.dapo import MOST_PER_ROUND, DynamicSampling
from podsrl.tasks.stream import Stream
from podsrl.types import Group
from tests.systems.made_up_groups import group, right_of, rollout, view


@cache
def budget_of(**options: Any) -> Budget:
    return Budget(make_parts(["dapo"], {"dapo": options}))


def endless(case: int, size: int, share: float, length: int) -> list[int]:
    """Right rollouts of each group of a list that no step reaches the end of."""
    rng = np.random.default_rng(case)
    is_mixed = rng.random(length) < share
    return np.where(is_mixed, rng.integers(1, size, length), size * rng.integers(0, 2, length)).tolist()


def sampled(budget: Budget, first: View, outcomes: Sequence[int]) -> tuple[View, list[int]]:
    """All rounds of a step, and the number of groups that each asked for."""
    now, asked = first, []
    while asks := budget.ask(now):
        asked.append(len(asks))
        places = enumerate(asks, start=len(now.groups))
        now = now.after([right_of(str(p), outcomes[p], ask.num_rollouts, index=ask.index) for p, ask in places])
    return now, asked


def test_a_step_equals_filtering_an_endless_list_of_questions_in_the_order_asked() -> None:
    seen: set[str] = set()
    for case in range(2000):
        rng = random.Random(case)
        count, size, max_rounds = rng.randint(1, 5), rng.randint(2, 4), rng.choice([1, 2, 3, 5])
        share = rng.choice([0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0])
        budget = budget_of(max_rounds=max_rounds)
        first = view(count, size, num_train=rng.randint(1, 40))
        outcomes = endless(case, size, share, length=16 * MOST_PER_ROUND * count)
        last, asked = sampled(budget, first, outcomes)
        total = sum(asked)
        mixed = [place for place, right in enumerate(outcomes[:total]) if 0 < right < size]
        assert [group.index for group in last.groups] == Stream(first.num_train, seed=0).draw(total)
        assert first.stream.position == total == len(last.groups)
        kept = sorted(map(int, budget.trained(last)))
        assert kept == mixed[:count]
        uniform, surplus = total - len(mixed), len(mixed[count:])
        assert total == len(kept) + uniform + surplus
        assert len(asked) <= max_rounds and asked[0] == count
        assert max(asked) <= DynamicSampling(max_rounds=max_rounds).most(count, size)[0] <= MOST_PER_ROUND * count
        if len(kept) < count:
            assert len(asked) == max_rounds
            seen.add("too few")
        else:
            assert sum(place < total - asked[-1] for place in mixed) < count  # no round was asked in vain
            seen.add("several rounds" if len(asked) > 1 else "one round")
        seen |= {"surplus"} if surplus else set()
    assert seen == {"one round", "several rounds", "too few", "surplus"}


def test_a_step_in_which_nothing_is_mixed_ends_by_itself() -> None:
    last, asked = sampled(budget_of(max_rounds=16), view(4, 4), [0] * 1000)
    assert len(asked) == 16 and last.round == 16 and not budget_of().trained(last)


def test_later_rounds_ask_for_what_the_share_of_mixed_groups_makes_likely() -> None:
    """Of 16 asked 7 were mixed: 9 are missing, and 9 · 17 / 8 = 19.1 groups are likely to hold them."""
    budget = budget_of()
    groups = [right_of(str(i), 1 if i < 7 else 0, 2) for i in range(16)]
    assert len(budget.ask(view(16, 2, groups=tuple(groups), round=1))) == math.ceil(9 * 17 / 8)


def test_the_metric_decides_what_differs() -> None:
    shaped = group("shaped", [rollout(0, is_correct=False, reward=0.1), rollout(1, is_correct=False, reward=0.0)])
    judged = group("judged", [rollout(0, is_correct=True, reward=0.5), rollout(1, is_correct=False, reward=0.5)])
    both = view(2, groups=(shaped, judged), round=1)
    assert budget_of().trained(both) == {"judged"}
    assert budget_of(metric="correct").trained(both) == {"judged"}
    assert budget_of(metric="reward").trained(both) == {"shaped"}
    assert len(budget_of().ask(both)) == 2  # one is missing, and (2 + 1) / (1 + 1) = 1.5 groups are likely to hold it


def test_invalid_rollouts_and_probes_make_no_group_mixed() -> None:
    failed = group("failed", [rollout(0, is_correct=True), rollout(1, is_correct=False, is_valid=False)])
    probe = right_of("probe", 1, 2, is_trained=False)
    assert budget_of().trained(view(groups=(failed, probe, right_of("good", 1, 2)), round=1)) == {"good"}
    assert len(budget_of().ask(view(3, groups=(probe,) * 3, round=1))) == 3


def test_it_keeps_mixed_groups_of_any_budget() -> None:
    groups: tuple[Group, ...] = tuple(right_of(str(i), i % 3, 2) for i in range(12))
    parts = make_parts(["mixed"], {})
    alone = Budget(parts)
    assert alone.trained(view(3, groups=groups, round=1)) == {"1", "4", "7"}
    assert alone.trained(view(9, groups=groups, round=1)) == {"1", "4", "7", "10"}
    assert len(alone.ask(view(3))) == 3 and alone.ask(view(3, groups=groups, round=1)) == []
    assert parts.most(3, 8) == (3, 8)


def test_bad_options_and_two_that_keep_are_named() -> None:
    with pytest.raises(UsageError, match=r"options.mixed.max_rounds = 4: there is no such option"):
        make_parts(["mixed"], {"mixed": {"max_rounds": 4}})
    with pytest.raises(UsageError, match=r"'dapo' and 'mixed' both decide keep\(view\)"):
        make_parts(["dapo", "mixed"], {})

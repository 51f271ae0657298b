"""Which of equal rewards are kept: never another multiset of rewards, and of each reward the preferred ones."""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations
from typing import Any

import numpy as np
import pytest

import made
from loops import each
from podsrl.errors import UsageError
from podsrl.lib.parts import Call
from podsrl.select import RULES, resolve_rule, select_groups
from podsrl.select.ties import KEEP_FIRST, TIES, mean_logprob, preferred
from podsrl.types import Group


def group_of(rng: np.random.Generator, size: int) -> Group:
    """Rewards of few values; one in eight is invalid, and lengths and log-probs differ."""
    rollouts = []
    for index in range(size):
        length = int(rng.integers(1, 5))
        failed: Any = {"status": "failed", "invalid_reason": "why"} if rng.random() < 1 / 8 else {}
        reward = math.nan if failed else float(rng.integers(0, 3)) / 2
        logprobs = tuple(-rng.random(length))
        rollouts.append(made.rollout(reward, length, index=index, logprobs=logprobs, **failed))
    return made.group("g", *rollouts)


@each(("rule", "seed"), [(rule, seed) for rule in ("max_variance", "max_signal") for seed in range(60)])
def test_of_all_choices_of_the_same_rewards_the_most_preferred_is_kept(rule: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    group, num_kept = group_of(rng, int(rng.integers(2, 9))), int(rng.integers(2, 5))
    rewards = [rollout.reward for rollout in group.rollouts]
    numbers = rng.integers(0, 4, len(rewards)).astype(float).tolist()
    function = resolve_rule(rule)
    [plain] = select_groups([group], function, num_kept)
    [found] = select_groups([group], function, num_kept, preferences=[numbers])
    wanted = Counter(rewards[i] for i in plain.kept)
    assert Counter(rewards[i] for i in found.kept) == wanted and list(found.kept) == sorted(found.kept)
    valid = [i for i, rollout in enumerate(group.rollouts) if rollout.is_valid]
    same = [kept for kept in combinations(valid, len(plain.kept)) if Counter(rewards[i] for i in kept) == wanted]
    assert sum(numbers[i] for i in found.kept) == max(sum(numbers[i] for i in kept) for kept in same)
    equal = [[0.5] * len(rewards)]
    assert select_groups([group], function, num_kept, preferences=equal) == [plain]


def test_short_likely_and_unlikely_by_hand() -> None:
    """Four right answers and four wrong ones, of which two each are kept."""
    lengths, means = (3, 1, 2, 4), (-0.5, -2.0, -1.0, -0.25)
    rollouts = [
        made.rollout(reward, lengths[i], index=4 * int(reward) + i, logprobs=(means[i],) * lengths[i])
        for reward in (0.0, 1.0)
        for i in range(4)
    ]
    group = made.group("g", *rollouts)
    kept = {}
    for ties in TIES:
        numbers = preferred([group], ties, None)
        [chosen] = select_groups([group], resolve_rule("max_variance"), 4, preferences=numbers)
        kept[ties] = chosen.kept
    assert kept == {"position": (0, 1, 4, 5), "short": (1, 2, 5, 6), "likely": (0, 3, 4, 7), "unlikely": (1, 2, 5, 6)}


def test_given_tokens_make_no_answer_longer_or_likelier() -> None:
    hinted = made.completion((5, 6, 7), logprobs=(0.0, 0.0, -4.0), given=((0, 2),))
    assert mean_logprob(hinted) == -4.0 and preferred([made.group("g", hinted)], "short", None) == [[-1.0]]
    assert mean_logprob(made.completion((), logprobs=())) == 0.0


def test_every_rule_that_keeps_the_first_of_equals_is_named() -> None:
    """Of a group of ones and zeros, the first of each are kept; `keep_all` and `random` show nothing of the kind."""
    group = made.group_of("g", *(float(i % 2) for i in range(12)))
    for name in set(RULES) - {"keep_all", "random"}:
        [found] = select_groups([group], resolve_rule(name), 4)
        right = [i for i in found.kept if i % 2]
        assert (right == list(range(1, 2 * len(right), 2))) == (name in KEEP_FIRST), name


@pytest.mark.parametrize("answer", [None, 7, [[1.0]], [[1.0, 2.0], [3.0]], [[math.nan, 0.0]], [["a", "b"]]])
def test_a_part_that_gives_no_number_for_each_rollout_is_one_line(answer: Any) -> None:
    part = Call("prefer of systems = 'm:C'", lambda groups: answer, None)
    with pytest.raises(UsageError, match=r"^prefer of systems = 'm:C' returned .*wanted a number for each") as error:
        preferred([made.group_of("g", 0.0, 1.0)], "position", part)
    assert "\n" not in str(error.value)

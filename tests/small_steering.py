"""Small systems that look at running rollouts, in a module that other processes can import."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from podsrl.generate import End, Fork, Hold, Live
from podsrl.types import Group


class Unmoved:
    """Sees everything, in every step, and does nothing."""

    def look(self, live: Live) -> list[End]:
        assert live.logprobs.shape[0] > int(live.row_of.max())
        return []


class Forked:
    """Rollout 0 of every group has two forks behind its first token, and rollout 2 one with a token that is set."""

    needs = frozenset({"whole_groups", "free_indices", "no_stop_strings"})
    breaks = frozenset({"settled_steps", "equal_groups"})

    def __init__(self, *, token: int = 5) -> None:
        self.at, self.token = (1,), token

    def look(self, live: Live) -> list[Fork]:
        whole = [Fork(key, 2) for key in live.keys if key[1] == 0]
        return [*(Fork(key, token=self.token) for key in live.keys if key[1] == 2), *whole]

    def most(self, num_prompts: int, num_rollouts: int) -> tuple[int, int]:
        return num_prompts, num_rollouts + 3


class Learned:
    """Ends the more rollouts the better the last step was; what it learns is an array and a number."""

    def __init__(self, *, at: int = 2) -> None:
        self.at, self.shares, self.seen = frozenset({at}), np.array([0.0, 0.25]), 0

    def look(self, live: Live) -> list[End]:
        coins = live.coins("learned")
        return [End(key) for key, coin in zip(live.keys, coins, strict=True) if coin < self.shares[key[1] % 2]]

    def learn(self, groups: Sequence[Group]) -> None:
        right = [rollout.is_correct for group in groups for rollout in group.rollouts]
        self.shares = 0.5 * self.shares + 0.4 * sum(right) / len(right)
        self.seen += 1

    def state(self) -> Mapping[str, Any]:
        return {"shares": self.shares, "seen": self.seen}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.shares, self.seen = state["shares"], state["seen"]


ANSWERS: dict[str, Callable[[Live], Any]] = {
    "none": lambda live: None,
    "number": lambda live: 7,
    "pair": lambda live: [live.keys[0]],
    "fork_of_ended": lambda live: [End(live.keys[0]), Fork(live.keys[0])],
    "unknown": lambda live: [End(("gone", 3))],
    "unknown_fork": lambda live: [Fork(("gone", 3))],
    "hold": lambda live: [Hold(live.keys[0])],
    "raising": lambda live: 1 // 0,
}


class Wrong:
    """It answers what it may not."""

    def __init__(self, *, answer: str) -> None:
        self.look = ANSWERS[answer]


class At:
    """Its `at` is what it is told."""

    def __init__(self, *, at: Any) -> None:
        self.at = at

    def look(self, live: Live) -> list[End]:
        return []

"""Searches among whole answers: the most frequent one, and the one that a judge finds best.

Majority voting is self-consistency (arXiv 2203.11171); best of n is in arXiv 2110.14168, section 4.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from podsrl.evaluation.search.base import Leaf, Search, highest
from podsrl.score.accuracy import majority_rollout


def stay(leaves: Sequence[Leaf], width: int, rng: np.random.Generator) -> Sequence[int]:
    """Every leaf stays: what the token budget kept waiting begins when others have ended."""
    return range(len(leaves))


majority = Search(
    grow=stay, choose=lambda rollouts, scores: majority_rollout(rollouts), is_stepwise=False, is_judged=False
)
"""The most frequent final answer; of equally frequent ones, the one given first."""
best = Search(grow=stay, choose=highest, is_stepwise=False)
"""The answer that the judge finds best."""

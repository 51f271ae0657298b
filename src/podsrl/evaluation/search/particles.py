"""Particle filtering: leaves survive a step by chance, in proportion to what the judge says of them.

Puri et al., arXiv 2502.01618, algorithm 1, with softmax temperature 1; answers that have ended are drawn among too. The
weight of a score s is its odds s / (1 - s), since the softmax is taken of logits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from podsrl.evaluation.search.base import Leaf, Search, highest

_LEAST = float(np.finfo(np.float64).eps)
"""Scores are at least this far from 0 and 1, whose odds are none."""


def resample(leaves: Sequence[Leaf], width: int, rng: np.random.Generator) -> list[int]:
    """Draw `width` places with replacement, each leaf in proportion to the odds of its score."""
    scores = np.clip([leaf.score for leaf in leaves], _LEAST, 1 - _LEAST)
    odds = scores / (1 - scores)
    places: list[int] = rng.choice(len(leaves), size=width, p=odds / odds.sum()).tolist()
    return places


particles = Search(grow=resample, choose=highest)
"""The answer that the judge finds best is given."""

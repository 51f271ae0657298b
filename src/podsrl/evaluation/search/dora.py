"""DORA: the width is divided among directions, not among leaves, so that many equal leaves get one leaf's share.

Wang et al., arXiv 2506.15707, equations 5 to 8. A leaf's share is softmax(score / 0.1); those whose share of the width
rounds to 0 end; that of each other leaf is multiplied by its uniqueness, the diagonal of softmax(likeness / 0.01).
The authors compare sentence embeddings of the steps; here it is the likeness of their texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice

import numpy as np
import numpy.typing as npt

from podsrl.evaluation.search.base import Leaf, Search, highest
from podsrl.evaluation.search.likeness import likeness

SCORE_TEMPERATURE, LIKENESS_TEMPERATURE = 0.1, 0.01

Numbers = npt.NDArray[np.float64]


def by_direction(leaves: Sequence[Leaf], width: int, rng: np.random.Generator) -> list[int]:
    """Those that have ended, and `width` copies of the others; once `width` have ended, those alone."""
    ended = [place for place, leaf in enumerate(leaves) if leaf.is_ended]
    if len(ended) >= width:
        return ended
    live = [place for place, leaf in enumerate(leaves) if not leaf.is_ended]
    counts = copies([leaves[place].score for place in live], [leaves[place].step for place in live], width)
    chosen = [place for place, number in zip(live, counts, strict=True) for _ in range(number)]
    return [*ended, *islice(cycle(chosen), width)]


def copies(scores: Sequence[float], steps: Sequence[str], width: int) -> list[int]:
    """How many copies each of at most `width` leaves gets; rounded, so the sum may differ a little from the width.

    Example: three leaves are equally good, and two say the same. Half of the width goes to each of the two directions.

        >>> copies([1.0, 1.0, 1.0], ["47+5=52.", "47+5=52.", "47-5=42."], 8)
        [2, 2, 4]
    """
    counts = np.zeros(len(scores), dtype=np.int64)
    kept = np.flatnonzero(np.round(_softmax(np.array(scores) / SCORE_TEMPERATURE) * width)).tolist()
    shares = _softmax(np.array(scores)[kept] / SCORE_TEMPERATURE)
    unique = np.diagonal(_softmax(likeness([steps[place] for place in kept]) / LIKENESS_TEMPERATURE))
    counts[kept] = np.round(width * shares * unique / (shares * unique).sum())
    return [int(number) for number in counts]


def _softmax(values: Numbers) -> Numbers:
    weights = np.exp(values - values.max(axis=-1, keepdims=True))
    shares: Numbers = weights / weights.sum(axis=-1, keepdims=True)
    return shares


dora = Search(grow=by_direction, choose=highest)
"""The answer that the judge finds best is given."""

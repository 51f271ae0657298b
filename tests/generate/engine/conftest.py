"""The slow twin of the sampler's filters, one row and one token at a time, in plain Python floats."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest

from podsrl.generate import Sampling

Probabilities = dict[int, float]


def slow_distribution(logits: Sequence[float], sampling: Sampling) -> Probabilities:
    """Token -> probability after temperature, top-k, top-p, min-p; a filtered token is not in it."""
    highest = max(logits)
    kept = {i: math.exp((x - highest) / sampling.temperature) for i, x in enumerate(logits) if x > -math.inf}
    if sampling.top_k:
        last = sorted(kept.values(), reverse=True)[: sampling.top_k][-1]
        kept = {i: weight for i, weight in kept.items() if weight >= last}
    kept = _normalised(kept)
    if sampling.top_p < 1:
        nucleus: Probabilities = {}
        for i in sorted(kept, key=lambda i: (-kept[i], i)):
            nucleus[i] = kept[i]
            if sum(nucleus.values()) >= sampling.top_p:
                break
        kept = nucleus
    if sampling.min_p:
        kept = {i: weight for i, weight in kept.items() if weight >= sampling.min_p * max(kept.values())}
    return _normalised(kept)


def _normalised(weights: Probabilities) -> Probabilities:
    total = math.fsum(weights.values())
    return {i: weight / total for i, weight in weights.items()}


@pytest.fixture(scope="session")
def distribution() -> Callable[[Sequence[float], Sampling], Probabilities]:
    """`slow_distribution`."""
    return slow_distribution

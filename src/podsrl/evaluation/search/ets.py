"""ETS: of the leaves, a subset goes on that shares much of its tree, and holds every kind of last step.

Hooper et al., arXiv 2502.13575, equation 4. The subset X maximises

    sum of the leaves' shares in X  -  node_cost · nodes above and in X / all nodes  +  kinds · clusters in X / clusters

with the root among the nodes, and then divides the width as REBASE does (arXiv 2408.00724): from the highest score on,
the ceiling of the leaf's share of what is left. The authors solve an integer programme and compare sentence embeddings;
here all subsets are tried, which bounds the width, and texts are compared (`likeness.py`). Fractions are exact, so no
rounding adds a copy to a quotient that is whole, or decides between subsets of one objective.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from podsrl.evaluation.search.base import Leaf, Search
from podsrl.evaluation.search.likeness import clusters
from podsrl.score.accuracy import majority_rollout

NODE_COST, KINDS, TEMPERATURE, SAME_KIND = Fraction(1), Fraction(7, 5), 0.2, 0.05
"""Weights of the objective, temperature of the shares, and the largest distance of two steps of one kind."""
MOST_LEAVES = 16


def prune(leaves: Sequence[Leaf], width: int, rng: np.random.Generator) -> list[int]:
    """Those that have ended, and in all `width` places with the copies of the chosen others."""
    ended = [place for place, leaf in enumerate(leaves) if leaf.is_ended]
    live = [place for place, leaf in enumerate(leaves) if not leaf.is_ended]
    own, left = [leaves[place] for place in live], width - len(ended)
    kept = chosen([leaf.score for leaf in own], [leaf.steps for leaf in own], [leaf.step for leaf in own], left)
    counts = rebase([own[i].score for i in kept], left)
    return [*ended, *(live[i] for i, number in zip(kept, counts, strict=True) for _ in range(number))]


def rebase(scores: Sequence[float], width: int) -> list[int]:
    """How many of `width` copies each leaf gets: from the highest score on, the ceiling of its share of what is left.

    Example:
        >>> rebase([0.0, 1.0, 1.0], 4)
        [0, 2, 2]
    """
    weights, counts = [Fraction(math.exp(score / TEMPERATURE)) for score in scores], [0] * len(scores)
    order = sorted(range(len(scores)), key=lambda place: -scores[place])
    for number, place in enumerate(order):
        rest = sum(weights[other] for other in order[number:])
        counts[place] = min(math.ceil(width * weights[place] / rest), width)
        width -= counts[place]
    return counts


def chosen(scores: Sequence[float], paths: Sequence[Sequence[int]], steps: Sequence[str], width: int) -> list[int]:
    """Places of the subset with the highest objective, at least one; the one that comes first of equals.

    Args:
        scores: of at most `MOST_LEAVES` leaves, 0 .. 1.
        paths: their `Leaf.steps`.
        steps: the text of the last step of each.
        width: to divide among them.

    Example: two leaves go on from one step, and one from another. It says the same as the first, and its own nodes cost
    more than it is worth.

        >>> chosen([0.5, 0.5, 0.4], [(1, 3), (1, 4), (2, 5)], ["7+5=12.", "7-5=2.", "7+5=12."], 4)
        [0, 1]
    """
    size = len(scores)
    numbers = np.arange(1, 2**size)  # bit i: leaf i is in the subset
    copies, kinds = rebase(scores, width), clusters(steps, SAME_KIND)
    above: dict[int, int] = {}  # node -> bits of the leaves that need it
    for place, path in enumerate(paths):
        for node in (0, *path):
            above[node] = above.get(node, 0) | 1 << place
    of_kind = [sum(1 << place for place in range(size) if kinds[place] == kind) for kind in set(kinds)]
    weights = Fraction(1, width), NODE_COST / len(above), KINDS / len(of_kind)
    whole = math.lcm(*(weight.denominator for weight in weights))
    of_copy, of_node, of_cluster = (int(weight * whole) for weight in weights)
    worth = sum(of_copy * count * (numbers >> place & 1) for place, count in enumerate(copies))
    worth = worth - of_node * sum((numbers & bits) != 0 for bits in above.values())
    if len(set(steps)) > 1:
        worth = worth + of_cluster * sum((numbers & bits) != 0 for bits in of_kind)
    best = int(numbers[np.argmax(worth)])
    return [place for place in range(size) if best >> place & 1]


ets = Search(grow=prune, choose=lambda rollouts, scores: majority_rollout(rollouts, weights=scores), most=MOST_LEAVES)
"""The final answer with the highest sum of scores is given."""

"""The searches: which leaves of a question go on after a step, and which of its answers is given.

The authors of DORA and ETS compare sentence embeddings of steps; here it is the likeness of their texts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import cycle, islice

import numpy as np
import numpy.typing as npt

from podsrl.evaluation.search.base import Leaf, Search, highest
from podsrl.score.accuracy import majority_rollout

Numbers = npt.NDArray[np.float64]

LEAST_ODDS = float(np.finfo(np.float64).eps)
"""Of `particles`: scores are at least this far from 0 and 1, whose odds are none."""
SCORE_TEMPERATURE, LIKENESS_TEMPERATURE = 0.1, 0.01
"""Of `dora`."""
NODE_COST, KINDS, SHARE_TEMPERATURE, SAME_KIND = Fraction(1), Fraction(7, 5), 0.2, 0.05
"""Of `ets`: weights of the objective, temperature of the shares, the largest distance of two steps of one kind."""
MOST_LEAVES = 16
"""Of `ets`, which tries all subsets of them."""


def stay(leaves: Sequence[Leaf], width: int, rng: np.random.Generator) -> Sequence[int]:
    """Every leaf stays: what the token budget kept waiting begins when others have ended."""
    return range(len(leaves))


def resample(leaves: Sequence[Leaf], width: int, rng: np.random.Generator) -> list[int]:
    """Draw `width` places with replacement, each leaf in proportion to the odds of its score.

    Particle filtering (Puri et al., arXiv 2502.01618, algorithm 1, softmax temperature 1): the softmax is taken of
    logits, so a score s weighs s / (1 - s). Answers that have ended are drawn among too.
    """
    scores = np.clip([leaf.score for leaf in leaves], LEAST_ODDS, 1 - LEAST_ODDS)
    odds = scores / (1 - scores)
    places: list[int] = rng.choice(len(leaves), size=width, p=odds / odds.sum()).tolist()
    return places


def by_direction(leaves: Sequence[Leaf], width: int, rng: np.random.Generator) -> list[int]:
    """DORA: those that have ended, and `width` copies of the others; once `width` have ended, those alone."""
    ended, live = _parted(leaves)
    if len(ended) >= width:
        return ended
    counts = copies([leaves[place].score for place in live], [leaves[place].step for place in live], width)
    chosen = [place for place, number in zip(live, counts, strict=True) for _ in range(number)]
    return [*ended, *islice(cycle(chosen), width)]


def copies(scores: Sequence[float], steps: Sequence[str], width: int) -> list[int]:
    """How many copies each of at most `width` leaves gets; rounded, so the sum may differ a little from the width.

    The width is divided among directions, so that many equal leaves get one leaf's share (Wang et al., arXiv
    2506.15707, equations 5 to 8). A leaf's share is softmax(score / 0.1); those whose share of the width rounds to 0
    end; that of each other leaf is multiplied by its uniqueness, the diagonal of softmax(likeness / 0.01).

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


def prune(leaves: Sequence[Leaf], width: int, rng: np.random.Generator) -> list[int]:
    """ETS: those that have ended, and in all `width` places with the copies of the chosen others."""
    ended, live = _parted(leaves)
    own, left = [leaves[place] for place in live], width - len(ended)
    kept = chosen([leaf.score for leaf in own], [leaf.steps for leaf in own], [leaf.step for leaf in own], left)
    counts = rebase([own[i].score for i in kept], left)
    return [*ended, *(live[i] for i, number in zip(kept, counts, strict=True) for _ in range(number))]


def rebase(scores: Sequence[float], width: int) -> list[int]:
    """How many of `width` copies each leaf gets: from the highest score on, the ceiling of its share of what is left.

    This is REBASE (arXiv 2408.00724). Fractions are exact, so no rounding adds a copy to a quotient that is whole.

    Example:
        >>> rebase([0.0, 1.0, 1.0], 4)
        [0, 2, 2]
    """
    weights, counts = [Fraction(math.exp(score / SHARE_TEMPERATURE)) for score in scores], [0] * len(scores)
    order = sorted(range(len(scores)), key=lambda place: -scores[place])
    for number, place in enumerate(order):
        rest = sum(weights[other] for other in order[number:])
        counts[place] = min(math.ceil(width * weights[place] / rest), width)
        width -= counts[place]
    return counts


def chosen(scores: Sequence[float], paths: Sequence[Sequence[int]], steps: Sequence[str], width: int) -> list[int]:
    """Places of the subset with the highest objective, at least one; the one that comes first of equals.

    The objective (Hooper et al., arXiv 2502.13575, equation 4) of a subset X, with the root among the nodes, is

        sum of the leaves' shares in X  -  NODE_COST · nodes of X / all nodes  +  KINDS · clusters in X / clusters

    The authors solve an integer programme; here all subsets are tried, which bounds the width.

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
    shares, kinds = rebase(scores, width), clusters(steps, SAME_KIND)
    above: dict[int, int] = {}  # node -> bits of the leaves that need it
    for place, path in enumerate(paths):
        for node in (0, *path):
            above[node] = above.get(node, 0) | 1 << place
    of_kind = [sum(1 << place for place in range(size) if kinds[place] == kind) for kind in set(kinds)]
    weights = Fraction(1, width), NODE_COST / len(above), KINDS / len(of_kind)
    whole = math.lcm(*(weight.denominator for weight in weights))  # exact, so that equals are equal
    of_share, of_node, of_cluster = (int(weight * whole) for weight in weights)
    worth = sum(of_share * count * (numbers >> place & 1) for place, count in enumerate(shares))
    worth = worth - of_node * sum((numbers & bits) != 0 for bits in above.values())
    if len(set(steps)) > 1:
        worth = worth + of_cluster * sum((numbers & bits) != 0 for bits in of_kind)
    best = int(numbers[np.argmax(worth)])
    return [place for place in range(size) if best >> place & 1]


def likeness(texts: Sequence[str]) -> Numbers:
    """[L, L] cosines of L texts' counts of three characters in a row, 0 .. 1; an empty text is like no other.

    Example:
        >>> likeness(["47+5", "47+5=52", ""]).round(2).tolist()
        [[1.0, 0.57, 0.0], [0.57, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    counts = [Counter(f" {text} "[i : i + 3] for i in range(len(text))) for text in texts]
    column = {part: place for place, part in enumerate(dict.fromkeys(part for each in counts for part in each))}
    rows = np.zeros((len(texts), max(len(column), 1)))
    for row, each in zip(rows, counts, strict=True):
        row[[column[part] for part in each]] = list(each.values())
    lengths = np.linalg.norm(rows, axis=1)
    cosines: Numbers = rows @ rows.T / np.maximum(np.outer(lengths, lengths), 1)
    np.fill_diagonal(cosines, 1)
    return cosines


def clusters(texts: Sequence[str], distance: float) -> list[int]:
    """A cluster for each text: the nearest two are joined, by the mean distance 1 - cosine of their members, while that
    is at most `distance`.

    Example:
        >>> clusters(["47+5=52.", "47-5=42.", "47+5=52."], 0.05)
        [0, 1, 0]
    """
    away = 1 - likeness(texts)
    members = [[place] for place in range(len(texts))]
    while len(members) > 1:
        means = {
            (i, j): float(away[np.ix_(members[i], members[j])].mean()) for j in range(len(members)) for i in range(j)
        }
        (i, j), nearest = min(means.items(), key=lambda item: item[1])
        if nearest > distance:
            break
        members[i] += members.pop(j)
    cluster_of = {place: number for number, own in enumerate(sorted(members, key=min)) for place in own}
    return [cluster_of[place] for place in range(len(texts))]


def _parted(leaves: Sequence[Leaf]) -> tuple[list[int], list[int]]:
    """Places of those that have ended, and of the others."""
    ended = [place for place, leaf in enumerate(leaves) if leaf.is_ended]
    return ended, [place for place in range(len(leaves)) if place not in ended]


def _softmax(values: Numbers) -> Numbers:
    weights = np.exp(values - values.max(axis=-1, keepdims=True))
    shares: Numbers = weights / weights.sum(axis=-1, keepdims=True)
    return shares


majority = Search(
    grow=stay, choose=lambda rollouts, scores: majority_rollout(rollouts), is_stepwise=False, is_judged=False
)
"""Self-consistency (arXiv 2203.11171): the most frequent final answer; of equally frequent ones, the first given."""
best = Search(grow=stay, choose=highest, is_stepwise=False)
"""Best of n (arXiv 2110.14168, section 4): the answer that the judge finds best."""
particles = Search(grow=resample, choose=highest)
dora = Search(grow=by_direction, choose=highest)
ets = Search(grow=prune, choose=lambda rollouts, scores: majority_rollout(rollouts, weights=scores), most=MOST_LEAVES)
"""The final answer with the highest sum of scores is given."""

"""Which leaves the searches keep: by hand, and against plain programmes that try everything."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from loops import each
from podsrl.evaluation.search.base import Leaf
from podsrl.evaluation.search.rules import by_direction, chosen, clusters, copies, likeness, prune, rebase, resample
from podsrl.score.accuracy import majority_rollout
from podsrl.types import group_of_rewards

RNG = np.random.default_rng(0)


def leaf(score: float = 0.5, step: str = "", *path: int, is_ended: bool = False) -> Leaf:
    return Leaf(score=score, step=step, steps=path, is_ended=is_ended)


def test_particles_survive_in_proportion_to_the_odds_of_their_scores() -> None:
    # odds 1 : 3 : 0 (score 0 is a hair above it); answers that have ended are drawn among too
    leaves = [leaf(0.5), leaf(0.75, is_ended=True), leaf(0.0)]
    drawn = Counter(resample(leaves, 40_000, np.random.default_rng(1)))
    assert drawn[2] == 0
    assert abs(drawn[0] / 40_000 - 0.25) < 4 * math.sqrt(0.25 * 0.75 / 40_000)


def test_particles_of_a_judge_that_knows_are_drawn_evenly_from_the_right_ones() -> None:
    drawn = Counter(resample([leaf(1.0), leaf(0.0), leaf(1.0)], 1000, np.random.default_rng(1)))
    assert set(drawn) == {0, 2} and 400 < drawn[0] < 600
    assert set(resample([leaf(0.0), leaf(0.0)], 100, np.random.default_rng(1))) == {0, 1}


def copies_by_hand(scores: list[float], steps: list[str], width: int) -> list[int]:
    """The authors' order: shares, rounding, uniqueness among what is left, rounding."""
    total = sum(math.exp(score / 0.1) for score in scores)
    kept = [i for i, score in enumerate(scores) if round(width * math.exp(score / 0.1) / total) > 0]
    alike = likeness(steps)
    worth = {
        i: math.exp(scores[i] / 0.1) * math.exp(1 / 0.01) / sum(math.exp(alike[i, j] / 0.01) for j in kept)
        for i in kept
    }
    return [round(width * worth[i] / sum(worth.values())) if i in worth else 0 for i in range(len(scores))]


@each("seed", range(50))
def test_dora_divides_the_width_as_a_plain_programme_does(seed: int) -> None:
    rng = random.Random(seed)
    size = rng.randrange(1, 6)
    scores = [rng.choice([0.1, 0.35, 0.37, 0.42]) for _ in range(size)]
    steps = [rng.choice(["47+5=52.", "47-5=42.", "she finds 5."]) for _ in range(size)]
    assert copies(scores, steps, 13) == copies_by_hand(scores, steps, 13)


def test_dora_repeats_or_cuts_the_copies_to_the_width_beside_what_has_ended() -> None:
    # two directions in three places: 1.5 each rounds to 2 and 2, of which three places take the first
    leaves = [leaf(1.0, "a b c"), leaf(0.2, is_ended=True), leaf(1.0, "x y z")]
    assert by_direction(leaves, 3, RNG) == [1, 0, 0, 2]
    # three unlike leaves in four places: 4/3 each rounds to 1, and the first is repeated
    assert by_direction([leaf(1.0, step) for step in ("abc", "xyz", "uvw")], 4, RNG) == [0, 1, 2, 0]


def test_dora_stops_when_as_many_as_the_width_have_ended() -> None:
    assert by_direction([leaf(is_ended=True), leaf(1.0, "a"), leaf(is_ended=True)], 2, RNG) == [0, 2]


@each("seed", range(50))
def test_rebase_gives_all_the_width_and_more_to_what_scores_higher(seed: int) -> None:
    rng = random.Random(seed)
    scores, width = [rng.random() for _ in range(rng.randrange(1, 7))], rng.randrange(1, 17)
    counts = rebase(scores, width)
    assert sum(counts) == width
    assert [counts[i] for i in sorted(range(len(scores)), key=lambda i: -scores[i])] == sorted(counts, reverse=True)


@each("scores, width", [([0.1, 0.1], 10), ([0.9] * 3, 9), ([0.3] * 7, 14), ([0.2] * 6, 12)])
def test_equal_scores_get_equally_many(scores: list[float], width: int) -> None:
    assert rebase(scores, width) == [width // len(scores)] * len(scores)


def test_rebase_by_hand() -> None:
    # weights e, 1, 1 (temperature 0.2): ceil(8 * .576) = 5, then ceil(3 / 2) = 2, then what is left
    assert rebase([0.5, 0.7, 0.5], 8) == [2, 5, 1]


def objective(
    subset: tuple[int, ...], scores: list[float], paths: list[tuple[int, ...]], steps: list[str], width: int
) -> Fraction:
    shares = [Fraction(count, width) for count in rebase(scores, width)]
    nodes = [set[int]({0, *path}) for path in paths]
    kinds = clusters(steps, 0.05)
    covered = Fraction(7 * len({kinds[i] for i in subset}), 5 * len(set(kinds))) if len(set(steps)) > 1 else 0
    cost = Fraction(len(set.union(*(nodes[i] for i in subset))), len(set.union(*nodes)))
    return sum(shares[i] for i in subset) - cost + covered


@each("seed", range(60))
def test_ets_chooses_the_first_of_the_best_of_all_subsets(seed: int) -> None:
    rng = random.Random(seed)
    width = rng.choice([8, 9, 10])
    size = rng.randrange(1, 6)
    paths = [(rng.randrange(1, 3), 10 + rng.randrange(2), 100 + i) for i in range(size)]
    paths = [(first, 10 * first + second, last) for first, second, last in paths]
    scores = [rng.choice([0.0, 0.5, 1.0]) for _ in range(size)]
    steps = [rng.choice(["47+5=52.", "47-5=42.", "47+0=47."]) for _ in range(size)]
    subsets = [tuple(i for i in range(size) if number >> i & 1) for number in range(1, 2**size)]
    best = max(subsets, key=lambda subset: objective(subset, scores, paths, steps, width))
    assert tuple(chosen(scores, paths, steps, width)) == best


def test_ets_fills_the_width_beside_what_has_ended() -> None:
    leaves = [leaf(1.0, "a", 1, 3), leaf(0.0, "", 1, 4, is_ended=True), leaf(0.0, "a", 2, 5)]
    # the third leaf says what the first says, and its share is 0
    assert prune(leaves, 4, RNG) == [1, 0, 0, 0]


def clusters_by_hand(texts: list[str], distance: float) -> set[frozenset[int]]:
    found = [[i] for i in range(len(texts))]
    away = 1 - likeness(texts)
    while True:
        pairs = [
            (sum(away[i, j] for i, j in product(a, b)) / len(a) / len(b), place, other)
            for place, a in enumerate(found)
            for other, b in enumerate(found)
            if place < other
        ]
        close = min(((mean, place, other) for mean, place, other in pairs if mean <= distance), default=None)
        if close is None:
            return set(map(frozenset, found))
        _, place, other = close
        found[place] += found[other]
        del found[other]


@each("seed", range(30))
def test_clusters_join_the_nearest_by_their_mean_distance(seed: int) -> None:
    rng = random.Random(seed)
    texts = ["".join(rng.choices("ab.", k=rng.randrange(9))) for _ in range(rng.randrange(1, 9))]
    for distance in (0.05, 0.4):
        kinds = clusters(texts, distance)
        found = {frozenset(i for i, kind in enumerate(kinds) if kind == one) for one in set(kinds)}
        assert found == clusters_by_hand(texts, distance)


def test_likeness_is_the_cosine_of_the_counts_of_three_characters() -> None:
    # " ab ": " ab", "ab "; " abab ": " ab", "aba", "bab", "ab ": two in common, lengths sqrt(2) and 2
    assert likeness(["ab", "abab"])[0, 1] == pytest.approx(2 / (math.sqrt(2) * 2))
    assert np.array_equal(likeness(["", ""]), np.eye(2))


def test_votes_are_summed_by_answer_and_count_one_each_where_none_is_above_0() -> None:
    [one] = group_of_rewards("q", [0.0, 1.0]).rollouts[:1]
    many = [replace(one, answer=letter) for letter in "aabbb"]
    assert majority_rollout(many, weights=[0.9, 0.8, 0.1, 0.2, 0.3]) is many[0]
    assert majority_rollout(many, weights=[0.3, 0.2, 0.3, 0.3, 0.3]) is many[2]
    assert majority_rollout(many, weights=[0.0] * 5) is many[2] is majority_rollout(many)

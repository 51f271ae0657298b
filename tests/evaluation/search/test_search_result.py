"""Accuracy against tokens: the interval, and what a search's findings come to."""

from __future__ import annotations

import pytest

from podsrl.evaluation.search.result import point_of, widths
from podsrl.evaluation.search.run import Found
from podsrl.score.accuracy import share_interval
from podsrl.types import group_of_rewards


def test_the_interval_ends_where_the_normal_test_of_the_share_does() -> None:
    for size in (1, 7, 128):
        for count in range(size + 1):
            for end in share_interval(count, size):
                variance = end * (1 - end) / size
                assert (end - count / size) ** 2 == pytest.approx(1.959964**2 * variance, abs=1e-12), (count, size)


def test_the_interval_of_none_and_of_all_stays_within_its_bounds() -> None:
    assert share_interval(0, 10) == (0.0, pytest.approx(0.2775, abs=1e-4))
    assert share_interval(10, 10) == (pytest.approx(0.7225, abs=1e-4), pytest.approx(1.0))


def test_widths_double_up_to_the_largest() -> None:
    assert [widths(most) for most in (1, 2, 6, 8)] == [[1], [1, 2], [1, 2, 4, 6], [1, 2, 4, 8]]


def test_a_question_without_an_answer_counts_as_wrong() -> None:
    wrong, right = group_of_rewards("q", [0, 1]).rollouts
    group = group_of_rewards("q", [0, 1])
    found = [Found(group=group, answer=one, num_tokens=n) for one, n in ((right, 10), (wrong, 20), (None, 60))]
    point = point_of("best", 2, found)
    assert (point.accuracy, point.tokens, point.most_tokens, point.num_unanswered) == (1 / 3, 30, 60, 1)
    assert point.to_json()["low"] == share_interval(1, 3)[0]

from __future__ import annotations

from math import comb, exp, lgamma

import numpy as np
import pytest
from plan_records import from_pass_rate

from podsrl.plan.rewards import RewardModel, Seen


def seen(*rewards: float) -> Seen:
    values = np.array(rewards)
    return Seen(rewards=values, lengths=10 + 5 * values, is_correct=values >= 1)


def beta_binomial(n: int, k: int, a: float, b: float) -> float:
    """P(k of n right) where the pass rate is Beta(a, b)."""

    def log_beta(x: float, y: float) -> float:
        return lgamma(x) + lgamma(y) - lgamma(x + y)

    return comb(n, k) * exp(log_beta(k + a, n - k + b) - log_beta(a, b))


def test_drawn_groups_follow_the_beta_binomial_distribution() -> None:
    right = from_pass_rate(0.3, 2.0).draw(6, 20_000).is_correct.sum(axis=1)
    shares = np.bincount(right, minlength=7) / 20_000
    assert shares == pytest.approx([beta_binomial(6, k, 0.6, 1.4) for k in range(7)], abs=0.012)


def test_a_question_that_was_never_solved_may_be_solved_with_the_posterior_s_probability() -> None:
    groups = [seen(*[0] * 8), seen(*[1, 0] * 4)]  # together 4 of 16 right: the base is Beta(1, 3) at c = 4
    right = RewardModel.from_groups(groups, concentration=4.0).draw(8, 20_000).is_correct.sum(axis=1)
    assert (right[:10_000] == 0).mean() == pytest.approx(beta_binomial(8, 0, 1.0, 3.0 + 8), abs=0.015)
    assert (right[10_000:] == 0).mean() == pytest.approx(beta_binomial(8, 0, 1.0 + 4, 3.0 + 4), abs=0.015)


def test_concentration_is_recovered_from_groups_drawn_with_it() -> None:
    for concentration in (0.5, 3.0, 20.0):
        drawn = from_pass_rate(0.6, concentration).draw(32, 400, seed=3)
        model = RewardModel.from_groups([seen(*row) for row in drawn.rewards])
        assert model.concentration == pytest.approx(concentration, rel=0.25)


def test_equal_questions_have_the_largest_concentration_and_opposite_ones_the_smallest() -> None:
    assert RewardModel.from_groups([seen(0, 1), seen(1, 0), seen(0, 1)]).concentration == 1000.0
    assert RewardModel.from_groups([seen(0, 0), seen(1, 1)]).concentration == 0.05


def test_the_first_columns_are_a_smaller_draw_and_a_seed_repeats_it() -> None:
    model = RewardModel.from_groups([seen(0, 1, 0, 0), seen(1, 1, 0, 1)])
    a, b = model.draw(16, 64, seed=5), model.draw(16, 64, seed=5)
    assert (a.rewards == b.rewards).all()
    assert a.rewards.shape == (64, 16)
    assert (a.lengths == 10 + 5 * a.rewards).all()  # a reward keeps its own length


def test_questions_share_the_draws_evenly_and_empty_groups_are_left_out() -> None:
    model = RewardModel.from_groups([seen(*[0] * 400), seen(), seen(*[1] * 400)])
    assert len(model.questions) == 2
    assert model.draw(4, 500).is_correct.mean() == pytest.approx(0.5, abs=0.02)


def test_nothing_seen_is_an_error() -> None:
    with pytest.raises(ValueError, match="no valid rollout"):
        RewardModel.from_groups([seen()])

"""The benchmark of parts on simulated questions: the same rollouts for all, and ratios to the stream."""

from __future__ import annotations

import pytest

from benchmarks import choosers


@pytest.mark.parametrize("arm", choosers.ARMS)
def test_every_arm_generates_as_many_rollouts_and_a_step_more_at_most(arm: str) -> None:
    logits = choosers.POPULATIONS["three levels"](choosers.np.random.default_rng(0))[: choosers.NUM_QUESTIONS]
    found = choosers._measured(arm, logits, seed=0, total=2 * choosers.NUM_PROMPTS * choosers.NUM_ROLLOUTS)
    assert set(found) == set(choosers.MEASURES)
    assert 0 <= found["all wrong"] <= 1 and 0 <= found["p(1-p)"] <= 0.25 and found["steps"] >= 1

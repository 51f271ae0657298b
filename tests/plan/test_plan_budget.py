"""A plan knows steps of num_prompts times num_rollouts rollouts; another budget is refused before any measurement."""

from __future__ import annotations

import pytest

from podsrl.config.load import load_config
from podsrl.errors import UsageError
from podsrl.plan.probe import still_trainer

OWN = ["budget.rollouts=my:own", "model.path=/nowhere"]


def test_a_budget_of_ones_own_is_refused_before_the_model_loads() -> None:
    with (
        pytest.raises(UsageError, match=r"^budget.rollouts = 'my:own': .* --budget.rollouts=equal"),
        still_trainer(load_config("pods", OWN)),
    ):
        pass


def test_steps_that_overlap_are_refused_before_the_model_loads() -> None:
    config = load_config("pods", ["steps.name=ahead", "scale.generators=1", "model.path=/nowhere"])
    with pytest.raises(UsageError, match=r"^steps.name = 'ahead': .* --steps.name=sync"), still_trainer(config):
        pass

"""Runs with shapes of one's own: refused before the weights load, and part of the gradient."""

from __future__ import annotations

import pytest

from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError
from podsrl.run.step.step import training_step
from podsrl.run.step.trainer import Trainer
from runs import config_of as small_run


def config_of(shape: str, *overrides: str) -> RunConfig:
    return small_run(f"systems={shape}", *overrides)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (
            "small_budgets:TooMany",
            r"^shape of systems = 'small_budgets:TooMany' returned the shape \[5\] .* wanted \[4\]",
        ),
        ("small_budgets:nothing", r"^systems = 'small_budgets:nothing' cannot be imported"),
        ("no_such_system", r"^systems = 'no_such_system'"),
        ("small_budgets:Halves,small_budgets:Halves", r"names small_budgets:Halves twice"),
    ],
)
def test_what_is_no_shape_is_an_error_before_the_model_loads(shape: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Trainer(config_of(shape, "model.path=/nowhere"))


def test_a_shape_reaches_the_gradient() -> None:
    whole, half = (Trainer(config_of(shape)) for shape in ("", "small_budgets:Halves"))
    norms = []
    for trainer in (whole, half):
        result = training_step(trainer)
        while not any(sample.has_advantage for sample in result.samples):
            result = training_step(trainer)
        norms.append((result.update.grad_norm, [sample.advantage for sample in result.samples]))
    assert norms[1][1] == pytest.approx([0.5 * advantage for advantage in norms[0][1]])
    assert norms[1][0] == pytest.approx(0.5 * norms[0][0], rel=1e-4)


def test_one_advantage_per_token_that_is_the_same_for_all_gives_the_same_weights() -> None:
    per_row, per_token = (Trainer(config_of(shape)) for shape in ("", "small_budgets:PerToken"))
    for _ in range(3):
        one, other = training_step(per_row), training_step(per_token)
        assert one.update.grad_norm == pytest.approx(other.update.grad_norm, rel=1e-5)
    assert isinstance(other.samples[0].advantage, tuple)

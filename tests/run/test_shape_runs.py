"""Runs with shapes of one's own: refused before the weights load, and part of the gradient."""

from __future__ import annotations

from pathlib import Path

import pytest

from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError
from podsrl.run.step.trainer import Trainer
from podsrl.run.steps import training_step
from runs import config_of as small_run

SHAPES = """
import torch


def halves(*, factor: float = 0.5):
    return lambda groups, selections, advantages: [factor * each for each in advantages]


def too_many():
    return lambda groups, selections, advantages: [torch.zeros(len(each) + 1) for each in advantages]


def per_token():
    def shape(groups, selections, advantages):
        found = []
        for group, selection, values in zip(groups, selections, advantages):
            longest = max((len(group.rollouts[i].completion.token_ids) for i in selection.kept), default=0)
            found.append(values[:, None] * torch.ones(longest))
        return found
    return shape
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run_shapes.py").write_text(SHAPES)
    monkeypatch.syspath_prepend(tmp_path)


def config_of(shape: str, *overrides: str) -> RunConfig:
    return small_run(f"loss.shape={shape}", *overrides)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ("run_shapes:too_many", r"^loss.shape = 'run_shapes:too_many' returned the shape \[5\] .* wanted \[4\]"),
        ("run_shapes:nothing", r"^loss.shape = 'run_shapes:nothing' cannot be imported"),
        ("no_such_shape", r"^loss.shape = 'no_such_shape'"),
        ("run_shapes:halves,run_shapes:halves", r"names run_shapes:halves twice"),
    ],
)
def test_what_is_no_shape_is_an_error_before_the_model_loads(shape: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Trainer(config_of(shape, "model.path=/nowhere"))


def test_a_shape_reaches_the_gradient() -> None:
    whole, half = (Trainer(config_of(shape)) for shape in ("", "run_shapes:halves"))
    norms = []
    for trainer in (whole, half):
        result = training_step(trainer)
        while not any(sample.has_advantage for sample in result.samples):
            result = training_step(trainer)
        norms.append((result.update.grad_norm, [sample.advantage for sample in result.samples]))
    assert norms[1][1] == pytest.approx([0.5 * advantage for advantage in norms[0][1]])
    assert norms[1][0] == pytest.approx(0.5 * norms[0][0], rel=1e-4)


def test_one_advantage_per_token_that_is_the_same_for_all_gives_the_same_weights() -> None:
    per_row, per_token = (Trainer(config_of(shape)) for shape in ("", "run_shapes:per_token"))
    for _ in range(3):
        one, other = training_step(per_row), training_step(per_token)
        assert one.update.grad_norm == pytest.approx(other.update.grad_norm, rel=1e-5)
    assert isinstance(other.samples[0].advantage, tuple)

"""Whole training steps of a system: what they say, and that a resumed run goes on as if it had not stopped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from podsrl.control import View
from podsrl.errors import UsageError
from podsrl.generate import Live
from podsrl.run.before.prepare import prepare
from podsrl.run.metrics import step_metrics
from podsrl.run.step.step import training_step
from podsrl.run.step.step_result import StepResult
from podsrl.run.step.trainer import Trainer
from points import digest_of
from runs import EXTRA, assert_same_weights, config_of, newest, timeless

WAYS_TO_STEP = ((), ("order.ahead=1", "rollouts.generator=beside:beside"))
"""Overrides: steps in turn, and rollouts of the next step beside the update."""


def steps(trainer: Trainer, count: int) -> list[StepResult]:
    return [training_step(trainer) for _ in range(count)]


def lines(results: list[StepResult]) -> list[dict[str, Any]]:
    return [timeless(step_metrics(result)) for result in results]


def forbid_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """No part may draw a random number from here on."""
    monkeypatch.setattr(View, "rng", lambda view, name: pytest.fail(f"{name} draws"))
    monkeypatch.setattr(Live, "coins", lambda live, name: pytest.fail(f"{name} draws"))


def check_resumed(make: Callable[[], Trainer], folder: Path) -> list[dict[str, Any]]:
    """Lines of the third and fourth step, which are those of a run that was stopped after the second."""
    trainer = make()
    steps(trainer, 2)
    trainer.save(folder, EXTRA)
    wanted = lines(steps(trainer, 2))
    resumed = make()
    resumed.load(newest(folder))
    assert lines(steps(resumed, 2)) == wanted
    assert_same_weights(resumed, trainer)
    assert digest_of(resumed.parts.systems) == digest_of(trainer.parts.systems)
    return wanted


def check_refused(message: str, *overrides: str) -> None:
    """One line, before anything runs."""
    with pytest.raises(UsageError, match=message) as error:
        prepare(config_of(*overrides)).close()
    assert "\n" not in str(error.value)

"""Groups of earlier steps are trained on again, and a resumed run has them too."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from podsrl.errors import CheckpointError, UsageError
from podsrl.run.metrics import step_metrics
from podsrl.run.step.trainer import Trainer
from podsrl.run.step.trainer_state import KEPT
from podsrl.run.steps import training_step
from runs import EXTRA, assert_same_weights, config_of, newest, timeless

PAGE = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text()


def keeper() -> Any:
    """The one of the page."""
    module: dict[str, Any] = {}
    [block] = re.findall(r"```python\n(# my_replay.py.*?)```", PAGE, flags=re.DOTALL)
    exec(block, module)
    return module["LastStep"]()


def trainer_of(own_keeper: Any) -> Trainer:
    trainer = Trainer(config_of())
    if own_keeper is not None:
        trainer.keeper = own_keeper
    return trainer


def test_kept_groups_are_trained_on_again_and_a_resumed_run_has_them(tmp_path: Path) -> None:
    whole = trainer_of(keeper())
    first, second = training_step(whole), training_step(whole)
    assert second.groups[2:] == first.groups and len(second.samples) == sum(len(s.kept) for s in second.selections)
    assert {group.step for group in second.groups} == {0, 1}
    whole.save(tmp_path, EXTRA)

    resumed = trainer_of(keeper())
    resumed.load(newest(tmp_path))
    assert list(resumed.keeper.state()) == list(whole.keeper.state()) == list(second.groups[:2])
    one, other = (timeless(step_metrics(training_step(trainer))) for trainer in (whole, resumed))
    assert one == other
    assert_same_weights(whole, resumed)

    with pytest.raises(UsageError, match=r"2 groups that a keeper kept.*trainer\.keeper"):
        trainer_of(None).load(newest(tmp_path))


def test_kept_groups_of_no_question_are_a_damaged_checkpoint(tmp_path: Path) -> None:
    trainer = trainer_of(keeper())
    training_step(trainer)
    trainer.keeper.restore([replace(group, index=10**9) for group in trainer.keeper.state()])
    trainer.save(tmp_path, EXTRA)
    with pytest.raises(CheckpointError, match=f"is damaged: {KEPT}.* index 1000000000"):
        trainer.load(newest(tmp_path))

"""Groups of earlier steps are trained on again, and a resumed run has them too."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from podsrl.control import View
from podsrl.errors import CheckpointError, UsageError
from podsrl.run.before.replay import replay_notes
from podsrl.run.before.sizes import parts_of
from podsrl.run.metrics import step_metrics
from podsrl.run.step.step import training_step
from podsrl.run.step.trainer import Trainer
from podsrl.types import Group
from runs import EXTRA, assert_same_weights, config_of, newest, timeless

LAST_STEP = "systems=my_replay:LastStep"


class LastStep:
    def __init__(self) -> None:
        self.kept: tuple[Group, ...] = ()

    def recall(self, view: View) -> tuple[Group, ...]:
        return self.kept

    def learn(self, groups: Sequence[Group]) -> None:
        self.kept = tuple(group for group in groups if group.is_trained)

    def state(self) -> dict[str, Any]:
        return {"kept": self.kept}

    def restore(self, state: dict[str, Any]) -> None:
        self.kept = state["kept"]


@pytest.fixture(autouse=True)
def my_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's module."""
    module: Any = ModuleType("my_replay")
    module.LastStep = LastStep
    answers = {"Twice": lambda view: [*view.groups][:1], "Texts": lambda view: ["a", "b"], "Nothing": lambda view: None}
    for name, answer in answers.items():
        setattr(module, name, type(name, (), {"recall": staticmethod(answer)}))
    monkeypatch.setitem(sys.modules, "my_replay", module)


def kept_of(trainer: Trainer) -> tuple[Any, ...]:
    [recall] = trainer.parts.systems["recall"]
    return tuple(recall.part.kept)


def test_kept_groups_are_trained_on_again_and_a_resumed_run_has_them(tmp_path: Path) -> None:
    whole = Trainer(config_of(LAST_STEP))
    first, second = training_step(whole), training_step(whole)
    assert second.groups[2:] == first.groups and len(second.samples) == sum(len(s.kept) for s in second.selections)
    assert {group.step for group in second.groups} == {0, 1}
    whole.save(tmp_path, EXTRA)

    resumed = Trainer(config_of(LAST_STEP))
    resumed.load(newest(tmp_path))
    assert kept_of(resumed) == kept_of(whole) == tuple(second.groups[:2])
    one, other = (timeless(step_metrics(training_step(trainer))) for trainer in (whole, resumed))
    assert one == other
    assert_same_weights(whole, resumed)


def test_kept_groups_of_no_question_are_a_damaged_checkpoint(tmp_path: Path) -> None:
    trainer = Trainer(config_of(LAST_STEP))
    training_step(trainer)
    [recall] = trainer.parts.systems["recall"]
    recall.part.kept = tuple(replace(group, index=10**9) for group in recall.part.kept)
    trainer.save(tmp_path, EXTRA)
    with pytest.raises(CheckpointError, match=r"is damaged: .* index 1000000000"):
        trainer.load(newest(tmp_path))


@pytest.mark.parametrize(("name", "got"), [("Twice", "twice"), ("Texts", "'a'"), ("Nothing", "None")])
def test_what_are_no_groups_of_earlier_steps_is_refused(name: str, got: str) -> None:
    with pytest.raises(UsageError, match=rf"recall of systems = 'my_replay:{name}'.*{got}.*groups of earlier steps"):
        training_step(Trainer(config_of(f"systems=my_replay:{name}")))


def test_a_dots_rr_run_trains_on_old_groups_without_generating_them() -> None:
    options = ("systems=dots_rr", "options.dots_rr.num=2", "correct.proximal=step_start", "correct.weight=full")
    options += ('task.rewards={"small_parts:lucky" = 1.0}', "task.correct=small_parts:lucky", "rollouts.num_prompts=4")
    whole = Trainer(config_of(*options, "optim.num_epochs=2"))
    lines = [step_metrics(training_step(whole)) for _ in range(3)]
    assert lines[2]["capped_fraction"] == 0 and lines[2]["rollouts/all"] == lines[0]["rollouts/all"]
    assert (
        "rollouts/recalled" not in lines[0] and lines[2]["rollouts/recalled"] == 2 * whole.config.rollouts.num_rollouts
    )
    fates = sum(lines[2][f"tokens/{fate}"] for fate in ("trained", "skipped", "discarded"))
    assert lines[2]["tokens/generated"] == fates - lines[2]["tokens/recalled"]
    whole.close()


def test_memory_that_is_not_there_is_named_before_anything_is_loaded() -> None:
    config = config_of("systems=dots_rr", "options.dots_rr.num=2", "options.dots_rr.size=3")
    [note] = replay_notes(config, parts_of(config))
    rollouts = config.rollouts
    assert f"{3 * rollouts.num_rollouts * rollouts.max_new_tokens * 72:,} bytes" in note
    with pytest.raises(UsageError, match=r"recall of systems = 'dots_rr' keeps at most 1,000,000 × "):
        Trainer(config_of("systems=dots_rr", "options.dots_rr.size=1000000", "rollouts.max_new_tokens=400"))

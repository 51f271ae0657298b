"""Whole steps that end early (`order.take = "first"`): the same tokens as without a stop, resumed, refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from podsrl.control.candidates import first
from podsrl.generate import Request
from podsrl.run.step.trainer import Trainer
from podsrl.types import Group
from runs import EXTRA, config_of, newest
from tests.systems.made_up_groups import right_of, view
from tests.systems.whole_steps import lines, steps

SIZES = ("rollouts.num_prompts=2", "rollouts.num_rollouts=4", "rollouts.max_new_tokens=24", "select.num_kept=4")
KEEP = ("order.ahead=1", "order.take=first", "order.rest=put_off", "order.most_age=4", *SIZES)
REPLAYED = (
    *("systems=dots_rr", "correct.proximal=step_start", "correct.weight=full"),
    *('task.rewards={"small_parts:lucky" = 1.0}', "task.correct=small_parts:lucky", *SIZES),
)


def run(*overrides: str) -> Trainer:
    """Sums of one to three digits: answers have 5 to 24 tokens here."""
    return Trainer(config_of(*overrides, recipe="mixed"))


def uninterrupted(trainer: Trainer, group: Group) -> dict[int, tuple[tuple[int, ...], str]]:
    """Index -> tokens and the reason of their end, of the group's rollouts generated in one go."""
    request = Request(group.id, group.prompt_ids, len(group.rollouts), trainer.sampling)
    return {done.index: (done.token_ids, done.finish_reason) for done in trainer.engine.generate([request])}


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("rollouts.num_slots=3", "rollouts.scheduler=dynamic"),
        ('rollouts.stop_strings=["1", "44"]',),
        ("order.most_age=1",),
    ],
    ids=["all", "slots", "stop strings", "one step"],
)
def test_interrupted_rollouts_have_the_tokens_of_one_uninterrupted_round(options: tuple[str, ...]) -> None:
    trainer = run(*KEEP, *options, "optim.lr=1e-30")
    num_resumed = 0
    for result in steps(trainer, 5):
        assert len(result.groups) == 2
        for group in result.groups:
            found = {one.index: one for one in group.rollouts}
            wanted = uninterrupted(trainer, group)
            assert {index: (done.token_ids, done.finish_reason) for index, done in found.items()} == wanted
            assert all(len(done.token_ids) <= 24 for done in found.values())
            num_resumed += group.step < result.progress.step - 1
    assert num_resumed >= 2


def test_each_token_has_the_version_that_drew_it() -> None:
    trainer, versions = run(*KEEP, "optim.lr=1e-3"), set[tuple[int, ...]]()
    for result in steps(trainer, 8):
        for group in result.groups:
            for one in group.rollouts:
                done = one
                assert done.versions == () or list(done.versions) == sorted(done.versions)
                assert 0 <= done.oldest_version <= result.trained_version
                versions.add(tuple(sorted(set(done.versions))))
    assert any(len(found) > 1 for found in versions), "no rollout was drawn by two policies"


def test_the_numbers_of_a_step() -> None:
    """Generated is what the step drew: over all steps it is what was trained on, and what still waits."""
    trainer = run(*KEEP)
    found = steps(trainer, 4)
    said = lines(found)
    assert [line["groups/waiting"] for line in said] == [2, 2, 2, 2]
    assert said[0]["groups/resumed"] == said[0]["groups/age_max"] == said[0]["tokens/resumed"] == 0
    assert all((line["groups/resumed"] > 0) == (line["groups/age_max"] > 0) for line in said)
    assert sum(line["groups/resumed"] for line in said) >= 2
    assert [line["tokens/resumed"] for line in said[1:]] == [line["tokens/postponed"] for line in said[:-1]]
    trained = sum(len(one.token_ids) for each in found for group in each.groups for one in group.rollouts)
    waiting = sum(len(done.token_ids) for each in trainer.desk.waiting for done in each.rollouts)
    assert sum(line["tokens/generated"] for line in said) == trained + waiting
    assert said[-1]["tokens/postponed"] == waiting
    plain = lines(steps(run(*SIZES), 1))[0]
    assert not {"groups/waiting", "groups/resumed", "groups/age_max", "tokens/resumed"} & plain.keys()


def test_parts_learn_from_all_rollouts_of_a_group_that_went_on() -> None:
    for result in steps(run(*KEEP), 4):
        for group in result.groups:
            assert group.num_first is None and len(group.outcomes) == len(group.rollouts) == 4


def test_a_question_whose_group_waits_comes_after_those_without() -> None:
    seen = view(waiting=(right_of("old", 1, 4, index=7),), groups=(right_of("new", 1, 4, index=5),))
    assert first(seen, np.array([7, 5, 9]), np.array([3.0, 2.0, 1.0]), 3) == [9, 7, 5]


@pytest.mark.parametrize("options", [KEEP, REPLAYED], ids=["that wait", "of a part"])
def test_data_that_changed_leaves_the_groups_out(options: tuple[str, ...], tmp_path: Path) -> None:
    one, other = run(*options), run(*options, "task.digits=2")
    steps(one, 2)
    one.save(tmp_path / "one", EXTRA)
    checkpoint = newest(tmp_path / "one")
    checkpoint.state["config"]["task"]["digits"] = 2
    other.load(checkpoint, allow_changes=True)
    assert other.desk.waiting == () and "begun before the change" in other.warnings[-1]
    assert steps(other, 1)[0].num_recalled == 0


def test_a_run_that_keeps_no_longer_trains_on_what_waits(tmp_path: Path) -> None:
    trainer = run(*KEEP)
    steps(trainer, 1)
    waiting = {each.group.id for each in trainer.desk.waiting}
    other = run(*SIZES)
    other.desk.waiting = trainer.desk.waiting
    [result] = steps(other, 1)
    assert len(result.groups) == 4 and waiting <= {group.id for group in result.groups}
    assert other.desk.waiting == ()


def test_an_error_while_generating_loses_no_group_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, other = (run(*KEEP) for _ in range(2))
    for own in (trainer, other):
        steps(own, 1)
    waiting = trainer.desk.waiting
    with monkeypatch.context() as broken:
        broken.setattr(trainer.desk.judge.scorer, "score", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            steps(trainer, 1)
    assert trainer.desk.waiting is waiting
    assert lines(steps(trainer, 1)) == lines(steps(other, 1))

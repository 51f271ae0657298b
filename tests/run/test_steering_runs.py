"""What looks at running rollouts, in training steps: what they leave as it was, what they make, and resumed runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from made import ended
from podsrl.generate import Request
from podsrl.lib.stages import FATES
from podsrl.run.step.step import training_step
from podsrl.run.step.trainer import Trainer
from podsrl.types import Group
from runs import EXTRA, assert_same_weights, config_of
from tests.systems.whole_steps import lines, steps

SIZES = ("rollouts.num_rollouts=6", "rollouts.max_new_tokens=12", "select.num_kept=3", "task.digits=1")
RANDOM = ("systems=random", "options.random.at=2")
FORKED = "systems=small_steering:Forked"
LEARNED_AND_FORKED = "systems=small_steering:Learned,small_steering:Forked"


def trainer_of(*overrides: str) -> Trainer:
    return Trainer(config_of(*SIZES, *overrides))


@cache
def plain_groups() -> tuple[Group, ...]:
    """Of the first step, without any watch."""
    return training_step(trainer_of()).groups


def tokens_of(groups: Sequence[Group]) -> list[Any]:
    return [
        (group.id, done.index, done.token_ids, done.status, done.finish_reason, done.given, done.num_shared)
        for group in groups
        for rollout in group.rollouts
        for done in [rollout]
    ]


def assert_fates_add_up(line: dict[str, Any]) -> None:
    assert line["tokens/generated"] + line.get("tokens/shared", 0) == sum(line[f"tokens/{fate}"] for fate in FATES)


@pytest.mark.parametrize(
    "nothing",
    [("systems=small_steering:Unmoved",), (*RANDOM, "options.random.share=0")],
)
def test_a_watch_that_does_nothing_changes_no_bit(nothing: tuple[str, ...]) -> None:
    plain, watched = trainer_of("rollouts.num_slots=5"), trainer_of("rollouts.num_slots=5", *nothing)
    assert lines(steps(watched, 2)) == lines(steps(plain, 2))
    assert_same_weights(watched, plain)


@pytest.mark.parametrize("slots", [0, 4, 1])
def test_what_is_pruned_is_cut_and_left_out_and_the_others_keep_their_tokens(slots: int) -> None:
    [result] = steps(trainer_of(*RANDOM, f"rollouts.num_slots={slots}", "rollouts.scheduler=continuous+breadth"), 1)
    num_pruned = 0
    for group, plain, chosen in zip(result.groups, plain_groups(), result.selections, strict=True):
        for rollout, whole in zip(group.rollouts, plain.rollouts, strict=True):
            ids = whole.token_ids
            assert rollout.token_ids == (ids[:2] if rollout.is_pruned else ids)
            assert rollout.is_pruned or rollout.reward == whole.reward
        pruned = {i for i, rollout in enumerate(group.rollouts) if rollout.is_pruned}
        assert {i for i, reason in chosen.dropped.items() if reason == "pruned"} == pruned
        num_pruned += len(pruned)
    [line] = lines([result])
    assert 2 <= num_pruned == line["rollouts/pruned"] and line["tokens/pruned"] == 2 * num_pruned
    assert_fates_add_up(line)
    assert line["rollouts/all"] + num_pruned == 12


def test_a_group_that_was_pruned_can_close_for_certain() -> None:
    """The samples are those of the same pruning without `certain`."""
    sizes = ("rollouts.num_rollouts=24", "select.num_kept=4", "rollouts.max_new_tokens=20")
    sizes = (
        *sizes,
        "model.path=builtin:arithmetic-mixed",
        "task.rewards={correct=1.0}",
        *RANDOM,
        "options.random.share=0.3",
    )
    certain = ("systems=random,certain", "options.certain.first=2", "rollouts.num_slots=8")
    [whole] = steps(trainer_of(*sizes), 1)
    [closed] = steps(trainer_of(*sizes, *certain), 1)
    kept = [[(s.group_id, s.rollout.token_ids, s.advantage) for s in result.samples] for result in (closed, whole)]
    assert kept[0] == kept[1]
    assert any(len(group.rollouts) < 24 for group in closed.groups)


def test_forks_join_their_group_and_go_on_as_what_begins_with_the_same_tokens() -> None:
    trainer = trainer_of(FORKED)
    [result] = steps(trainer, 1)
    fresh = trainer_of()
    for group, plain, chosen in zip(result.groups, plain_groups(), result.selections, strict=True):
        own, forks = group.rollouts[:6], group.rollouts[6:]
        assert tokens_of([replace(group, rollouts=own)]) == tokens_of([plain])
        assert [rollout.index for rollout in forks] == [6, 7, 8]
        assert [rollout.num_shared for rollout in group.rollouts] == [0] * 6 + [1] * 3
        assert {rollout.origin for rollout in own} == {""} and {rollout.origin for rollout in forks} == {"fork"}
        assert group.outcomes == [rollout.is_correct for rollout in own] and len(group.rollouts) == 9
        assert {*chosen.kept, *chosen.dropped} == set(range(9))
        for rollout, source in zip(forks, (0, 0, 2), strict=True):
            size, done = 1 + (source == 2), rollout
            assert source != 2 or (done.given, done.token_ids[1], done.logprobs[1]) == (((1, 2),), 5, 0.0)
            of = own[source] if size == 1 else done
            start = replace(of, index=done.index, token_ids=of.token_ids[:size], logprobs=of.logprobs[:size])
            start = replace(start, **ended("open"))
            request = Request(
                group.id, group.prompt_ids, 1, fresh.sampling, first_index=done.index, starts={done.index: start}
            )
            [alone] = fresh.engine.generate([request])
            assert (done.token_ids, done.given) == (alone.token_ids, alone.given)
    [line] = lines([result])
    assert line["rollouts/all"] == 18 and line["tokens/given"] == 2
    assert_fates_add_up(line)


def test_forks_of_guided_rollouts_have_the_prompt_of_their_source_and_later_rounds_go_on_behind_them() -> None:
    """Every other question is shown with another prompt, and every second group gets as many rollouts again."""
    systems = "systems=small_parts:Twice,small_budgets:HalfShown,small_steering:Forked"
    results = steps(trainer_of(systems), 2)
    sizes, prompts = set[int](), set[Any]()
    for result in results:
        for group in result.groups:
            indices = [rollout.index for rollout in group.rollouts]
            assert indices == list(range(len(indices)))
            sizes.add(len(indices))
            asked = {rollout.prompt_ids for rollout in group.rollouts if rollout.parent is not None}
            assert asked == {group.rollouts[0].prompt_ids}
            prompts |= asked
    assert len(prompts) > 1 and sizes == {9, 15 + 3}


def test_a_step_that_is_watched_when_a_checkpoint_is_saved_has_its_forks(tmp_path: Path) -> None:
    trainer = trainer_of(LEARNED_AND_FORKED, "order.ahead=1", "rollouts.generator=beside:beside")
    steps(trainer, 1)
    trainer.save(tmp_path, EXTRA)
    [begun] = trainer.desk.rounds
    assert [each.size for each in begun.opens] == [9, 9]


def test_two_generators_in_other_processes_watch_as_one_here_does() -> None:
    """A part learns: what it knows is sent with every round."""
    wanted = [result.groups for result in steps(trainer_of(LEARNED_AND_FORKED), 3)]
    trainer = trainer_of(LEARNED_AND_FORKED, "scale.generators=2")
    try:
        assert [tokens_of(result.groups) for result in steps(trainer, 3)] == [tokens_of(groups) for groups in wanted]
    finally:
        trainer.engine.close()
    assert any(rollout.is_pruned for groups in wanted for group in groups for rollout in group.rollouts)

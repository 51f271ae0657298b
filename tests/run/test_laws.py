"""Laws that hold wherever parts stand together: all that is asked is accounted for, a part writes nothing while it is
asked, a step that was stopped in any round is asked again, and a group is the same in however many rounds it grew.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import podsrl
from podsrl.control import Ask, Budget, View
from podsrl.errors import UsageError
from podsrl.generate import Request, Watch
from podsrl.lib.moments import SYSTEMS
from podsrl.lib.seeds import derive
from podsrl.run.due import Due
from podsrl.run.loop import train
from podsrl.run.metrics import step_metrics
from podsrl.run.saving.checkpoint import Checkpoint
from podsrl.run.saving.folder import RunFolder
from podsrl.run.step.desk import new_group, request_id
from podsrl.run.step.opens import requests_of
from podsrl.run.step.step import training_step
from podsrl.run.step.step_result import StepResult
from podsrl.run.step.trainer import Trainer
from podsrl.tasks.stream import Stream
from podsrl.types import Group, Open, Rollout, Sample, Selection, Way
from points import (
    KEPT_PROCESSES,  # noqa: F401  # read by leftovers.py
    covering,
    digest_of,
    facts,
    names_of_parts,
    of_recipes,
    parts_of,
    trainer_at,
)
from runs import EXTRA, newest, timeless

TREES: dict[str, dict[str, Any]] = {str(point): point.tree for point in covering()} | of_recipes()
NO_SYSTEMS: dict[str, Any] = {"systems": [], "options": {}}
AHEAD = ("order.ahead=1", "rollouts.generator=beside:beside")
ROLLOUTS = ("all", "left_out", "probes", "pruned", "postponed")
TOKENS = ("trained", "skipped", "discarded", "pruned", "postponed")

points = pytest.mark.parametrize("name", TREES)
of_one_step = pytest.mark.parametrize("name", [name for name, tree in TREES.items() if not parts_of(tree).has("wait")])
"""Points whose groups are asked and trained on in one step; those of others have laws in test_waiting_runs.py."""


class Watched(Budget):
    """Asks everything three times, the last time a part of the same history, and holds them to the same answer."""

    def __init__(self, trainer: Trainer, tree: Mapping[str, Any]) -> None:
        self._parts = trainer.parts.systems
        super().__init__(self._parts)
        self.asked: list[Ask] = []
        """In the step so far."""
        self._credit, self._twin, self._seen = trainer.credit, parts_of(tree), tuple[Group, ...]()
        trainer.desk.budget = self
        trainer.credit = self.credit  # type: ignore[method-assign]

    def ask(self, view: View) -> list[Ask]:
        if view.round == 0:
            if self._seen:
                self._twin.learn(self._seen)
            self.asked = []
        before, twin = digest_of(self._parts), Budget(self._twin)
        answers = [one(replace(view, stream=copy.copy(view.stream))) for one in (super().ask, twin.ask)]
        found = super().ask(view)
        assert answers == [found, found] and digest_of(self._parts) == digest_of(self._twin) == before
        self.asked += found
        return found

    def trained(self, view: View) -> set[str]:
        before, self._seen = digest_of(self._parts), view.groups
        found = super().trained(view)
        assert found == super().trained(view) == Budget(self._twin).trained(view) and digest_of(self._parts) == before
        return found

    def credit(self, groups: Sequence[Group], selections: Sequence[Selection]) -> list[Sample]:
        before = digest_of(self._parts)
        found = self._credit(groups, selections)
        assert found == self._credit(groups, selections) and digest_of(self._parts) == before
        return found


def numbers(result: StepResult) -> dict[str, Any]:
    return timeless(step_metrics(result))


def outcome(trainer: Trainer, result: StepResult) -> list[Any]:
    """Everything that a step gave, to the last bit."""
    weights = [tensor.numpy().tobytes() for tensor in trainer.model.state_dict().values()]
    return [
        numbers(result),
        facts((*result.groups, *result.left_out, *result.probes)),
        digest_of(trainer.parts.systems),
        weights,
    ]


def start_of(completion: Rollout) -> tuple[int, ...]:
    """The given tokens that it begins with."""
    return completion.token_ids[: next((end for start, end in completion.given if start == 0), 0)]


def saved(trainer: Trainer, folder: Path) -> Checkpoint:
    trainer.save(folder, EXTRA)
    return newest(folder)


def test_every_part_stands_in_a_point() -> None:
    missing = {*names_of_parts()} - {name for point in covering() for name in point.names}
    assert not missing, f"no point of tests/points.py holds {missing}"


# --- one step after another ---


@of_one_step
def test_what_is_asked_is_accounted_for_asking_writes_nothing_and_a_group_is_as_of_one_round(name: str) -> None:
    trainer = trainer_at(TREES[name])
    budget = Watched(trainer, TREES[name])
    for _ in range(2):
        result = training_step(trainer)
        line = numbers(result)
        assert sum(ask.num_rollouts for ask in budget.asked) == sum(line[f"rollouts/{fate}"] for fate in ROLLOUTS)
        fates = sum(line[f"tokens/{fate}"] for fate in TOKENS)
        assert line["tokens/generated"] + line.get("tokens/recalled", 0) + line.get("tokens/shared", 0) == fates
        everything = [r for group in (*result.fresh, *result.left_out, *result.probes) for r in group.rollouts]
        assert line["tokens/generated"] + line.get("tokens/given", 0) == sum(
            len(r.token_ids) - r.num_shared for r in everything
        )
        assert line["rollouts/lag_max"] in (0, None) or "rollouts/recalled" in line
        prompts = {(g.id, r.index): r.prompt_ids or g.prompt_ids for g in result.groups for r in g.rollouts}
        for sample in result.samples:
            assert sample.prompt_ids == prompts[sample.group_id, sample.rollout.index]
            is_fresh = sample.group_id in {group.id for group in result.fresh}
            assert not is_fresh or sample.rollout.version == result.trained_version
    for group in trainer.sample().seen:
        ways = tuple(
            Way(count=1, prompt_ids=r.prompt_ids, start_ids=start_of(r), origin=r.origin) for r in group.rollouts
        )
        asked = Open(group=replace(group, rollouts=()), ways=ways)
        whole = trainer.engine.generate(requests_of(asked, asked.to_come, group.prompt_ids, trainer.sampling))
        found = {completion.index: completion.token_ids for completion in whole}
        assert found == {r.index: r.token_ids for r in group.rollouts}
        assert sorted(found) == list(range(len(group.rollouts)))


# --- stopped, and gone on ---


class Stopped(BaseException):
    """As if the process had ended."""


def stop_in_round(trainer: Trainer, number: int, patch: pytest.MonkeyPatch) -> None:
    """In the next step, amid the completions of a round."""
    submit, poll, rounds = trainer.engine.submit, trainer.engine.poll, list[int]()

    def submitted(requests: Iterable[Request], *, watch: Watch | None = None) -> None:
        rounds.append(1)
        submit(requests, watch=watch)

    def polled(seconds: float | None = None) -> Sequence[Rollout]:
        found = poll(seconds)
        if found and len(rounds) == number + 1:
            rounds.append(0)  # once
            raise Stopped
        return found

    with patch.context() as stopping:
        stopping.setattr(trainer.engine, "submit", submitted)
        stopping.setattr(trainer.engine, "poll", polled)
        with pytest.raises(Stopped):
            training_step(trainer)


@points
def test_stopped_in_any_round_a_step_is_repeated_bit_for_bit(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, resumed = trainer_at(TREES[name]), trainer_at(TREES[name])
    training_step(whole)
    checkpoint, calls = saved(whole, tmp_path), list[int]()
    submit = whole.engine.submit
    monkeypatch.setattr(whole.engine, "submit", lambda asked, **watch: [calls.append(1), submit(asked, **watch)])  # type: ignore[func-returns-value]
    wanted = [outcome(whole, training_step(whole))]
    num_rounds = len(calls)
    wanted.append(outcome(whole, training_step(whole)))
    resumed.load(checkpoint)
    for number in range(num_rounds):
        stop_in_round(resumed, number, monkeypatch)
    assert [outcome(resumed, training_step(resumed)) for _ in range(2)] == wanted
    resumed.load(checkpoint)
    stop_in_round(resumed, num_rounds - 1, monkeypatch)
    resumed.load(checkpoint)
    assert [outcome(resumed, training_step(resumed)) for _ in range(2)] == wanted


@of_one_step
def test_ahead_round_0_is_a_step_old_further_rounds_are_new_and_a_resumed_run_goes_on_bit_for_bit(
    name: str, tmp_path: Path
) -> None:
    whole, resumed = (trainer_at(TREES[name], *AHEAD) for _ in range(2))
    for step in range(3):
        result = training_step(whole)
        ages = {
            (group.id, r.index): result.trained_version - r.oldest_version
            for group in (*result.fresh, *result.left_out, *result.probes)
            for r in group.rollouts
        }
        assert set(ages.values()) <= {0, 1} if step else set(ages.values()) <= {0}
        if step:
            assert outcome(resumed, training_step(resumed)) == outcome(whole, result)
        resumed.load(saved(whole, tmp_path))


@pytest.mark.parametrize(("place", "every"), [((2, 1), 9), ((2, "learns"), 2)])
@pytest.mark.parametrize("more", [(), AHEAD], ids=["sync", "ahead"])
def test_a_part_that_fails_in_a_later_round_or_while_it_learns_leaves_a_checkpoint_of_all_steps_before(
    more: tuple[str, ...], place: tuple[int, Any], every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the update the loop saves a checkpoint; after it the last one of the schedule is there."""
    tree = {"systems": ["small_parts:Failing"], "options": {}}
    whole, failed, resumed = (trainer_at(tree, *more, f"checkpoint.every_steps={every}") for _ in range(3))
    wanted = [outcome(whole, training_step(whole)) for _ in range(4)]
    folder = RunFolder(tmp_path / "run")
    folder.create("")
    monkeypatch.setattr("small_parts.FAILS_AT", [place])
    with pytest.raises(UsageError, match=r"'small_parts:Failing' raised ZeroDivisionError"):
        train(failed, folder, Due(), on_record=lambda line: None, should_stop=lambda: False)
    monkeypatch.setattr("small_parts.FAILS_AT", [])
    resumed.load(newest(folder.checkpoints))
    assert resumed.progress.step == 2
    assert [outcome(resumed, training_step(resumed)) for _ in range(2)] == wanted[2:]


# --- without systems ---


def test_a_run_without_systems_is_a_loop_by_hand_over_the_data_stream() -> None:
    plain, hand = (trainer_at(NO_SYSTEMS) for _ in range(2))
    data = Stream(len(hand.tasks.train), derive(hand.config.seed, "data"), 0)
    for step in range(3):
        wanted = []
        for place, index in enumerate(data.draw(3)):
            task = hand.tasks.train[index]
            group = replace(new_group(request_id(step, place, task.id), task), index=index, step=step)
            wanted.append(Open(group=group, ways=(Way(count=4),)))
        groups = hand.desk.answer(wanted, hand.sampling)
        selections = hand.choose(groups)
        update = hand.update(hand.make_batch(hand.credit(groups, selections)))
        hand.sync()
        hand.progress = replace(hand.progress, step=step + 1)

        result = training_step(plain)
        assert (result.groups, result.selections, result.update) == (tuple(groups), tuple(selections), update)
    for one, other in zip(plain.model.parameters(), hand.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_the_step_knows_no_system_by_name() -> None:
    names = set(SYSTEMS)
    run = Path(podsrl.__file__).parent / "run"
    for path in (*(run / f"step/{name}.py" for name in ("step", "trainer", "desk", "under_way")), run / "loop.py"):
        texts = {node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)}
        assert not names & texts, f"{path.name} names {names & texts}"

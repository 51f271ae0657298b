"""The desk: groups in rounds; slow rewards begin while others are generated, and nothing is decoded twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from made import end_of, ended
from podsrl.config.load import load_config
from podsrl.errors import LostGenerator, UsageError
from podsrl.generate import Generator, Request
from podsrl.lib.stages import FATES
from podsrl.run.metrics import step_metrics
from podsrl.run.step.desk import new_group
from podsrl.run.step.step import training_step
from podsrl.run.step.trainer import Trainer
from podsrl.types import Open, Rollout, Task, Way

SLOW = ('task.rewards={"light_rewards:slow" = 1.0}', "task.correct=light_rewards:slow")


def small_trainer(*overrides: str) -> Trainer:
    sizes = ("rollouts.num_prompts=2", "rollouts.num_rollouts=8", "select.num_kept=4", "task.num_eval=8")
    overrides = (*overrides, "rollouts.max_new_tokens=24", "task.reward_workers=1")
    return Trainer(load_config("pods", [*sizes, *overrides]))


def asked(name: str, task: Task, count: int) -> Open:
    return Open(group=new_group(name, task), ways=(Way(count=count),))


class Decoded:
    """A tokenizer that remembers what it was asked to decode."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer, self.asked = tokenizer, []

    def decode(self, ids: Any, **options: Any) -> Any:
        self.asked.append(tuple(ids))
        return self._tokenizer.decode(ids, **options)

    def batch_decode(self, rows: Any, **options: Any) -> Any:
        self.asked += map(tuple, rows)
        return self._tokenizer.batch_decode(rows, **options)


def test_slow_rewards_run_while_others_are_generated_and_give_the_same() -> None:
    trainer = small_trainer(*SLOW)
    tokenizer = Decoded(trainer.tokenizer)
    begun: list[str] = []
    prefetch = trainer.scorer.prefetch
    trainer.scorer.prefetch = lambda task, text: (begun.append(text), prefetch(task, text))[1]  # type: ignore[method-assign]
    wanted = [asked(name, task, 8) for name, task in zip("ab", trainer.tasks.train, strict=False)]
    for each in wanted:
        trainer.desk.prompt_ids(each.group.task)  # by the tokenizer that can do it
    trainer.desk.judge.tokenizer = tokenizer
    groups = trainer.desk.answer(wanted, trainer.sampling)
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    assert sorted(begun) == sorted(rollout.text for rollout in rollouts)
    assert len(tokenizer.asked) == len(set(tokenizer.asked)) == len({r.token_ids for r in rollouts})
    assert [rollout.reward for rollout in rollouts] == [float(len(rollout.text)) for rollout in rollouts]
    trainer.parts.close()


def test_groups_that_are_judged_as_they_end_are_those_that_are_judged_together() -> None:
    trainer = small_trainer()
    wanted = [asked(name, task, 2) for name, task in zip("abc", trainer.tasks.train, strict=False)]
    together = trainer.desk.answer(wanted, trainer.sampling)
    for num_waiting in (0, 1, 9):
        found = trainer.desk.answers(wanted, trainer.sampling, num_waiting=num_waiting)
        assert sorted((each.group for each in found), key=lambda group: group.id) == together


def test_a_generator_that_cannot_join_is_named() -> None:
    trainer = small_trainer()
    [part] = trainer.desk.answer([asked("a", trainer.tasks.train[0], 3)], trainer.sampling)
    trainer.engine.abilities = frozenset()
    with pytest.raises(UsageError, match=r"group 'a'.*Engine.*'join'"):
        trainer.desk.answer([Open(group=part, ways=(Way(count=8),))], trainer.sampling)


class Fated(Generator):
    """The engine, of whose completions some come back as ended in another way."""

    def __init__(self, engine: Generator, fates: dict[int, str]) -> None:
        self.engine, self.fates = engine, fates
        self.version = engine.version

    def generate(self, requests: Iterable[Request]) -> Iterator[Rollout]:
        for completion in self.engine.generate(requests):
            yield replace(completion, **ended(self.fates.get(completion.index, end_of(completion))))

    def load_weights(self, named_tensors: Any, version: int) -> None:
        self.engine.load_weights(named_tensors, version)
        self.version = version


def test_pruned_rollouts_stay_in_their_group_without_a_reward_and_open_ones_do_not() -> None:
    trainer = small_trainer()
    trainer.engine = Fated(trainer.engine, {1: "pruned", 2: "open", 5: "pruned"})
    result = training_step(trainer)
    for group, selection in zip(result.groups, result.selections, strict=True):
        assert [r.index for r in group.rollouts] == [0, 1, 3, 4, 5, 6, 7]
        assert [r.is_pruned for r in group.rollouts] == [False, True, False, False, True, False, False]
        assert all(r.is_valid != r.is_pruned for r in group.rollouts)
        assert {i: reason for i, reason in selection.dropped.items() if reason == "pruned"} == {
            1: "pruned",
            4: "pruned",
        }
    line = step_metrics(result)
    assert (line["rollouts/pruned"], line["rollouts/postponed"], line["rollouts/invalid"]) == (4, 2, 0)
    assert line["tokens/pruned"] == sum(
        len(r.token_ids) for group in result.groups for r in group.rollouts if r.is_pruned
    )
    assert line["tokens/generated"] == sum(line[f"tokens/{fate}"] for fate in FATES)
    assert line["tokens/postponed"] > 0


class Stopping(Generator):
    """The engine, which stops some rollouts of each group after two tokens, the first time."""

    abilities = frozenset({"join", "start"})

    def __init__(self, engine: Generator, stopped: set[int]) -> None:
        self.engine, self.stopped, self.version = engine, stopped, engine.version
        self.seen: set[tuple[str, int]] = set()

    def generate(self, requests: Iterable[Request]) -> Iterator[Rollout]:
        for done in self.engine.generate(requests):
            place = done.group_id.partition("+")[0], done.index
            cut = {"token_ids": done.token_ids[:2], "logprobs": done.logprobs[:2], **ended("open")}
            is_first = done.index in self.stopped and place not in self.seen
            self.seen.add(place)
            yield replace(done, **cut) if is_first else done  # type: ignore[arg-type]

    def load_weights(self, named_tensors: Any, version: int) -> None:
        self.engine.load_weights(named_tensors, version)


def test_rollouts_that_are_put_off_go_on_when_their_group_is_asked_again() -> None:
    plain, trainer = (small_trainer("systems=small_parts:Twice") for _ in range(2))
    trainer.engine = Stopping(trainer.engine, {1, 2, 6})
    expected, found = plain.sample(), trainer.sample()
    again = {group.id for group in expected.seen if len(group.rollouts) > 8}
    assert again
    for group, other in zip(expected.seen, found.seen, strict=True):
        if group.id in again:
            assert [r.index for r in other.rollouts] == list(range(8 + 5))  # five had ended when it was asked
            whole = zip(group.rollouts, other.rollouts, strict=False)
            assert all((a.token_ids, a.reward) == (b.token_ids, b.reward) for a, b in whole)
        else:
            assert [r.index for r in other.rollouts] == [0, 3, 4, 5, 7]
    rest = {each.group.id: [done.index for done in each.begun] for each in found.unfinished}
    assert rest == {group.id: [1, 2, 6] for group in expected.seen if group.id not in again}


def test_chunks_are_chosen_from_alone() -> None:
    trainer = small_trainer("select.num_chunks=2")
    groups = trainer.sample().groups
    assert [len(group.rollouts) for group in groups] == [8, 8]
    for selection in trainer.choose(groups):
        assert selection.chunks == ((0, 1, 2, 3), (4, 5, 6, 7))
        assert [sum(i in chunk for i in selection.kept) for chunk in selection.chunks] == [2, 2]


def test_a_step_whose_generator_is_lost_halfway_is_not_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, other = small_trainer(), small_trainer()
    whole, num_polls = trainer.engine.poll, count()

    def lost(seconds: float | None = None) -> Sequence[Rollout]:
        if next(num_polls) == 9:
            raise LostGenerator("the test's generator is lost")
        return whole(seconds)

    with monkeypatch.context() as patch:
        patch.setattr(trainer.engine, "poll", lost)
        with pytest.raises(LostGenerator):
            trainer.sample()
    assert not trainer.desk.rounds
    assert trainer.sample().groups == other.sample().groups


def test_a_prompt_over_the_limit_is_refused_when_it_comes_up() -> None:
    trainer = small_trainer("rollouts.max_prompt_tokens=30")
    long = Task(id="long", prompt="What is 12345678 + 12345678 + 1?\n", answer="1")
    with pytest.raises(UsageError, match=r"prompt of task 'long' has \d+ tokens, wanted 1 .. rollouts.max_prompt"):
        trainer.desk.answer([asked("a", long, 2)], trainer.sampling)

"""The collector: groups in rounds; slow rewards begin while others are generated, and nothing is decoded twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from podsrl.config.load import load_config
from podsrl.errors import LostGenerator, UsageError
from podsrl.generate import Generator, Request
from podsrl.lib.stages import FATES
from podsrl.run.metrics import step_metrics
from podsrl.run.step.collect import new_group
from podsrl.run.step.trainer import Trainer
from podsrl.run.steps import training_step
from podsrl.types import Completion, FinishReason, Task

SLOW = ('task.rewards={"light_rewards:slow" = 1.0}', "task.correct=light_rewards:slow")


def small_trainer(*overrides: str) -> Trainer:
    sizes = ("rollouts.num_prompts=2", "rollouts.num_rollouts=8", "select.num_kept=4", "task.num_eval=8")
    overrides = (*overrides, "rollouts.max_new_tokens=24", "task.reward_workers=1")
    return Trainer(load_config("pods", [*sizes, *overrides]))


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
    wanted = [(new_group(name, task), 8) for name, task in zip("ab", trainer.tasks.train, strict=False)]
    for group, _ in wanted:
        trainer.collector.prompt_ids(group.task)  # by the tokenizer that can do it
    trainer.collector.tokenizer = tokenizer
    groups = trainer.collector.answer(wanted, trainer.sampling)
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    assert sorted(begun) == sorted(rollout.text for rollout in rollouts)
    assert len(tokenizer.asked) == len(set(tokenizer.asked)) == len({r.completion.token_ids for r in rollouts})
    assert [rollout.reward for rollout in rollouts] == [float(len(rollout.text)) for rollout in rollouts]
    trainer.parts.close()


def test_groups_that_are_judged_as_they_end_are_those_that_are_judged_together() -> None:
    trainer = small_trainer()
    wanted = [(new_group(name, task), 2) for name, task in zip("abc", trainer.tasks.train, strict=False)]
    together = trainer.collector.answer(wanted, trainer.sampling)
    for num_waiting in (0, 1, 9):
        found = trainer.collector.answers(wanted, trainer.sampling, num_waiting=num_waiting)
        assert sorted(found, key=lambda group: group.id) == together


def test_a_generator_that_cannot_join_is_named() -> None:
    trainer = small_trainer()
    [part] = trainer.collector.answer([(new_group("a", trainer.tasks.train[0]), 3)], trainer.sampling)
    trainer.engine.abilities = frozenset()
    with pytest.raises(UsageError, match=r"group 'a'.*Engine.*'join'"):
        trainer.collector.answer([(part, 5)], trainer.sampling)


class Fated(Generator):
    """The engine, of whose completions some come back with another finish reason."""

    def __init__(self, engine: Generator, fates: dict[int, FinishReason]) -> None:
        self.engine, self.fates = engine, fates
        self.version = engine.version

    def generate(self, requests: Iterable[Request]) -> Iterator[Completion]:
        for completion in self.engine.generate(requests):
            reason = self.fates.get(completion.index, completion.finish_reason)
            yield replace(completion, finish_reason=reason)

    def load_weights(self, named_tensors: Any, version: int) -> None:
        self.engine.load_weights(named_tensors, version)
        self.version = version


def test_pruned_rollouts_stay_in_their_group_without_a_reward_and_postponed_ones_do_not() -> None:
    trainer = small_trainer()
    trainer.engine = Fated(trainer.engine, {1: "pruned", 2: "postponed", 5: "pruned"})
    result = training_step(trainer)
    for group, selection in zip(result.groups, result.selections, strict=True):
        assert [r.completion.index for r in group.rollouts] == [0, 1, 3, 4, 5, 6, 7]
        assert [r.is_pruned for r in group.rollouts] == [False, True, False, False, True, False, False]
        assert all(r.is_valid != r.is_pruned for r in group.rollouts)
        assert {i: reason for i, reason in selection.dropped.items() if reason == "pruned"} == {
            1: "pruned",
            4: "pruned",
        }
    line = step_metrics(result)
    assert (line["rollouts/pruned"], line["rollouts/postponed"], line["rollouts/invalid"]) == (4, 2, 0)
    assert line["tokens/pruned"] == sum(
        len(r.completion.token_ids) for group in result.groups for r in group.rollouts if r.is_pruned
    )
    assert line["tokens/generated"] == sum(line[f"tokens/{fate}"] for fate in FATES)
    assert line["tokens/postponed"] > 0


def test_chunks_are_chosen_from_alone() -> None:
    trainer = small_trainer("select.num_chunks=2")
    groups = trainer.sample().groups
    assert [len(group.rollouts) for group in groups] == [8, 8]
    for selection in trainer.choose(groups):
        assert selection.chunks == ((0, 1, 2, 3), (4, 5, 6, 7))
        assert [sum(i in chunk for i in selection.kept) for chunk in selection.chunks] == [2, 2]


def test_a_step_whose_generator_is_lost_halfway_is_not_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = small_trainer()
    wanted = trainer.sample().groups
    whole = trainer.engine.generate

    def lost(requests: Iterable[Request]) -> Iterator[Completion]:
        yield next(iter(whole(requests)))
        raise LostGenerator("the test's generator is lost")

    monkeypatch.setattr(trainer.engine, "generate", lost)
    with pytest.raises(LostGenerator):
        trainer.sample()
    assert trainer.collector.underway is None
    monkeypatch.setattr(trainer.engine, "generate", whole)
    assert trainer.sample().groups == wanted


def test_a_prompt_over_the_limit_is_refused_when_it_comes_up() -> None:
    trainer = small_trainer("rollouts.max_prompt_tokens=30")
    long = Task(id="long", prompt="What is 12345678 + 12345678 + 1?\n", answer="1")
    with pytest.raises(UsageError, match=r"prompt of task 'long' has \d+ tokens, wanted 1 .. rollouts.max_prompt"):
        trainer.collector.answer([(new_group("a", long), 2)], trainer.sampling)

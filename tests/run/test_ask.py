"""Questions to groups: slow rewards begin while others are generated, and nothing is decoded twice."""

from __future__ import annotations

from typing import Any

import pytest

from podsrl.config.load import load_config
from podsrl.errors import UsageError
from podsrl.run.ask import Asker
from podsrl.run.trainer import Trainer
from podsrl.scale.processes import Processes
from podsrl.types import Task

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
    asker = Asker(trainer.engine, trainer.scorer, tokenizer, Processes(), 512)
    asker.prompt_ids = trainer._asker.prompt_ids  # type: ignore[method-assign]
    tasks = trainer.next_tasks()
    begun: list[str] = []
    prefetch = trainer.scorer.prefetch
    trainer.scorer.prefetch = lambda task, text: (begun.append(text), prefetch(task, text))[1]  # type: ignore[method-assign]
    groups = asker.answer(["a", "b"], tasks, 8, trainer.sampling)
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    assert sorted(begun) == sorted(rollout.text for rollout in rollouts)
    assert len(tokenizer.asked) == len(set(tokenizer.asked)) == len({r.completion.token_ids for r in rollouts})
    assert [rollout.reward for rollout in rollouts] == [float(len(rollout.text)) for rollout in rollouts]
    trainer.parts.close()


def test_rewards_without_workers_are_not_decoded_one_by_one() -> None:
    trainer = small_trainer()
    assert not trainer.scorer.has_workers
    groups = trainer.answer(["a", "b"], trainer.next_tasks(), 3, trainer.sampling)
    assert [len(group.rollouts) for group in groups] == [3, 3] and [group.id for group in groups] == ["a", "b"]


def test_chunks_are_chosen_from_alone() -> None:
    trainer = small_trainer("select.num_chunks=2")
    groups = trainer.sample(trainer.next_tasks())
    assert [len(group.rollouts) for group in groups] == [4, 4, 4, 4]
    assert [len(selection.kept) for selection in trainer.choose(groups)] == [2, 2, 2, 2]


def test_a_prompt_over_the_limit_is_refused_when_it_comes_up() -> None:
    trainer = small_trainer("rollouts.max_prompt_tokens=30")
    long = Task(id="long", prompt="What is 12345678 + 12345678 + 1?\n", answer="1")
    with pytest.raises(UsageError, match=r"prompt of task 'long' has \d+ tokens, wanted 1 .. rollouts.max_prompt"):
        trainer.answer(["a"], [long], 2, trainer.sampling)


def test_completions_that_are_never_scored_leave_nothing_behind() -> None:
    trainer = small_trainer(*SLOW)
    trainer.generate(trainer.next_tasks())
    assert not trainer._asker._texts
    trainer.parts.close()

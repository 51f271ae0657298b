"""Rollouts that answer another prompt than their group's: from the request to the update, the log and the report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from podsrl.config.schema import RunConfig
from podsrl.generate import Generator, Request
from podsrl.policy import prompt_ids
from podsrl.report.html import render_report
from podsrl.run.group_log import parse_group
from podsrl.run.metrics import group_records, step_metrics
from podsrl.run.session import start
from podsrl.run.step.step import training_step
from podsrl.run.step.step_result import samples_by_group
from podsrl.run.step.trainer import Trainer
from podsrl.types import Rollout, Task
from runs import config_of as small_run
from runs import lines_of

OPTIONS = (
    *("rollouts.num_prompts=3", "select.num_kept=6", "rollouts.max_new_tokens=24"),
    *('task.rewards={"light_rewards:own_question" = 1.0}', "task.correct=correct"),
    "systems=small_budgets:InTwoRounds,small_budgets:HalfShown",
)

BEFORE = "What is 1 + 1?\n1+1=2 Answer: 2.\n\n"


def config_of(*overrides: str) -> RunConfig:
    return small_run(*OPTIONS, *overrides)


class Seen(Generator):
    """The engine, and all that it was asked."""

    def __init__(self, engine: Generator) -> None:
        self.engine, self.requests = engine, list[Request]()
        self.version = engine.version

    def generate(self, requests: Iterable[Request]) -> Iterator[Rollout]:
        asked = list(requests)
        self.requests += asked
        return self.engine.generate(asked)

    def load_weights(self, named_tensors: Any, version: int) -> None:
        self.engine.load_weights(named_tensors, version)
        self.version = version

    @property
    def abilities(self) -> frozenset[str]:  # type: ignore[override]
        return self.engine.abilities


def test_the_two_prompts_of_a_group_are_requests_of_one_id_with_indices_that_go_on() -> None:
    trainer = Trainer(config_of())
    trainer.engine = seen = Seen(trainer.engine)
    groups = trainer.sample().groups
    for place, group in enumerate(groups):
        asked = [request for request in seen.requests if request.id == group.id]
        own = prompt_ids(trainer.tokenizer, group.task)
        shown = prompt_ids(trainer.tokenizer, Task(id="a", prompt=f"{BEFORE}{group.task.prompt}", answer=""))
        expected = [(0, 6, own), (6, 2, own)] if place % 2 else [(0, 6, shown), (6, 1, own), (7, 1, shown)]
        assert [(r.first_index, r.num_rollouts, r.prompt_ids) for r in asked] == expected
        assert [r.index for r in group.rollouts] == list(range(8))
        assert group.prompt_ids == own
        ways = [(r.prompt_ids, r.origin) for r in group.rollouts]
        plain, other = (None, ""), (shown, "shown")
        assert ways == ([plain] * 8 if place % 2 else [*[other] * 6, plain, other])
        assert {r.group_id for r in group.rollouts} == {group.id}


def test_the_reward_sees_the_tasks_own_question() -> None:
    groups = Trainer(config_of()).sample().groups
    for group in groups:
        for rollout in group.rollouts:
            assert int(rollout.reward) == len(str(group.task.prompt))
            assert rollout.is_correct == (f"Answer: {group.task.answer}." in rollout.text)


def test_the_update_trains_on_the_prompt_that_was_answered() -> None:
    """Only then are the log-probs of the trainer those of the generator, for every way to put rows together."""
    found = []
    for options in ((), ("optim.prefix_sharing=off",), ("optim.micro_batch_tokens=64",)):
        trainer = Trainer(config_of(*options))
        result = training_step(trainer)
        prompts = set()
        own = samples_by_group(result.selections, result.samples)
        for group, selection, samples in zip(result.groups, result.selections, own, strict=True):
            for place, sample in zip(selection.kept, samples, strict=True):
                assert sample.prompt_ids == (group.rollouts[place].prompt_ids or group.prompt_ids)
            prompts.add(len({sample.prompt_ids for sample in samples}))
        assert prompts == {1, 2}
        line = step_metrics(result)
        assert line["logprob_gap"] < 1e-5 and line["grad_norm"] > 0
        assert line["rollouts/guided"] == sum(r.prompt_ids is not None for g in result.groups for r in g.rollouts) == 14
        different = {(g.id, ids) for g in result.groups for ids in (g.prompt_ids, *(r.prompt_ids for r in g.rollouts))}
        assert line["tokens/prompt"] == sum(len(ids) for _, ids in different if ids)
        found.append([line[name] for name in ("grad_norm", "entropy", "loss")])
    assert all(other == pytest.approx(found[0], rel=1e-3, abs=1e-6) for other in found[1:])


@pytest.mark.parametrize(
    ("before", "options"),
    [("1", ("rollouts.max_prompt_tokens=19",)), ("What is 1 + 1? " * 16, ())],
    ids=["limit", "window"],
)
def test_a_prompt_beyond_the_limit_or_the_window_is_asked_plainly_and_counted(
    before: str, options: tuple[str, ...]
) -> None:
    own = f'options={{"small_budgets:HalfShown" = {{before = "{before * 20 if len(before) == 1 else before}"}}}}'
    trainer, plain = (Trainer(config_of(*options, each)) for each in (own, "systems=small_budgets:InTwoRounds"))
    result, other = training_step(trainer), training_step(plain)
    line = step_metrics(result)
    assert (line["rollouts/guided"], line["rollouts/guide_too_long"]) == (0, 14)
    assert [[r.text for r in g.rollouts] for g in result.groups] == [[r.text for r in g.rollouts] for g in other.groups]
    assert line["sync/weights_digest"] == step_metrics(other)["sync/weights_digest"]
    assert {r.origin for g in result.groups for r in g.rollouts} == {"", "guide too long"}


def test_the_log_and_the_report_say_which_rollouts_were_asked_in_another_way(tmp_path: Path) -> None:
    result = training_step(Trainer(config_of()))
    line = next(iter(group_records(result)))
    assert [entry.get("origin") for entry in line["rollouts"]] == [*["shown"] * 6, None, "shown"]
    assert [rollout.origin for rollout in parse_group(line).rollouts] == [*["shown"] * 6, "", "shown"]
    start(config_of("record.groups_every_steps=1"), tmp_path / "run", on_record=lambda r: None, say=lambda text: None)
    page = render_report([tmp_path / "run"])
    logged = lines_of(tmp_path / "run", "groups.jsonl")
    assert page.count("asked: shown") == sum("origin" in r for each in logged for r in each["rollouts"]) > 0

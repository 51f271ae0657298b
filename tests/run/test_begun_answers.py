"""Rollouts that begin with given tokens, and new groups that are asked in several ways: from the ask to the update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from beside import Beside
from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError
from podsrl.generate import End, Live
from podsrl.run.metrics import step_metrics
from podsrl.run.step.step import training_step
from podsrl.run.step.trainer import Trainer
from podsrl.types import Rollout, Sample, Task
from runs import config_of as small_run

TEXT = "1+1=2 Answer: 2."


def config_of(*overrides: str) -> RunConfig:
    keep_all = ("select.rule=keep_all", "select.num_kept=8", "rollouts.max_new_tokens=24")
    return small_run("rollouts.num_prompts=3", *keep_all, "systems=small_budgets:InThreeWays", *overrides)


def share(value: float) -> str:
    return f'options={{"small_budgets:InThreeWays" = {{share = {value}}}}}'


def test_a_new_group_is_asked_in_three_ways_and_given_tokens_reach_no_loss() -> None:
    trainer = Trainer(config_of())
    result = training_step(trainer)
    ids = tuple(trainer.tokenizer(TEXT, add_special_tokens=False)["input_ids"])
    start = ids[: -(-len(ids) // 2)]
    for group in result.groups:
        assert [r.index for r in group.rollouts] == list(range(8)) and len(result.groups) == 3
        assert [r.origin for r in group.rollouts] == [*[""] * 4, *["begun"] * 2, *["both"] * 2]
        assert [r.prompt_ids is None for r in group.rollouts] == [*[True] * 6, *[False] * 2]
        for rollout in group.rollouts:
            done, is_begun = rollout, rollout.origin != ""
            assert done.given == (((0, len(start)),) if is_begun else ())
            assert not is_begun or (done.token_ids[: len(start)] == start and rollout.text.startswith("1+1"))
            assert done.oldest_version == 0
    line, batch = step_metrics(result), trainer.make_batch(result.samples)
    assert batch is not None and batch.given_mask is not None and int(batch.given_mask.sum()) == 12 * len(start)
    assert not (batch.given_mask & batch.target_mask).any()
    assert line["tokens/given"] == 12 * len(start) and line["logprob_gap"] < 1e-5
    assert line["tokens/generated"] == sum(r.num_drawn for g in result.groups for r in g.rollouts)


def test_the_version_of_a_begun_rollout_is_that_of_the_weights_that_drew_it() -> None:
    trainer = Trainer(config_of())
    for step in range(2):
        result = training_step(trainer)
        assert {r.oldest_version for g in result.groups for r in g.rollouts} == {step}


def test_no_share_of_a_start_is_no_start() -> None:
    plain, none = (Trainer(config_of(*more)).sample().groups for more in (("systems=",), (share(0.0),)))
    of_plain, of_none = ([[r.token_ids for r in g.rollouts[:6]] for g in each] for each in (plain, none))
    assert of_plain == of_none


def test_a_start_that_leaves_no_room_is_asked_plainly_and_counted() -> None:
    short = ("rollouts.max_new_tokens=3", share(0.9))
    result = training_step(Trainer(config_of(*short)))
    assert {r.origin for g in result.groups for r in g.rollouts} == {"", "guide too long"}
    assert step_metrics(result)["rollouts/guide_too_long"] == 12
    assert not any(r.given for g in result.groups for r in g.rollouts)


def test_a_whole_solution_is_never_given() -> None:
    trainer = Trainer(config_of())
    length = len(trainer.tokenizer(TEXT, add_special_tokens=False)["input_ids"])
    starts = [len(trainer.desk._start(TEXT, value)) for value in (0.0, 1e-9, 0.5, 0.999999)]
    assert starts == [0, 1, -(-length // 2), length - 1] and trainer.desk._start("", 0.5) == ()


def test_the_targets_are_those_of_the_same_tokens_read_as_a_prompt() -> None:
    trainer = Trainer(config_of())
    samples = training_step(trainer).samples
    batch, moved = trainer.make_batch(samples), trainer.make_batch([moved_to_prompt(each) for each in samples])
    assert batch is not None and moved is not None and moved.given_mask is None
    assert torch.equal(batch.input_ids, moved.input_ids) and torch.equal(batch.target_mask, moved.target_mask)


def moved_to_prompt(sample: Sample) -> Sample:
    done, size = sample.rollout, sample.rollout.num_given
    own = replace(done, token_ids=done.token_ids[size:], logprobs=done.logprobs[size:], given=())
    return replace(sample, prompt_ids=sample.prompt_ids + done.token_ids[:size], rollout=own)


def told(task: Task) -> str:
    return f"{task.answer}."


class Together(Beside):
    """Shows its rollouts, and cannot let them go on."""

    abilities = frozenset({"beside", "watch"})


class Later:
    """Decides on whole groups."""

    at = (2,)

    def look(self, live: Live) -> list[End]:
        return []

    def together(self, rollouts: Sequence[Rollout]) -> list[int]:
        return []


class Plain(Beside):
    abilities = frozenset({"beside", "join"})


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        (
            "Plain",
            ("systems=adhint", "options.adhint.solution=test_begun_answers:told"),
            r"systems = 'adhint' asks for rollouts that go on behind given tokens, .* Plain lacks .* 'start'",
        ),
        (
            "Together",
            ("systems=test_begun_answers:Later",),
            r"systems = 'test_begun_answers:Later' .* later rollouts .* Together .*'join'",
        ),
        ("Plain", ("task.environment=environments:echo",), r"'environments:echo' asks .* Plain lacks .*'start': use"),
    ],
)
def test_a_generator_that_cannot_do_what_a_part_wants_is_named_before_it_generates(
    name: str, overrides: tuple[str, ...], message: str
) -> None:
    own = "rollouts.generator=test_begun_answers:" + name
    with pytest.raises(UsageError, match=message) as error:
        Trainer(small_run(own, *overrides))
    assert "\n" not in str(error.value)

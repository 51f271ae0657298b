"""Processes that keep different rollouts of a group would train on a batch that no one chose: they stop and say why."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest
import torch

from podsrl.config.load import load_config
from podsrl.errors import UsageError
from podsrl.run.step.agreement import check_same_asks, check_same_choice
from podsrl.run.step.step import training_step
from podsrl.run.step.trainer import Trainer
from podsrl.scale.processes import Processes
from podsrl.types import Ask, Selection

T = TypeVar("T")


class Two(Processes):
    """Process 0 of two, where the other one says what it is told to."""

    def __init__(self, other: object) -> None:
        super().__init__(0, 2)
        self.other, self.said = other, []

    def gather(self, value: T) -> list[T]:
        self.said.append(value)
        return [value, self.other]  # type: ignore[list-item]  # what this process says too


def selections_of(*kept_P_K: tuple[int, ...]) -> list[Selection]:
    return [Selection(group_id=str(p), kept=kept, dropped={}) for p, kept in enumerate(kept_P_K)]


def digest_of(*kept_P_K: tuple[int, ...]) -> object:
    two = Two(None)
    with pytest.raises(UsageError):
        check_same_choice(selections_of(*kept_P_K), "rule", two)
    return two.said[0]


def test_the_same_choice_passes_and_any_other_is_refused_with_the_rule_and_the_cure() -> None:
    kept = ((0, 1), (2, 13))
    check_same_choice(selections_of(*kept), "my:rule", Two(digest_of(*kept)))
    for other in (((0, 1), (2, 3)), ((0, 1),), ((0, 1), (2, 1, 3)), ((2, 13), (0, 1)), ((), (0, 1, 2, 13))):
        with pytest.raises(UsageError, match=r"^select.rule = 'my:rule' kept other rollouts .* `generator`"):
            check_same_choice(selections_of(*kept), "my:rule", Two(digest_of(*other)))


def test_the_same_asks_pass_and_any_others_are_refused_with_the_cure() -> None:
    asks = [Ask(index=3, num_rollouts=8), Ask(index=4, num_rollouts=2, joins="s1/0/a")]
    listener = Two(None)
    with pytest.raises(UsageError):
        check_same_asks(asks, listener)
    check_same_asks(asks, Two(listener.said[0]))
    for other in (asks[:1], asks[::-1], [asks[0], Ask(index=4, num_rollouts=3, joins="s1/0/a")]):
        with pytest.raises(UsageError, match=r"budget asked for other rollouts .* view.rng"):
            check_same_asks(other, Two(listener.said[0]))


def from_the_global_generator(rewards: torch.Tensor, num_kept: int, *, generator: Any = None) -> torch.Tensor:
    return torch.rand(rewards.shape).argsort(dim=-1)[:, :num_kept]


def from_its_argument(rewards: torch.Tensor, num_kept: int, *, generator: Any = None) -> torch.Tensor:
    return torch.rand(rewards.shape, generator=generator).argsort(dim=-1)[:, :num_kept]


def step(rule: str) -> str:
    """The error of one step, or "" where there was none."""
    sizes = ("rollouts.num_prompts=2", "rollouts.num_rollouts=16", "select.num_kept=4", "rollouts.max_new_tokens=4")
    trainer = Trainer(load_config("pods", (*sizes, "task.num_eval=4", f"select.rule={__name__}:{rule}")))
    try:
        training_step(trainer)
    except UsageError as error:
        return str(error)
    finally:
        trainer.parts.close()
    return ""


def test_a_rule_that_draws_from_the_global_generator_is_found_in_the_first_step(two: Any) -> None:
    """Sixteen choose four, twice: that two processes draw the same by chance has odds of 1 to 3.3 million."""
    assert step("from_the_global_generator") == ""  # alone it may: a step seeds the generator
    assert two.run(step, "from_its_argument") == ["", ""]
    for message in two.run(step, "from_the_global_generator"):
        assert message.startswith("select.rule = 'test_same_choice:from_the_global_generator' kept other rollouts")

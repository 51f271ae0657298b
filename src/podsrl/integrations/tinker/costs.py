"""What a step costs at a service: tokens, and money by the prices that the user gives; beside it, training on all n."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from podsrl.lib.rounding import has_signal
from podsrl.types import Group

MILLION = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Money for a million tokens, in any currency; 0: not given."""

    prompt: float = 0.0
    sampled: float = 0.0
    trained: float = 0.0

    def of(self, prompt: int, sampled: int, trained: int) -> float:
        """What so many tokens cost.

        Example:
            >>> Prices(prompt=1.0, sampled=4.0, trained=3.0).of(1_000_000, 500_000, 1_000_000)
            6.0
        """
        return (prompt * self.prompt + sampled * self.sampled + trained * self.trained) / MILLION


def step_costs(result: Any, prices: Prices, num_epochs: int) -> Mapping[str, float]:
    """Metrics of a step (`podsrl.run.step.step_result.StepResult`).

    A prompt counts once for the rollouts that are asked together, as services bill it. Training counts what was sent:
    the prompt and the completion of each kept rollout with an advantage. "all" is the same step without a selection:
    every rollout of a group whose rewards differ goes to the update.
    """
    asked = (*result.fresh, *result.left_out, *result.probes)
    prompt = sum(len(ids) for group in asked for ids in _prompts(group))
    sampled = sum(rollout.num_own for group in asked for rollout in group.rollouts)
    kept = (len(s.prompt_ids) + len(s.rollout.token_ids) - 1 for s in result.samples if s.has_advantage)
    trained, trained_all = num_epochs * sum(kept), num_epochs * sum(chain.from_iterable(map(_rows, result.groups)))
    costs: dict[str, float] = {
        "service/prompt_tokens": prompt,
        "service/sampled_tokens": sampled,
        "service/trained_tokens": trained,
        "service/trained_tokens_all": trained_all,
    }
    if prices != Prices():
        costs["service/cost"] = prices.of(prompt, sampled, trained)
        costs["service/cost_all"] = prices.of(prompt, sampled, trained_all)
    return costs


def _prompts(group: Group) -> set[tuple[int, ...]]:
    return {rollout.prompt_ids or group.prompt_ids for rollout in group.rollouts}


def _rows(group: Group) -> Iterable[int]:
    """Tokens of each row, if all of a group were trained on."""
    judged = [rollout for rollout in group.rollouts if rollout.is_valid]
    if not has_signal([rollout.reward for rollout in judged]):
        return []
    return [len(each.prompt_ids or group.prompt_ids) + len(each.token_ids) - 1 for each in judged]

"""The choice within one group, for trainers without podsrl's records: from a list of rewards to the kept places."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from podsrl.errors import UsageError
from podsrl.select import RULES, Rule, resolve_rule, select_groups, try_rule
from podsrl.select.base import reads_groups
from podsrl.types import group_of_rewards


def rule_of_rewards(
    name: str, options: Mapping[str, Any] | None, num_rollouts: int, num_kept: int, *, options_called: str
) -> Rule:
    """Find a rule of rewards by its name, for a trainer whose option `rule` names it and `options_called` has its
    options.

    Of the rules that read groups these are those of `RULES`: `podsrl.types.group_of_rewards` makes the groups.

    Raises:
        UsageError: no such rule or option, a rule that goes by more than rewards, or one that cannot keep `num_kept` of
            `num_rollouts`.
    """
    rule = resolve_rule(name, options, called="rule", options_called=options_called)
    if reads_groups(rule) and name not in RULES:
        raise UsageError(
            f"rule = {name!r} reads whole groups, but only their rewards are known here; wanted a function "
            "f(rewards, num_kept, *, generator)"
        )
    try_rule(rule, num_rollouts, num_kept)
    return rule


class Choice:
    """Chooses the `num_kept` rollouts of a group that are worth an update.

    Args:
        num_kept: the paper's m, at least 2: a single rollout has no advantage.
        rule: a rule of rewards: a name of `podsrl.select.RULES`, or "module:function". With "max_signal" the number is
            the most that is kept.
        options: keyword arguments of that rule.
        seed: of the rule's random draws, which depend on the groups and on the order in which they come.

    Raises:
        UsageError: no such rule or option, a rule that goes by more than rewards, a number that does not fit.

    Example:
        >>> choose = Choice(num_kept=2)
        >>> choose([0.0, 0.2, 1.0, 0.1]), choose([0.5])
        ([0, 2], [0])
    """

    def __init__(
        self,
        num_kept: int,
        rule: str = "max_variance",
        options: Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> None:
        if isinstance(num_kept, bool) or not isinstance(num_kept, int) or num_kept < 2:
            raise UsageError(f"num_kept = {num_kept!r}; wanted a whole number of at least 2")
        if rule == "keep_all":
            raise UsageError("rule = 'keep_all' drops nothing; choose another rule, or train without a selection")
        self.num_kept, self.rule = num_kept, rule
        self._rule = rule_of_rewards(rule, options, num_kept + 1, num_kept, options_called="options")
        self._generator = torch.Generator().manual_seed(seed)

    def __call__(self, rewards: Sequence[float]) -> list[int]:
        """Choose by the rewards of one group.

        Returns:
            The kept places in `rewards`, ascending: `num_kept` of them, or all where there are no more; "max_signal"
            keeps fewer of either.

        Raises:
            UsageError: a reward is not finite, or the rule raised or broke its contract.
        """
        for place, reward in enumerate(rewards):
            if not math.isfinite(reward):
                raise UsageError(f"the reward of rollout {place} of a group is {reward}; wanted a finite number")
        if len(rewards) < 2:
            return list(range(len(rewards)))
        group = group_of_rewards("group", rewards)
        [selection] = select_groups([group], self._rule, self.num_kept, generator=self._generator)
        return list(selection.kept)

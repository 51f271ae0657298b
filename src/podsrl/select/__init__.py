"""Groups -> the rollouts worth an update. A rule is a pure function from rewards to indices; see docs/selection.md.

Here are the rules and their table; `groups.select_groups` applies one to the records of a step.
"""

from __future__ import annotations

from typing import cast

from podsrl.errors import UsageError, nearest
from podsrl.lib.user_function import import_function
from podsrl.select.base import ArrayRule, SelectionRule
from podsrl.select.baselines import keep_all, max_reward, percentile, random
from podsrl.select.variance import max_variance

RULES: dict[str, SelectionRule] = {
    "max_variance": max_variance,
    "max_reward": max_reward,
    "random": random,
    "percentile": percentile,
    "keep_all": keep_all,
}


def resolve_rule(name: str) -> SelectionRule:
    """Find a rule by its name in `RULES`, or a function of your own by "module:function".

    Args:
        name: what `select.rule` holds.

    Returns:
        The rule.

    Raises:
        UsageError: no such name, module or function, or it cannot be called.

    Example:
        >>> resolve_rule("max_variance") is max_variance
        True
    """
    if name in RULES:
        return RULES[name]
    if ":" not in name:
        raise UsageError(
            f"select.rule = {name!r} is no rule.{nearest(name, RULES)} A function of your own is 'module:function'."
        )
    where, wanted = f"select.rule = {name!r}", "a function f(rewards, num_kept, *, generator)"
    return cast(SelectionRule, import_function(name, where=where, wanted=wanted))


__all__ = [
    "RULES",
    "ArrayRule",
    "SelectionRule",
    "keep_all",
    "max_reward",
    "max_variance",
    "percentile",
    "random",
    "resolve_rule",
]

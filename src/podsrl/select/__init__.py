"""Groups -> the rollouts worth an update. A rule is a pure function from rewards to indices; see docs/selection.md.

Here are the rules and their table; `groups.select_groups` applies one to the records of a step.
"""

from __future__ import annotations

import importlib
from typing import cast

from podsrl.errors import UsageError, nearest
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
    return _import_rule(name)


def _import_rule(name: str) -> SelectionRule:
    module_name, _, function_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except (ImportError, ValueError) as error:
        raise UsageError(
            f"select.rule = {name!r}: the module {module_name!r} cannot be imported ({error}); "
            f"check its name, and that Python finds it (PYTHONPATH, or install it)"
        ) from error
    if not hasattr(module, function_name):
        public = [known for known in dir(module) if not known.startswith("_")]
        raise UsageError(
            f"select.rule = {name!r}: no {function_name!r} in {module_name!r}.{nearest(function_name, public)}"
        )
    rule = getattr(module, function_name)
    if not callable(rule):
        raise UsageError(
            f"select.rule = {name!r} is a {type(rule).__name__}; wanted a function f(rewards, num_kept, *, generator)"
        )
    return cast(SelectionRule, rule)


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

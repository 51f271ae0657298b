"""The table of rules, and how the options `select.rule` and `select.options` become a rule that can be called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, update_wrapper
from typing import Any, cast

from podsrl.errors import UsageError, short
from podsrl.lib.options import check_options
from podsrl.lib.resolve import Table, resolve
from podsrl.select.base import Rule

RULES: Table[Rule] = Table(
    {
        "max_variance": "podsrl.select.variance:max_variance",
        "max_reward": "podsrl.select.baselines:max_reward",
        "both_ends": "podsrl.select.baselines:both_ends",
        "random": "podsrl.select.baselines:random",
        "percentile": "podsrl.select.baselines:percentile",
        "keep_all": "podsrl.select.baselines:keep_all",
        "max_signal": "podsrl.select.signal:max_signal",
        "drop_surplus": "podsrl.systems.aero:drop_surplus",
    }
)
"""Name of a rule, as in `select.rule` -> the rule. All of them go by rewards alone."""


def resolve_rule(
    name: str,
    options: Mapping[str, Any] | None = None,
    *,
    called: str = "select.rule",
    options_called: str = "select.options",
) -> Rule:
    """Find a rule by its name in `RULES`, or a function of your own by "module:function", and give it its options.

    Messages name the two by `called` and `options_called`.

    Raises:
        UsageError: no such name, module or function; an option that the rule does not have, or lacks, or whose value
            has another type than the parameter's annotation.

    Example:
        >>> resolve_rule("max_variance").__name__
        'max_variance'
    """
    wanted = "a function f(rewards, num_kept, *, generator) or f(groups, num_kept, *, generator)"
    if not isinstance(name, str):
        raise UsageError(f"{called} = {short(name)}; wanted a name of {', '.join(RULES)}, or 'module:function'")
    if not isinstance(options, Mapping | None):
        raise UsageError(f"{options_called} = {short(options)}; wanted names with values")
    rule = resolve(name, RULES, option=called, kind="rule", wanted=wanted)
    checked = check_options(rule, options or {}, where=options_called, given=("generator",))
    return cast(Rule, update_wrapper(partial(cast(Callable[..., Any], rule), **checked), rule)) if checked else rule

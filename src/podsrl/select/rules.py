"""The table of rules, and how the options `select.rule` and `select.options` become a rule that can be called."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from functools import partial, update_wrapper
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError

from podsrl.errors import UsageError, nearest, short
from podsrl.lib.resolve import resolve
from podsrl.select.base import Rule, SelectionRule, name_of
from podsrl.select.baselines import keep_all, max_reward, percentile, random
from podsrl.select.variance import max_variance

RULES: dict[str, SelectionRule] = {
    "max_variance": max_variance,
    "max_reward": max_reward,
    "random": random,
    "percentile": percentile,
    "keep_all": keep_all,
}


def resolve_rule(name: str, options: Mapping[str, Any] | None = None) -> Rule:
    """Find a rule by its name in `RULES`, or a function of your own by "module:function", and give it its options.

    Args:
        name: what `select.rule` holds.
        options: what `select.options` holds: values for the rule's keyword-only parameters.

    Returns:
        The rule; where there are options, a function that calls it with them.

    Raises:
        UsageError: no such name, module or function; an option that the rule does not have, or lacks, or whose value
            has another type than the parameter's annotation.

    Example:
        >>> resolve_rule("max_variance") is max_variance
        True
    """
    wanted = "a function f(rewards, num_kept, *, generator) or f(groups, num_kept, *, generator)"
    return _with_options(resolve(name, RULES, option="select.rule", kind="rule", wanted=wanted), options or {})


def _with_options(rule: Rule, options: Mapping[str, Any]) -> Rule:
    parameters, takes_any = _options_of(rule)
    for option, value in options.items():
        if option not in parameters and not (takes_any and option != "generator"):
            known = nearest(option, parameters) if parameters else " It has no options."
            raise UsageError(f"select.options.{option}: the rule {name_of(rule)!r} has no such option.{known}")
        if option in parameters:
            _check_type(rule, option, parameters[option], value)
    for option, parameter in parameters.items():
        if option not in options and parameter.default is parameter.empty:
            raise UsageError(
                f"select.options.{option} is not set, and the rule {name_of(rule)!r} has no default for it"
            )
    if not options:
        return rule
    return cast(Rule, update_wrapper(partial(cast(Callable[..., Any], rule), **options), rule))


def _options_of(rule: Rule) -> tuple[dict[str, inspect.Parameter], bool]:
    """A rule's keyword-only parameters but the generator, and whether it takes any other too."""
    try:
        parameters = inspect.signature(rule, eval_str=True).parameters.values()
    except (NameError, SyntaxError):  # an annotation that only a type checker can read
        parameters = inspect.signature(rule).parameters.values()
    except (TypeError, ValueError):  # some functions written in C
        return {}, False
    options = {p.name: p for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "generator"}
    return options, any(p.kind is p.VAR_KEYWORD for p in parameters)


def _check_type(rule: Rule, option: str, parameter: inspect.Parameter, value: object) -> None:
    """By the parameter's annotation; without one, by the type of its default."""
    wanted: Any = parameter.annotation
    if wanted is parameter.empty or isinstance(wanted, str):
        if parameter.default in (parameter.empty, None):
            return
        wanted = type(parameter.default)
    try:  # as JSON: a list of a config is also a tuple, but "4" is no number and true is not 1
        TypeAdapter(wanted).validate_json(json.dumps(value, default=str), strict=True)
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise UsageError(f"select.options.{option} = {short(value)} for the rule {name_of(rule)!r}: {reason}") from None

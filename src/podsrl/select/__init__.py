"""Which rollouts of a group are worth an update; see docs/selection.md.

A rule is a plain function. The rules of `RULES` go by rewards alone, and those that keep one number of every group can
be called with any kind of array; `groups.select_groups` applies a rule to the records of a step.
"""

from podsrl.select.base import ArrayRule, GroupRule, Rule, SelectionRule
from podsrl.select.baselines import both_ends, keep_all, max_reward, percentile, random
from podsrl.select.groups import select_groups, try_rule
from podsrl.select.rules import RULES, resolve_rule
from podsrl.select.signal import max_signal
from podsrl.select.variance import max_variance

__all__ = [
    "RULES",
    "ArrayRule",
    "GroupRule",
    "Rule",
    "SelectionRule",
    "both_ends",
    "keep_all",
    "max_reward",
    "max_signal",
    "max_variance",
    "percentile",
    "random",
    "resolve_rule",
    "select_groups",
    "try_rule",
]

"""The names that an option of type text may have besides a function of one's own: the tables of the stages.

Some of them take torch's import, so that only a question about one option, and the page of the docs, asks for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

NAMED_OPTIONS = {
    "task.name": "task sets",
    "task.system_prompt": "known prompts",
    "task.rewards": "known rewards",
    "task.correct": "known rewards",
    "task.format": "known rewards",
    "rollouts.scheduler": "schedulers",
    "budget.enough": "known parts",
    "budget.questions": "known parts",
    "budget.rollouts": "known parts",
    "budget.guide": "known parts",
    "budget.keep": "known parts",
    "select.rule": "known rules",
    "loss.name": "known losses",
    "loss.advantage": "known ways",
    "loss.shape": "known shapes",
}
"""Option -> what its names are names of."""

_TABLES = {
    "task.name": ("podsrl.tasks", "TASKS"),
    "task.system_prompt": ("podsrl.tasks", "SYSTEM_PROMPTS"),
    "task.rewards": ("podsrl.score", "REWARDS"),
    "task.correct": ("podsrl.score", "REWARDS"),
    "task.format": ("podsrl.score", "REWARDS"),
    "rollouts.scheduler": ("podsrl.generate.schedule.scheduler", "SCHEDULERS"),
    "budget.enough": ("podsrl.control", "ENOUGH"),
    "budget.questions": ("podsrl.control", "QUESTIONS"),
    "budget.rollouts": ("podsrl.control", "ROLLOUTS"),
    "budget.guide": ("podsrl.control", "GUIDES"),
    "budget.keep": ("podsrl.control", "KEEPS"),
    "select.rule": ("podsrl.select", "RULES"),
    "loss.name": ("podsrl.update", "ALGORITHMS"),
    "loss.advantage": ("podsrl.update", "ADVANTAGES"),
    "loss.shape": ("podsrl.update", "SHAPES"),
}
"""Option -> module and name of the table."""


def known_names(key: str) -> tuple[str, ...]:
    """What the option may be called; empty for an option without a table.

    Example:
        >>> known_names("task.name")[:2]
        ('arithmetic', 'gsm8k')
    """
    if key not in NAMED_OPTIONS:
        return ()
    module, table = _TABLES[key]
    return tuple(getattr(import_module(module), table))


def part_table(key: str) -> Mapping[str, Callable[..., Any]]:
    """The table of an option that names parts: name -> factory.

    Example:
        >>> "one_round" in part_table("budget.enough")
        True
    """
    module, table = _TABLES[key]
    found: Mapping[str, Callable[..., Any]] = getattr(import_module(module), table)
    return found

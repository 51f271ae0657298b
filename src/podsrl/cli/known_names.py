"""The names that an option of type text may have besides a function of one's own: the tables of the stages.

Some of them take torch's import, so that only a question about one option, and the page of the docs, asks for them.
"""

from __future__ import annotations

from collections.abc import Iterable

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
    "select.rule": "known rules",
    "loss.name": "known losses",
    "loss.advantage": "known ways",
}
"""Option -> what its names are names of."""


def known_names(key: str) -> tuple[str, ...]:
    """What the option may be called; empty for an option without a table.

    Example:
        >>> known_names("task.name")[:2]
        ('arithmetic', 'gsm8k')
    """
    return tuple(_table(key))


def _table(key: str) -> Iterable[str]:
    if key == "task.name":
        from podsrl.tasks import TASKS

        return TASKS
    if key == "task.system_prompt":
        from podsrl.tasks import SYSTEM_PROMPTS

        return SYSTEM_PROMPTS
    if key in ("task.rewards", "task.correct", "task.format"):
        from podsrl.score import REWARDS

        return REWARDS
    if key == "rollouts.scheduler":
        from podsrl.generate.schedule.scheduler import SCHEDULERS

        return SCHEDULERS
    if key.startswith("budget."):
        from podsrl.control.budget import TABLES

        return TABLES[key.removeprefix("budget.")]
    if key == "select.rule":
        from podsrl.select import RULES

        return RULES
    if key == "loss.name":
        from podsrl.update import ALGORITHMS

        return ALGORITHMS
    if key == "loss.advantage":
        from podsrl.update import ADVANTAGES

        return ADVANTAGES
    return ()

"""The slots of `[budget]`: for each a table of the parts that may fill it, and its default."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from podsrl.control.parts.bandit import bandit
from podsrl.control.parts.confidence import Confidence
from podsrl.control.parts.difficulty import difficulty
from podsrl.control.parts.dynamics import dynamics
from podsrl.control.parts.examples import Examples
from podsrl.control.parts.fixed import equal, every, none, one_round, stream
from podsrl.control.parts.harder import harder
from podsrl.control.parts.mixed import mixed, mixed_alone
from podsrl.control.parts.profile import profile
from podsrl.lib.slots import Slot

ENOUGH: dict[str, Callable[..., Any]] = {"one_round": one_round, "mixed": mixed}
"""Name -> what makes a part for `budget.enough`; the other tables likewise, each for its slot."""
QUESTIONS: dict[str, Callable[..., Any]] = {
    "stream": stream,
    "dynamics": dynamics,
    "difficulty": difficulty,
    "profile": profile,
}
"""For `budget.questions`."""
ROLLOUTS: dict[str, Callable[..., Any]] = {
    "equal": equal,
    "harder": harder,
    "difficulty": difficulty,
    "profile": profile,
    "bandit": bandit,
    "confidence": Confidence,
}
"""For `budget.rollouts`."""
GUIDES: dict[str, Callable[..., Any]] = {"none": none, "examples": Examples}
"""For `budget.guide`."""
KEEPS: dict[str, Callable[..., Any]] = {"all": every, "mixed": mixed_alone}
"""For `budget.keep`."""
SLOTS = (
    Slot("budget.enough", ENOUGH, ("view",)),
    Slot("budget.questions", QUESTIONS, ("view", "count")),
    Slot("budget.rollouts", ROLLOUTS, ("view", "asks")),
    Slot("budget.guide", GUIDES, ("view", "asks")),
    Slot("budget.keep", KEEPS, ("view",)),
)
"""In the order in which they are asked."""
DEFAULTS = {"enough": "one_round", "questions": "stream", "rollouts": "equal", "guide": "none", "keep": "all"}
"""What fills each slot of `[budget]` unless the config says otherwise."""


def budget_names(names: Mapping[str, str]) -> dict[str, list[str]]:
    """Option of each slot -> what fills it, from slot -> name."""
    return {f"budget.{slot}": [name] for slot, name in (DEFAULTS | dict(names)).items()}

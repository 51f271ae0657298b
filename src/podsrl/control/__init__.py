"""What a step asks for: tables of the parts that fill the slots of `[budget]` and `[steer]`, and their seam.

An entry of a table makes the part; its keyword-only parameters are the part's options (`[options.NAME]`).
"""

from podsrl.control.base import Close, Enough, Guide, Keep, Questions, Rollouts, Stream, View
from podsrl.control.budget import Budget, make_budget
from podsrl.control.tables import CLOSE, CLOSES, ENOUGH, GUIDES, KEEPS, QUESTIONS, ROLLOUTS, SLOTS, budget_names
from podsrl.types import Ask

__all__ = [
    "CLOSE",
    "CLOSES",
    "ENOUGH",
    "GUIDES",
    "KEEPS",
    "QUESTIONS",
    "ROLLOUTS",
    "SLOTS",
    "Ask",
    "Budget",
    "Close",
    "Enough",
    "Guide",
    "Keep",
    "Questions",
    "Rollouts",
    "Stream",
    "View",
    "budget_names",
    "make_budget",
]

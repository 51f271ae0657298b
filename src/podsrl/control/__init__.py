"""What a step asks for: tables of the parts that fill the slots of `[budget]`, and their seam.

An entry of a table makes the part; its keyword-only parameters are the part's options (`[options.NAME]`).
"""

from podsrl.control.base import Enough, Questions, Rollouts, Stream, View
from podsrl.control.budget import ENOUGH, QUESTIONS, ROLLOUTS, Budget, make_budget
from podsrl.types import Ask

__all__ = [
    "ENOUGH",
    "QUESTIONS",
    "ROLLOUTS",
    "Ask",
    "Budget",
    "Enough",
    "Questions",
    "Rollouts",
    "Stream",
    "View",
    "make_budget",
]

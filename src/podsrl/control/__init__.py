"""What a step asks for: tables of the parts for the slots of `[budget]`, `[steer]` and `[replay]`, and their seam.

An entry of a table makes the part; its keyword-only parameters are the part's options (`[options.NAME]`).
"""

from podsrl.control.base import (
    Branch,
    Close,
    Enough,
    Guide,
    Keep,
    Prune,
    Questions,
    Recall,
    Rollouts,
    Stream,
    View,
    Wait,
)
from podsrl.control.budget import Budget, make_budget, recalled, waiting_ids
from podsrl.control.steer import Steering
from podsrl.control.tables import (
    BRANCH,
    BRANCHES,
    CLOSE,
    CLOSES,
    ENOUGH,
    GUIDES,
    KEEPS,
    PRUNE,
    PRUNES,
    QUESTIONS,
    RECALL,
    RECALLS,
    ROLLOUTS,
    SLOTS,
    WAIT,
    WAITS,
    budget_names,
)
from podsrl.types import Ask

__all__ = [
    "BRANCH",
    "BRANCHES",
    "CLOSE",
    "CLOSES",
    "ENOUGH",
    "GUIDES",
    "KEEPS",
    "PRUNE",
    "PRUNES",
    "QUESTIONS",
    "RECALL",
    "RECALLS",
    "ROLLOUTS",
    "SLOTS",
    "WAIT",
    "WAITS",
    "Ask",
    "Branch",
    "Budget",
    "Close",
    "Enough",
    "Guide",
    "Keep",
    "Prune",
    "Questions",
    "Recall",
    "Rollouts",
    "Steering",
    "Stream",
    "View",
    "Wait",
    "budget_names",
    "make_budget",
    "recalled",
    "waiting_ids",
]

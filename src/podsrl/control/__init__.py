"""What a step asks for: what `[budget]`, `[steer]` and `[replay]` name, asked and checked."""

from podsrl.control.base import Close, View
from podsrl.control.budget import Budget, make_budget, recalled, repaired, waiting_ids
from podsrl.control.steer import Steering
from podsrl.types import Ask

__all__ = [
    "Ask",
    "Budget",
    "Close",
    "Steering",
    "View",
    "make_budget",
    "recalled",
    "repaired",
    "waiting_ids",
]

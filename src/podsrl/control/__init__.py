"""What a step asks for, and what becomes of it: the parts of a run, asked and checked."""

from podsrl.control.base import Close, View
from podsrl.control.budget import Budget, recalled, repaired, waiting_ids
from podsrl.control.steer import Steering
from podsrl.types import Ask

__all__ = [
    "Ask",
    "Budget",
    "Close",
    "Steering",
    "View",
    "recalled",
    "repaired",
    "waiting_ids",
]

"""Groups of earlier steps that a step trains on again: the seam, and the keeper that keeps nothing."""

from podsrl.replay.base import Keeper
from podsrl.replay.none import KeepNothing

__all__ = ["KeepNothing", "Keeper"]

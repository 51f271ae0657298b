"""Runs against each other: how much sooner one way of training reaches an accuracy than another.

`podsrl.compare(...)` runs a comparison: `podsrl.api.compare`.
"""

import sys

from podsrl.compare.speedups import speedup, time_to_accuracy
from podsrl.lib.callable_package import CallablePackage

__all__ = ["speedup", "time_to_accuracy"]
sys.modules[__name__].__class__ = CallablePackage

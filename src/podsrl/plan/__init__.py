"""Suggest n, m and the micro-batch for a model on a machine: measure, predict, compare (docs/planner.md).

`podsrl.plan(...)` does so: `podsrl.api.plan`.
"""

import sys

from podsrl.lib.callable_package import CallablePackage

sys.modules[__name__].__class__ = CallablePackage

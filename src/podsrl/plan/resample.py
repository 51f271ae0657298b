"""How unsure predicted seconds are: the cost model fitted again and again to what might as well have been measured.

A bootstrap of residuals: each fitted value times how far off some measurement was, drawn anew. It sees how far repeats
disagree, and not a machine that was slower all the while (`machine_use.py`, `probe.verify`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from podsrl.plan.cost import CostModel
from podsrl.plan.least_squares import Array
from podsrl.plan.measured import Measurements

NUM_RESAMPLES = 40
SEED = 0
MIDDLE = (0.05, 0.95)
"""The quantiles between which a range lies."""


@dataclass(frozen=True, slots=True)
class Residuals:
    """Measured over fitted seconds, widened by what the fit itself took away."""

    generation: Array
    updates: Array

    @property
    def spread(self) -> float:
        """Half the width of the middle 90 % of single measurements around the fit; of the stage that varies more."""
        return max(float(np.ptp(np.quantile(values, MIDDLE))) / 2 for values in (self.generation, self.updates))


def residuals(measured: Measurements, costs: CostModel) -> Residuals | None:
    """Of both stages; None where there were no more measurements than the fit has terms, so repeats tell nothing."""
    found = []
    for values, num_terms in (
        ([p.generate_seconds / costs.fitted_generation(p) for p in measured.generation], costs.num_generation_terms),
        ([p.update_seconds / costs.fitted_update(p) for p in measured.updates], costs.num_update_terms),
    ):
        free = len(values) - num_terms
        if free <= 0:
            return None
        found.append(np.maximum(1 + (np.array(values) - 1) * (len(values) / free) ** 0.5, 0.01))
    return Residuals(*found)


def resampled_costs(measured: Measurements, costs: CostModel, found: Residuals | None) -> Sequence[CostModel]:
    """Cost models of as many made-up measurements; none where `residuals` found none."""
    if found is None:
        return ()
    random = np.random.default_rng(SEED)
    return [_resampled(measured, costs, found, random) for _ in range(NUM_RESAMPLES)]


def _resampled(measured: Measurements, costs: CostModel, found: Residuals, random: np.random.Generator) -> CostModel:
    by_step = random.choice(found.generation, len(measured.generation))
    by_update = random.choice(found.updates, len(measured.updates))
    return CostModel(
        replace(
            measured,
            generation=tuple(
                replace(p, generate_seconds=costs.fitted_generation(p) * float(factor))
                for p, factor in zip(measured.generation, by_step, strict=True)
            ),
            updates=tuple(
                replace(p, update_seconds=costs.fitted_update(p) * float(factor))
                for p, factor in zip(measured.updates, by_update, strict=True)
            ),
        )
    )

"""Whether the seconds of a plan can be trusted, and if not, why; shown above the suggestion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from podsrl.plan.machine_use import MachineUse
from podsrl.plan.probe import Verification

LARGEST_SPREAD = 0.3
"""Single measurements further from the fit than this (half the width of the middle 90 %) disagree."""
LARGEST_MISS = 1.25
"""A prediction that is off by more than this factor when it is run for real is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Evidence for and against the seconds of a plan."""

    use: MachineUse | None
    """Use of the machine meanwhile; None for a run's logs, which do not hold it."""
    spread: float | None
    """Between repeats (`resample.Residuals.spread`); None where nothing was repeated."""
    checks: Sequence[Verification]
    """Predicted against measured."""

    @property
    def reasons(self) -> list[str]:
        """Reasons against them; empty if they can be trusted."""
        found = []
        if self.use is not None and self.use.is_busy:
            found.append(f"the machine was busy ({self.use.text})")
        if self.spread is not None and self.spread > LARGEST_SPREAD:
            found.append(f"repeats of the same measurement differ by ±{self.spread:.0%}")
        missed = [check.ratio for check in self.checks if not 1 / LARGEST_MISS <= check.ratio <= LARGEST_MISS]
        if missed:
            times = " and ".join(f"{ratio:.2f}" for ratio in missed)
            found.append(f"predicted seconds were {times} times those measured when it was run")
        return found

"""When each arm of a comparison reaches fixed accuracies, and how much sooner one arm is than each of the others."""

from __future__ import annotations

from dataclasses import dataclass

from podsrl.compare.bootstrap import bootstrap_speedups
from podsrl.compare.interval import over_each_text, quickest
from podsrl.compare.speedups import times_to_accuracies
from podsrl.report.read import Comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """For the page of a comparison."""

    sentence: str
    """How much sooner the quickest arm is than each of the others; empty where no other arm reaches the target."""
    seconds_to: dict[str, dict[str, float | None]]
    """As `times_to_accuracies`."""


def times_of(comparison: Comparison) -> Times:
    """Measure them from the comparison's runs."""
    curves = {arm: [run.accuracy_curve(comparison.metric) for run in runs] for arm, runs in comparison.runs.items()}
    arm = quickest(comparison.speedups, comparison.baseline)
    bases = [base for base in curves if arm and comparison.learned.get(base, True)]
    over = {base: bootstrap_speedups(curves, base, comparison.fraction) for base in bases}
    return Times(
        sentence=over_each_text(arm, over, comparison.fraction) if arm else "",
        seconds_to=times_to_accuracies(curves),
    )

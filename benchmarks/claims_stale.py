"""What published claims about stale tokens look like on sums: as `claims`, each run with as many steps.

python -m benchmarks claims-stale                          all runs that are missing
python -m benchmarks claims-stale --arms "VCPO, 32 old"    these alone; further options as of `claims`
python -m benchmarks claims-stale --out benchmarks/results/amd-zen-4/claims-stale    goes on with those that are stored
python -m benchmarks claims-stale --save                   also the table of docs/losses.md

Rollouts that are 8 old are trained on 8 steps after they were generated (`benchmarks.lagged`). The first 8 steps update
nothing; from step 16 on there are 8 weight updates between the two. For 32 likewise.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from benchmarks.claims import measure
from benchmarks.figures.markdown import table as markdown_table
from benchmarks.paired import Json, over_text
from podsrl.compare.student import student_t

SOONER = ("DOTS-RR", 1 / 0.85)
"""An arm, and how many times sooner than the first arm its paper has the accuracy."""
POINTS = (
    ("decoupled, 8 old", "naive, 8 old", 2.0, "at least 2 points more"),
    ("EWMA, 8 old", "interpolated, 8 old", 0.0, "at least as accurate"),
)
"""An arm, the one it is compared with, and how many points more a paper has."""
SURVIVES = (("VCPO, 32 old", "naive, 32 old"),)
"""An arm that a paper sees survive where the other one collapses."""
FALLEN = 0.5
"""Of the highest accuracy of a run: below it, the run has collapsed."""


def main(arguments: Sequence[str]) -> None:
    measure("claims-stale", __doc__, "stale", arguments)


def table(result: Json) -> str:
    """A row per arm, then a sentence per claim of which both arms are there."""
    arms, target = result["arms"], f"{result['targets'][-1]:g}"
    head = (
        *("arm", "rate", f"steps to {float(target):.0%}", "CPU seconds to it", "how many times sooner"),
        *("highest accuracy", "at the end", "mean at the end"),
    )
    rows = []
    for arm, own in arms.items():
        to, over = own["to"][target], own["over"].get(target)
        rows.append(
            [
                *(arm, f"{own['rate']:g}", _listed(to["step"], "g"), _listed(to["cpu_seconds"], ".1f")),
                over_text(over["cpu_seconds"]) if over else "1",
                *(_percents(own[name]) for name in ("highest", "last")),
                f"{100 * statistics.mean(own['last']):.1f} %",
            ]
        )
    num_steps = max((steps for own in arms.values() for steps in own["num_steps"]), default=0)
    note = (
        f"Per seed, a dash where {float(target):.0%} of the held-out questions were never right. Sooner: CPU seconds "
        f"of {result['baseline']} over those of the arm. The end is that of {num_steps} steps. {result['num_runs']} of "
        f"{result['num_wanted']} runs are made."
    )
    return "\n\n".join([markdown_table(head, rows), note, "\n".join(claims(arms, target))])


def claims(arms: Json, target: str) -> list[str]:
    """A sentence per claim."""
    lines = []
    arm, least = SOONER
    if arm in arms and target in arms[arm]["over"]:
        over = arms[arm]["over"][target]["cpu_seconds"]
        is_seen = (over["ratio"] or 0.0) >= least and over["interval"]["low"] > 1
        lines.append(f"- **{arm}**. The claim (0.85 of the time): {_seen(is_seen)}, CPU seconds {over_text(over)}.")
    for arm, other, least, words in POINTS:
        if arm in arms and other in arms:
            mean, low, high = gain(arms[arm], arms[other])
            interval = "one seed" if math.isinf(high) else f"{low:+.1f} to {high:+.1f}"
            is_seen = mean >= least and low > 0
            lines.append(
                f"- **{arm}** over {other}. The claim ({words}): {_seen(is_seen)}, {mean:+.1f} points at the end "
                f"({interval})."
            )
    for arm, other in SURVIVES:
        if arm in arms and other in arms:
            own, theirs = num_fallen(arms[arm]), num_fallen(arms[other])
            mean, low, high = gain(arms[arm], arms[other])
            interval = "one seed" if math.isinf(high) else f"{low:+.1f} to {high:+.1f}"
            lines.append(
                f"- **{arm}** against {other}. The claim (the one survives where the other collapses): "
                f"{_seen(theirs > 0 and not own)}; {own} of {len(arms[arm]['last'])} runs against {theirs} of "
                f"{len(arms[other]['last'])} end below half of their highest accuracy; {mean:+.1f} points at the end "
                f"({interval})."
            )
    return lines


def gain(own: Json, other: Json) -> tuple[float, float, float]:
    """Points of accuracy at the end that an arm has more than another, on common seeds: mean and 95 % interval.

    Example:
        >>> gain({"seeds": [0, 1], "last": [0.75, 0.5]}, {"seeds": [0, 1], "last": [0.5, 0.25]})
        (25.0, 25.0, 25.0)
        >>> gain({"seeds": [0], "last": [0.75]}, {"seeds": [0, 1], "last": [0.5, 0.6]})
        (25.0, -inf, inf)
    """
    theirs = dict(zip(other["seeds"], other["last"], strict=True))
    pairs = [(last, theirs[seed]) for seed, last in zip(own["seeds"], own["last"], strict=True) if seed in theirs]
    points = [100 * (mine - yours) for mine, yours in pairs]
    if not points:
        return 0.0, -math.inf, math.inf
    mean = statistics.mean(points)
    if len(points) == 1:
        return mean, -math.inf, math.inf
    error = student_t(len(points) - 1) * statistics.stdev(points) / math.sqrt(len(points))
    return mean, mean - error, mean + error


def num_fallen(own: Json) -> int:
    """Runs of an arm that have collapsed.

    Example:
        >>> num_fallen({"last": [0.1, 0.7], "highest": [0.6, 0.8]})
        1
    """
    return sum(last < FALLEN * highest for last, highest in zip(own["last"], own["highest"], strict=True))


def _seen(is_seen: bool) -> str:
    return "seen" if is_seen else "not seen"


def _listed(costs: Sequence[float | None], form: str) -> str:
    return ", ".join("–" if cost is None else f"{cost:{form}}" for cost in costs)


def _percents(shares: Sequence[float]) -> str:
    return ", ".join(f"{100 * share:.0f}" for share in shares) + " %"

"""How often the 95 % interval of a speed-up holds the true speed-up, on synthetic comparisons whose truth is known.

    python -m benchmarks interval-coverage                     13 kinds of curves, 2 to 10 seeds, 300 comparisons each
    python -m benchmarks interval-coverage --comparisons 50    quicker, less precise

Each seed of each arm has its own rate and plateau, in part shared by the two arms of a seed; each evaluation counts
right answers among `num_questions`. The truth is the speed-up of the mean curves of 6,000 seeds without evaluation
noise. The percentile interval of resampled seeds is given for comparison. Width is the high end over the low end, the
median over comparisons; infinite where that comparison's low end is 0.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks import command
from benchmarks.figures.markdown import table
from benchmarks.timing import Clock, Say
from podsrl.compare.bootstrap import bootstrap_speedup

NUM_SEEDS = (2, 3, 4, 5, 8, 10)
START_ACCURACY = 0.02

Array = npt.NDArray[np.float64]
Run = tuple[Array, Array]
"""Times and accuracies after training began."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of comparison; each pair is (baseline, other arm)."""

    shape: str
    """"saturating": 1 - exp(-t / τ); "s": t⁴ / (t⁴ + τ⁴)."""
    scales: tuple[float, float]
    """Median τ in seconds."""
    plateaus: tuple[float, float]
    fraction: float
    shared_spread: float = 0.15
    """Standard deviation over seeds of log τ that both arms share."""
    own_spread: float = 0.1
    """Standard deviation over seeds of log τ of one arm alone."""
    plateau_spread: float = 0.01
    num_questions: int = 256
    gaps: tuple[float, float] = (1.0, 1.0)
    """Mean seconds between evaluations."""
    gap_spread: float = 0.1
    """A gap is uniform within this share of its mean; 0 evaluates all runs at the same times."""
    seconds: float = 50.0


KINDS = {
    "saturating, to 99 %": Kind(shape="saturating", scales=(8, 4), plateaus=(0.95, 0.95), fraction=0.99),
    "saturating, to 90 %": Kind(shape="saturating", scales=(8, 4), plateaus=(0.95, 0.95), fraction=0.9),
    "S-shaped, to 99 %": Kind(
        shape="s", scales=(15, 7), plateaus=(0.95, 0.95), fraction=0.99, shared_spread=0.25, own_spread=0.15
    ),
    "S-shaped, to 90 %": Kind(
        shape="s", scales=(15, 7), plateaus=(0.95, 0.95), fraction=0.9, shared_spread=0.25, own_spread=0.15
    ),
    "still rising at the end, to 99 %": Kind(
        shape="saturating", scales=(60, 30), plateaus=(0.8, 0.82), fraction=0.99, shared_spread=0.2, gaps=(4, 4)
    ),
    "ten evaluations a run, to 99 %": Kind(
        shape="saturating", scales=(8, 5), plateaus=(0.8, 0.83), fraction=0.99, num_questions=1000, gaps=(5, 5)
    ),
    "ten evaluations at equal times, to 95 %": Kind(
        shape="saturating", scales=(12, 6), plateaus=(0.9, 0.9), fraction=0.95, gaps=(5, 5), gap_spread=0.0
    ),
    "arm at the target within three evaluations, to 90 %": Kind(
        shape="saturating", scales=(12, 1.5), plateaus=(0.9, 0.92), fraction=0.9, gaps=(4, 1), seconds=48
    ),
    "no difference, to 90 %": Kind(
        shape="saturating", scales=(8, 8), plateaus=(0.9, 0.9), fraction=0.9, shared_spread=0.3, gaps=(2, 2)
    ),
    "100 questions, plateaus apart, to 95 %": Kind(
        shape="saturating",
        scales=(8, 8),
        plateaus=(0.5, 0.5),
        fraction=0.95,
        shared_spread=0.3,
        own_spread=0.2,
        plateau_spread=0.03,
        num_questions=100,
        gaps=(2, 2),
    ),
    "arm ends just above the target, to 99 %": Kind(
        shape="saturating", scales=(8, 4), plateaus=(0.9, 0.892), fraction=0.99
    ),
    "arm ends just below the target, to 99 %": Kind(
        shape="saturating", scales=(8, 4), plateaus=(0.9, 0.885), fraction=0.99, plateau_spread=0.005
    ),
    "seeds a factor of four apart, to 90 %": Kind(
        shape="s", scales=(12, 6), plateaus=(0.95, 0.95), fraction=0.9, shared_spread=0.6, own_spread=0.4
    ),
}


def simulate(
    kind: Kind, num_seeds: int, rng: np.random.Generator, *, is_noisy: bool = True
) -> tuple[list[Run], list[Run]]:
    """Draw the runs of both arms."""
    shared_rate, shared_plateau = rng.normal(size=(2, num_seeds))
    arms = []
    for scale, plateau, gap in zip(kind.scales, kind.plateaus, kind.gaps, strict=True):
        own_rate, own_plateau = rng.normal(size=(2, num_seeds))
        scales = scale * np.exp(kind.shared_spread * shared_rate + kind.own_spread * own_rate)
        plateaus = np.clip(plateau + kind.plateau_spread * (shared_plateau + own_plateau) / 2, 0, 0.999)
        share = rng.uniform(1 - kind.gap_spread, 1 + kind.gap_spread, size=(num_seeds, int(kind.seconds / gap)))
        times = np.cumsum(gap * share, axis=1)
        rise = _rise(kind.shape, times / scales[:, None])
        chances = START_ACCURACY + (plateaus[:, None] - START_ACCURACY) * rise
        accuracies = rng.binomial(kind.num_questions, chances) / kind.num_questions if is_noisy else chances
        arms.append(list(zip(times, accuracies, strict=True)))
    return arms[0], arms[1]


def _rise(shape: str, ratio: Array) -> Array:
    return 1 - np.exp(-ratio) if shape == "saturating" else ratio**4 / (1 + ratio**4)


@lru_cache
def true_speedup(kind: Kind, num_seeds: int = 6000) -> float:
    """The speed-up of the population's mean curves; 0 where the arm never reaches the target."""
    base, other = (
        population_mean(runs) for runs in simulate(kind, num_seeds, np.random.default_rng(1), is_noisy=False)
    )
    target = kind.fraction * base[1].max()
    reached = other[1] >= target
    return float(base[0][(base[1] >= target).argmax()] / other[0][reached.argmax()]) if reached.any() else 0.0


def population_mean(runs: Sequence[Run]) -> Run:
    """Mean over runs of the last accuracy at or before each evaluation of any, from when all have one."""
    times = np.concatenate([run[0] for run in runs])
    # An evaluation raises its run's accuracy by this much, so the mean is a sum of all changes up to a time.
    changes = np.concatenate([np.diff(run[1], prepend=0.0) for run in runs]) / len(runs)
    order = np.argsort(times, kind="stable")
    times, mean = times[order], np.cumsum(changes[order])
    is_last = np.append(np.diff(times) > 0, True) & (times >= max(run[0][0] for run in runs))
    return times[is_last], mean[is_last]


def percentile_interval(
    base: Sequence[Run], other: Sequence[Run], fraction: float, num_resamples: int
) -> tuple[float, float]:
    """2.5th and 97.5th percentile of the speed-ups of resampled seeds; one that misses the target counts as 0."""
    held = [_on_own_grid(runs) for runs in (base, other)]
    drawn = np.random.default_rng(0).integers(0, len(base), size=(num_resamples, len(base)))
    weights = np.stack([np.bincount(row, minlength=len(base)) for row in drawn]) / len(base)
    base_means, other_means = weights @ held[0][1], weights @ held[1][1]
    target = fraction * base_means.max(axis=1, keepdims=True)
    reached = other_means >= target
    ratios = held[0][0][(base_means >= target).argmax(axis=1)] / held[1][0][reached.argmax(axis=1)]
    low, high = np.percentile(np.where(reached.any(axis=1), ratios, 0.0), (2.5, 97.5))
    return float(low), float(high)


def _on_own_grid(runs: Sequence[Run]) -> Run:
    times = np.unique(np.concatenate([run[0] for run in runs]))
    times = times[times >= max(run[0][0] for run in runs)]
    return times, np.stack([run[1][np.searchsorted(run[0], times, side="right") - 1] for run in runs])


def coverage(
    kind: Kind, num_seeds: int, *, num_comparisons: int, num_resamples: int, seed: int = 0
) -> dict[str, dict[str, float | None]]:
    """Share of comparisons whose interval holds the truth, and the median width, of the interval and of percentiles."""
    truth, rng = true_speedup(kind), np.random.default_rng([seed, num_seeds])
    ends: dict[str, list[tuple[float, float]]] = {"interval": [], "percentile": []}
    for _ in range(num_comparisons):
        base, other = simulate(kind, num_seeds, rng)
        found = bootstrap_speedup(base, other, fraction=kind.fraction, num_resamples=num_resamples)
        ends["interval"].append((found.low, found.high))
        ends["percentile"].append(percentile_interval(base, other, kind.fraction, num_resamples))
    return {
        name: {
            "coverage": float(np.mean([low <= truth <= high for low, high in pairs])),
            "median_width": _median_width(pairs),
        }
        for name, pairs in ends.items()
    }


def _median_width(pairs: Sequence[tuple[float, float]]) -> float | None:
    width = float(np.median([high / low if low else math.inf for low, high in pairs]))
    return width if math.isfinite(width) else None


def measure(options: argparse.Namespace, say: Say) -> list[dict[str, Any]]:
    """One row for each kind and number of seeds."""
    rows = []
    for name, kind in KINDS.items():
        for num_seeds in NUM_SEEDS:
            say(f"{name}, {num_seeds} seeds")
            found = coverage(
                kind, num_seeds, num_comparisons=options.comparisons, num_resamples=options.resamples, seed=options.seed
            )
            rows.append({"kind": name, "num_seeds": num_seeds, "truth": true_speedup(kind), **found})
    return rows


def markdown(result: dict[str, Any]) -> str:
    """Coverage and width over the kinds of curves: a row per interval, a column per number of seeds."""
    rows = result["rows"]
    titles = {"interval": "interval of `pods compare`", "percentile": "range of resampled seeds"}
    lines = []
    for method, title in titles.items():
        found = [[row[method] for row in rows if row["num_seeds"] == count] for count in NUM_SEEDS]
        shares = [sorted(each["coverage"] for each in own) for own in found]
        widths = [statistics.median(each["median_width"] or math.inf for each in own) for own in found]
        lines.append([f"{title}: contains it", *(f"{own[0]:.0%} … {own[-1]:.0%}" for own in shares)])
        lines.append(["high end over low end", *("∞" if math.isinf(width) else f"{width:.3g}×" for width in widths)])
    return table(["", *(f"{count} seeds" for count in NUM_SEEDS)], lines)


def run(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Measure every kind of curves with every number of seeds."""
    clock = Clock()
    rows = measure(options, say)
    return {
        "options": vars(options),
        "processor_seconds": clock.read().cpu_seconds,
        "kinds": {name: asdict(kind) for name, kind in KINDS.items()},
        "rows": rows,
    }


def main(arguments: Sequence[str]) -> None:
    parser = command.new_parser("interval-coverage", __doc__)
    parser.add_argument("--comparisons", type=int, default=300, help="for each kind of curves and number of seeds")
    parser.add_argument("--resamples", type=int, default=300, help="draws of seeds for each interval")
    parser.add_argument("--seed", type=int, default=0)
    command.measure(parser, arguments, run)

"""From curves to figures: seconds to an accuracy, and their ratios within a seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from benchmarks.timing import ratios
from benchmarks.trl_accuracy.turns import Curve
from podsrl.compare import time_to_accuracy

TARGETS = (0.5, 0.8, 0.9)
CLOCKS: tuple[Clock, ...] = ("seconds", "cpu_seconds")
Json = dict[str, Any]
Clock = Literal["seconds", "cpu_seconds"]


def seconds_to(curve: Curve, target: float, clock: Clock = "seconds") -> float | None:
    """Training seconds of the first evaluation at which the accuracy is at least `target`; None: there is none.

    Example:
        >>> curve = Curve([0.0, 0.5, 0.9], [0.0, 2.0, 4.0], [0.0, 1.0, 2.0])
        >>> seconds_to(curve, 0.5), seconds_to(curve, 0.9, "cpu_seconds"), seconds_to(curve, 0.99)
        (2.0, 2.0, None)
    """
    return time_to_accuracy(getattr(curve, clock), curve.accuracy, target)


def steps_to(curve: Curve, target: float) -> int | None:
    """Optimizer steps to the first evaluation with an accuracy of at least `target`; None: there is none.

    Example:
        >>> curve = Curve([0.0, 0.5, 0.9], [0.0, 2.0, 4.0], [0.0, 1.0, 2.0], [0, 3, 6])
        >>> steps_to(curve, 0.6), steps_to(curve, 0.95)
        (6, None)
    """
    found = time_to_accuracy(curve.steps, curve.accuracy, target)
    return None if found is None else int(found)


def ratio(over: Sequence[Curve], under: Sequence[Curve], target: float, clock: Clock = "seconds") -> Json:
    """Seconds of one arm over those of another within each seed: lowest, median, highest.

    Where an arm does not reach the target, all seconds that it has trained stand for its time. So the figures are
    bounds: "bound" is "≥" where only arms of `over` did not reach it, "≤" where only arms of `under` did not, "?" where
    both, and "" where all did.
    """
    pairs = [[seconds_to(curve, target, clock) for curve in curves] for curves in (over, under)]
    missing = (None in pairs[0], None in pairs[1])
    bound = {(False, False): "", (True, False): "≥", (False, True): "≤", (True, True): "?"}[missing]
    counted = [
        [getattr(curve, clock)[-1] if time is None else time for time, curve in zip(times, curves, strict=True)]
        for times, curves in zip(pairs, (over, under), strict=True)
    ]
    return {**ratios(*counted), "bound": bound}


def summary(seeds: Sequence[Mapping[str, Curve]], ours: str, peer: str) -> Json:
    """Times and ratios of all arms, by clock and target.

    "steps" and "seconds": by arm, per seed, None where not reached. "trained": by arm, all its seconds per seed.
    "slower": each arm's seconds over those of `ours`. "sooner": the seconds of `peer` over each arm's.
    """
    by_arm = {arm: [curves[arm] for curves in seeds] for arm in seeds[0]}
    found: Json = {}
    for clock in CLOCKS:
        found[clock] = {
            "trained": {arm: [getattr(curve, clock)[-1] for curve in curves] for arm, curves in by_arm.items()},
            **{
                f"{target:g}": {
                    "steps": {arm: [steps_to(curve, target) for curve in curves] for arm, curves in by_arm.items()},
                    "seconds": {
                        arm: [seconds_to(curve, target, clock) for curve in curves] for arm, curves in by_arm.items()
                    },
                    "slower": {arm: ratio(curves, by_arm[ours], target, clock) for arm, curves in by_arm.items()},
                    "sooner": {arm: ratio(by_arm[peer], curves, target, clock) for arm, curves in by_arm.items()},
                }
                for target in TARGETS
            },
        }
    return found


def steps_text(steps: Sequence[int | None]) -> str:
    """Lowest and highest over seeds, a dash for one that is not reached.

    Example:
        >>> steps_text([12, 14, 11]), steps_text([12, 12]), steps_text([12, None]), steps_text([None])
        ('11 … 14', '12', '12 … –', '–')
    """
    reached = sorted(step for step in steps if step is not None)
    texts = [*map(str, reached), *("–" for step in steps if step is None)]
    return texts[0] if texts[0] == texts[-1] else f"{texts[0]} … {texts[-1]}"


def seconds_text(times: Sequence[float | None], trained: Sequence[float]) -> str:
    """Median (lowest … highest) over seeds; a seed that did not reach the target counts as later than all others.

    Example:
        >>> seconds_text([3.0, 2.0, 4.0], [5.0, 5.0, 5.0]), seconds_text([3.0, None, 4.0], [5.0, 9.0, 5.0])
        ('3.0 (2.0 … 4.0)', '4.0 (3.0 … not in 9.0)')
        >>> seconds_text([None], [9.0])
        'not in 9.0'
    """
    reached = sorted(time for time in times if time is not None)
    missed = sorted(end for time, end in zip(times, trained, strict=True) if time is None)
    texts = [f"{time:.1f}" for time in reached] + [f"not in {end:.1f}" for end in missed]
    if len(texts) == 1:
        return texts[0]
    middle = texts[len(texts) // 2]
    if len(texts) % 2 == 0 and len(reached) > len(texts) // 2:
        middle = f"{(reached[len(texts) // 2 - 1] + reached[len(texts) // 2]) / 2:.1f}"
    return f"{middle} ({texts[0]} … {texts[-1]})"


def ratio_text(found: Mapping[str, Any]) -> str:
    """A ratio with its spread over seeds.

    Example:
        >>> ratio_text({"median": 12.25, "min": 9.0, "max": 15.0, "bound": "≥"})
        '≥ 12.2× (9.0 … 15.0)'
    """
    if found["bound"] == "?":
        return "–"
    text = f"{found['median']:.1f}× ({found['min']:.1f} … {found['max']:.1f})"
    return f"{found['bound']} {text}".strip()

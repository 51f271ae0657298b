"""Each arm's own best settings, measured before the seeds that count: how TRL computes, then the learning rate."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from benchmarks.timing import Say
from benchmarks.trl_accuracy.arms import Sizes, Way, new_arm
from podsrl.config.load import load_config

RATES = (3e-4, 1.5e-4, 6e-4)
"""podsrl's own default first: where two rates need as many steps, the first is taken."""
SEED = 100
"""Not one of those that count."""
MAX_STEPS = 40
_BATCH_TOKENS = 256
"""Per step of transformers' continuous batching."""
Json = dict[str, Any]


def ways(num_rollouts: int) -> list[Way]:
    """How TRL may compute: in one micro-batch or in four, with `generate` or with continuous batching."""
    rows = load_config("pods").rollouts.num_prompts * num_rollouts
    return [Way(rows), Way(rows // 4), Way(rows, "continuous batching", _BATCH_TOKENS)]


def best_way(sizes: Sizes, say: Say, *, is_first: bool = False) -> tuple[Way | None, Json]:
    """The way with the least processor time of a step, and the seconds of each; None for podsrl's own trainer.

    With `is_first`, the first way, and nothing is tried.
    """
    if sizes.trainer == "podsrl":
        return None, {}
    if is_first:
        return ways(sizes.num_rollouts)[0], {}
    tried: dict[Way, float] = {}
    for way in ways(sizes.num_rollouts):
        say(f"{way.generation}, {way.rows_at_once} rows at once")
        with closing(new_arm(sizes, way, lr=RATES[0], seed=SEED, budget=1.0)) as arm:
            arm.step()  # warm
            tried[way] = statistics.median(arm.step().cpu_seconds for _ in range(2))
    texts = {f"{way.generation}, {way.rows_at_once} rows": round(seconds, 3) for way, seconds in tried.items()}
    return min(tried, key=lambda way: tried[way]), texts


def best_rate(
    sizes: Sizes, way: Way | None, accuracy_of: Callable[[Any], float], target: float, rates: Sequence[float], say: Say
) -> tuple[float, Json]:
    """The rate that reaches the target in the fewest steps, and what each rate did; one rate is not tried."""
    if len(rates) == 1:
        return rates[0], {}
    found: dict[float, list[float]] = {}
    for rate in rates:
        limit = min((len(curve) for curve in found.values() if curve[-1] >= target), default=MAX_STEPS + 1)
        with closing(new_arm(sizes, way, lr=rate, seed=SEED, budget=1.0)) as arm:
            found[rate] = train_to(_accuracies(arm, accuracy_of, rate, say), target, limit - 1)
    tried = {f"{rate:g}": {"steps": len(curve), "accuracy": curve[-1]} for rate, curve in found.items()}
    return choose(found, target), tried


def train_to(accuracies: Iterator[float], target: float, max_steps: int) -> list[float]:
    """Accuracies after each step, to the first at the target or to `max_steps` of them.

    Example:
        >>> train_to(iter([0.1, 0.8, 0.9, 1.0]), 0.9, 10), train_to(iter([0.1, 0.8, 0.9, 1.0]), 0.9, 2)
        ([0.1, 0.8, 0.9], [0.1, 0.8])
    """
    found: list[float] = []
    while len(found) < max_steps and (not found or found[-1] < target):
        found.append(next(accuracies))
    return found


def choose(found: Mapping[float, Sequence[float]], target: float) -> float:
    """The rate whose accuracies reach the target in the fewest steps; where none does, the highest mean accuracy.

    Example:
        >>> choose({1e-4: [0.1, 0.5, 1.0], 2e-4: [0.5, 1.0], 3e-4: [0.9, 0.9]}, 0.99)
        0.0002
        >>> choose({1e-4: [0.1, 0.5], 2e-4: [0.5, 0.6]}, 0.99)
        0.0002
    """
    reached = {rate: len(curve) for rate, curve in found.items() if curve[-1] >= target}
    if reached:
        return min(reached, key=lambda rate: reached[rate])
    return max(found, key=lambda rate: statistics.mean(found[rate]))


def _accuracies(arm: Any, accuracy_of: Callable[[Any], float], rate: float, say: Say) -> Iterator[float]:
    accuracy, step = 0.0, 0
    while True:
        step += 1
        say(f"rate {rate:g}, step {step}, accuracy {accuracy:.0%}")
        arm.step()
        yield (accuracy := accuracy_of(arm.model))

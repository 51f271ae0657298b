"""Each arm's own best settings, measured before the seeds that count: how TRL computes, then the learning rate."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from benchmarks.timing import Say, titled
from benchmarks.trl_accuracy.arms import Sizes, Way, new_arm
from podsrl.config.files import read_tree

RATES = (3e-4, 1.5e-4, 6e-4)
"""podsrl's own default first, because it ends the others early."""
FIRST_SEED = 100
"""Seeds from here on do not count afterwards."""
MAX_STEPS = 150
"""Of one run."""
_BATCH_TOKENS = 256
"""Per step of transformers' continuous batching."""
Json = dict[str, Any]


def ways(num_rollouts: int) -> list[Way]:
    """How TRL may compute: in one micro-batch or in four, with `generate` or with continuous batching."""
    rows = read_tree("demo")["base"]["rollouts"]["num_prompts"] * num_rollouts
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
        with closing(new_arm(sizes, way, lr=RATES[0], seed=FIRST_SEED, budget=1.0)) as arm:
            arm.step()  # warm
            tried[way] = statistics.median(arm.step().cpu_seconds for _ in range(2))
    texts = {f"{way.generation}, {way.rows_at_once} rows": round(seconds, 3) for way, seconds in tried.items()}
    return min(tried, key=lambda way: tried[way]), texts


def best_rate(
    sizes: Sizes,
    way: Way | None,
    accuracy_of: Callable[[Any], float],
    *,
    target: float,
    rates: Sequence[float],
    num_seeds: int,
    say: Say,
) -> tuple[float, Json]:
    """The rate that reaches the target in the fewest steps over seeds, and each rate's steps; one rate is not tried.

    A rate is given up where it has needed as many steps as another in all.
    """
    if len(rates) == 1:
        return rates[0], {}
    found: dict[float, list[list[float]]] = {}
    for rate in rates:
        fewest = min((num_steps(runs, target, num_seeds) for runs in found.values()), default=num_seeds * MAX_STEPS)
        found[rate] = []
        for seed in range(num_seeds):
            left = fewest - sum(map(len, found[rate]))
            if left > 0:
                show = titled(say, f"rate {rate:g}, seed {seed + 1} of {num_seeds}")
                with closing(new_arm(sizes, way, lr=rate, seed=FIRST_SEED + seed, budget=1.0)) as arm:
                    run = train_to(_accuracies(arm, accuracy_of, show), target, min(left, MAX_STEPS))
                found[rate].append(run)
    tried = {f"{rate:g}": [len(run) if run[-1] >= target else None for run in runs] for rate, runs in found.items()}
    return choose(found, target, num_seeds), tried


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


def num_steps(runs: Sequence[Sequence[float]], target: float, num_seeds: int) -> int:
    """Steps of all seeds to the target; a run that did not reach it, or was not made, counts with `MAX_STEPS`.

    Example:
        >>> num_steps([[0.5, 1.0], [0.5, 0.6, 0.7]], 0.99, 3)
        302
    """
    reached = [len(run) for run in runs if run[-1] >= target]
    return sum(reached) + MAX_STEPS * (num_seeds - len(reached))


def choose(found: Mapping[float, Sequence[Sequence[float]]], target: float, num_seeds: int) -> float:
    """The rate with the fewest steps to the target; of equals, the one with the highest mean accuracy.

    Example:
        >>> choose({1e-4: [[0.1, 0.5, 1.0]], 2e-4: [[0.5, 1.0]], 3e-4: [[0.9, 0.9]]}, 0.99, 1)
        0.0002
        >>> choose({1e-4: [[0.1, 0.5]], 2e-4: [[0.5, 0.6]]}, 0.99, 1)
        0.0002
    """

    def order(rate: float) -> tuple[float, float]:
        accuracies = [accuracy for run in found[rate] for accuracy in run]
        return num_steps(found[rate], target, num_seeds), -statistics.mean(accuracies)

    return min(found, key=order)


def _accuracies(arm: Any, accuracy_of: Callable[[Any], float], say: Say) -> Iterator[float]:
    accuracy, step = 0.0, 0
    while True:
        step += 1
        say(f"step {step}, accuracy {accuracy:.0%}")
        arm.step()
        yield (accuracy := accuracy_of(arm.model))

"""What an accuracy has cost: rollouts, generated tokens, training seconds, steps, or tokens at a price, up to each
evaluation of a run.

Lines of a log are as in `metrics.jsonl` (docs/metrics.md). This module needs numpy only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from podsrl.compare.curves import Array

Line = Mapping[str, Any]
COSTS = {
    "rollouts": "rollouts generated and judged",
    "tokens": "tokens generated",
    "seconds": "training seconds",
    "cpu": "processor seconds",
    "steps": "steps",
}
"""Name -> what it counts. Rollouts are all: trained on, left out, and probes. A comparison has one kind of seconds."""
UNEQUAL = 1.1
"""So many times longer than in another arm a second of work took in an arm that had less of the machine."""
NO_PRICES = "There is no cost at a price: tokens/trained or tokens/generated is not in every log, or always 0."
"""What a comparison says whose logs are older than these metrics."""
Weights = Mapping[str, float]
"""Metric of a step -> how often it counts; the cost of a step is their sum."""
_ROLLOUTS = ("rollouts/all", "rollouts/left_out", "rollouts/probes")
_OF_STEP: Mapping[str, Weights] = {
    "rollouts": dict.fromkeys(_ROLLOUTS, 1),
    "tokens": {"tokens/generated": 1},
    "cpu": {"seconds/cpu": 1},
}
EARLY_ROLLOUTS = 5000
"""The beginning of a run, in which hopeless questions are most frequent."""
_OF_EVALUATION = {"seconds": "seconds/train_elapsed", "steps": "step"}


def at_price(price: float, num_epochs: int = 1) -> Weights:
    """The cost in trained tokens where a generated token costs `price` of them.

    Trained are the tokens of completions that went through the update, once per epoch; prompts do not count.

    Example:
        >>> at_price(0.3, num_epochs=2)
        {'tokens/trained': 2, 'tokens/generated': 0.3}
    """
    return {"tokens/trained": num_epochs, "tokens/generated": price}


def cost_curve(
    steps: Sequence[Line], evaluations: Sequence[Line], cost: str | Weights, metric: str = "accuracy"
) -> tuple[Array, Array] | None:
    """One run's held-out accuracy against a cost.

    Args:
        steps: lines of steps, ascending.
        evaluations: lines of evaluations, ascending.
        cost: a name of `COSTS`, or the metrics of a step that count, as of `at_price`.
        metric: which accuracy, `eval/METRIC`.

    Returns:
        Costs [E] and accuracies [E] of the evaluations, without those before which nothing more was spent than before
        the one that precedes them; None where the run's log does not say what a step cost.

    Example:
        >>> steps = [{"step": 1, "tokens/generated": 30}, {"step": 2, "tokens/generated": 12}]
        >>> evaluations = [{"step": 0, "eval/accuracy": 0.1}, {"step": 2, "eval/accuracy": 0.4}]
        >>> [values.tolist() for values in cost_curve(steps, evaluations, "tokens")]
        [[0.0, 42.0], [0.1, 0.4]]
    """
    if isinstance(cost, str) and cost in _OF_EVALUATION:
        spent = [line.get(_OF_EVALUATION[cost]) for line in evaluations]
    else:
        weights = _OF_STEP[cost] if isinstance(cost, str) else cost
        of_steps: list[list[Any]] = [[line.get(name) for name in weights] for line in steps]
        if not all(_is_number(value) for values in of_steps for value in values):
            return None
        ends = [line["step"] for line in steps]
        sums = np.concatenate([[0.0], np.cumsum(np.array(of_steps, dtype=np.float64) @ [*weights.values()])])
        spent = [float(sums[np.searchsorted(ends, line["step"], side="right")]) for line in evaluations]
    accuracies = [line.get(f"eval/{metric}") for line in evaluations]
    if not all(_is_number(value) for value in (*spent, *accuracies)):
        return None
    costs = np.array(spent, dtype=np.float64)
    is_more = np.diff(costs, prepend=-1.0) > 0
    return costs[is_more], np.array(accuracies, dtype=np.float64)[is_more]


def slowdown(logs: Sequence[Sequence[Line]]) -> float | None:
    """Seconds that an arm's threads took for a second of work, since they waited for a core in between.

    Args:
        logs: the lines of the steps of each run.

    Returns:
        1 or more; None where a log does not say.

    Example:
        >>> slowdown([[{"seconds/cpu": 1.5, "seconds/cpu_wait": 0.5}, {"seconds/cpu": 0.5, "seconds/cpu_wait": 0.5}]])
        1.5
    """
    used, waited = _total(logs, "seconds/cpu"), _total(logs, "seconds/cpu_wait")
    return None if used is None or waited is None or used == 0 else (used + waited) / used


def unequal_pace(slowdowns: Mapping[str, float | None]) -> str | None:
    """That one arm had less of the machine than another, and what follows, without a full stop; None where none had.

    Args:
        slowdowns: of each arm, as `slowdown` gives it; without one of them nothing is known.

    Example:
        >>> unequal_pace({"a": 1.5, "b": 1.0, "c": 1.2}).partition(", while")[0]
        'The arms ran at unequal pace: a second of work took 1.50 s in a and 1.00 s in b'
        >>> unequal_pace({"a": 3.0, "b": 2.9}) is unequal_pace({"a": 1.5, "b": None}) is None
        True
    """
    known = {arm: each for arm, each in slowdowns.items() if each is not None}
    slow, fast = max(known, key=known.__getitem__, default=""), min(known, key=known.__getitem__, default="")
    if len(known) < len(slowdowns) or known[slow] <= UNEQUAL * known[fast]:
        return None
    return (
        f"The arms ran at unequal pace: a second of work took {known[slow]:.2f} s in {slow} and {known[fast]:.2f} s in "
        f"{fast}, while other threads had the cores. So times and speed-ups are in processor seconds, in which waiting "
        "for a core does not count"
    )


def signal(logs: Sequence[Sequence[Line]], num_chunks: int = 1) -> dict[str, float | None]:
    """How much of what an arm generated could teach, over all steps of all its runs.

    Args:
        logs: the lines of the steps of each run.
        num_chunks: `select.num_chunks`; `groups/all` and `groups/zero_signal` count chunks.

    Returns:
        "zero_signal": share of the groups trained on whose kept rewards are all equal; "all_wrong" and "mixed": share
        of all judged groups without a right rollout, and with right and wrong ones; "all_wrong_early": as "all_wrong",
        of the steps in which a run's first `EARLY_ROLLOUTS` rollouts were generated; "mixed_per_100": groups with right
        and wrong rollouts per 100 rollouts. None: a log does not say.
    """

    def of_judged(name: str, lines: Sequence[Sequence[Line]] = logs) -> float | None:
        chunks, left_out = _total(lines, "groups/all"), _total(lines, "groups/left_out")
        judged = None if chunks is None or left_out is None else chunks / num_chunks + left_out
        return _share(_total(lines, name), judged)

    mixed = _total(logs, "groups/mixed")
    return {
        "zero_signal": _share(_total(logs, "groups/zero_signal"), _total(logs, "groups/all")),
        "all_wrong": of_judged("groups/all_wrong"),
        "all_wrong_early": of_judged("groups/all_wrong", [_first(log, EARLY_ROLLOUTS) for log in logs]),
        "mixed": of_judged("groups/mixed"),
        "mixed_per_100": _share(mixed and 100 * mixed, _total(logs, *_ROLLOUTS)),
    }


def chosen_sizes(
    logs: Sequence[Sequence[Line]], rule: str, systems: Sequence[str], num_chunks: int = 1
) -> tuple[float, float] | None:
    """Rollouts per question, generated and trained, of runs that choose them by costs: means of three digits.

    Args:
        logs: the lines of the steps of each run.
        rule: `select.rule`.
        systems: of the run.
        num_chunks: `select.num_chunks`; the logs count chunks as groups.

    Returns:
        None for runs that do not choose them, or where a log does not say.

    Example:
        >>> chosen_sizes([[{"groups/all": 3, "rollouts/all": 96, "rollouts/kept": 20}]], "max_signal", ["worth"])
        (32.0, 6.67)
    """
    if rule != "max_signal" and "worth" not in systems:
        return None
    groups = _total(logs, "groups/all")
    questions = None if groups is None else groups / num_chunks
    generated, trained = (_share(_total(logs, name), questions) for name in ("rollouts/all", "rollouts/kept"))
    return None if generated is None or trained is None else (float(f"{generated:.3g}"), float(f"{trained:.3g}"))


def _first(log: Sequence[Line], num_rollouts: int) -> Sequence[Line]:
    """The steps up to the one with which a run has generated so many rollouts; all, where the log does not say."""
    spent = accumulate(_total([[line]], *_ROLLOUTS) or 0.0 for line in log)
    return log[: next((place for place, count in enumerate(spent, start=1) if count >= num_rollouts), len(log))]


def _total(logs: Sequence[Sequence[Line]], *names: str) -> float | None:
    """The sum of some metrics over all lines; None where one of them is missing."""
    values: list[Any] = [line.get(name) for log in logs for line in log for name in names]
    return math.fsum(values) if all(_is_number(value) for value in values) else None


def _share(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)

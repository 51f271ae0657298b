"""From finished runs to figures: seconds to each accuracy, and how many times sooner PODS is than GRPO and GRPO-GA."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.paired import Json, Time, speedup
from benchmarks.runs import MARKS, Log, cost, facts_of, time_of
from benchmarks.when_pods_helps.cells import Cell
from benchmarks.when_pods_helps.grid import ACCURACY

CLOCKS = ("cpu_seconds", "step", "rollouts")


def summarize(cells: Sequence[Cell], records: Mapping[Cell, Json], tuning: Log) -> Json:
    """All figures of the map.

    Args:
        cells: that are wanted.
        records: of those that are made.
        tuning: runs that tuned.

    Returns:
        "rates": the learning rate of each arm and condition, and the steps that each rate needed. "rows": one per
        (digits, KL weight, start), with its arms; one without a finished run is not in it. "num_runs", "num_wanted".
    """
    rows: dict[tuple[int, float, str], dict[tuple[int, int], dict[int, Json]]] = {}
    for cell, record in records.items():
        arms = rows.setdefault((cell.digits, cell.kl, cell.start), {})
        arms.setdefault((cell.num_rollouts, cell.num_kept), {})[cell.seed] = record
    return {
        "targets": MARKS.targets,
        **facts_of(records, len(cells)),
        "tuning": tuned(tuning),
        "rows": [
            {"digits": digits, "kl": kl, "start": start, "start_accuracy": _start_accuracy(arms), "arms": _arms(arms)}
            for (digits, kl, start), arms in sorted(rows.items(), key=lambda item: _order(cells, item[0]))
        ],
    }


def tuned(tuning: Log) -> list[Json]:
    """Steps of every tuning run; null where it did not reach the accuracy."""
    names = ("digits", "kl", "start", "arm", "rate", "seed")
    return [
        {**{name: record[name] for name in names}, "steps": cost(record, ACCURACY, "step")}
        for record in tuning.records.values()
    ]


def _arms(arms: dict[tuple[int, int], dict[int, Json]]) -> list[Json]:
    return [_arm(n, m, arms) for n, m in sorted(arms, key=lambda size: (size[0] == size[1], size[1], size[0]))]


def _arm(n: int, m: int, arms: dict[tuple[int, int], dict[int, Json]]) -> Json:
    records = dict(sorted(arms[n, m].items()))
    ends = [record["points"] for record in records.values()]
    return {
        "arm": next(iter(records.values()))["arm"],
        "num_rollouts": n,
        "num_kept": m,
        "rate": next(iter(records.values()))["rate"],
        "seeds": list(records),
        "to": {
            f"{target:g}": {clock: [cost(r, target, clock) for r in records.values()] for clock in CLOCKS}
            for target in MARKS.targets
        },
        "trained": {clock: [r["points"][clock][-1] for r in records.values()] for clock in CLOCKS},
        "cpu_seconds_per_step": round(sum(p["cpu_seconds"][-1] for p in ends) / sum(p["step"][-1] for p in ends), 4),
        "final_accuracy": round(statistics.mean(points["accuracy"][-1] for points in ends), 4),
        "over_grpo": _over(arms, (n, m), (m, m)),
        "over_grpo_ga": _over(arms, (n, m), (n, n)),
    }


def _over(
    arms: dict[tuple[int, int], dict[int, Json]], arm: tuple[int, int], base: tuple[int, int]
) -> dict[str, dict[str, Any]] | None:
    """Accuracy -> clock -> speed-up over another arm on the seeds that both have; None: there are none.

    An accuracy that a run has before its first step is left out.
    """
    seeds = sorted(arms[arm].keys() & arms.get(base, {}).keys())
    if arm == base or not seeds:
        return None

    def times(size: tuple[int, int], target: float, clock: str) -> list[Time]:
        return [time_of(arms[size][seed], target, clock) for seed in seeds]

    return {
        f"{target:g}": {
            clock: {
                **speedup(times(base, target, clock), times(arm, target, clock), MARKS.growth),
                "num_seeds": len(seeds),
            }
            for clock in CLOCKS
        }
        for target in MARKS.targets
        if all(cost(arms[size][seed], target, "step") != 0 for size in (base, arm) for seed in seeds)
    }


def _start_accuracy(arms: dict[tuple[int, int], dict[int, Json]]) -> float:
    """Mean over seeds; all arms have the same."""
    by_seed = {seed: r["points"]["accuracy"][0] for records in arms.values() for seed, r in records.items()}
    return float(round(statistics.mean(by_seed.values()), 4))


def _order(cells: Sequence[Cell], row: tuple[int, float, str]) -> tuple[Any, ...]:
    digits, kl, start = row
    return digits, -kl, float(start.removesuffix("%"))

"""The result of a comparison from the logs of its finished runs: `compare.json` (docs/metrics.md)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from podsrl.compare.bootstrap import bootstrap_speedups
from podsrl.compare.costs import COSTS, Weights, at_price, chosen_sizes, cost_curve, signal, slowdown, unequal_pace
from podsrl.compare.curves import Curve, common_grid, mean_curve
from podsrl.compare.interval import NONE, SpeedupInterval
from podsrl.compare.learned import has_learned, not_learned_text, why_not
from podsrl.compare.runs import Member
from podsrl.compare.speedups import time_to_accuracy, times_to_accuracies
from podsrl.config.schema import CompareConfig
from podsrl.errors import UsageError, short
from podsrl.lib.logs import read_lines, read_object, write_atomically
from podsrl.lib.stages import STAGES

Json = dict[str, Any]
Cost = str | Weights
CLOCKS = ("seconds", "cpu")
"""Costs of which times and speed-ups are: the second where arms ran at unequal pace."""


def measure(config: CompareConfig, members: Sequence[Member], folder: Path) -> Json:
    """Compute the result of a comparison and write it to `folder`/compare.json."""
    logs = {arm: [_metrics(member, config.metric) for member in _of(arm, members)] for arm in config.arms}
    pace = {arm: slowdown([_steps(log) for log in logs[arm]]) for arm in config.arms}
    uneven = unequal_pace(pace) if members[0].is_on_cpu and _compute_alike(members) else None
    clock, other = CLOCKS[::-1] if uneven else CLOCKS
    curves = {arm: [_curve(log, clock, config.metric) for log in logs[arm]] for arm in config.arms}
    grids = {arm: common_grid(runs) for arm, runs in curves.items()}
    learned = {arm: has_learned(logs[arm], config.metric) for arm in config.arms}
    speedups = {base: _speedups(curves, base, config.fraction, learned) for base in config.arms}
    accuracy = {arm: mean_curve(runs, grids[arm]).tolist() for arm, runs in curves.items()}
    stages = {arm: _stage_seconds(logs[arm]) for arm in config.arms}
    chunks = {member.arm: member.config.select.num_chunks for member in members}
    seconds, step_seconds = members[0].config.stop.seconds, sum(stages[config.baseline].values())
    ends = {arm: values[-1] for arm, values in accuracy.items()}
    result: Json = {
        "baseline": config.baseline,
        "fraction": config.fraction,
        "metric": config.metric,
        "seconds": seconds,
        "clock": clock,
        "unequal_pace": uneven,
        "slowdown": pace,
        "jobs": config.jobs,
        "slice_seconds": config.slice_seconds,
        "hardware": "; ".join(sorted({_hardware(member) for member in members})),
        "arms": {arm: _describe(_of(arm, members), logs[arm], folder) for arm in config.arms},
        "grid_seconds": {arm: grid.tolist() for arm, grid in grids.items()},
        "mean_accuracy": accuracy,
        "start_accuracy": {arm: _start_accuracy(runs) for arm, runs in curves.items()},
        "learned": learned,
        "not_learned": not_learned_text(learned, ends, config.baseline, seconds, step_seconds),
        "why_not_learned": {
            arm: why for arm in config.arms if not learned[arm] and (why := why_not([_steps(log) for log in logs[arm]]))
        },
        "speedup": {arm: found.to_json() for arm, found in speedups[config.baseline].items()},
        "speedup_over": {
            base: {arm: found.to_json() for arm, found in over.items()} for base, over in speedups.items()
        },
        "seconds_to": times_to_accuracies(curves),
        "stage_seconds": stages,
        "steps": {arm: [len(_steps(log)) for log in logs[arm]] for arm in config.arms},
        "costs": _spent(logs, {cost: dict.fromkeys(logs, cost) for cost in COSTS if cost != other}, config, learned),
        "prices": _spent(logs, _prices(config, members), config, learned),
        "signal": {arm: signal([_steps(log) for log in logs[arm]], chunks[arm]) for arm in config.arms},
    }
    write_atomically(folder / "compare.json", json.dumps(result, indent=1))
    return result


def _of(arm: str, members: Sequence[Member]) -> list[Member]:
    """An arm's runs by ascending seed, so that run i of two arms has the same one."""
    return sorted((member for member in members if member.arm == arm), key=lambda member: member.seed)


def _metrics(member: Member, metric: str) -> list[Json]:
    """A run's lines, whose numbers are numbers; a UsageError names the file, the line, and what it wants."""
    file = member.path / "metrics.jsonl"
    lines = read_lines(file)
    for number, line in enumerate(lines, start=1):
        wanted = ["seconds/train_elapsed"] if "note" not in line else []
        wanted += ["eval/accuracy", f"eval/{metric}"] if "eval/accuracy" in line else []
        wanted += [f"seconds/{stage}" for stage in (*STAGES, "total")] if "seconds/total" in line else []
        for key in wanted:
            value = line.get(key)
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise UsageError(f"{file}, line {number}: {key} = {short(value)}, wanted a number; restore the file")
    if not any("seconds/total" in line for line in lines):
        raise UsageError(f"{file}: holds no step of a run that is finished; restore the file")
    return lines


def _compute_alike(members: Sequence[Member]) -> bool:
    """Whether no arm has more threads or processes than another, which would wait for each other."""
    configs = [member.config for member in members]
    return len({(c.threads, c.order.ahead, c.scale.generators, c.task.reward_workers) for c in configs}) == 1


def _start_accuracy(runs: Sequence[tuple[list[float], list[float]]]) -> float | None:
    """Mean accuracy before training; None where the log of a run has lost that evaluation."""
    if any(not times or times[0] > 0 for times, _ in runs):
        return None
    return float(np.mean([accuracies[0] for _, accuracies in runs]))


def _curve(log: Sequence[Json], clock: str, metric: str) -> tuple[list[float], list[float]]:
    """Against one of `CLOCKS`, which the log knows."""
    evaluations = [line for line in log if "eval/accuracy" in line]
    if clock == "cpu" and (found := cost_curve(_steps(log), evaluations, clock, metric)):
        return found[0].tolist(), found[1].tolist()
    return [line["seconds/train_elapsed"] for line in evaluations], [line[f"eval/{metric}"] for line in evaluations]


def _steps(log: Sequence[Json]) -> list[Json]:
    return [line for line in log if "seconds/total" in line]


def _speedups(
    curves: Mapping[str, Sequence[Curve]], base: str, fraction: float, learned: Mapping[str, bool]
) -> Mapping[str, SpeedupInterval]:
    """Over one arm; none where that has not learned, since then noise decides when its best accuracy is reached."""
    return bootstrap_speedups(curves, base, fraction) if learned[base] else dict.fromkeys(curves, NONE)


def _prices(config: CompareConfig, members: Sequence[Member]) -> dict[str, dict[str, Cost]]:
    """Price as text -> arm -> what counts: an arm trains on a token as often as it has epochs."""
    epochs = {member.arm: member.config.optim.num_epochs for member in members}
    return {f"{price:g}": {arm: at_price(price, epochs[arm]) for arm in config.arms} for price in config.prices}


def _spent(
    logs: dict[str, list[list[Json]]],
    costs: Mapping[str, Mapping[str, Cost]],
    config: CompareConfig,
    learned: Mapping[str, bool],
) -> Json:
    """By cost that all logs know: each arm's total, its cost to the target, and the baseline's over it."""
    found: Json = {}
    for cost, of_arms in costs.items():
        if (curves := _cost_curves(logs, of_arms, config.metric)) is None:
            continue
        means = {arm: (grid := common_grid(runs), mean_curve(runs, grid)) for arm, runs in curves.items()}
        target = config.fraction * float(means[config.baseline][1].max()) if learned[config.baseline] else 0.0
        ratios = _speedups(curves, config.baseline, config.fraction, learned)
        found[cost] = {
            arm: {
                "total": float(np.mean([np.asarray(costs)[-1] for costs, _ in runs])),
                "to_target": time_to_accuracy(*means[arm], target) if target > 0 else None,
                "saving": ratios[arm].to_json(),
            }
            for arm, runs in curves.items()
        }
    return found


def _cost_curves(
    logs: dict[str, list[list[Json]]], costs: Mapping[str, Cost], metric: str
) -> dict[str, list[Curve]] | None:
    """Arm -> a curve per run; None where a log does not say what its steps cost."""
    curves: dict[str, list[Curve]] = {}
    for arm, runs in logs.items():
        for log in runs:
            curve = cost_curve(_steps(log), [line for line in log if "eval/accuracy" in line], costs[arm], metric)
            if curve is None or not curve[0].any():
                return None
            curves.setdefault(arm, []).append(curve)
    return curves


def _stage_seconds(logs: Sequence[Sequence[Json]]) -> dict[str, float]:
    """Mean seconds per step by stage; "other" is what lies between the stages."""
    steps = [line for log in logs for line in _steps(log)]
    means = {stage: float(np.mean([step[f"seconds/{stage}"] for step in steps])) for stage in STAGES}
    total = float(np.mean([step["seconds/total"] for step in steps]))
    return {**means, "other": total - sum(means.values())}


def _hardware(member: Member) -> str:
    return str(read_object(member.path / "finished.json").get("hardware", "unknown hardware"))


def _describe(members: Sequence[Member], logs: Sequence[Sequence[Json]], folder: Path) -> Json:
    config, steps = members[0].config, [_steps(log) for log in logs]
    own = config.rollouts.num_rollouts, config.select.num_kept
    chosen = chosen_sizes(steps, config.select.rule, config.systems, config.select.num_chunks)
    num_rollouts, num_kept = chosen or own
    return {
        "seeds": [member.seed for member in members],
        "runs": [str(member.path.relative_to(folder)) for member in members],
        "num_prompts": config.rollouts.num_prompts,
        "num_rollouts": num_rollouts,
        "num_kept": num_kept,
        "rule": config.select.rule,
        "lr": config.optim.lr,
    }

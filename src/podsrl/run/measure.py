"""What a comparison shows: mean curves, speed-ups with intervals, seconds by stage; from the logs of its runs.

In: finished run folders. Out: `compare.json` (docs/metrics.md).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from podsrl.config.schema import CompareConfig
from podsrl.run.bootstrap import bootstrap_speedups
from podsrl.run.clock import STAGES
from podsrl.run.compare import Member
from podsrl.run.curves import common_grid, mean_curve
from podsrl.run.folder import read_lines, write_atomically

Json = dict[str, Any]


def measure(config: CompareConfig, members: Sequence[Member], folder: Path) -> Json:
    """Compute the result of a comparison and write it to `folder`/compare.json."""
    logs = {arm: [read_lines(m.path / "metrics.jsonl") for m in _of(arm, members)] for arm in config.arms}
    curves = {arm: [_curve(log, config.metric) for log in logs[arm]] for arm in config.arms}
    grids = {arm: common_grid(runs) for arm, runs in curves.items()}
    speedups = bootstrap_speedups(curves, config.baseline, config.fraction)
    result: Json = {
        "baseline": config.baseline,
        "fraction": config.fraction,
        "metric": config.metric,
        "seconds": members[0].config.stop.seconds,
        "jobs": config.jobs,
        "hardware": "; ".join(sorted({_hardware(member) for member in members})),
        "arms": {arm: _describe(_of(arm, members), folder) for arm in config.arms},
        "grid_seconds": {arm: grid.tolist() for arm, grid in grids.items()},
        "mean_accuracy": {arm: mean_curve(runs, grids[arm]).tolist() for arm, runs in curves.items()},
        "start_accuracy": {arm: float(np.mean([accuracies[0] for _, accuracies in curves[arm]])) for arm in curves},
        "speedup": {arm: found.to_json() for arm, found in speedups.items()},
        "stage_seconds": {arm: _stage_seconds(logs[arm]) for arm in config.arms},
        "steps": {arm: [sum("seconds/total" in line for line in log) for log in logs[arm]] for arm in config.arms},
    }
    write_atomically(folder / "compare.json", json.dumps(result, indent=1))
    return result


def _of(arm: str, members: Sequence[Member]) -> list[Member]:
    """An arm's runs by ascending seed, so that run i of two arms has the same one."""
    return sorted((member for member in members if member.arm == arm), key=lambda member: member.seed)


def _curve(log: Sequence[Json], metric: str) -> tuple[list[float], list[float]]:
    evaluations = [line for line in log if "eval/accuracy" in line]
    return [line["seconds/train_elapsed"] for line in evaluations], [line[f"eval/{metric}"] for line in evaluations]


def _stage_seconds(logs: Sequence[Sequence[Json]]) -> dict[str, float]:
    """Mean seconds a step by stage; "other" is what lies between the stages."""
    steps = [line for log in logs for line in log if "seconds/total" in line]
    means = {stage: float(np.mean([step[f"seconds/{stage}"] for step in steps])) for stage in STAGES}
    total = float(np.mean([step["seconds/total"] for step in steps]))
    return {**means, "other": total - sum(means.values())}


def _hardware(member: Member) -> str:
    return str(json.loads((member.path / "finished.json").read_text())["hardware"])


def _describe(members: Sequence[Member], folder: Path) -> Json:
    config = members[0].config
    return {
        "seeds": [member.seed for member in members],
        "runs": [str(member.path.relative_to(folder)) for member in members],
        "num_rollouts": config.rollouts.num_rollouts,
        "num_kept": config.select.num_kept,
        "rule": config.select.rule,
        "lr": config.optim.lr,
    }

"""Arms against each other on paired seeds with equal training time: run them, then measure who arrives when.

    COMPARE/compare.toml          what is compared
            runs/ARM-seedS/       a run folder each (run/folder.py)
            compare.json          the result: mean curves, speed-ups with intervals, seconds by stage
Every run is a process of its own (`pods train`), so that arms share nothing; at most `jobs` at a time. Runs that are
finished stay, unfinished ones are resumed: a comparison that was stopped goes on.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from podsrl.bench.hardware import hardware_line
from podsrl.config.load import build, changed_keys, dump, merge, read_tree
from podsrl.config.schema import CompareConfig, RunConfig
from podsrl.errors import PodsError, UsageError
from podsrl.run.clock import STAGES
from podsrl.run.folder import write_atomically
from podsrl.run.speedup import bootstrap_speedup, mean_curve

Json = dict[str, Any]
GRID_POINTS = 240
"""Mean curves are read at this many equal steps of the training time."""


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """One run of a comparison."""

    arm: str
    seed: int
    config: RunConfig
    path: Path

    @property
    def log(self) -> Path:
        """What its process printed."""
        return self.path.with_name(f"{self.path.name}.log")

    @property
    def is_finished(self) -> bool:
        return (self.path / "finished.json").exists()


class RunFailed(PodsError):
    """A run of the comparison ended with an error."""


def plan(config: CompareConfig, folder: Path) -> list[Member]:
    """Every run, seed by seed and within a seed arm by arm, so that a drift of the machine's speed meets all arms.

    Raises:
        UsageError: an arm's config is wrong, or arms differ in training time or evaluation.
    """
    members = [
        Member(arm, seed, _arm_config(config, arm, seed), folder / "runs" / f"{arm}-seed{seed}")
        for seed in range(config.first_seed, config.first_seed + config.num_seeds)
        for arm in config.arms
    ]
    for member in members:
        stop, evaluation = member.config.stop, member.config.eval
        if stop.seconds == 0 or stop.steps > 0 or evaluation.every_seconds == 0:
            raise UsageError(
                f"arm {member.arm!r}: stop.seconds = {stop.seconds}, stop.steps = {stop.steps}, eval.every_seconds = "
                f"{evaluation.every_seconds}; a comparison wants equal training time: set base.stop.seconds and "
                "base.eval.every_seconds, and stop.steps = 0"
            )
        if stop != members[0].config.stop or evaluation != members[0].config.eval:
            raise UsageError(
                f"arm {member.arm!r}: its stop and eval sections differ from {members[0].arm!r}'s; put them in base"
            )
    return members


def open_folder(config: CompareConfig, folder: Path) -> None:
    """Write `compare.toml`, or check that what is there is the same comparison."""
    path, text = folder / "compare.toml", dump(config)
    if path.exists():
        old = build(CompareConfig, read_tree(path), str(path))
        changes = [
            line
            for line in changed_keys(old.model_dump(mode="json"), config.model_dump(mode="json"))
            if not line.startswith(("jobs", "num_seeds"))
        ]
        if changes:
            raise UsageError(f"--out {folder}: holds another comparison ({', '.join(changes)}); choose another folder")
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    write_atomically(path, text)


def run_all(members: Sequence[Member], jobs: int, on_tick: Callable[[], None]) -> bool:
    """Run what is not finished yet.

    Args:
        members: from `plan`.
        jobs: processes at a time.
        on_tick: called a few times a second, to redraw.

    Returns:
        True when all are finished, False when Ctrl-C came (the runs then saved themselves).

    Raises:
        RunFailed: a run ended with an error; the others were stopped with a checkpoint.
    """
    waiting = [member for member in members if not member.is_finished]
    running: dict[Member, subprocess.Popen[bytes]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                member = waiting.pop(0)
                running[member] = _spawn(member)
            time.sleep(0.2)
            on_tick()
            for member, process in list(running.items()):
                if process.poll() is not None:
                    del running[member]
                    _check(member, process.returncode)
    except KeyboardInterrupt:
        return False
    finally:
        for process in running.values():
            process.send_signal(signal.SIGINT)
        for process in running.values():
            process.wait()
        on_tick()
    return True


def measure(config: CompareConfig, members: Sequence[Member], folder: Path) -> Json:
    """Read the finished runs, compute speed-ups, and write `compare.json`."""
    seconds = members[0].config.stop.seconds
    logs = {member: read_log(member.path) for member in members}
    curves = {arm: [_curve(logs[m]) for m in members if m.arm == arm] for arm in config.arms}
    # The last evaluation comes after the step that crosses the limit; one more point of the grid, so that it counts.
    end = max(times[-1] for runs in curves.values() for times, _ in runs)
    grid = np.append(np.linspace(0.0, seconds, GRID_POINTS + 1), end if end > seconds else [])
    baseline = curves[config.baseline]
    result: Json = {
        "baseline": config.baseline,
        "fraction": config.fraction,
        "seconds": seconds,
        "hardware": hardware_line(),
        "arms": {arm: _describe_arm(arm, members, folder) for arm in config.arms},
        "grid_seconds": grid.tolist(),
        "mean_accuracy": {arm: mean_curve(runs, grid).tolist() for arm, runs in curves.items()},
        "speedup": {},
        "stage_seconds": {arm: _stage_seconds([logs[m] for m in members if m.arm == arm]) for arm in config.arms},
        "steps": {arm: [_count_steps(logs[m]) for m in members if m.arm == arm] for arm in config.arms},
    }
    for arm, runs in curves.items():
        interval = bootstrap_speedup(baseline, runs, grid=grid, fraction=config.fraction)
        names = ("point", "low", "high", "share_unreached")
        result["speedup"][arm] = {name: getattr(interval, name) for name in names}
    write_atomically(folder / "compare.json", json.dumps(result, indent=1))
    return result


def read_log(path: Path) -> list[Json]:
    """The lines of a run's `metrics.jsonl` that are whole."""
    file = path / "metrics.jsonl"
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")]


def _arm_config(config: CompareConfig, arm: str, seed: int) -> RunConfig:
    tree = merge(merge(config.base, config.arms[arm]), {"seed": seed})
    return build(RunConfig, tree, f"of arm {arm!r}")


def _spawn(member: Member) -> subprocess.Popen[bytes]:
    """A new session of its own, so that Ctrl-C reaches it once, from here."""
    command = [sys.executable, "-m", "podsrl.cli", "train", "--plain"]
    if (member.path / "config.toml").exists():
        command += ["--resume", str(member.path)]
    else:
        file = member.path.with_name(f"{member.path.name}.toml")
        write_atomically(file, dump(member.config))
        command += [str(file), "--out", str(member.path)]
    with member.log.open("ab") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True, env=os.environ
        )


def _check(member: Member, code: int) -> None:
    if code != 0 or not member.is_finished:
        last = [line for line in member.log.read_text(errors="replace").splitlines() if line.strip()][-1:]
        reason = "".join(last) or "no output"
        raise RunFailed(f"run {member.path.name} ended with exit code {code}: {reason} (see {member.log})")


def _curve(log: Sequence[Json]) -> tuple[list[float], list[float]]:
    evaluations = [line for line in log if "eval/accuracy" in line]
    return [line["seconds/train_elapsed"] for line in evaluations], [line["eval/accuracy"] for line in evaluations]


def _stage_seconds(logs: Sequence[Sequence[Json]]) -> dict[str, float]:
    """Mean seconds a step by stage; "other" is what lies between the stages."""
    steps = [line for log in logs for line in log if "seconds/total" in line]
    means = {stage: float(np.mean([step[f"seconds/{stage}"] for step in steps])) for stage in STAGES}
    total = float(np.mean([step["seconds/total"] for step in steps]))
    return {**means, "other": total - sum(means.values())}


def _count_steps(log: Sequence[Json]) -> int:
    return sum("seconds/total" in line for line in log)


def _describe_arm(arm: str, members: Sequence[Member], folder: Path) -> Json:
    own = [member for member in members if member.arm == arm]
    config = own[0].config
    return {
        "seeds": [member.seed for member in own],
        "runs": [str(member.path.relative_to(folder)) for member in own],
        "num_rollouts": config.rollouts.num_rollouts,
        "num_kept": config.select.num_kept,
        "rule": config.select.rule,
        "lr": config.optim.lr,
    }

"""What `pods watch` shows of a run: how far it is, how fast, whether it is quiet; in words and as an object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from podsrl.lib.time_left import TimeLeft, share_done, time_text
from podsrl.report import facts, numbers
from podsrl.report.follow import FollowedRun
from podsrl.report.read import Array, Line
from podsrl.run.group_log import LARGEST
from podsrl.run.health import check_run

QUIET_SECONDS = 60.0
"""A run is quiet if it trains and has written no line for longer than this and than ten of its steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How far a run is."""

    step: int
    steps: int
    """At which it ends; 0: at no step."""
    share: float | None
    """Done, 0 .. 1; None where nothing is known yet."""
    seconds_per_step: float | None
    rollouts_per_second: float | None
    seconds_left: float | None
    """Of training, evaluations not counted; None where too little was seen for an estimate."""
    is_quiet: bool
    """No new line for long, though a process trains."""


def standing(followed: FollowedRun) -> Standing:
    """Where a run stands; speed is the mean of the newest ten steps, the time left comes from the whole run."""
    run, lines = followed.run, followed.run.steps
    steps, seconds = (_limit(run.option(f"stop.{name}")) for name in ("steps", "seconds"))
    recent = lines[-10:]
    pace, rollouts = _mean(recent, "seconds/total"), run.series("rollouts/all")[-10:]
    if pace is not None and not pace > 0:
        pace = None
    ends = (*run.evaluations[:1], *lines[:1], *lines[-1:])
    marks = [line for line in ends if np.isfinite(line.get("seconds/train_elapsed", np.nan))]
    share = share_done(marks[-1], int(steps), seconds) if marks else None
    is_quiet = followed.state == "training" and followed.quiet_seconds > max(QUIET_SECONDS, 10 * (pace or 0.0))
    return Standing(
        step=int(max((line["step"] for line in (*lines[-1:], *run.evaluations[-1:])), default=0)),
        steps=int(steps),
        share=share,
        seconds_per_step=pace,
        rollouts_per_second=None if pace is None or np.isnan(rollouts).any() else float(rollouts.mean()) / pace,
        seconds_left=None if followed.state == "finished" else _seconds_left(marks, int(steps), seconds),
        is_quiet=is_quiet,
    )


def as_json(followed: FollowedRun) -> dict[str, Any]:
    """What the picture says, as an object."""
    run, at, result = followed.run, standing(followed), facts.outcome(followed.run)
    return {
        "run": str(followed.path),
        "state": followed.state,
        "quiet_seconds": round(followed.quiet_seconds, 1),
        "step": at.step,
        "steps": at.steps or None,
        "share_done": at.share,
        "seconds/train_elapsed": result.train_seconds,
        "seconds_per_step": at.seconds_per_step,
        "rollouts_per_second": at.rollouts_per_second,
        "seconds_left": at.seconds_left,
        "accuracy": {
            "start": result.start_accuracy,
            "best": result.best_accuracy,
            "last": result.last_accuracy,
            "training": last_known(run.series("accuracy/all")),
        },
        "reward": {"all": last_known(run.series("reward/all")), "kept": last_known(run.series("reward/kept"))},
        "stage_seconds": run.stage_seconds(),
        "tokens": run.tokens(),
        "warnings": [
            {"name": check.name, "value": check.value, "limit": check.limit, "advice": check.advice}
            for check in check_run(run)
            if check.is_alarm
        ],
    }


def plain_line(followed: FollowedRun) -> str:
    """Where a run stands, in one line."""
    at, run = standing(followed), followed.run
    parts = [f"{followed.name}: {state_text(followed, at)}", step_text(at), *speed_texts(at)]
    lasts = {
        "training {:.1%}": run.series("accuracy/all"),
        "held out {:.1%}": run.accuracy_curve()[1],
        "mean reward {:.3f}": run.series("reward/all"),
    }
    parts += [text.format(last) for text, values in lasts.items() if (last := last_known(values)) is not None]
    return ", ".join(parts)


def state_text(followed: FollowedRun, at: Standing) -> str:
    quiet = time_text(followed.quiet_seconds)
    if followed.state == "starting":
        return f"starting, no step yet ({quiet})"
    if followed.state == "stopped":
        cure = f"go on with pods train --resume {followed.path}"
        return f"stopped: no new line for {quiet}, and no process of this machine trains in it; {cure}"
    if at.is_quiet:
        return f"training, but no new line for {quiet}: an evaluation, a long step, or a process that hangs"
    return followed.state


def step_text(at: Standing) -> str:
    return f"step {at.step:,}" + (f" of {at.steps:,}" if at.steps else "")


def speed_texts(at: Standing) -> list[str]:
    parts = []
    if at.seconds_per_step is not None:
        parts.append(f"{numbers.duration(at.seconds_per_step)} per step")
    if at.rollouts_per_second is not None:
        parts.append(f"{at.rollouts_per_second:,.0f} rollouts/s")
    if at.seconds_left is not None:
        parts.append(f"{time_text(at.seconds_left)} left")
    return parts


def _limit(value: Any) -> float:
    """A number of the config; 0 where it has none that could be one."""
    return float(value) if isinstance(value, (int, float)) and 0 <= value <= LARGEST else 0.0


def _mean(lines: Sequence[Line], name: str) -> float | None:
    known = [line[name] for line in lines if np.isfinite(line.get(name, np.nan))]
    return sum(known) / len(known) if known else None


def _seconds_left(marks: Sequence[Mapping[str, float]], steps: int, seconds: float) -> float | None:
    """By the run's own clock, which counts training alone."""
    now = 0.0
    left = TimeLeft(lambda: now)
    for line in marks:
        now = line["seconds/train_elapsed"]
        left.report(share_done(line, steps, seconds))
    return left.seconds


def last_known(values: Array) -> float | None:
    known = values[np.isfinite(values)]
    return float(known[-1]) if known.size else None

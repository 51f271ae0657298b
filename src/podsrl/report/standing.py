"""How far a run is, how fast, and whether it is quiet: what `pods watch` and a live page say, in words and as JSON."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from podsrl.errors import one_line
from podsrl.lib.time_left import seconds_left, share_done, time_text
from podsrl.report import numbers
from podsrl.report.read import Line, Run, State, last_known
from podsrl.run.group_log import LARGEST
from podsrl.run.health import check_run

QUIET_SECONDS = 60.0
"""A run is quiet if it trains and has written no line for longer than this and than ten of its steps."""
_ORDER = ("training", "starting", "stopped", "finished")


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

    @property
    def text(self) -> str:
        """The step."""
        return f"step {self.step:,}" + (f" of {self.steps:,}" if self.steps else "")

    @property
    def speed_texts(self) -> list[str]:
        """What is known of the speed and the time left."""
        parts = []
        if self.seconds_per_step is not None:
            parts.append(f"{numbers.duration(self.seconds_per_step)} per step")
        if self.rollouts_per_second is not None:
            parts.append(f"{self.rollouts_per_second:,.0f} rollouts/s")
        if self.seconds_left is not None:
            parts.append(f"{time_text(self.seconds_left)} left")
        return parts


def standing(run: Run) -> Standing:
    """Where a run stands; speed is the mean of the newest ten steps, the time left comes from the whole run."""
    steps, seconds = (_limit(run.option(f"stop.{name}")) for name in ("steps", "seconds"))
    pace, rollouts = _mean(run.steps[-10:], "seconds/total"), run.series("rollouts/all")[-10:]
    if pace is not None and not pace > 0:
        pace = None
    ends = (*run.evaluations[:1], *run.steps[:1], *run.steps[-1:])
    marks = [
        (line["seconds/train_elapsed"], share_done(line, int(steps), seconds))
        for line in ends
        if np.isfinite(line.get("seconds/train_elapsed", np.nan))
    ]
    left = None
    if marks and run.state != "finished":  # by the run's own clock, which counts training alone
        (begun, share_before), (now, share) = marks[0], marks[-1]
        left = seconds_left(now - begun, share - share_before, share)
    return Standing(
        step=int(max((line["step"] for line in (*run.steps[-1:], *run.evaluations[-1:])), default=0)),
        steps=int(steps),
        share=marks[-1][1] if marks else None,
        seconds_per_step=pace,
        rollouts_per_second=None if pace is None or np.isnan(rollouts).any() else float(rollouts.mean()) / pace,
        seconds_left=left,
        is_quiet=run.state == "training" and run.quiet_seconds > max(QUIET_SECONDS, 10 * (pace or 0.0)),
    )


def as_json(run: Run) -> dict[str, Any]:
    """What the picture says, as an object."""
    at, accuracies = standing(run), run.accuracies()
    return {
        "run": str(run.path),
        "state": run.state,
        "quiet_seconds": round(run.quiet_seconds, 1),
        "step": at.step,
        "steps": at.steps or None,
        "share_done": at.share,
        "seconds/train_elapsed": run.train_seconds,
        "seconds_per_step": at.seconds_per_step,
        "rollouts_per_second": at.rollouts_per_second,
        "seconds_left": at.seconds_left,
        "accuracy": {
            "start": accuracies[0] if accuracies else None,
            "best": max(accuracies, default=None),
            "last": accuracies[-1] if accuracies else None,
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


def plain_line(run: Run) -> str:
    """Where a run stands, in one line."""
    at = standing(run)
    lasts = {
        "training {:.1%}": run.series("accuracy/all"),
        "held out {:.1%}": run.accuracy_curve()[1],
        "mean reward {:.3f}": run.series("reward/all"),
    }
    parts = [text.format(last) for text, values in lasts.items() if (last := last_known(values)) is not None]
    return ", ".join([f"{name_of(run)}: {state_text(run, at)}", at.text, *at.speed_texts, *parts])


def name_of(run: Run) -> str:
    """The folder's name, which steers no terminal."""
    return one_line(run.path.name)


def state_text(run: Run, at: Standing) -> str:
    """What goes on, and what to do where nothing does."""
    quiet = time_text(run.quiet_seconds)
    if run.state == "starting":
        return f"starting, no step yet ({quiet})"
    if run.state == "stopped":
        cure = f"go on with pods train --resume {run.path}"
        return f"stopped: no new line for {quiet}, and no process of this machine trains in it; {cure}"
    if at.is_quiet:
        return f"training, but no new line for {quiet}: an evaluation, a long step, or a process that hangs"
    return run.state


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveState:
    """What a page that is written again while runs go on says of itself."""

    state: State
    newest: str
    """When the newest line of a log was written, as a time of day."""
    progress: Sequence[tuple[str, float | None, str]]
    """Of each run that has not ended: its name, the share that is done, and how far and how fast it is in words."""


def live_state(runs: Sequence[Run]) -> LiveState:
    """Of several runs, the state of the most alive."""
    begun = [(run, standing(run)) for run in runs if run.state in ("training", "stopped")]
    quiet = min(run.quiet_seconds for run in runs)
    return LiveState(
        state=min((run.state for run in runs), key=_ORDER.index),
        newest=time.strftime("%H:%M:%S", time.localtime(time.time() - quiet)),
        progress=[(name_of(run), at.share, " · ".join([at.text, *at.speed_texts])) for run, at in begun],
    )


def _limit(value: Any) -> float:
    """A number of the config; 0 where it has none that could be one."""
    return float(value) if isinstance(value, (int, float)) and 0 <= value <= LARGEST else 0.0


def _mean(lines: Sequence[Line], name: str) -> float | None:
    known = [line[name] for line in lines if np.isfinite(line.get(name, np.nan))]
    return sum(known) / len(known) if known else None

"""Train one arm with one seed until it holds an accuracy, and record what that and lower accuracies took.

Only generating, scoring, selecting and updating count as training. The held-out questions are answered at temperature
1, as in training, with the same random numbers every time. There is an evaluation at the start, at the end, and
whenever the steps have grown by 8 % and at least half as many rollouts are right as the lowest accuracy asks. A time
to an accuracy is that of the first evaluation that has it: nothing is interpolated.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks import files
from benchmarks.timing import Say, Taken, one_thread
from benchmarks.when_pods_helps.cells import Json, Limits, Log, Run, config_digest
from podsrl.compare import time_to_accuracy
from podsrl.config.schema import RunConfig
from podsrl.lib.stages import STAGES

TARGETS = (0.5, 0.8, 0.9, 0.95)
GROWTH = 1.08
LOST, LOST_FROM = 0.9, 50
"""Of the first accuracy: what has fallen below it and stays there does not come back; and the steps from which on."""


@dataclass(frozen=True, slots=True)
class Marks:
    """When a run is evaluated, and for what."""

    targets: Sequence[float] = TARGETS
    """Accuracies, ascending, whose first evaluations are noted."""
    growth: float = GROWTH
    """Of the steps, from one evaluation to the next."""
    patience: int = 0
    """A run ends when so many evaluations in a row are below `LOST` of its first; 0: never."""

    def after(self, step: int) -> int:
        """The step after which is evaluated next.

        Example:
            >>> Marks(growth=1.5).after(10), Marks(growth=1.5).after(1)
            (15, 2)
        """
        return max(step + 1, int(self.growth * step))

    def is_lost(self, steps: Sequence[int], accuracies: Sequence[float]) -> bool:
        """Whether a run with evaluations of these accuracies after these steps ends.

        Example:
            >>> [Marks(patience=2).is_lost([0, 50, 60], each) for each in ([0.4, 0.3, 0.3], [0.4, 0.3, 0.38])]
            [True, False]
            >>> Marks(patience=2).is_lost([0, 1, 2], [0.4, 0.3, 0.3])
            False
        """
        last = [each for step, each in zip(steps, accuracies, strict=True) if step >= LOST_FROM][-self.patience :]
        return 0 < self.patience == len(last) and max(last) < LOST * accuracies[0]


MARKS = Marks()


def train(config: RunConfig, limits: Limits, say: Say = lambda text: None, marks: Marks = MARKS) -> Json:
    """Train until a limit is reached.

    Returns:
        "points": "step", "seconds" and "cpu_seconds" of training, "rollouts" and "tokens" generated, tokens "trained"
        and "decode_steps", all since the start, and "accuracy", a list over the evaluations each. "reached": target ->
        the same of the first evaluation at or above it, or None. "stages": mean wall-clock seconds per step by stage.
        "end": "reached" (the accuracy) or "limit" (another one).
    """
    from benchmarks.our_arm import OurArm
    from podsrl.run.evaluate import evaluate

    counts = ("step", "seconds", "cpu_seconds", "rollouts", "tokens", "trained", "decode_steps", "accuracy")
    points: dict[str, list[Any]] = {name: [] for name in counts}
    done: dict[str, Any] = dict.fromkeys(points, 0)
    stages = dict.fromkeys(STAGES, 0.0)
    with closing(OurArm(config)) as arm:
        end = ""
        while not end:
            if done["step"] >= limits.steps or done["cpu_seconds"] >= limits.cpu_seconds:
                end = "limit"
            is_low = arm.metrics.get("accuracy/all", 1.0) < marks.targets[0] / 2
            if end or not points["step"] or (done["step"] >= marks.after(points["step"][-1]) and not is_low):
                done["accuracy"] = round(evaluate(arm.trainer).result.accuracy, 6)
                for name, values in points.items():
                    values.append(round(done[name], 4))
                say(f"step {done['step']}, {done['cpu_seconds']:.1f} CPU seconds, accuracy {done['accuracy']:.1%}")
            if is_held(points["accuracy"], limits.accuracy):
                end = "reached"
            elif not end and marks.is_lost(points["step"], points["accuracy"]):
                end = "limit"
            if not end:
                _count(arm.step(), arm.metrics, done, stages)
                done["decode_steps"] += arm.num_decode_steps
    return {
        "config": config_digest(config),
        "points": points,
        "reached": {f"{target:g}": first_at(points, target) for target in marks.targets},
        "stages": {stage: round(total / max(1, done["step"]), 6) for stage, total in stages.items()},
        "end": end,
    }


def _count(taken: Taken, metrics: Mapping[str, Any], done: Json, stages: dict[str, float]) -> None:
    """Add one step to what the run has taken."""
    done["step"] += 1
    done["seconds"] += taken.seconds
    done["cpu_seconds"] += taken.cpu_seconds
    done["rollouts"] += metrics["rollouts/all"] + metrics["rollouts/left_out"]
    done["tokens"] += metrics["tokens/generated"]
    done["trained"] += metrics["tokens/trained"]
    for stage in stages:
        stages[stage] += metrics[f"seconds/{stage}"]


def is_held(accuracies: Sequence[float], target: float) -> bool:
    """Whether the last two evaluations are at the target.

    Example:
        >>> is_held([0.9, 0.97, 0.98], 0.97), is_held([0.97, 0.96, 0.98], 0.97), is_held([1.0], 0.97)
        (True, False, False)
    """
    return len(accuracies) > 1 and min(accuracies[-2:]) >= target


def first_at(points: Json, target: float) -> Json | None:
    """Steps, seconds, rollouts and tokens to the first evaluation at or above the target; None: there is none."""
    step = time_to_accuracy(points["step"], points["accuracy"], target)
    if step is None:
        return None
    place = points["step"].index(step)
    return {name: values[place] for name, values in points.items()}


def run_cell(cell: Run, limits: Limits, log: Log, say: Say = lambda text: None, marks: Marks = MARKS) -> Json:
    """Train a cell, unless the log holds it, and append its record."""
    if log.holds(cell, limits):
        return log.records[cell.key]
    with one_thread():
        found = train(cell.config(), limits, say, marks)
    return log.add(
        cell,
        {
            **found,
            "limits": asdict(limits),
            "commit": f"{files.commit() or ''}{'+' if files.has_changes() else ''}",
            "cores": sorted(os.sched_getaffinity(0)),
            "load": round(os.getloadavg()[0], 1),
        },
    )

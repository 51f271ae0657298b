"""A compare folder as a typed record: `read_comparison` gives a `Comparison`, with the runs below it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from podsrl.compare.interval import SpeedupInterval, over_each_text, quickest
from podsrl.errors import UsageError
from podsrl.report.read import Array, Run, existing_file, read_run


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What an arm spent, in one kind of cost (`podsrl.compare.costs`)."""

    total: float
    """By its last evaluation, mean over seeds."""
    to_target: float | None
    """Until its mean accuracy was at the target; None where it never was."""
    needed: SpeedupInterval
    """The arm's cost to the target over the baseline's."""

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Spent:
        """An entry of compare.json."""
        needed = SpeedupInterval.from_json(entry["saving"]).inverse
        return cls(total=float(entry["total"]), to_target=entry["to_target"], needed=needed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What a compare folder holds."""

    path: Path
    baseline: str
    fraction: float
    """The target is this share of the baseline's best mean accuracy."""
    metric: str
    """Which accuracy is compared: `eval/METRIC` of an evaluation."""
    clock: str
    """Of which times and speed-ups are: a name of `podsrl.compare.costs.COSTS`."""
    unequal_pace: str | None
    """Why they are in processor seconds."""
    grid_seconds: Mapping[str, Array]
    """By arm, the seconds of its clock at which its mean accuracy is known, strictly increasing."""
    seeds: Mapping[str, tuple[int, ...]]
    runs: Mapping[str, tuple[Run, ...]]
    """By arm, in the order of its seeds."""
    speedups: Mapping[str, SpeedupInterval]
    speedups_over: Mapping[str, Mapping[str, SpeedupInterval]]
    """Each arm that has learned -> arm -> speed-up over it."""
    seconds_to: Mapping[str, Mapping[str, float | None]]
    """Accuracy as text -> arm -> when its mean has it; None: never."""
    costs: Mapping[str, Mapping[str, Spent]]
    """Cost -> arm -> what it spent, of the costs that all logs know."""
    prices: Mapping[str, Mapping[str, Spent]]
    """Price of a generated token as text -> arm -> trained tokens + price × generated tokens; empty: not known."""
    signals: Mapping[str, Mapping[str, float | None]]
    """Arm -> shares of its groups (`podsrl.compare.costs.signal`)."""
    hardware: str
    not_learned: str | None
    """Why there is no speed-up; None where there is one, or the target was not reached."""
    why_not_learned: Mapping[str, str]
    """Arm -> why its groups taught nothing."""

    def curves(self) -> dict[str, list[tuple[Array, Array]]]:
        """Arm -> seconds of the clock and accuracies of each of its runs."""
        return {arm: [run.accuracy_curve(self.metric, self.clock) for run in runs] for arm, runs in self.runs.items()}

    @property
    def gain(self) -> str:
        """How much sooner the quickest arm is than each of the others; empty where no other arm reaches the target."""
        arm = quickest(self.speedups, self.baseline)
        return over_each_text(arm, self.speedups_over, self.fraction) if arm else ""

    @property
    def metric_note(self) -> str:
        """What a title says after "accuracy"."""
        return ", answer and format" if self.metric == "accuracy_and_format" else ""


def is_comparison(path: Path | str) -> bool:
    """Whether a folder was written by `pods compare`."""
    return (Path(path) / "compare.json").is_file()


def read_comparison(path: Path | str) -> Comparison:
    """Read one compare folder and the runs below it.

    Raises:
        UsageError: not a folder, no or a malformed compare.json, a missing run folder; the message names it.
    """
    folder = Path(path)
    file = existing_file(folder, "compare.json")
    try:
        return _comparison(folder, json.loads(file.read_bytes()))
    except UsageError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise UsageError(f"{file} is not a comparison ({error!r}); write it again with `pods compare`") from error


def _comparison(folder: Path, data: Mapping[str, Any]) -> Comparison:
    arms = data["arms"]
    return Comparison(
        path=folder,
        baseline={arm: arm for arm in arms}[data["baseline"]],
        fraction=float(data["fraction"]),
        metric=data["metric"],
        clock=data["clock"],
        unequal_pace=data["unequal_pace"],
        grid_seconds={arm: np.array(data["grid_seconds"][arm], dtype=np.float64) for arm in arms},
        seeds={arm: tuple(entry["seeds"]) for arm, entry in arms.items()},
        runs={arm: tuple(read_run(folder / name) for name in entry["runs"]) for arm, entry in arms.items()},
        speedups=_speedups(data["speedup"]),
        speedups_over={base: _speedups(found) for base, found in data["speedup_over"].items() if data["learned"][base]},
        seconds_to=data["seconds_to"],
        costs=_costs(data["costs"]),
        prices=_costs(data["prices"]),
        signals=data["signal"],
        hardware=data["hardware"],
        not_learned=data["not_learned"],
        why_not_learned=data["why_not_learned"],
    )


def _costs(data: Mapping[str, Any]) -> dict[str, dict[str, Spent]]:
    return {cost: {arm: Spent.from_json(entry) for arm, entry in spent.items()} for cost, spent in data.items()}


def _speedups(entries: Mapping[str, Any]) -> dict[str, SpeedupInterval]:
    return {arm: SpeedupInterval.from_json(entry) for arm, entry in entries.items()}

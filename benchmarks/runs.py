"""Runs of several arms, seeds and learning rates: which are missing, how each is made, and what an accuracy cost.

An arm trains at its own best rate, which is found first on seeds that count for nothing else. A run trains on one
thread until it holds an accuracy; only generating, scoring, selecting and updating count. The held-out questions are
answered at temperature 1, as in training, with the same random numbers every time: at the start, at the end, and
whenever the steps have grown by a factor and at least half as many rollouts are right as the lowest accuracy asks. What
an accuracy costs is what the first evaluation that has it had cost: nothing is interpolated. Finished runs are lines of
a file and are not made again.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from benchmarks import command, files
from benchmarks.paired import Finished, Json, Time
from benchmarks.timing import Say, one_thread, titled
from podsrl.compare import time_to_accuracy
from podsrl.config.load import dump
from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError
from podsrl.lib.stages import STAGES
from podsrl.lib.time_left import time_text

if TYPE_CHECKING:
    from benchmarks.our_arm import OurArm

LOST, LOST_FROM = 0.9, 50
"""Of the first accuracy: what has fallen below it and stays there does not come back; and the steps from which on."""
TUNE_SEEDS = (100, 101)
"""Used for nothing else."""
_COUNTS = ("step", "seconds", "cpu_seconds", "rollouts", "tokens", "trained", "decode_steps", "accuracy")
_RUN_SECONDS = 25.0
"""Of a run, evaluations included, until there is a mean of real ones."""


class Run(Protocol):
    """A run of a benchmark; a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def arm(self) -> str:
        """Its arm's name."""
        ...

    @property
    def title(self) -> str:
        """It in words."""
        ...

    @property
    def key(self) -> str:
        """The same for equal runs, in this process and in others."""
        ...

    def config(self) -> RunConfig:
        """What is trained."""
        ...


class Rated(Run, Protocol):
    """A run whose rate can be another one."""

    def at(self: R, rate: float) -> R:
        """The same at another rate."""
        ...


R = TypeVar("R", bound=Rated)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Where a run ends."""

    accuracy: float = 0.9
    """Two evaluations in a row are at it."""
    cpu_seconds: float = 60.0
    """Of training."""
    steps: int = 5000


@dataclass(frozen=True, slots=True)
class Marks:
    """When a run is evaluated, and for what."""

    targets: Sequence[float] = (0.5, 0.8, 0.9, 0.95)
    """Accuracies, ascending, whose first evaluations are noted."""
    growth: float = 1.08
    """Of the steps, from one evaluation to the next."""
    first: int = 1
    """After the first of all evaluations, none before so many steps."""
    patience: int = 0
    """A run ends when so many evaluations in a row are below `LOST` of its first; 0: never."""
    is_later: bool = False
    """A run trains up to another limit than the accuracy, and copies of its weights are evaluated afterwards: so what
    is under way gains nothing while an evaluation runs, which does not count."""

    def after(self, step: int) -> int:
        """The step after which is evaluated next.

        Example:
            >>> Marks(growth=1.5).after(10), Marks(growth=1.5).after(1), Marks(first=10).after(0)
            (15, 2, 10)
        """
        return max(step + 1, int(self.growth * step), self.first)

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


class Log(Finished):
    """Finished runs by their keys."""

    def add(self, run: Run, record: Mapping[str, Any]) -> Json:
        """Append a finished run."""
        return self.keep(run.key, {"arm": run.arm, **asdict(run), **record})

    def holds(self, run: Run, limits: Limits) -> bool:
        """Whether the run is finished: at the accuracy, or at another limit that is no lower than these."""
        record = self.records.get(run.key)
        if record is None or record["limits"]["accuracy"] < limits.accuracy:
            return False
        return record["end"] == "reached" or all(
            record["limits"][name] >= bound for name, bound in asdict(limits).items()
        )


# --- which runs are made ---


@dataclass(frozen=True, kw_only=True)
class Plan(Generic[R]):
    """The runs of a benchmark."""

    runs: Sequence[R]
    """In the order of their worth; the rates are not theirs yet."""
    tuned: Callable[[R, Log], tuple[float, tuple[R, Limits] | None]]
    """Best rate of a run's arm so far, and the tuning run that is to be made next; None: the rate is known."""
    limits: Callable[[R, Log, Log], Limits]
    """When a run at its rate is given up."""
    marks: Marks = MARKS

    def finished(self, run: R, log: Log, tuning: Log) -> Json | None:
        """The record of a run at its arm's best rate; None: it is not made."""
        rate, missing = self.tuned(run, tuning)
        own = run.at(rate)
        is_there = missing is None and log.holds(own, self.limits(own, log, tuning))
        return log.records[own.key] if is_there else None

    def records(self, log: Log, tuning: Log) -> dict[R, Json]:
        """All that are made."""
        found = {run: self.finished(run, log, tuning) for run in self.runs}
        return {run: record for run, record in found.items() if record is not None}

    def next(self, log: Log, tuning: Log) -> tuple[R, Limits, Log, int] | None:
        """The next run, its limits, its log, and how many runs are missing without those that tune; None: none."""
        left = [run for run in self.runs if self.finished(run, log, tuning) is None]
        if not left:
            return None
        rate, missing = self.tuned(left[0], tuning)
        if missing is not None:
            return *missing, tuning, len(left)
        run = left[0].at(rate)
        return run, self.limits(run, log, tuning), log, len(left)


def best_rate(
    new: Callable[[float, int], R],
    rates: Sequence[float],
    tuning: Log,
    accuracy: float,
    most_steps: int,
    seeds: Sequence[int] = TUNE_SEEDS,
) -> tuple[float, tuple[R, int] | None]:
    """The rate with the fewest steps to an accuracy over all seeds so far, and the run that has to be made to go on.

    Steps, not seconds: an arm's step takes as long at one rate as at another, and their number does not depend on what
    else the machine does. A rate is given up where it has needed as many steps as another in all.

    Args:
        new: the run of a rate and a seed.
        rates: the likeliest first; one alone needs no run.
        tuning: finished runs.
        accuracy: to which they train.
        most_steps: of one run.
        seeds: which count for nothing else.

    Returns:
        The rate, and the next run with the most steps that it may take; None: nothing is left to make.
    """
    best, fewest = rates[0], len(seeds) * most_steps
    for rate in rates if len(rates) > 1 else ():
        steps = 0
        for run in (new(rate, seed) for seed in seeds):
            if steps >= fewest:
                break
            bound, record = min(most_steps, fewest - steps), tuning.records.get(run.key)
            reached = record and record["reached"][f"{accuracy:g}"]
            if record is None or (reached is None and record["limits"]["steps"] < bound):
                return best, (run, bound)
            steps += int(reached["step"] if reached else record["limits"]["steps"] + 1)
        if steps < fewest:
            best, fewest = rate, steps
    return best, None


def new_parser(
    name: str, doc: str | None, *, quick: str, part: str = "starts", parts: Iterable[str]
) -> argparse.ArgumentParser:
    """The options of a benchmark that makes missing runs, all of them or those of some parts."""
    parser = command.new_parser(name, doc)
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--minutes", type=float, help="begin no run that would end later; default: no limit")
    parser.add_argument(f"--{part}", nargs="+", choices=parts, help="make runs of these alone; default: of all")
    parser.add_argument("--out", type=Path, help=f"folder of finished runs; default: runs/{name}")
    return parser


def make(
    plan: Plan[R],
    name: str,
    options: argparse.Namespace,
    say: Say,
    quick: Mapping[R, Limits],
    *,
    of: Callable[[R], bool] = lambda run: True,
    tuned_elsewhere: Mapping[str, Json] | None = None,
) -> tuple[dict[R, Json], Log]:
    """Make the missing runs as long as there is time; all that are there then, and those that tuned.

    Args:
        plan: of the benchmark.
        name: of the benchmark, which names its folder.
        options: of `new_parser`.
        say: shows what is made.
        quick: runs of the quick size, which are made alone and kept nowhere.
        of: whether a run is to be made by this process; all count that another has made meanwhile.
        tuned_elsewhere: records of further tuning runs by key.
    """
    if options.quick:
        log = Log(None)
        for run, bounds in quick.items():
            run_once(run, bounds, log, titled(say, run.arm), plan.marks)
        return {run: log.records[run.key] for run in quick}, Log(None)
    folder = options.out or command.ROOT / "runs" / name

    def logs() -> tuple[Log, Log]:
        log, tuning = Log(folder / "runs.jsonl"), Log(folder / "tuning.jsonl")
        tuning.records = {**(tuned_elsewhere or {}), **tuning.records}
        return log, tuning

    log, tuning = logs()
    own = replace(plan, runs=[run for run in plan.runs if of(run)])
    make_missing(lambda: own.next(log, tuning), options.minutes, say, plan.marks)
    log, tuning = logs()  # also what another process has made meanwhile
    return plan.records(log, tuning), tuning


def make_missing(
    next_run: Callable[[], tuple[Run, Limits, Log, int] | None], minutes: float | None, say: Say, marks: Marks = MARKS
) -> None:
    """Run what the logs do not hold as long as there is time. UsageError: minutes below 0."""
    if minutes is not None and minutes < 0:
        raise UsageError(f"--minutes = {minutes:g}: wanted at least 0")
    start, num_made = time.monotonic(), 0
    while (missing := next_run()) is not None:
        run, bounds, log, num_missing = missing
        elapsed = time.monotonic() - start
        each = elapsed / num_made if num_made else _RUN_SECONDS
        if minutes is not None and elapsed + each > 60 * minutes:
            break
        title = f"{num_missing} runs to go, about {time_text(num_missing * each)}: {run.title}"
        run_once(run, bounds, log, titled(say, title), marks)
        num_made += 1


# --- how a run is made ---


def run_once(run: Run, limits: Limits, log: Log, say: Say = lambda text: None, marks: Marks = MARKS) -> Json:
    """Train, unless the log holds the run, and append its record."""
    if log.holds(run, limits):
        return log.records[run.key]
    with one_thread():
        found = (train_first if marks.is_later else train)(run.config(), limits, say, marks)
    return log.add(
        run,
        {
            **found,
            "limits": asdict(limits),
            "commit": f"{files.commit() or ''}{'+' if files.has_changes() else ''}",
            "cores": sorted(os.sched_getaffinity(0)),
            "load": round(os.getloadavg()[0], 1),
        },
    )


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

    points: dict[str, list[Any]] = {name: [] for name in _COUNTS}
    done: dict[str, Any] = dict.fromkeys(points, 0)
    stages = dict.fromkeys(STAGES, 0.0)
    with closing(OurArm(config)) as arm:
        end = ""
        while not end:
            if _is_over(done, limits):
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
                _step(arm, done, stages)
    return _record(config, points, stages, done["step"], end, marks)


def train_first(config: RunConfig, limits: Limits, say: Say = lambda text: None, marks: Marks = MARKS) -> Json:
    """As `train`, but for `Marks.is_later`: the first evaluations in a row at the accuracy are the last ones."""
    from benchmarks.our_arm import OurArm
    from podsrl.run.evaluate import evaluate

    points: dict[str, list[Any]] = {name: [] for name in _COUNTS}
    done: dict[str, Any] = dict.fromkeys(points, 0)
    stages, kept = dict.fromkeys(STAGES, 0.0), list[tuple[Json, Any]]()
    with closing(OurArm(config)) as arm:
        while not kept or not _is_over(done, limits):
            if kept:
                _step(arm, done, stages)
            if not kept or done["step"] >= marks.after(kept[-1][0]["step"]) or _is_over(done, limits):
                say(f"step {done['step']}, {done['seconds']:.1f} seconds")
                kept.append((dict(done), deepcopy(arm.model.state_dict())))
        arm.trainer.settle()
        for then, weights in kept:
            arm.model.load_state_dict(weights)
            arm.trainer.learner.publish(arm.trainer.engine)
            then["accuracy"] = round(evaluate(arm.trainer).result.accuracy, 6)
            for name, values in points.items():
                values.append(round(then[name], 4))
            say(f"step {then['step']}, accuracy {then['accuracy']:.1%}")
            if is_held(points["accuracy"], limits.accuracy):
                break
    end = "reached" if is_held(points["accuracy"], limits.accuracy) else "limit"
    return _record(config, points, stages, done["step"], end, marks)


def _is_over(done: Json, limits: Limits) -> bool:
    return bool(done["step"] >= limits.steps or done["cpu_seconds"] >= limits.cpu_seconds)


def _record(
    config: RunConfig, points: Json, stages: Mapping[str, float], num_steps: int, end: str, marks: Marks
) -> Json:
    return {
        "config": config_digest(config),
        "points": points,
        "reached": {f"{target:g}": first_at(points, target) for target in marks.targets},
        "stages": {stage: round(total / max(1, num_steps), 6) for stage, total in stages.items()},
        "end": end,
    }


def config_digest(config: RunConfig) -> str:
    """Twelve hexadecimal digits of the whole config, but for the folder of the model."""
    text = dump(config.model_copy(update={"model": config.model.model_copy(update={"path": "start"})}))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _step(arm: OurArm, done: Json, stages: dict[str, float]) -> None:
    """Train a step, and add it to what the run has taken."""
    taken, metrics = arm.step(), arm.metrics
    done["step"] += 1
    done["decode_steps"] += arm.num_decode_steps
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


# --- what an accuracy cost ---


def spent(place: Json, clock: str) -> float:
    """What had been spent at an evaluation: by a count of it, or in trained tokens at a price of a generated one.

    Example:
        >>> place = {"step": 3, "tokens": 1000, "trained": 400}
        >>> spent(place, "step"), spent(place, "at 0.3")
        (3.0, 700.0)
    """
    if (price := clock.rpartition("at ")[2]) != clock:
        return float(place["trained"] + float(price) * place["tokens"])
    return float(place[clock])


def cost(record: Json, target: float, clock: str) -> float | None:
    """What a run had spent at an accuracy; None: it did not reach it."""
    found = record["reached"][f"{target:g}"]
    return round(spent(found, clock), 4) if found else None


def time_of(record: Json, target: float, clock: str) -> Time:
    """The same, or all that the run has spent."""
    found = cost(record, target, clock)
    end = {name: values[-1] for name, values in record["points"].items()}
    value, is_reached = (spent(end, clock), False) if found is None else (found, True)
    return max(value, 1e-9), is_reached


def facts_of(records: Mapping[Any, Json], num_wanted: int) -> Json:
    """How many runs there are, of which commits, and the machine's load at most."""
    return {
        "num_runs": len(records),
        "num_wanted": num_wanted,
        "commits": sorted({record["commit"] for record in records.values()}),
        "max_load": max((record["load"] for record in records.values()), default=0.0),
    }

"""Run and compare folders as typed records: `read_run` gives a `Run`, `read_comparison` a `Comparison`.

A last line that was torn by a kill is skipped and counted. Where a resumed run has written a step twice, the second
copy counts. The config is not validated, since a report must also read what an older version wrote.
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from podsrl.compare.costs import cost_curve
from podsrl.compare.interval import SpeedupInterval, over_each_text, quickest
from podsrl.errors import UsageError
from podsrl.lib.logs import each_object, parse_line, read_log
from podsrl.lib.stages import FATES, OTHER, SHOWN_STAGES
from podsrl.report.unknown import unknown_notes
from podsrl.run.group_log import LARGEST, RecordedGroup, parse_group
from podsrl.run.saving.folder import wanted_run

Array = npt.NDArray[np.float64]
Line = Mapping[str, float]
"""One line of metrics.jsonl; what is null there is NaN here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """Counts of bins of equal width."""

    low: float
    high: float
    """Smallest and largest value."""
    counts: tuple[int, ...]

    def bins(self) -> Iterator[tuple[float, int]]:
        """A value in each bin, and its count: the smallest and the largest of all in the first and the last."""
        values = np.linspace(self.low, self.high, len(self.counts)).tolist()
        return zip(values, self.counts, strict=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A held-out question in an evaluation."""

    prompt: str
    reference: str
    text: str
    """Of the first sample."""
    is_correct: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A start or a resume of a run; empty texts where it does not say."""

    command: str
    date: str
    commit: str
    version: str
    hardware: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a run folder holds."""

    path: Path
    config: Mapping[str, Any]
    """config.toml as nested tables."""
    steps: tuple[Line, ...]
    """One line per step, steps ascending."""
    evaluations: tuple[Line, ...]
    """One line per evaluation, steps ascending; the first is of the untrained model."""
    groups: tuple[RecordedGroup, ...]
    histograms: Mapping[str, Mapping[int, Histogram]] = field(default_factory=dict)
    """Name ("rewards", "rewards_kept", "lengths", "advantages", "lags") -> step -> its histogram."""
    answers: Mapping[int, tuple[Answered, ...]] = field(default_factory=dict)
    """Step, ascending -> the same held-out questions as the evaluation there answered them."""
    starts: tuple[Start, ...] = ()
    """In the order of time."""
    notes: tuple[str, ...]
    """What another version wrote (`podsrl.report.unknown`), and changes that a resume accepted (--allow-…)."""
    num_damaged_lines: int
    """Lines of metrics.jsonl and groups.jsonl that are torn, or say less than they should."""

    def option(self, key: str) -> Any:
        """The config's value at a dotted key such as "select.num_kept"; None where it has none."""
        value: Any = self.config
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    def series(self, name: str) -> Array:
        """A metric of every step, [steps] float64, NaN where a step has none."""
        return np.array([line.get(name, np.nan) for line in self.steps], dtype=np.float64)

    def accuracy_curve(self, metric: str = "accuracy", clock: str = "seconds") -> tuple[Array, Array]:
        """Seconds of a clock and held-out accuracy (`eval/METRIC`) of every evaluation, [evaluations] each."""
        if clock != "seconds" and (found := cost_curve(self.steps, self.evaluations, clock, metric)):
            return found
        names = ("seconds/train_elapsed", f"eval/{metric}")
        points = np.array([[line.get(name, np.nan) for name in names] for line in self.evaluations]).reshape(-1, 2)
        points = points[np.isfinite(points).all(axis=1)]
        return points[:, 0], points[:, 1]

    def stage_seconds(self) -> dict[str, float]:
        """Mean seconds per step by stage; `OTHER` is the total without the named stages."""
        seconds = {stage: _mean(self.series(f"seconds/{stage}")) for stage in SHOWN_STAGES}
        return seconds | {OTHER: max(_mean(self.series("seconds/total")) - sum(seconds.values()), 0.0)}

    def tokens(self) -> dict[str, int]:
        """The run's token ledger: what was generated, and what became of it by now."""
        names = ("prompt", "generated", *FATES, "resumed")
        counts = {name: self.series(f"tokens/{name}") for name in names}
        found = {name: int(values[np.isfinite(values)].sum()) for name, values in counts.items()}
        found["postponed"] -= found.pop("resumed")  # of a group that waits for several steps each has counted all
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What an arm spent, in one kind of cost (`podsrl.compare.costs`)."""

    total: float
    """By its last evaluation, mean over seeds."""
    to_target: float | None
    """Until its mean accuracy was at the target; None where it never was."""
    needed: SpeedupInterval
    """The arm's cost to the target over the baseline's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What a compare folder holds."""

    path: Path
    baseline: str
    fraction: float
    """The target is this share of the baseline's best mean accuracy."""
    metric: str
    """Which accuracy is compared: `eval/METRIC` of an evaluation."""
    clock: str = "seconds"
    """Of which times and speed-ups are: a name of `podsrl.compare.costs.COSTS`."""
    unequal_pace: str | None = None
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


def read_run(path: Path | str, *, may_be_new: bool = False) -> Run:
    """Read one run folder; its `groups.jsonl` may be missing, since a run may record no groups.

    A run that `may_be_new` may have no `metrics.jsonl` yet.

    Raises:
        UsageError: not a folder, a missing file, a config.toml that is not TOML, or a line of a log that is whole but
            no JSON object; the message names it.

    Example:
        >>> read_run("nowhere")
        Traceback (most recent call last):
        podsrl.errors.UsageError: nowhere is not a folder; give the folder of a run (`pods train`) or of `pods compare`
    """
    folder = _existing_folder(Path(path))
    config = read_config(folder)
    has_log = not may_be_new or (folder / "metrics.jsonl").exists()
    lines, num_torn_metrics = read_log(_existing_file(folder, "metrics.jsonl")) if has_log else ([], 0)
    steps: list[Line] = []
    evaluations: list[Line] = []
    num_bad_metrics = add_lines(lines, steps, evaluations)
    groups, num_bad_groups = _groups(folder / "groups.jsonl")
    return Run(
        path=folder,
        config=config,
        steps=tuple(steps),
        evaluations=tuple(evaluations),
        groups=groups,
        histograms=_histograms(_at(steps, [line for line in lines if "histogram/rewards" in line])),
        answers=_answers(_at(evaluations, [line for line in lines if "eval/examples" in line])),
        starts=_starts(folder / "starts.jsonl"),
        notes=(
            *unknown_notes(config),
            *(f"after step {line.get('step')}: {line['note']}" for line in lines if "note" in line),
        ),
        num_damaged_lines=num_torn_metrics + num_bad_metrics + num_bad_groups,
    )


def is_comparison(path: Path | str) -> bool:
    """Whether a folder was written by `pods compare`."""
    return (Path(path) / "compare.json").is_file()


def read_comparison(path: Path | str) -> Comparison:
    """Read one compare folder and the runs below it.

    Raises:
        UsageError: not a folder, no or a malformed compare.json, a missing run folder; the message names it.
    """
    folder = _existing_folder(Path(path))
    file = _existing_file(folder, "compare.json")
    try:
        return _comparison(folder, json.loads(file.read_bytes()))
    except UsageError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise UsageError(f"{file} is not a comparison ({error!r}); write it again with `pods compare`") from error


def _comparison(folder: Path, data: Mapping[str, Any]) -> Comparison:
    arms = data["arms"]
    if data["baseline"] not in arms:
        raise UsageError(f"{folder / 'compare.json'} names the baseline {data['baseline']!r} but no such arm")
    for arm, entry in arms.items():
        if len(entry["seeds"]) != len(entry["runs"]) or not entry["runs"]:
            raise UsageError(f"{folder / 'compare.json'}: arm {arm!r} wants one run per seed, and at least one")
    runs = {arm: tuple(read_run(folder / name) for name in entry["runs"]) for arm, entry in arms.items()}
    learned = {str(arm): bool(has) for arm, has in data.get("learned", dict.fromkeys(arms, True)).items()}
    return Comparison(
        path=folder,
        baseline=str(data["baseline"]),
        fraction=float(data["fraction"]),
        metric=str(data["metric"]),
        clock=str(data.get("clock", "seconds")),
        unequal_pace=data.get("unequal_pace"),
        grid_seconds={arm: np.array(data["grid_seconds"][arm], dtype=np.float64) for arm in arms},
        seeds={arm: tuple(int(seed) for seed in entry["seeds"]) for arm, entry in arms.items()},
        runs=runs,
        speedups=_speedups(data["speedup"]),
        speedups_over={base: _speedups(found) for base, found in data["speedup_over"].items() if learned[base]},
        seconds_to=data["seconds_to"],
        costs=_costs(data["costs"], arms),
        prices=_costs(data.get("prices", {}), arms),
        signals={arm: data["signal"][arm] for arm in arms},
        hardware=str(data["hardware"]),
        not_learned=data.get("not_learned"),
        why_not_learned={str(arm): str(why) for arm, why in data.get("why_not_learned", {}).items()},
    )


def _costs(data: Mapping[str, Any], arms: Iterable[str]) -> dict[str, dict[str, Spent]]:
    return {str(cost): {arm: _spent(spent[arm]) for arm in arms} for cost, spent in data.items()}


def _spent(entry: Mapping[str, Any]) -> Spent:
    to_target = entry["to_target"]
    return Spent(
        total=float(entry["total"]),
        to_target=None if to_target is None else float(to_target),
        needed=SpeedupInterval.from_json(entry["saving"]).inverse,
    )


def _speedups(entries: Mapping[str, Any]) -> dict[str, SpeedupInterval]:
    return {str(arm): SpeedupInterval.from_json(entry) for arm, entry in entries.items()}


def _existing_folder(path: Path) -> Path:
    if not path.is_dir():
        raise UsageError(f"{path} is not a folder; {wanted_run(path)}")
    return path


def _existing_file(folder: Path, name: str) -> Path:
    if not (folder / name).is_file():
        if (folder / "compare.toml").is_file():
            raise UsageError(
                f"{folder}: this comparison has no result yet; add --live, or look with `pods watch {folder}`"
            )
        raise UsageError(f"{folder} has no {name}; {wanted_run(folder)}")
    return folder / name


def read_config(folder: Path) -> dict[str, Any]:
    """config.toml as nested tables, not validated. UsageError: it is missing, or no TOML."""
    file = _existing_file(folder, "config.toml")
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # ValueError: of TOML, of UTF-8, and of numbers with too many digits
        raise UsageError(f"{file} is not TOML ({error}); restore the file that the run wrote") from error


def add_lines(lines: Sequence[Mapping[str, Any]], steps: list[Line], evaluations: list[Line]) -> int:
    """Add a log's next lines to those of steps and of evaluations, notes to neither.

    Returns:
        The number of lines without a step.
    """
    num_bad = 0
    for line in lines:
        if "note" in line:
            continue
        numbers = dict(_numbers(line))
        if not np.isfinite(numbers.get("step", np.nan)):
            num_bad += 1
            continue
        own, other = (evaluations, steps) if "eval/accuracy" in numbers else (steps, evaluations)
        # A resumed run writes again from its checkpoint's step on: what an earlier attempt wrote past it is void.
        while own and own[-1]["step"] >= numbers["step"]:
            own.pop()
        while other and other[-1]["step"] > numbers["step"]:
            other.pop()
        own.append(numbers)
    return num_bad


def _numbers(line: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for key, value in line.items():
        name = sys.intern(key)  # one copy for all lines
        if value is None:
            yield name, np.nan
        elif isinstance(value, (int, float)):
            is_too_large = abs(value) > LARGEST  # for sums and differences of such numbers to be finite
            yield name, (np.inf if value > 0 else -np.inf) if is_too_large else float(value)


def _at(kept: Sequence[Line], lines: Sequence[Mapping[str, Any]]) -> dict[int, Mapping[str, Any]]:
    """Step -> the newest line of it, of the steps that count."""
    steps = {line["step"] for line in kept}
    return {
        int(line["step"]): line for line in lines if isinstance(line.get("step"), int | float) and line["step"] in steps
    }


def _histograms(lines: Mapping[int, Mapping[str, Any]]) -> dict[str, dict[int, Histogram]]:
    """What is none is left out."""
    found: dict[str, dict[int, Histogram]] = {}
    for step, line in lines.items():
        for name, value in line.items():
            if name.startswith("histogram/") and (one := _histogram(value)) is not None:
                found.setdefault(name.removeprefix("histogram/"), {})[step] = one
    return found


def _histogram(value: Any) -> Histogram | None:
    try:
        low, high, counts = float(value["low"]), float(value["high"]), tuple(map(int, value["counts"]))
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    is_sound = -LARGEST <= low <= high <= LARGEST and 0 < len(counts) <= 1000 and min(counts) >= 0
    return Histogram(low=low, high=high, counts=counts) if is_sound and 0 < sum(counts) < LARGEST else None


def _answers(lines: Mapping[int, Mapping[str, Any]]) -> dict[int, tuple[Answered, ...]]:
    """What is none is left out."""
    found: dict[int, tuple[Answered, ...]] = {}
    for step, line in sorted(lines.items()):
        if isinstance(examples := line.get("eval/examples"), list):
            found[step] = tuple(
                Answered(
                    prompt=str(one.get("prompt", "")),
                    reference=str(one.get("answer", "")),
                    text=str(one.get("text", "")),
                    is_correct=one.get("is_correct") is True,
                )
                for one in examples
                if isinstance(one, Mapping)
            )
    return found


def _starts(file: Path) -> tuple[Start, ...]:
    """A line that a kill has torn, with what was written behind it, is left out."""
    lines = [parse_line(line) for line in file.read_bytes().splitlines()] if file.is_file() else []
    names = [field.name for field in fields(Start)]
    return tuple(Start(**{name: str(line.get(name) or "") for name in names}) for line in lines if line is not None)


def _groups(file: Path) -> tuple[tuple[RecordedGroup, ...], int]:
    """Recorded groups with steps ascending, and the number of lines that are none."""
    if not file.is_file():
        return (), 0
    num_bad = 0
    groups: dict[tuple[int, str], RecordedGroup] = {}
    for line in each_object(file):  # they are large: not all lines and all records at once
        if line is None:
            num_bad += 1
            continue
        try:
            group = parse_group(line)
        except ValueError:
            num_bad += 1
            continue
        while groups and next(reversed(groups))[0] > group.step:
            groups.popitem()
        groups[group.step, group.group] = group
    return tuple(groups.values()), num_bad


def _mean(values: Array) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else 0.0

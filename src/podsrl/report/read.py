"""A run folder as a typed record: `read_run` gives a `Run`, of one that has ended or still goes on.

Reading takes no lock and writes no file. A last line that was torn by a kill is skipped and counted. Where a resumed
run has written a step twice, the second copy counts.
"""

from __future__ import annotations

import sys
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from podsrl.compare.costs import cost_curve
from podsrl.errors import UsageError
from podsrl.lib.logs import each_object, last_line, parse_line, read_log
from podsrl.lib.stages import FATES, OTHER, SHOWN_STAGES
from podsrl.run.group_log import LARGEST, RecordedGroup, parse_group
from podsrl.run.saving.folder import RunFolder, wanted_run

Array = npt.NDArray[np.float64]
Line = Mapping[str, float]
"""One line of metrics.jsonl; what is null there is NaN here."""
State = Literal["starting", "training", "stopped", "finished"]
"""Before its first line; a process trains in it; none does, and it could go on; it has reached its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """Counts of bins of equal width."""

    low: float
    high: float
    """Smallest and largest value."""
    counts: Sequence[int]

    def bins(self) -> Iterator[tuple[float, int]]:
        """A value in each bin, and its count: the smallest and the largest of all in the first and the last."""
        values = np.linspace(self.low, self.high, len(self.counts)).tolist()
        return zip(values, self.counts, strict=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a run folder holds."""

    path: Path
    state: State
    """What goes on in the folder."""
    quiet_seconds: float
    """Since it wrote its newest line, or since it began."""
    config: Mapping[str, Any]
    """config.toml as nested tables."""
    steps: Sequence[Line]
    """One line per step, steps ascending."""
    evaluations: Sequence[Line]
    """One line per evaluation, steps ascending; the first is of the untrained model."""
    groups: tuple[RecordedGroup, ...]
    histograms: Mapping[str, Mapping[int, Histogram]] = field(default_factory=dict)
    """Name ("rewards", "rewards_kept", "lengths", "advantages", "lags") -> step -> its histogram."""
    answers: Mapping[int, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    """Step, ascending -> the same held-out questions as the evaluation there answered them: prompt, answer (the
    reference), text (of the first sample), is_correct."""
    starts: Sequence[Mapping[str, Any]]
    """Each start and resume in the order of time: command, date, commit, version, hardware."""
    notes: Sequence[str]
    """Changes that a resume accepted (--allow-…)."""
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

    def accuracies(self, metric: str = "accuracy") -> list[float]:
        """Held-out accuracy of every evaluation."""
        found: list[float] = self.accuracy_curve(metric)[1].tolist()
        return found

    @property
    def train_seconds(self) -> float | None:
        """Seconds of training by its last step; None where it has none."""
        return last_known(self.series("seconds/train_elapsed"))

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


def read_run(path: Path | str, *, only_newest_group: bool = False) -> Run:
    """Read one run folder; its logs may be missing, since it may have begun just now, and may record no groups.

    Raises:
        UsageError: not a folder, a missing config.toml or one that is not TOML, or a line of a log that is whole but
            no JSON object; the message names it.

    Example:
        >>> read_run("nowhere")
        Traceback (most recent call last):
        podsrl.errors.UsageError: nowhere is not a folder; give the folder of a run (`pods train`) or of `pods compare`
    """
    folder = Path(path)
    config = _config(existing_file(folder, "config.toml"))
    state, quiet = state_of(folder), quiet_seconds(folder)  # before its logs: an end has its last line
    log = folder / "metrics.jsonl"
    lines, num_torn = read_log(log) if log.exists() else ([], 0)
    steps, evaluations, num_bad = _parted(lines)
    groups, num_bad_groups = _groups(folder / "groups.jsonl", only_newest_group)
    starts = folder / "starts.jsonl"
    return Run(
        path=folder,
        state=state,
        quiet_seconds=quiet,
        config=config,
        steps=steps,
        evaluations=evaluations,
        groups=groups,
        histograms=_histograms(_at(steps, [line for line in lines if "histogram/rewards" in line])),
        answers={
            step: line["eval/examples"]
            for step, line in sorted(_at(evaluations, lines).items())
            if line.get("eval/examples")
        },
        starts=[start for line in _lines(starts) if (start := parse_line(line)) is not None],
        notes=[f"after step {line.get('step')}: {line['note']}" for line in lines if "note" in line],
        num_damaged_lines=num_torn + num_bad + num_bad_groups,
    )


def find_runs(path: Path) -> list[Path]:
    """The folder of a run, or those of the runs of a comparison that have begun, perhaps none yet.

    Raises:
        UsageError: `path` is neither.
    """
    if (path / "config.toml").is_file():
        return [path]
    if any((path / f"compare.{kind}").is_file() for kind in ("json", "toml")):
        return sorted(found.parent for found in path.glob("runs/*/config.toml"))
    problem = "has no config.toml" if path.is_dir() else "is no folder"
    raise UsageError(f"{path} {problem}; {wanted_run(path)}")


def state_of(folder: Path) -> State:
    """What goes on in a run's folder."""
    run = RunFolder(folder)
    is_locked = run.is_locked()
    if run.finished.exists() and not is_locked:
        return "finished"
    if is_locked is False or (is_locked is None and quiet_seconds(folder) > 600):
        return "stopped"
    return "training" if (folder / "metrics.jsonl").exists() else "starting"


def quiet_seconds(folder: Path) -> float:
    """Seconds since a run wrote its newest line, or since it began."""
    log = folder / "metrics.jsonl"
    return max(0.0, time.time() - (log if log.exists() else folder / "config.toml").stat().st_mtime)


def last_known(values: Array) -> float | None:
    """The last finite value; None where there is none."""
    known = values[np.isfinite(values)]
    return float(known[-1]) if known.size else None


def existing_file(folder: Path, name: str) -> Path:
    """A file of a run's or comparison's folder. UsageError: there is none."""
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder; {wanted_run(folder)}")
    if not (folder / name).is_file():
        if (folder / "compare.toml").is_file():
            raise UsageError(
                f"{folder}: this comparison has no result yet; add --live, or look with `pods watch {folder}`"
            )
        raise UsageError(f"{folder} has no {name}; {wanted_run(folder)}")
    return folder / name


def _config(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # ValueError: of TOML, of UTF-8, and of numbers with too many digits
        raise UsageError(f"{file} is not TOML ({error}); restore the file that the run wrote") from error


def _parted(lines: Iterable[Mapping[str, Any]]) -> tuple[list[Line], list[Line], int]:
    """A log's lines of steps and of evaluations, and the number of those without a step; notes are neither."""
    steps: list[Line] = []
    evaluations: list[Line] = []
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
    return steps, evaluations, num_bad


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
    return {int(line["step"]): line for line in lines if line.get("step") in steps}


def _histograms(lines: Mapping[int, Mapping[str, Any]]) -> dict[str, dict[int, Histogram]]:
    found: dict[str, dict[int, Histogram]] = {}
    for step, line in lines.items():
        for name, value in line.items():
            if name.startswith("histogram/") and value is not None:
                found.setdefault(name.removeprefix("histogram/"), {})[step] = Histogram(**value)
    return found


def _lines(file: Path) -> list[bytes]:
    return file.read_bytes().splitlines() if file.is_file() else []


def _groups(file: Path, only_newest: bool) -> tuple[tuple[RecordedGroup, ...], int]:
    """Recorded groups with steps ascending, and the number of lines that are none."""
    if not file.is_file():
        return (), 0
    num_bad = 0
    groups: dict[tuple[int, str], RecordedGroup] = {}
    # They are large: not all lines and all records at once.
    for line in [last_line(file)] if only_newest else each_object(file):
        try:
            group = parse_group(line or {})
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

"""The result of a soak, from its samples: how fast each process's memory and each file grow per step."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from podsrl.lib.logs import read_lines

Json = dict[str, Any]
WARM_UP = 0.25
"""Share of the steps that does not count: memory is taken, and answers still change their length."""
FLAT_BYTES = 1 << 20
"""Memory that grows by less than this per 1,000 steps is flat."""
OBSERVED = "pods"
"""The run that the observers look at; theirs are its steps."""
_MOST_POINTS = 400
"""Of a slope, evenly chosen, with the first and the last."""


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The median of the slopes through every two points with different x; 0 for fewer than two.

    A few outliers, such as a sample in the middle of an evaluation, do not move it (Theil and Sen).

    Example:
        >>> slope([(0, 1.0), (1, 3.0), (2, 5.0), (3, 7.0), (4, 70.0)])
        2.0
    """
    if len(points) > _MOST_POINTS:
        points = [points[round(place)] for place in np.linspace(0, len(points) - 1, _MOST_POINTS)]
    values = np.array(points, dtype=float).reshape(-1, 2)
    one, other = np.triu_indices(len(values), k=1)
    runs = values[other, 0] - values[one, 0]
    rises = (values[other, 1] - values[one, 1])[runs != 0]
    return float(np.median(rises / runs[runs != 0])) if len(rises) else 0.0


def after_warm_up(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points (step, value) of the last three quarters of the steps."""
    if not points:
        return []
    first, last = points[0][0], points[-1][0]
    return [point for point in points if point[0] >= first + WARM_UP * (last - first)]


def summary(folder: Path) -> Json:
    """The result of the soak in a folder."""
    samples = with_steps(read_lines(folder / "samples.jsonl"))
    facts, end = (json.loads((folder / name).read_text()) for name in ("soak.json", "end.json"))
    return {
        **facts,
        "minutes": samples[-1]["seconds"] / 60,
        "steps": {run: _of(samples, run)[-1]["step"] for run in facts["options"]},
        "processes": list(_processes(samples)),
        "files": list(_files(samples, facts["options"])),
        "segments": max(each["segments"] for each in samples),
        "temporary_files": max(each["temporary_files"] for each in samples),
        **end,
    }


def with_steps(samples: Sequence[Json]) -> list[Json]:
    """The samples, those of an observer with the step of the run that it observes."""
    found, step = [], 0
    for each in samples:
        if each["command"] == OBSERVED:
            step = each["step"] or 0
        found.append({**each, "step": step if each["step"] is None else each["step"]})
    return found


def _of(samples: Sequence[Json], name: str) -> list[Json]:
    return [each for each in samples if each["command"] == name]


def _processes(samples: Sequence[Json]) -> Iterator[Json]:
    for name in dict.fromkeys(each["command"] for each in samples):
        own = _of(samples, name)
        for kind in dict.fromkeys(kind for each in own for kind in each["processes"]):
            held = [(each["step"], each["processes"][kind]) for each in own if kind in each["processes"]]
            rss = [(step, each["rss"]) for step, each in held]
            late = after_warm_up(rss)
            counted = [each for step, each in held if step >= late[0][0]]
            yield {
                "command": name,
                "kind": kind,
                "steps": late[-1][0] - late[0][0],
                "rss_after_warm_up": statistics.median(value for _, value in late[: max(1, len(late) // 10)]),
                "rss_at_the_end": statistics.median(value for _, value in late[-max(1, len(late) // 10) :]),
                "bytes_per_1000_steps": 1000 * slope(late),
                **{f"{what}_first": held[0][1][what] for what in ("files", "threads", "count")},
                **{f"{what}_most": max(each[what] for each in counted) for what in ("files", "threads", "count")},
                **{f"{what}_per_1000_steps": _slope_of(held, what) for what in ("files", "threads", "count")},
            }


def _slope_of(held: Sequence[tuple[int, Json]], what: str) -> float:
    return 1000 * slope(after_warm_up([(step, each[what]) for step, each in held]))


def _files(samples: Sequence[Json], runs: Sequence[str]) -> Iterator[Json]:
    for run in runs:
        own = _of(samples, run)
        for log in ("metrics.jsonl", "groups.jsonl"):
            sizes = [(each["step"], each["folder_bytes"].get(log, 0)) for each in own]
            yield {
                "command": run,
                "file": log,
                "bytes": sizes[-1][1],
                "bytes_per_step": sizes[-1][1] / max(1, sizes[-1][0]),
            }

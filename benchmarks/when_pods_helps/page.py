"""What is shown of the map: a table in the terminal, the table of docs/measurements.md, and the picture."""

from __future__ import annotations

import math
from typing import Any

from benchmarks import command
from benchmarks.figures.markdown import table as markdown_table
from benchmarks.paired import over_text
from podsrl.compare.interval import range_text

PICTURE = command.ROOT / "docs" / "images" / "when-pods-helps.svg"
TARGET = "0.9"
"""Accuracy of the tables' and the picture's ratios."""
NOT_MEASURED = "not measured"
Json = dict[str, Any]


def ratio_text(over: Json | None, clock: str = "cpu_seconds", target: str = TARGET) -> str:
    """A speed-up with its interval and the number of paired seeds.

    Example:
        >>> entry = {"ratio": 2.0, "bound": "≥", "num_seeds": 3, "ratios": [2.0, 2.0, 2.0]}
        >>> interval = {"point": 2.0, "low": 1.5, "high": None, "share_unreached": 0}
        >>> ratio_text({"0.9": {"cpu_seconds": {**entry, "interval": interval}}})
        '≥ 2.00× (1.50–∞; 3)'
        >>> ratio_text(None)
        'not measured'
    """
    if over is None:
        return NOT_MEASURED
    found = over[target][clock]
    return over_text(found, f"; {found['num_seeds']}")


def speedups(result: Json, start: str) -> str:
    """Of PODS 64 → 16 over GRPO 16 → 16 from a start accuracy, with a KL penalty and without."""
    over = {
        row["kl"]: arm["over_grpo"]
        for row in result["rows"]
        for arm in row["arms"]
        if (row["start"], row["digits"], arm["arm"]) == (start, 2, "PODS 64 → 16")
    }
    return f"{ratio_text(over.get(0.04))} with a KL penalty, {ratio_text(over.get(0.0))} without"


def main_table(result: Json) -> str:
    """Speed-ups of PODS by start accuracy and n, with and without a penalty, on two digits at m = 16."""
    head = ("start", "n → m", "with KL 0.04: over GRPO", "over GRPO-GA", "without KL: over GRPO", "over GRPO-GA")
    lines = []
    for start in dict.fromkeys(row["start"] for row in result["rows"] if row["digits"] == 2):
        found = {row["kl"]: row for row in result["rows"] if row["start"] == start and row["digits"] == 2}
        arms = {
            kl: {a["arm"]: a for a in row["arms"] if a["num_rollouts"] != a["num_kept"]} for kl, row in found.items()
        }
        for name in sorted({name for each in arms.values() for name in each}, key=_sizes):
            both = [arms.get(kl, {}).get(name, {}) for kl in (0.04, 0.0)]
            ratios = [ratio_text(arm.get(key)) for arm in both for key in ("over_grpo", "over_grpo_ga")]
            lines.append([start.replace("%", " %"), name.removeprefix("PODS "), *ratios])
    return markdown_table(head, lines, num_left=2)


def words(over: Json) -> str:
    """A speed-up with its interval in words.

    Example:
        >>> words({"ratio": 2.0, "bound": "≥", "interval": {"low": 1.5, "high": None}})
        'at least 2.0× sooner (1.50–∞)'
        >>> words({"ratio": 1.2, "bound": "", "interval": {"low": 0.8, "high": 1.8}})
        'no clear difference (0.80–1.80)'
        >>> words({"ratio": 0.5, "bound": "≤", "interval": {"low": 0.0, "high": 0.9}})
        'later: at most 0.5× (0–0.90)'
    """
    low, high = over["interval"]["low"], over["interval"]["high"]
    high = math.inf if high is None else high
    if low <= 1 <= high:
        return f"no clear difference ({range_text(low, high)})"
    ratio = {"≥": "at least ", "≤": "at most "}.get(over["bound"], "") + f"{over['ratio']:.1f}×"
    return f"{ratio} sooner ({range_text(low, high)})" if low > 1 else f"later: {ratio} ({range_text(low, high)})"


def help_table(result: Json) -> str:
    """README's table: PODS 64 → 16 by start accuracy, in words."""
    head = ("correct at the start", "against 64 → 64", "against 16 → 16", "against 16 → 16, no KL penalty")
    over = {
        (row["start"], row["kl"], key): arm[key][TARGET]["cpu_seconds"]
        for row in result["rows"]
        for arm in row["arms"]
        for key in ("over_grpo", "over_grpo_ga")
        if (row["digits"], arm["arm"]) == (2, "PODS 64 → 16")
    }
    columns = ((0.04, "over_grpo_ga"), (0.04, "over_grpo"), (0.0, "over_grpo"))
    starts = dict.fromkeys(start for start, _, _ in over)
    rows = [[s.replace("%", " %"), *(words(over[s, *column]) for column in columns)] for s in starts]
    return markdown_table(head, rows, num_left=len(head))


def page(result: Json) -> str:
    """The table of the page."""
    return f"{main_table(result)}\n\n{_note(result)} Its runs are of {_commits(result)}."


def publish(result: Json) -> None:
    """Draw the picture."""
    from benchmarks.when_pods_helps.picture import draw
    from podsrl.report.figures.svg import save_svg

    save_svg(draw(result), PICTURE)


def _sizes(arm: str) -> tuple[int, int]:
    n, m = map(int, arm.removeprefix("PODS ").split(" → "))
    return -m, n


def _note(result: Json) -> str:
    return (
        f"Times and speed-ups by CPU seconds of training to {100 * float(TARGET):g} %; brackets: 95 % interval over "
        f"paired seeds, and their number. {result['num_runs']} of {result['num_wanted']} runs are made; the machine's "
        f"load was {result['max_load']:.1f} at most."
    )


def _commits(result: Json) -> str:
    names = result["commits"]
    return f"commit{'s' if len(names) > 1 else ''} {', '.join(names)}"

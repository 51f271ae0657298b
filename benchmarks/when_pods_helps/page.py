"""What is shown of the map: a table in the terminal, the table of docs/when-pods-helps.md, and the picture."""

from __future__ import annotations

from typing import Any

from benchmarks import command
from benchmarks.figures.markdown import table as markdown_table
from benchmarks.paired import over_text

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

"""What is shown of the map: a table in the terminal, the tables of docs/when-pods-helps.md, and the picture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.table import Table

from benchmarks import command
from benchmarks.trl_accuracy.times import seconds_text, steps_text
from podsrl.compare.interval import SpeedupInterval

PICTURE = command.ROOT / "docs" / "images" / "when-pods-helps.png"
TARGET = "0.9"
"""Accuracy of the tables' and the picture's ratios."""
NOT_MEASURED = "not measured"
Json = dict[str, Any]


def condition(row: Json) -> str:
    """A row's task and penalty."""
    penalty = f"KL {row['kl']:g}" if row["kl"] else "no KL"
    return f"{row['digits']} digits, {penalty}"


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


def over_text(found: Json, more: str = "") -> str:
    """A speed-up of `summary.speedup` with its interval, and `more` behind it."""
    if found["ratio"] is None:
        return "neither reaches it"
    inner = "one seed" if len(found["ratios"]) == 1 else SpeedupInterval.from_json(found["interval"]).range_text + more
    return f"{found['bound']} {found['ratio']:.2f}× ({inner})".strip()


def rows(result: Json) -> Iterator[list[str]]:
    """Head and body of the table."""
    percent = f"{100 * float(TARGET):g} %"
    yield [
        "task, penalty",
        "start",
        "arm",
        "rate",
        "ms per step",
        f"steps to {percent}",
        f"CPU seconds to {percent}",
        "over GRPO m → m",
        "over GRPO-GA n → n",
        "final accuracy",
    ]
    for row in result["rows"]:
        for arm in row["arms"]:
            to, is_pods = arm["to"][TARGET], arm["num_rollouts"] != arm["num_kept"]
            yield [
                condition(row),
                row["start"].replace("%", " %"),
                arm["arm"],
                f"{arm['rate']:g}",
                f"{1000 * arm['cpu_seconds_per_step']:.0f}",
                steps_text(to["step"]),
                seconds_text(to["cpu_seconds"], arm["trained"]["cpu_seconds"]),
                *((ratio_text(arm[key]) for key in ("over_grpo", "over_grpo_ga")) if is_pods else ("", "")),
                f"{100 * arm['final_accuracy']:.1f} %",
            ]


def table(result: Json) -> Table:
    """For a terminal, without the columns that are there for the page."""
    shown = Table(title=_note(result), caption=result["hardware"])
    lines = [[*cells[:3], *cells[5:9]] for cells in rows(result)]
    for name in lines[0]:
        shown.add_column(name, justify="left" if name in lines[0][:3] else "right")
    for cells in lines[1:]:
        shown.add_row(*cells)
    return shown


def main_table(result: Json) -> str:
    """Speed-ups of PODS by start accuracy and n, with and without a penalty, on two digits at m = 16."""
    lines = [["start", "n → m", "with KL 0.04: over GRPO", "over GRPO-GA", "without KL: over GRPO", "over GRPO-GA"]]
    for start in dict.fromkeys(row["start"] for row in result["rows"] if row["digits"] == 2):
        found = {row["kl"]: row for row in result["rows"] if row["start"] == start and row["digits"] == 2}
        arms = {
            kl: {a["arm"]: a for a in row["arms"] if a["num_rollouts"] != a["num_kept"]} for kl, row in found.items()
        }
        for name in sorted({name for each in arms.values() for name in each}, key=_sizes):
            both = [arms.get(kl, {}).get(name, {}) for kl in (0.04, 0.0)]
            ratios = [ratio_text(arm.get(key)) for arm in both for key in ("over_grpo", "over_grpo_ga")]
            lines.append([start.replace("%", " %"), name.removeprefix("PODS "), *ratios])
    return markdown(lines)


def parts(result: Json) -> dict[str, str]:
    """Name of a part of the page -> its text."""
    return {
        "speed-ups": f"{main_table(result)}\n\n{_note(result)} Its runs are of {_commits(result)}.",
        "times": markdown(list(rows(result))),
        "rates": markdown(list(_rate_rows(result))),
    }


def markdown(lines: list[list[str]]) -> str:
    """Cells, head first, as a table."""
    with_rule = [lines[0], ["---"] * len(lines[0]), *lines[1:]]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in with_rule)


def publish(result: Json) -> None:
    """Draw the picture."""
    from benchmarks.when_pods_helps.picture import draw
    from podsrl.report.figures.theme import save_png

    save_png(draw(result), PICTURE)


def _rate_rows(result: Json) -> Iterator[list[str]]:
    """Steps to 90 % of the tuning runs, by condition, start, arm and rate."""
    rates = sorted({each["rate"] for each in result["tuning"]})
    yield ["task, penalty", "start", "arm", *(f"{rate:g}" for rate in rates)]
    by_arm: dict[tuple[Any, ...], list[Json]] = {}
    for each in result["tuning"]:
        start = float(each["start"].removesuffix("%"))
        by_arm.setdefault((each["digits"], -each["kl"], start, each["arm"]), []).append(each)
    for _, own in sorted(by_arm.items()):
        steps = (", ".join(_steps(each) for each in own if each["rate"] == rate) for rate in rates)
        first = own[0]
        yield [
            condition(first),
            first["start"].replace("%", " %"),
            first["arm"],
            *(text or "given up" for text in steps),
        ]


def _steps(run: Json) -> str:
    return str(run["steps"]) if run["steps"] is not None else "not reached"


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

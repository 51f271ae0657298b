"""What docs/long-runs.md shows of a soak."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.figures.markdown import table
from benchmarks.soak.result import FLAT_BYTES

TITLES = {
    ("pods", "main"): "recipe `pods`: trainer",
    ("ahead", "main"): "one step ahead: trainer",
    ("ahead", "generator"): "one step ahead: generator",
    ("ahead", "reward workers"): "one step ahead: reward worker, supervisor",
    ("watch", "main"): "`pods watch` on the recipe's run",
    ("page", "main"): "`pods report --live` on it",
}
MANY_STEPS = 60_000
"""A week of steps of ten seconds."""
Json = dict[str, Any]


def markdown(result: Json) -> str:
    """For the page."""
    head, *body = _rows(result)
    rest = f"{_counts(result)} {_logs(result)} {_end(result)}"
    return f"{_title(result)}. {_verdict(result)}\n\n{table(head, body)}\n\n{rest}\n"


def _rows(result: Json) -> Iterator[list[str]]:
    """Head and body of the table of processes."""
    yield ["process", "memory", "per 1,000 steps"]
    for each in result["processes"]:
        yield [
            _name(each),
            f"{each['rss_after_warm_up'] / 2**20:.1f} → {each['rss_at_the_end'] / 2**20:.1f} MiB",
            f"{each['bytes_per_1000_steps'] / 2**20:+.2f} MiB",
        ]


def _name(process: Json) -> str:
    command, kind = process["command"], process["kind"]
    return TITLES.get((command, kind), f"{command}: {kind}")


def _title(result: Json) -> str:
    steps = " and ".join(f"{num:,} steps ({run})" for run, num in result["steps"].items())
    return f"{result['minutes']:.0f} minutes, {steps}, the first quarter of the steps is warm-up"


def _verdict(result: Json) -> str:
    grown = [_name(each) for each in result["processes"] if each["bytes_per_1000_steps"] >= FLAT_BYTES]
    flat = f"grows by less than {FLAT_BYTES / 2**20:g} MiB per 1,000 steps"
    return f"Memory of every process {flat}, except of: {', '.join(grown)}." if grown else f"Memory {flat}."


def _counts(result: Json) -> str:
    kinds = {"files": "open files", "threads": "threads", "count": "processes"}
    grown = [
        f"{kinds[what]} of {_name(each)} ({each[f'{what}_per_1000_steps']:+.1f} per 1,000 steps)"
        for each in result["processes"]
        for what in kinds
        if abs(each[f"{what}_per_1000_steps"]) >= 0.1
    ]
    flat = "The numbers of open files, threads and processes stay as they are"
    return f"{flat}, except {', '.join(grown)}." if grown else f"{flat}."


def _logs(result: Json) -> str:
    sizes = {
        run: sum(each["bytes_per_step"] for each in result["files"] if each["command"] == run)
        for run in result["steps"]
    }
    grown = " and ".join(f"{MANY_STEPS * size / 2**20:,.0f} MiB ({run})" for run, size in sizes.items())
    return f"The logs of {MANY_STEPS:,} steps take {grown}."


def _end(result: Json) -> str:
    left = {what.replace("_", " "): len(found) for what, found in result["left"].items()}
    nothing = ", ".join(f"{num} {what}" for what, num in left.items())
    again = ", ".join(
        f"{run} in {each['seconds']:.0f} s (exit code {each['code']})" for run, each in result["resumed"].items()
    )
    return f"Left behind after Ctrl-C: {nothing}. Resumed, the first new step written: {again}."

"""docs/infinite-sampling.md: schedules of Infinite Sampling, simulated and in the engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.figures.markdown import NOT_MEASURED, newest, per_processor, percent, table
from benchmarks.figures.speed import span, times
from benchmarks.files import Files, Result

GROUP_SIZE = 128
"""Of the table."""
SHARES = ("kv_at_once_to_full", "kv_pool_to_full", "reread_share")
MEMORY = {"half": ", half memory", "slots": ", memory of g long rows", None: ""}


def _rows(result: Result, *key: str | None) -> list[dict[str, Any]]:
    """A schedule at each size of a group."""
    names = ("set", "schedule", "knows", "memory")
    return [row for row in result["simulated"] if tuple(row[name] for name in names) == key]


def one_schedule(files: Files, kind: str, schedule: str, knows: str, memory: str, key: str) -> str:
    """A column of one schedule within a sentence, over the sizes of a group."""
    result = newest(files("infinite-sampling"))
    if result is None:
        return NOT_MEASURED
    rows = _rows(result, kind, schedule, knows, None if memory == "none" else memory)
    values = [row[key] for row in rows]
    return f"{span([100 * each for each in values], '.0f')} %" if key in SHARES else span(values, ".2f")


def one_size(files: Files, kind: str) -> str:
    """All schedules of one kind of lengths, at one size of a group."""
    result = newest(files("infinite-sampling"))
    if result is None:
        return NOT_MEASURED
    known = {"nothing": "", "perfect": ", lengths known", "prompt": ", by the prompt", "tokens": ", by the tokens"}
    rows = [
        (
            row["schedule"] + MEMORY[row["memory"]] + known[row["knows"]],
            f"{row['steps']:.0f}",
            f"{row['steps_to_bound']:.2f} ({row['worst_steps_to_bound']:.2f})",
            f"{row['mean_completion_steps']:.0f}",
            *(f"{row[key]:.0%}" for key in SHARES),
        )
        for row in result["simulated"]
        if row["set"] == kind and row["group_size"] == GROUP_SIZE
    ]
    head = (
        "schedule, what it knows",
        "steps",
        "to the least (worst)",
        "mean end",
        "KV at once",
        "KV pool",
        "recomputed",
    )
    return table(head, rows)


def in_engine(files: Files) -> str:
    """The schedules in the engine."""

    def text(result: Result) -> str:
        return table(
            ("schedule", "steps", "tokens/s", "to micro groups", "KV bytes to full group", "recomputed"),
            map(_engine_row, result["engine"]["arms"]),
        )

    return per_processor(files("infinite-sampling"), text)


def _engine_row(arm: dict[str, Any]) -> Sequence[str]:
    return (
        arm["schedule"],
        f"{arm['steps']:.0f}",
        f"{arm['tokens_per_second']:,.0f}",
        times(arm["tokens_per_second_to_micro"]),
        percent(arm["kv_bytes_to_full"]),
        percent(arm["reread_share"]),
    )


PARTS: dict[str, Callable[..., str]] = {
    "sampling-one-size": one_size,
    "sampling": one_schedule,
    "sampling-engine": in_engine,
}

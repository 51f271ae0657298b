"""PODS against training on all rollouts, and against generating few."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.figures.headline import Figure
from benchmarks.figures.markdown import percent
from benchmarks.files import Result


def _speedup(found: Any) -> str:
    point, low, high = found
    return f"{point:.2f}× ({low:.2f} … {high:.2f})"


def _versus(result: Result) -> str:
    found = result["versus"]["speedup_by_fraction"]
    return ", ".join(
        f"{_speedup(found[share]['pods'])} to {percent(float(share))}" for share in ("0.99", "0.95", "0.9")
    )


def _map(result: Result) -> str:
    found = ((start, result[f"map-{start}"]["speedup_by_fraction"]["0.99"]["pods64"]) for start in ("1%", "4%"))
    return ", ".join(f"{_speedup(each)} from {percent(result['start_accuracy'][start], 1)}" for start, each in found)


FIGURES = (
    Figure(
        "versus",
        "when-pods-helps",
        "PODS 64 → 16 over GRPO-GA 64 → 64, all 64 trained (gradient accumulation), 5 paired seeds, to a share of the "
        "baseline's best accuracy; the brackets are a range of resamples, which mostly covers less than 95 %",
        _versus,
        lambda result: float(result["versus"]["speedup_by_fraction"]["0.99"]["pods"][0]),
        command="when-pods-helps versus",
    ),
    Figure(
        "map",
        "when-pods-helps",
        "PODS 64 → 16 over GRPO 16 → 16, 4 paired seeds, to 99 % from two start accuracies; the same brackets",
        _map,
        lambda result: float(result["map-4%"]["speedup_by_fraction"]["0.99"]["pods64"][0]),
        command="when-pods-helps map",
    ),
)
PARTS: dict[str, Callable[..., str]] = {}

"""How long max-variance selection takes, beside a bare sort and beside a scan over every candidate subset.

In one process, on one torch thread, each repeat times all three in turn on the same rewards; a ratio is taken within a
repeat. The peers are
- `torch.sort(rewards)`: what any rule that sorts by torch pays before it decides anything;
- the scan: a group at a time, argsort, then the variance of all m + 1 candidates "k highest, m - k lowest" with m terms
  each, O(n log n + m²), as the published code does it, here without its inner Python loop (numpy windows). It is timed
  on the first few groups and scaled up to all of them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from rich.table import Table
from torch import Tensor

from podsrl.lib.machine import hardware_line
from podsrl.select import max_variance

HELP = "Time of max-variance selection: the ratio to torch.sort alone and to a scan over all candidate subsets."

REPEATS = 11
SCAN_GROUPS = 16

SHAPES = ((4096, 1024, 256), (8, 64, 16))
"""(groups, rollouts, kept): one large call, and one training step of the paper's size."""
QUICK_SHAPES = ((256, 256, 64),)


def run(quick: bool = False) -> dict[str, object]:
    """Measure every shape with continuous, shaped and binary rewards.

    Args:
        quick: one small shape, under a second.

    Returns:
        JSON-able: name, hardware, repeats, and a list of cases: medians in milliseconds, ratios with their spread, and
        whether the scan's subsets have the same variance.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        shapes = QUICK_SHAPES if quick else SHAPES
        cases = [
            {"rewards": kind, "num_groups": p, "num_rollouts": n, "num_kept": m} | _measure(make(p, n), m)
            for p, n, m in shapes
            for kind, make in REWARDS.items()
        ]
        return {"name": "select", "hardware": hardware_line(), "repeats": REPEATS, "cases": cases}
    finally:
        torch.set_num_threads(threads)


def table(result: dict[str, Any]) -> Table:
    """Show what `run` returned, one row a case; a ratio is given as median (lowest … highest)."""
    shown = Table(title=f"Selection of m from n rewards in P groups\n{result['hardware']}")
    shown.add_column("rewards")
    for column in ("P × n → m", "torch.sort ms", "max_variance ms", "scan ms", "to sort", "to scan", "agrees"):
        shown.add_column(column, justify="right")
    for case in result["cases"]:
        shown.add_row(
            case["rewards"],
            f"{case['num_groups']} × {case['num_rollouts']} → {case['num_kept']}",
            *(f"{case[key]:.3g}" for key in ("sort_ms", "max_variance_ms", "scan_ms")),
            *(_spread(case[key]) for key in ("ratio_to_sort", "ratio_to_scan")),
            "yes" if case["agrees_with_scan"] else "NO",
        )
    return shown


def scan(rewards: NDArray[Any], num_kept: int) -> NDArray[np.int64]:
    """Find the best subset of one group the slow way: the variance of every candidate, each from its m rewards.

    Args:
        rewards: `[n]` float.
        num_kept: m.

    Returns:
        `[m]` int64 indices, in no order.

    Example:
        >>> sorted(scan(np.array([0.5, 0.0, 1.0, 0.4]), 2).tolist())
        [1, 2]
    """
    order = np.argsort(rewards)
    ends = np.concatenate([order[len(order) - num_kept :], order[:num_kept]])  # window t: m - t highest, t lowest
    best = int(sliding_window_view(rewards[ends], num_kept).var(axis=-1).argmax())
    return ends[best : best + num_kept]


def _continuous(num_groups: int, n: int) -> Tensor:
    return torch.rand(num_groups, n, generator=torch.Generator().manual_seed(0))


def _shaped(num_groups: int, n: int) -> Tensor:
    """Correctness, a tenth for format, a tenth in quarters for tags: at most 20 distinct values, so many ties."""
    draw = torch.Generator().manual_seed(1)
    is_correct, is_formatted = torch.rand(2, num_groups, n, generator=draw) < 0.4
    tags = torch.randint(0, 5, (num_groups, n), generator=draw) / 4
    shaped: Tensor = is_correct + 0.1 * is_formatted + 0.1 * tags
    return shaped


def _binary(num_groups: int, n: int) -> Tensor:
    return (torch.rand(num_groups, n, generator=torch.Generator().manual_seed(2)) < 0.3).float()


REWARDS: dict[str, Callable[[int, int], Tensor]] = {"continuous": _continuous, "shaped": _shaped, "binary": _binary}


def _measure(rewards: Tensor, num_kept: int) -> dict[str, object]:
    num_groups = len(rewards)
    few = min(SCAN_GROUPS, num_groups)
    array = rewards.numpy()
    calls = max(1, 2**18 // rewards.numel())  # a call of microseconds is timed in a row of many
    times = _paired_seconds(
        calls,
        lambda: torch.sort(rewards),
        lambda: max_variance(rewards, num_kept),
        lambda: [scan(group, num_kept) for group in array[:few]],
    )
    sort, ours, some_scan = times
    scanned = [seconds * num_groups / few for seconds in some_scan]
    return {
        "sort_ms": 1e3 * statistics.median(sort),
        "max_variance_ms": 1e3 * statistics.median(ours),
        "scan_ms": 1e3 * statistics.median(scanned),
        "scan_groups_timed": few,
        "ratio_to_sort": _ratios(ours, sort),
        "ratio_to_scan": _ratios(ours, scanned),
        "agrees_with_scan": _agrees(array[:few].astype(np.float64), num_kept),
    }


def _paired_seconds(calls: int, *functions: Callable[[], object]) -> list[list[float]]:
    """Time the functions in turn, `REPEATS` times after one unmeasured round: seconds a call, for each function."""
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(REPEATS + 1):
        for function, seconds in zip(functions, times, strict=True):
            start = time.perf_counter()
            for _ in range(calls):
                function()
            seconds.append((time.perf_counter() - start) / calls)
    return [seconds[1:] for seconds in times]


def _ratios(ours: list[float], theirs: list[float]) -> dict[str, float]:
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    return {"min": min(ratios), "median": statistics.median(ratios), "max": max(ratios)}


def _agrees(rewards: NDArray[np.float64], num_kept: int) -> bool:
    """Whether both find subsets of the same variance; the subsets may differ where rewards are equal."""
    kept = max_variance(rewards, num_kept)
    ours = np.take_along_axis(rewards, kept, axis=-1).var(axis=-1)
    theirs = [group[scan(group, num_kept)].var() for group in rewards]
    return bool(np.allclose(ours, theirs, rtol=1e-9, atol=0))


def _spread(ratio: dict[str, float]) -> str:
    return f"{ratio['median']:.3g} ({ratio['min']:.3g} … {ratio['max']:.3g})"

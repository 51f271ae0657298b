"""Time of max-variance selection: the ratio to torch.sort alone and to a scan over all candidate subsets.

    python -m benchmarks select            two sizes and three kinds of rewards, about a minute
    python -m benchmarks select --quick    one small size, about a second

Each round times all three in turn, in one process and on one torch thread, on the same rewards; a ratio is taken within
a round. The peers are
- `torch.sort(rewards)`: what any rule that sorts with torch pays before it decides anything;
- the scan: one group at a time, argsort, then the variance of all m + 1 candidates "k highest, m - k lowest", each
  from its m rewards, O(n log n + m²), as the published code does it, but with numpy windows instead of its inner
  Python loop. It is timed on the first few groups, and its time scaled up to all of them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from torch import Tensor

from benchmarks import command
from benchmarks.timing import Clock, ratios, take_turns
from podsrl.select import max_variance

ROUNDS = 11
SCAN_GROUPS = 16

SHAPES = ((4096, 1024, 256), (8, 64, 16))
"""(groups, rollouts, kept): one large call, and one training step of the paper's size."""
QUICK_SHAPES = ((256, 256, 64),)


def main(arguments: Sequence[str]) -> None:
    parser = command.new_parser("select", __doc__)
    parser.add_argument("--quick", action="store_true", help="one small size")
    command.measure(parser, arguments, lambda options, say: run(options.quick))


def run(quick: bool = False) -> dict[str, Any]:
    """Measure every size with continuous, shaped and binary rewards: medians in milliseconds, ratios with spreads."""
    cases = [
        {"rewards": kind, "num_groups": p, "num_rollouts": n, "num_kept": m} | _measure(make(p, n), m)
        for p, n, m in (QUICK_SHAPES if quick else SHAPES)
        for kind, make in REWARDS.items()
    ]
    return {"rounds": ROUNDS, "cases": cases}


def scan(rewards: NDArray[Any], num_kept: int) -> NDArray[np.int64]:
    """Find m of one group's rewards [n] the slow way: the variance of every candidate, each from its m rewards.

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
    """Correctness, 0.1 for format, 0.1 in quarters for tags: at most 20 distinct values, so there are many ties."""
    draw = torch.Generator().manual_seed(1)
    is_correct, is_formatted = torch.rand(2, num_groups, n, generator=draw) < 0.4
    tags = torch.randint(0, 5, (num_groups, n), generator=draw) / 4
    shaped: Tensor = is_correct + 0.1 * is_formatted + 0.1 * tags
    return shaped


def _binary(num_groups: int, n: int) -> Tensor:
    return (torch.rand(num_groups, n, generator=torch.Generator().manual_seed(2)) < 0.3).float()


REWARDS: dict[str, Callable[[int, int], Tensor]] = {"continuous": _continuous, "shaped": _shaped, "binary": _binary}


def _measure(rewards: Tensor, num_kept: int) -> dict[str, Any]:
    num_groups = len(rewards)
    few = min(SCAN_GROUPS, num_groups)
    array = rewards.numpy()
    num_calls = max(1, 2**18 // rewards.numel())  # a call of microseconds is too short for one reading of the clock
    times = _seconds_per_call(
        num_calls,
        sort=lambda: torch.sort(rewards),
        ours=lambda: max_variance(rewards, num_kept),
        scan=lambda: [scan(group, num_kept) for group in array[:few]],
    )
    scanned = [seconds * num_groups / few for seconds in times["scan"]]
    return {
        "sort_ms": 1e3 * statistics.median(times["sort"]),
        "max_variance_ms": 1e3 * statistics.median(times["ours"]),
        "scan_ms": 1e3 * statistics.median(scanned),
        "scan_groups_timed": few,
        "ratio_to_sort": ratios(times["ours"], times["sort"]),
        "ratio_to_scan": ratios(times["ours"], scanned),
        "agrees_with_scan": _agrees(array[:few].astype(np.float64), num_kept),
    }


def _seconds_per_call(num_calls: int, **functions: Callable[[], object]) -> dict[str, list[float]]:
    """Wall-clock seconds of each function in each of `ROUNDS` rounds, after one unmeasured round."""

    def arm(function: Callable[[], object]) -> Callable[[int], float]:
        def seconds(number: int) -> float:
            clock = Clock()
            for _ in range(num_calls):
                function()
            return clock.read().seconds / num_calls

        return seconds

    times = take_turns({name: arm(function) for name, function in functions.items()}, ROUNDS + 1)
    return {name: seconds[1:] for name, seconds in times.items()}


def _agrees(rewards: NDArray[np.float64], num_kept: int) -> bool:
    """Whether both find subsets of the same variance; the subsets may differ where rewards are equal."""
    kept = max_variance(rewards, num_kept)
    ours = np.take_along_axis(rewards, kept, axis=-1).var(axis=-1)
    theirs = [group[scan(group, num_kept)].var() for group in rewards]
    return bool(np.allclose(ours, theirs, rtol=1e-9, atol=0))

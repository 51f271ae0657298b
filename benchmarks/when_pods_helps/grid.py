"""Which runs make the map, in the order of their worth; each arm's own learning rate; when a run is given up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from benchmarks.runs import Limits, Log, Plan, best_rate
from benchmarks.when_pods_helps.cells import MIXED, Cell

ACCURACY = Limits().accuracy
"""At which a run ends."""
RATES = (3e-4, 6e-4, 1.5e-4)
RATES_OF = {
    ("0.9%", 0.04, 2): {(64, 16): 3e-4, (16, 16): 1.5e-4, (64, 64): 3e-4},
}
"""Start, KL weight and digits -> best rates that are known from elsewhere: this one is the demo's, and
`python -m benchmarks demo --tune` found its rates."""
TUNED_AS: dict[tuple[str, ...], tuple[str, ...]] = {MIXED: ()}
"""Further options of an arm -> those of the arm whose rate it has; by default its own."""
MOST_TUNING_STEPS = 400
"""Of one run."""
REFERENCE = (64, 16)
"""The arm whose seconds end the others."""
PATIENCE = 3.0
"""A run is given up at so many times the reference's seconds."""
LEAST_SECONDS, MOST_SECONDS = 6.0, 60.0
"""CPU seconds of training at which a run is given up, at least and at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Runs of equal worth: all its starts and arms, one seed after the other."""

    starts: Sequence[str]
    sizes: Sequence[tuple[int, int]]
    """(n, m) of each arm, the reference first."""
    seeds: Sequence[int]
    digits: int = 2
    kls: Sequence[float] = (0.04, 0.0)

    def cells(self) -> Iterator[Cell]:
        """Its runs; the rates are not theirs yet."""
        for seed, kl, start, (n, m) in product(self.seeds, self.kls, self.starts, self.sizes):
            yield Cell(start=start, num_rollouts=n, num_kept=m, rate=RATES[0], seed=seed, digits=self.digits, kl=kl)


_MAIN = ((64, 16), (16, 16), (64, 64))
_FEW_KEPT = ((64, 16), (64, 8), (64, 4), (8, 8), (4, 4))
_OTHER_N = ((64, 16), (32, 16), (128, 16), (256, 16))
STARTS = ("0.9%", "1.4%", "4%", "18%", "59%")
BLOCKS = (
    Block(starts=STARTS, sizes=_MAIN, seeds=(0, 1, 2)),
    Block(starts=STARTS, sizes=_MAIN, seeds=(3, 4)),
    Block(starts=("1.4%", "4%"), sizes=_OTHER_N, seeds=(0, 1, 2)),
    Block(starts=("4%",), sizes=_FEW_KEPT, seeds=(0, 1, 2)),
    Block(starts=("4%",), sizes=_MAIN, seeds=(0, 1, 2), digits=3),
)
QUICK_BLOCKS = (Block(starts=("4%",), sizes=_MAIN[:2], seeds=(0,), kls=(0.0,)),)


def wanted(blocks: Sequence[Block]) -> list[Cell]:
    """All runs of the blocks, each once, in their order."""
    return list(dict.fromkeys(cell for block in blocks for cell in block.cells()))


def tuned_size(num_rollouts: int, num_kept: int) -> tuple[int, int]:
    """The arm whose rate this one has: PODS is tuned at 64 → 16, GRPO at 16 and, from 32 rollouts on, at 64.

    Example:
        >>> tuned_size(256, 16), tuned_size(64, 4), tuned_size(16, 16), tuned_size(128, 128)
        ((64, 16), (64, 16), (16, 16), (64, 64))
    """
    if num_rollouts != num_kept:
        return REFERENCE
    return (64, 64) if num_rollouts >= 32 else (16, 16)


def tuning_runs(cell: Cell, tuning: Log) -> tuple[float, tuple[Cell, Limits] | None]:
    """The best learning rate of the cell's arm so far, and the run that has to be made to go on; None: it is known.

    It is tuned for every start, KL weight and number of digits by itself: what is best at one start is not at another.
    """
    n, m = tuned_size(cell.num_rollouts, cell.num_kept)
    own = replace(cell, num_rollouts=n, num_kept=m, more=TUNED_AS.get(cell.more, cell.more))
    known = RATES_OF.get((cell.start, cell.kl, cell.digits), {}).get((n, m))
    if known is not None and not own.more:
        return known, None
    found, run = best_rate(
        lambda rate, seed: replace(own, seed=seed, rate=rate), RATES, tuning, ACCURACY, MOST_TUNING_STEPS
    )
    return found, run and (run[0], Limits(accuracy=ACCURACY, steps=run[1], cpu_seconds=MOST_SECONDS))


def limits(cell: Cell, log: Log, tuning: Log) -> Limits:
    """When the cell is given up: after `PATIENCE` times the seconds of the reference with the same seed."""
    n, m = REFERENCE
    reference = replace(cell, num_rollouts=n, num_kept=m, more=())
    reference = replace(reference, rate=tuning_runs(reference, tuning)[0])
    seconds = MOST_SECONDS
    if cell != reference and reference.key in log.records:
        found = log.records[reference.key]["reached"][f"{ACCURACY:g}"]
        seconds = PATIENCE * found["cpu_seconds"] if found else MOST_SECONDS
    return Limits(cpu_seconds=round(min(max(seconds, LEAST_SECONDS), MOST_SECONDS), 4))


def plan_of(cells: Sequence[Cell]) -> Plan[Cell]:
    """Each arm at its own rate, given up by the seconds of the reference."""
    return Plan(runs=cells, tuned=tuning_runs, limits=limits)

"""How seconds are measured: two clocks, arms that take turns, ratios within a round, spreads."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch

Say = Callable[[str], None]
"""Shows what is being measured."""
Spread = dict[str, float]
"""{"min", "median", "max"}."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Taken:
    """How long one run took."""

    seconds: float = 0.0
    """Wall-clock."""
    cpu_seconds: float = 0.0
    """Processor time of this process: what `seconds` would be on an idle core."""


class Clock:
    """Starts when it is made."""

    def __init__(self) -> None:
        self._start, self._cpu_start = time.perf_counter(), time.process_time()

    def read(self) -> Taken:
        """Seconds since the start."""
        return Taken(time.perf_counter() - self._start, time.process_time() - self._cpu_start)


def take_turns(arms: Mapping[str, Callable[[int], T]], rounds: int, say: Say = lambda text: None) -> dict[str, list[T]]:
    """Run every arm, a function of the round's number, once per round; no arm always follows the same one.

    Example:
        >>> order = []
        >>> _ = take_turns({"a": lambda i: order.append("a"), "b": lambda i: order.append("b")}, 2)
        >>> "".join(order)
        'abba'
    """
    names = list(arms)
    found: dict[str, list[T]] = {name: [] for name in names}
    gc.collect()
    gc.freeze()  # so that the collections below look at new objects only
    try:
        for number in range(rounds):
            turn = number % len(names)
            for name in (*names[turn:], *names[:turn]):
                say(f"round {number + 1} of {rounds}, {name}")
                gc.collect()  # an arm does not pay for the garbage of another
                found[name].append(arms[name](number))
    finally:
        gc.unfreeze()
    return found


def titled(say: Say, title: str) -> Say:
    """Show the title before each text."""
    return lambda text: say(f"{title}, {text}")


def spread(values: Sequence[float]) -> Spread:
    """Lowest, median and highest.

    Example:
        >>> spread([4.0, 1.0, 2.0])
        {'min': 1.0, 'median': 2.0, 'max': 4.0}
    """
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """The spread of the ratios within each round, ours over theirs.

    Example:
        >>> ratios([6.0, 8.0, 9.0], [2.0, 4.0, 1.0])
        {'min': 2.0, 'median': 3.0, 'max': 9.0}
    """
    return spread([a / b for a, b in zip(ours, theirs, strict=True)])


def spread_text(spread: Mapping[str, float], form: str = ".2f") -> str:
    """Median (lowest … highest).

    Example:
        >>> spread_text({"min": 1.0, "median": 2.0, "max": 4.0}, ".1f")
        '2.0 (1.0 … 4.0)'
    """
    return f"{spread['median']:{form}} ({spread['min']:{form}} … {spread['max']:{form}})"


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch has one thread inside, and as many as before afterwards."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def wait_for(device: str) -> None:
    """Return when the device has done what it was given."""
    if device == "cuda":
        torch.cuda.synchronize()

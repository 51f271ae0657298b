"""Global grouping: which rollouts share a slot, decided for all of them at once from predicted lengths.

The published text names an FPTAS without its objective and its precision; both are chosen here. The objective is the
makespan: the most tokens that any of g slots has to make. The method is a dual search: guess the makespan T, fill one
slot after the other as close to T as some set of jobs comes, and see whether g slots hold all. How close a set comes is
the subset-sum problem, which has an FPTAS (Ibarra and Kim 1975): lengths are rounded to a grid, and all reachable sums
are the bits of one integer. The makespan itself has an FPTAS only for a fixed number of slots (Sahni 1976), with time
exponential in it; for g in the input none exists unless P = NP.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapreplace
from itertools import accumulate

from podsrl.errors import UsageError

Partition = list[list[int]]


def partition(lengths: Sequence[float], num_slots: int, epsilon: float = 0.005) -> Partition:
    """Divide jobs of `lengths` tokens over g slots so that the fullest slot is short; places, longest first, per slot.

    Guarantee: never worse than longest-first (`lpt`), so at most 4/3 - 1/(3g) of the least makespan; each slot of an
    accepted guess T holds the longest job left and, beside it, a set that `fullest` found, at most (1 + epsilon) T in
    all. T is searched between the bound max(sum / g, longest) and longest-first's makespan, until accepted and rejected
    guesses are within a factor of (1 + epsilon). Time is O(g n^2 / epsilon) bit operations per guess, many at once,
    with at most log2(1 / (3 epsilon)) + 2 guesses.

    UsageError: a length that is not above 0, no slot, or epsilon outside of (0, 1).

    Example:
        >>> partition([3, 3, 2, 2, 2], 2), lpt([3, 3, 2, 2, 2], 2)
        ([[0, 1], [2, 3, 4]], [[0, 2, 4], [1, 3]])
    """
    if num_slots < 1 or not 0 < epsilon < 1 or any(length <= 0 for length in lengths):
        raise UsageError("partition: wanted lengths above 0, num_slots of at least 1 and epsilon in (0, 1)")
    best = lpt(lengths, num_slots)
    if not lengths:
        return best
    low, high = max(max(lengths), sum(lengths) / num_slots), makespan(lengths, best)
    guess = low  # the bound itself is often reached
    while high > (1 + epsilon) * low:
        found = _fill(lengths, num_slots, guess, epsilon)
        if found is None:
            low = guess
        else:
            high = guess
            best = min(best, found, key=lambda slots: makespan(lengths, slots))
        guess = (low + high) / 2
    return best


def lpt(lengths: Sequence[float], num_slots: int) -> Partition:
    """Longest first, each onto the slot with the least so far (Graham 1969).

    Example:
        >>> lpt([5, 4, 3], 2)
        [[0], [1, 2]]
    """
    slots: Partition = [[] for _ in range(num_slots)]
    loads = [(0.0, slot) for slot in range(num_slots)]
    for place in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
        load, slot = loads[0]
        slots[slot].append(place)
        heapreplace(loads, (load + lengths[place], slot))
    return slots


def makespan(lengths: Sequence[float], slots: Partition) -> float:
    """Tokens of the fullest slot.

    Example:
        >>> makespan([5, 4, 3], [[0], [1, 2]])
        7
    """
    return max(sum(lengths[place] for place in slot) for slot in slots)


def fullest(lengths: Sequence[float], capacity: float, epsilon: float) -> list[int]:
    """Find jobs whose lengths add up to nearly the capacity: the FPTAS of subset sum, in its dual form.

    The places are in descending order. Their sum is at most (1 + epsilon) * capacity, and no set that keeps within the
    capacity has a sum larger by epsilon * capacity or more. Jobs at the end of the list are preferred.

    Example:
        >>> fullest([4, 6, 5], 9.5, 0.01)
        [2, 0]
    """
    limit = (1 + epsilon) * capacity
    most = sum(total <= limit for total in accumulate(sorted(lengths)))
    if most == 0:
        return []
    grid = epsilon * capacity / most  # no set has more than `most` jobs, and each is rounded up by less than a step
    units = [-int(-length // grid) for length in lengths]
    mask = (1 << int(limit / grid) + 1) - 1
    reachable = [1]  # bit s of entry i: some of the first i jobs add up to s steps
    for unit in units:
        reachable.append((reachable[-1] | reachable[-1] << unit) & mask)
    return _trace_back(units, reachable)


def _trace_back(units: Sequence[int], reachable: Sequence[int]) -> list[int]:
    total, chosen = reachable[-1].bit_length() - 1, []
    for place in reversed(range(len(units))):
        if units[place] <= total and reachable[place] >> (total - units[place]) & 1:
            chosen.append(place)
            total -= units[place]
    return chosen


def _fill(lengths: Sequence[float], num_slots: int, capacity: float, epsilon: float) -> Partition | None:
    """Fill slots one after the other, each with the longest job left and what fits best beside it; None: too full."""
    left = sorted(range(len(lengths)), key=lambda place: -lengths[place])[::-1]  # the longest is the last
    slots: Partition = []
    for _ in range(num_slots):
        slot = [left.pop()] if left else []
        room = capacity - sum(lengths[place] for place in slot)
        taken = fullest([lengths[place] for place in left], room, epsilon)
        slot += [left[i] for i in taken]
        for i in taken:
            del left[i]
        slots.append(slot)
    return None if left else slots

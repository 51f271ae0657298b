"""Two-number addition: a task set that needs no download, and the two kinds of solution that the base model learns.

Training tasks are made on demand, because three digits have 810,000 pairs.

Why two kinds of solution: reinforcement learning with verifiable rewards mostly raises the probability of what the base
model can already do. A base model pretrained on a mixture of careful solutions (column addition, right) and careless
ones (a guess, wrong) samples both strategies: it starts at an accuracy near the careful share, nearly every group of
rollouts has right and wrong answers, and training can show in minutes how it moves from one strategy to the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from podsrl.errors import UsageError
from podsrl.tasks.base import TaskSet, TasksOnDemand
from podsrl.tasks.split import MOST_HELD_OUT
from podsrl.types import Task

_EVAL_SEED = 20_240_817
"""Fixed: runs with different seeds are evaluated on the same questions."""
MIXED_TRAIN, MIXED_EVAL = 216, 27
"""Most questions of each number of digits in a mixed set. Their ratio is that of all one-digit questions, 72 to 9, so
that training and held-out questions are composed alike."""


def addition_task(a: int, b: int) -> Task:
    """The question for one pair.

    Example:
        >>> addition_task(47, 85)
        Task(id='47+85', prompt='What is 47 + 85?\\n', answer='132', columns=mappingproxy({}))
    """
    return Task(id=f"{a}+{b}", prompt=f"What is {a} + {b}?\n", answer=str(a + b))


def load_arithmetic(*, digits: int | Sequence[int], num_eval: int | None) -> TaskSet:
    """Load sums of two numbers with equally many digits, 1 .. 3; one digit means 1 .. 9.

    One number of digits: all 81, 8,100 or 810,000 questions. 9, 1,020 or 101,520 of them can be held out; `num_eval`
    are, by default `MOST_HELD_OUT`, or all 9.

    Several: a mixed set with at most `MIXED_TRAIN` questions of each to train on and `MIXED_EVAL` held out. Three-digit
    sums are 99 % of all, so a set of all of them would hold little else; and a budget that remembers questions learns
    nothing about those it meets once. One-digit sums have only 72 and 9 questions, so the set of 1, 2 and 3 digits has
    504 + 63, a seventh of one digit and three sevenths each of two and three.

    The held-out questions do not depend on a run's seed, and a smaller number is a prefix of a larger one. A pair and
    its mirror image (47+85 and 85+47) are always on the same side. UsageError: `digits` or `num_eval` is out of range.

    Example:
        >>> tasks = load_arithmetic(digits=2, num_eval=256)
        >>> len(tasks.train), len(tasks.eval)
        (7080, 256)
        >>> tasks = load_arithmetic(digits=[1, 2, 3], num_eval=None)
        >>> len(tasks.train), len(tasks.eval), tasks.name
        (504, 63, 'arithmetic, digits = [1, 2, 3]')
    """
    several = [digits] if isinstance(digits, int) else sorted(set(digits))
    if not several:
        raise UsageError("task.digits = []; wanted at least one of 1, 2, 3")
    splits = [split_pairs(each) for each in several]
    if len(several) > 1:
        splits = [(_shuffled(train)[:MIXED_TRAIN], _shuffled(held_out)[:MIXED_EVAL]) for train, held_out in splits]
    train, held_out = (np.concatenate(parts) for parts in zip(*splits, strict=True))
    shown = several if len(several) > 1 else several[0]
    if num_eval is None:
        num_eval = min(MOST_HELD_OUT, len(held_out))
    if not 1 <= num_eval <= len(held_out):
        raise UsageError(
            f"task.num_eval = {num_eval}; sums with task.digits = {shown} have {len(held_out)} held-out questions: "
            f"choose 1 .. {len(held_out)}" + (", or raise task.digits" if several[-1] < 3 else "")
        )
    drawn = _shuffled(held_out)[:num_eval]
    return TaskSet(
        name=f"arithmetic, digits = {shown}",
        train=TasksOnDemand(range(len(train)), lambda place: addition_task(*train[place].tolist())),
        eval=tuple(addition_task(a, b) for a, b in drawn.tolist()),
    )


def num_digits(task: Task) -> int:
    """Digits of each addend of an addition.

    Example:
        >>> num_digits(addition_task(47, 85))
        2
    """
    return len(task.id.partition("+")[0])


def _shuffled(pairs: NDArray[np.int32]) -> NDArray[np.int32]:
    """The same order every time, as the evaluation questions of a run do not depend on its seed."""
    return pairs[np.random.Generator(np.random.PCG64(_EVAL_SEED)).permutation(len(pairs))]


@lru_cache(maxsize=3)
def split_pairs(digits: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Split all ordered pairs of addends of `digits` digits (1 .. 3) into those for training and those held out.

    Two read-only arrays [N, 2], int32, ascending; about one pair in eight is held out. UsageError: other `digits`.

    Example:
        >>> [len(pairs) for pairs in split_pairs(1)]
        [72, 9]
    """
    if digits not in (1, 2, 3):
        raise UsageError(f"task.digits = {digits}; wanted 1, 2 or 3")
    addends = np.arange(10 ** (digits - 1), 10**digits, dtype=np.int32)
    pairs = np.stack(np.meshgrid(addends, addends, indexing="ij"), axis=-1).reshape(-1, 2)
    held_out = _is_held_out(pairs)
    split = pairs[~held_out], pairs[held_out]
    for side in split:
        side.flags.writeable = False
    return split


def _is_held_out(pairs: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Hash each unordered pair with SplitMix64 (Steele, Lea, Flood 2014) and hold out the hashes divisible by eight.

    A hash of the numbers themselves keeps the split the same on every machine, Python and numpy version.
    """
    state = (pairs.min(axis=1).astype(np.uint64) * np.uint64(1000)) + pairs.max(axis=1).astype(np.uint64)
    state = state + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    held_out: NDArray[np.bool_] = (state ^ (state >> np.uint64(31))) % np.uint64(8) == 0
    return held_out


def careful_solution(a: int, b: int) -> str:
    """Add two numbers with equally many digits in writing: from the units, each carry as "+1", then the answer.

    Example:
        >>> careful_solution(47, 85)
        '7+5=12 4+8+1=13 Answer: 132.'
    """
    _check_addends(a, b)
    steps, carry = [], 0
    for x, y in zip(reversed(str(a)), reversed(str(b)), strict=True):
        total = int(x) + int(y) + carry
        steps.append(f"{x}+{y}{'+1' if carry else ''}={total}")
        carry = total // 10
    return f"{' '.join(steps)} Answer: {a + b}."


def worked_solution(task: Task) -> str:
    """The careful solution of an addition, for parts that show one.

    Example:
        >>> worked_solution(addition_task(47, 85))
        '7+5=12 4+8+1=13 Answer: 132.'
    """
    a, _, b = task.id.partition("+")
    return careful_solution(int(a), int(b))


def repair(task: Task, answer: str) -> tuple[int, str] | None:
    """The place where an answer's first word differs from the careful solution's, and the rest of that; None: the first
    word does, or none.

    Example:
        >>> repair(addition_task(47, 85), "7+5=12 4+8+1=12 Answer: 122.")
        (7, '4+8+1=13 Answer: 132.')
    """
    right, words = worked_solution(task).split(" "), answer.split(" ")
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(right, words, strict=False)))
    if not same or same in (len(words), len(right)):
        return None
    return len(" ".join(words[:same])) + 1, " ".join(right[same:])


def right_steps(task: Task, answer: str) -> float:
    """The share of the careful solution's steps, its words before "Answer:", that an answer has in its place, 0 .. 1.

    Example:
        >>> right_steps(addition_task(47, 85), "7+5=12 4+8+1=12 Answer: 132.")
        0.5
    """
    right, _, _ = worked_solution(task).partition(" Answer:")
    pairs = list(zip(right.split(" "), [*answer.split(" "), *[""] * len(right)], strict=False))
    return sum(one == other for one, other in pairs) / len(pairs)


def first_words(task: Task) -> list[str]:
    """Two hints at an addition: the first word of its careful solution, and the first two.

    Example:
        >>> first_words(addition_task(47, 85))
        ['7+5=12', '7+5=12 4+8+1=13']
    """
    words = worked_solution(task).split()
    return [words[0], " ".join(words[:2])]


def careless_solution(a: int, b: int, rng: np.random.Generator) -> str:
    """A guess: a wrong answer, uniformly drawn from the plausible ones.

    Plausible are the sums that two numbers of as many digits can have, with as many digits as the true sum: for 47 + 85
    one of 100 .. 198 but not 132. So the guess looks like an answer, but says nothing about the right one. One number
    is drawn from `rng`.

    Example:
        >>> careless_solution(47, 85, np.random.default_rng(0))
        'Answer: 184.'
    """
    _check_addends(a, b)
    total, ten = a + b, 10 ** len(str(a))  # the first number with one digit more
    low, high = (ten // 5, ten - 1) if total < ten else (ten, 2 * ten - 2)
    guess = int(rng.integers(low, high))  # one fewer than low .. high: the true sum is skipped
    return f"Answer: {guess + (guess >= total)}."


def _check_addends(a: int, b: int) -> None:
    if min(a, b) < 1 or len(str(a)) != len(str(b)):
        raise UsageError(f"addends {a} and {b}; wanted two numbers from 1 up with equally many digits")

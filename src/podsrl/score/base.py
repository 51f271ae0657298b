"""The seam of the score stage: what a reward function is, its input `Rows`, and its result `Values`.

A row's result is a number or a `Fault`. A fault is data: it makes its rollout invalid and never stops a run. Only what
breaks a whole batch stops it (`podsrl.errors.RewardError`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from numbers import Real
from typing import Literal

from podsrl.errors import cut, one_line
from podsrl.lib.user_function import reason_of
from podsrl.types import Task

RowReward = Callable[[Task, str], float]
"""`f(task, completion_text) -> float`."""

BatchReward = Callable[..., Sequence[float | None]]
"""TRL's `f(prompts, completions, **columns) -> list[float]`; see `podsrl.score.forms`."""

Reward = RowReward | BatchReward
"""A plain callable of either form."""

WANTED = "f(task, completion_text) -> float or f(prompts, completions, **columns) -> list[float]"
"""Both forms, for messages."""


TIME_LIMIT = ContextVar("TIME_LIMIT", default=math.inf)
"""In a worker: the seconds that a call may take. A reward of programs ends within them, with what has passed so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A flat batch: row i is one completion, with the task it answers."""

    tasks: Sequence[Task]
    texts: Sequence[str]
    """Completions, decoded without special tokens."""
    token_ids: Sequence[Sequence[int]]
    """The same completions as they were generated."""

    def __len__(self) -> int:
        return len(self.texts)

    def part(self, place: slice) -> Rows:
        """Give the batch that holds these rows only."""
        return Rows(tasks=self.tasks[place], texts=self.texts[place], token_ids=self.token_ids[place])


FaultKind = Literal["raised", "none", "not_finite", "not_a_number", "not_a_text", "timeout", "died", "exhausted"]
"""not_a_text: an environment gave no text; exhausted: it ran out of memory or of recursion depth; died: the worker
process that called it ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Why one row has no usable value."""

    kind: FaultKind
    reason: str
    """One sentence that names the function."""
    is_hurried: bool = False
    """Whether it broke a time limit that was lowered, because other time-outs had used up the step's seconds."""

    def on(self, text: str) -> str:
        """The reason, the completion that it is about, shortened, and the cure where the function is to blame."""
        is_own = self.kind in ("raised", "none", "not_finite")
        return f"{self.reason}, on {cut(text, 80)!r}{f': {CURE}' if is_own else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """The results of one reward function for a batch."""

    values: list[float]
    """One per row; NaN where there is a fault."""
    faults: dict[int, Fault]
    """Row -> why it has no value."""
    stopped: dict[int, Fault] = field(default_factory=dict)
    """Row -> why judging it was stopped, where that counts as a wrong answer: its value is 0, or the share of a
    program's tests that had passed."""
    seconds: list[float] = field(default_factory=list, compare=False)
    """Of each row, where they were measured; the mean of a call where it judged several rows."""


CURE = "it must return a number for any text, such as 0 for a wrong answer"
_MAX_REASON, _MAX_SHOWN = 500, 60
"""Characters of an exception's description, and of a value or a type's name, that are kept."""

Judge = Callable[[Rows], Values]
"""A reward function of either form, bound to its name."""


def collect(outcomes: Sequence[float | Fault]) -> Values:
    """Separate numbers from faults.

    Example:
        >>> collect([0.5, Fault(kind="none", reason="none there")]).values
        [0.5, nan]
    """
    return Values(
        values=[math.nan if isinstance(outcome, Fault) else outcome for outcome in outcomes],
        faults={row: outcome for row, outcome in enumerate(outcomes) if isinstance(outcome, Fault)},
    )


def fault_of(name: str, error: BaseException, what: str = "reward") -> Fault:
    """Describe an exception that the function `name`, such as a reward, raised, with its place in the user's code.

    The message of some exceptions holds the whole completion, and metrics hold the reason: a long one is cut.
    KeyboardInterrupt is Ctrl-C and no function's fault: it is raised again.

    Example:
        >>> fault_of("mine", ZeroDivisionError("division by zero")).reason
        "reward 'mine' raised ZeroDivisionError: division by zero"
    """
    if isinstance(error, KeyboardInterrupt):
        raise error
    kind: FaultKind = "exhausted" if isinstance(error, (MemoryError, RecursionError)) else "raised"
    return Fault(kind=kind, reason=f"{what} '{name}' raised {one_line(reason_of(error, with_code=True), _MAX_REASON)}")


def read_value(name: str, value: object, what: str = "reward") -> float | Fault:
    """Turn what `name` returned for one row (a number, or a numpy or torch scalar) into a finite number, or a fault.

    Example:
        >>> read_value("mine", True), read_value("mine", None).reason
        (1.0, "reward 'mine' returned None")
    """
    if type(value) is float and math.isfinite(value):  # the usual case first: this runs for every rollout
        return value
    if value is None:
        return Fault(kind="none", reason=f"{what} '{name}' returned None")
    try:
        return _read_number(name, value, what)
    except BaseException as error:  # a user's object may raise anything
        fault = fault_of(name, error, what)
        return Fault(kind=fault.kind, reason=f"{fault.reason} (when its value was read)")


def _read_number(name: str, value: object, what: str) -> float | Fault:
    item = getattr(value, "item", None)  # of a numpy or torch scalar
    number = item() if callable(item) and getattr(value, "shape", None) == () else value
    if not isinstance(number, Real):
        reason = f"{what} '{name}' returned {_cut(repr(value))} ({_type_name(value)}), not a number"
        return Fault(kind="not_a_number", reason=reason)
    try:
        number = float(number)
    except OverflowError:  # a whole number beyond the largest float
        number = math.inf
    if not math.isfinite(number):
        return Fault(kind="not_finite", reason=f"{what} '{name}' returned {number}, not a finite number")
    return number


def _type_name(value: object) -> str:
    return _cut(type.__dict__["__name__"].__get__(type(value)))  # a user's metaclass may answer anything


def _cut(text: str) -> str:
    text = str.__str__(text)  # a plain `str`, not a user's subclass
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 3]}..."

"""The seam of the score stage: what a reward function is, what it is given, and what its answers become.

Goes in: a flat batch of rows (`Rows`). Comes out: `Values`, for each row a number or a `Fault`. A fault is data: it
makes its rollout invalid and never stops a run. What breaks a whole batch (`podsrl.errors.RewardError`) does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Literal

from podsrl.types import Task

RowReward = Callable[[Task, str], float]
"""`f(task, completion_text) -> float`."""

BatchReward = Callable[..., Sequence[float | None]]
"""TRL's `f(prompts, completions, **columns) -> list[float]`; see `podsrl.score.batch_form`."""

Reward = RowReward | BatchReward
"""A plain callable of either form."""


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

    def row(self, index: int) -> Rows:
        """Give the batch that holds one row only."""
        one = slice(index, index + 1)
        return Rows(tasks=self.tasks[one], texts=self.texts[one], token_ids=self.token_ids[one])


FaultKind = Literal["raised", "none", "not_finite", "not_a_number", "timeout", "died", "exhausted"]
"""exhausted: memory, or the depth of recursion. died: the worker process that judged it ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Why one row has no usable value."""

    kind: FaultKind
    reason: str
    """One sentence that names the reward function."""
    is_hurried: bool = False
    """Whether the time limit that it broke had been lowered, because other time-outs had used up the step's seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """What one reward function says about a batch."""

    values: list[float]
    """One a row; NaN where there is a fault."""
    faults: dict[int, Fault]
    """Row -> why it has no value."""
    stopped: dict[int, Fault] = field(default_factory=dict)
    """Row -> why it was not judged to the end, where that counts as a wrong answer: its value is 0."""


_MAX_MESSAGE, _MAX_SHOWN = 500, 60
"""Characters of an exception's message, and of a value or a type's name, that are kept."""

Judge = Callable[[Rows], Values]
"""A reward function of either form, bound to its name."""


def collect(outcomes: Sequence[float | Fault]) -> Values:
    """Part numbers from faults.

    Example:
        >>> collect([0.5, Fault(kind="none", reason="none there")]).values
        [0.5, nan]
    """
    return Values(
        values=[math.nan if isinstance(outcome, Fault) else outcome for outcome in outcomes],
        faults={row: outcome for row, outcome in enumerate(outcomes) if isinstance(outcome, Fault)},
    )


def fault_of(name: str, error: BaseException) -> Fault:
    """Describe an exception that the reward function `name` raised.

    Example:
        >>> fault_of("mine", ZeroDivisionError("division by zero")).reason
        "reward 'mine' raised ZeroDivisionError: division by zero"
    """
    kind: FaultKind = "exhausted" if isinstance(error, (MemoryError, RecursionError)) else "raised"
    return Fault(kind=kind, reason=f"reward '{name}' raised {_type_name(error)}: {_message(error)}")


def read_value(name: str, value: object) -> float | Fault:
    """Turn what a reward function returned for one row into a number.

    Args:
        name: of the function, for the message.
        value: float, int, bool, or a numpy or torch scalar.

    Returns:
        The finite number, or the fault: None, not finite, not a number, or an object that raises when it is read.

    Example:
        >>> read_value("mine", True), read_value("mine", None).reason
        (1.0, "reward 'mine' returned None")
    """
    if type(value) is float and math.isfinite(value):  # the usual case first: this runs for every rollout
        return value
    if value is None:
        return Fault(kind="none", reason=f"reward '{name}' returned None")
    try:
        return _read_number(name, value)
    except BaseException as error:  # an object of the user's may raise anything from anywhere
        fault = fault_of(name, error)
        return Fault(kind=fault.kind, reason=f"{fault.reason} (when its value was read)")


def _read_number(name: str, value: object) -> float | Fault:
    number = _unwrap_scalar(value)
    if not isinstance(number, Real):
        reason = f"reward '{name}' returned {_cut(repr(value))} ({_type_name(value)}), not a number"
        return Fault(kind="not_a_number", reason=reason)
    try:
        number = float(number)
    except OverflowError:  # a whole number beyond the largest float
        number = math.inf
    if not math.isfinite(number):
        return Fault(kind="not_finite", reason=f"reward '{name}' returned {number}, not a finite number")
    return number


def _message(error: BaseException) -> str:
    """A bounded part: some hold the whole completion, and the reason goes into every step's metrics."""
    try:
        return _cut(str(error), _MAX_MESSAGE)
    except BaseException:  # what a user's own class does there
        return "its message cannot be read"


def _unwrap_scalar(value: object) -> object:
    """Give the Python number inside a numpy or torch scalar; anything else as it is."""
    item = getattr(value, "item", None)
    return item() if callable(item) and getattr(value, "shape", None) == () else value


def _type_name(value: object) -> str:
    return _cut(type.__dict__["__name__"].__get__(type(value)))  # a user's metaclass may answer anything


def _cut(text: str, length: int = _MAX_SHOWN) -> str:
    text = str.__str__(text)  # a subclass of a user's is left behind
    return text if len(text) <= length else f"{text[: length - 3]}..."

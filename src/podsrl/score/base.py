"""The seam of the score stage: what a reward function is, what it is given, and what its answers become.

Goes in: a flat batch of rows (`Rows`). Comes out: `Values`, for each row a number or a `Fault`. A fault is data: it
makes its rollout invalid and never stops a run. What breaks a whole batch (`podsrl.errors.RewardError`) does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Why one row has no usable value."""

    kind: Literal["raised", "none", "not_finite", "not_a_number", "timeout", "died"]
    reason: str
    """One sentence that names the reward function."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """What one reward function says about a batch."""

    values: list[float]
    """One a row; NaN where there is a fault."""
    faults: dict[int, Fault]
    """Row -> why it has no value."""


_MAX_MESSAGE = 500
"""Characters of an exception's message that are kept."""

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


def fault_of(name: str, error: Exception) -> Fault:
    """Describe an exception that the reward function `name` raised.

    Example:
        >>> fault_of("mine", ZeroDivisionError("division by zero")).reason
        "reward 'mine' raised ZeroDivisionError: division by zero"
    """
    return Fault(kind="raised", reason=f"reward '{name}' raised {type(error).__name__}: {_message(error)}")


def read_value(name: str, value: object) -> float | Fault:
    """Turn what a reward function returned for one row into a number.

    Args:
        name: of the function, for the message.
        value: float, int, bool, or a numpy or torch scalar.

    Returns:
        The finite number, or the fault: None, not finite, or not a number.

    Example:
        >>> read_value("mine", True), read_value("mine", None)
        (1.0, Fault(kind='none', reason="reward 'mine' returned None"))
    """
    if type(value) is float and math.isfinite(value):  # the usual case first: this runs for every rollout
        return value
    if value is None:
        return Fault(kind="none", reason=f"reward '{name}' returned None")
    number = _unwrap_scalar(value)
    if not isinstance(number, Real):
        reason = f"reward '{name}' returned {_shown(value)} ({type(value).__name__}), not a number"
        return Fault(kind="not_a_number", reason=reason)
    try:
        number = float(number)
    except OverflowError:  # a whole number beyond the largest float
        number = math.inf
    if not math.isfinite(number):
        return Fault(kind="not_finite", reason=f"reward '{name}' returned {number}, not a finite number")
    return number


def _message(error: Exception) -> str:
    """A bounded part: some hold the whole completion, and the reason goes into every step's metrics."""
    try:
        text = str(error)
    except Exception:  # what a user's own class does there
        return "its message cannot be read"
    return text if len(text) <= _MAX_MESSAGE else f"{text[: _MAX_MESSAGE - 3]}..."


def _unwrap_scalar(value: object) -> object:
    """Give the Python number inside a numpy or torch scalar; anything else as it is."""
    item = getattr(value, "item", None)
    return item() if callable(item) and getattr(value, "shape", None) == () else value


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."

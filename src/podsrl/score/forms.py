"""Tells the two forms of reward functions apart and puts both behind one call: `Rows -> Values`.

Goes in: a plain callable. Comes out: `RowForm` or `BatchForm`, by the callable's signature. Left out on purpose:
asynchronous functions, and time limits (`podsrl.score.workers` and `podsrl.score.batch_worker` keep them).
"""

from __future__ import annotations

import inspect
from typing import cast

from podsrl.errors import UsageError
from podsrl.score.base import BatchReward, Fault, Reward, RowReward, Rows, Values, collect, fault_of, read_value
from podsrl.score.batch_form import BATCH_ARGUMENTS, BatchForm
from podsrl.score.guard import Guard
from podsrl.types import Task

_WANTED = "wanted f(task, completion_text) -> float or f(prompts, completions, **columns) -> list[float]"


def judge_of(name: str, function: Reward, *, guard: type[Guard] = Guard) -> RowForm | BatchForm:
    """Bind a reward function to its form.

    A function with a parameter named `prompts`, `completions` or `completion_ids` has TRL's form, any other the row
    form.

    Args:
        name: of the function, for messages.
        function: a function, lambda, partial, or object with `__call__`; not a class, not asynchronous.
        guard: what surrounds its calls.

    Raises:
        UsageError: it is no such thing, or its signature fits neither form.

    Example:
        >>> task = Task(id="a", prompt="1+2=", answer="3")
        >>> judge = judge_of("short", lambda completions: [1 / len(text) for text in completions])
        >>> judge(Rows(tasks=[task, task], texts=["3", "three"], token_ids=[[3], [4, 5]])).values
        [1.0, 0.2]
    """
    signature = _signature_of(name, function)
    if BATCH_ARGUMENTS & signature.parameters.keys():
        return BatchForm(name, cast(BatchReward, function), signature, guard=guard)
    try:
        signature.bind(None, "")
    except TypeError as error:
        raise UsageError(f"reward '{name}' takes {signature} ({error}); {_WANTED}") from error
    return RowForm(name, cast(RowReward, function), guard=guard)


def _signature_of(name: str, function: Reward) -> inspect.Signature:
    if not callable(function) or isinstance(function, type):
        kind = "is a class" if isinstance(function, type) else f"has the type {type(function).__name__}"
        raise UsageError(f"reward '{name}' {kind}, not a function; {_WANTED}")
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
        raise UsageError(f"reward '{name}' is asynchronous (async def), which is not supported; {_WANTED}")
    try:
        return inspect.signature(function)
    except ValueError as error:  # some functions written in C
        raise UsageError(f"reward '{name}': {error}; wrap it in a Python function; {_WANTED}") from error


class RowForm:
    """`f(task, completion_text) -> float`, called once per row. Whatever a call raises makes its own row faulty."""

    def __init__(self, name: str, function: RowReward, *, guard: type[Guard] = Guard) -> None:
        self._name, self._function, self._guard = name, function, guard

    def __call__(self, rows: Rows) -> Values:
        with self._guard() as guard:
            return collect([self._outcome(guard, *row) for row in zip(rows.tasks, rows.texts, strict=True)])

    def _outcome(self, guard: Guard, task: Task, text: str) -> float | Fault:
        try:
            value = self._function(task, text)
        except BaseException as error:  # SystemExit too
            guard.check()
            return fault_of(self._name, error)
        return read_value(self._name, value)

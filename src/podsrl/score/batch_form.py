"""Reward functions of TRL's form, `f(prompts, completions, **columns) -> list[float]`, called by name once per batch.

Such a function is given, where its signature names them or has `**kwargs`, these lists with one item per row:

    prompts          text, or a list of chat messages
    completions      text for a text prompt, [{"role": "assistant", "content": text}] for messages
    completion_ids   list of token ids
    id, answer       of the task; a data set's own column of that name goes first
    ...              every column of the data set; None where only other tasks of the batch have it
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from typing import Any

from podsrl.errors import RewardError, UsageError, nearest
from podsrl.score.base import BatchReward, Rows, Values, collect, fault_of, read_value
from podsrl.score.guard import Guard
from podsrl.types import Task

BATCH_ARGUMENTS = frozenset({"prompts", "completions", "completion_ids"})
"""A function with a parameter of one of these names has TRL's form."""


class BatchForm:
    """A function of TRL's form as `Rows -> Values`.

    Where the call raises, it is repeated row by row, so that only the bad rows are invalid.

    Raises:
        UsageError: at construction, for a parameter that cannot be given by keyword.
        RewardError: when called, if the function wants a column that no task has, or returns anything but a list of the
            batch's length.

    Example: see `podsrl.score.forms.judge_of`.
    """

    def __init__(
        self, name: str, function: BatchReward, signature: inspect.Signature, *, guard: type[Guard] = Guard
    ) -> None:
        parameters = signature.parameters.values()
        if refused := [p.name for p in parameters if p.kind is p.POSITIONAL_ONLY]:
            raise UsageError(
                f"reward '{name}' takes {refused} by position only, but is called by keyword: remove the '/'"
            )
        self._name, self._function, self._guard = name, function, guard
        # What a partial has bound is not overwritten by a column of the same name.
        self._bound = set(function.keywords) if isinstance(function, functools.partial) else set()
        named = {p.name: p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        self._named = named.keys() - self._bound
        self._required = {key for key in self._named if named[key].default is inspect.Parameter.empty}
        self._takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)

    def __call__(self, rows: Rows) -> Values:
        if len(rows) == 0:
            return collect([])
        arguments = self._arguments(rows)
        with self._guard() as guard:
            try:
                returned = _items(self._function(**arguments))
            except BaseException as error:  # SystemExit too
                guard.check()
                failure = fault_of(self._name, error)
            else:
                return collect([read_value(self._name, value) for value in self._checked(returned, len(rows))])
        if len(rows) == 1:
            return collect([failure])
        return _joined([self(rows.row(index)) for index in range(len(rows))])

    def check(self, rows: Rows) -> None:
        """Look whether the function can be called with these rows.

        Raises:
            RewardError: it wants a column that no task has.
        """
        known = self._known(rows)
        if missing := sorted(self._required - known):
            hint = nearest(missing[0], known)
            raise RewardError(f"reward '{self._name}' needs {missing}, but task '{rows.tasks[0].id}' has none.{hint}")

    def reads(self, name: str) -> bool:
        """Say whether the function is given an argument of this name, where there is one."""
        return name not in self._bound if self._takes_all else name in self._named

    def _known(self, rows: Rows) -> set[str]:
        distinct_tasks = {id(task): task for task in rows.tasks}.values()
        return {*BATCH_ARGUMENTS, "id", "answer", *(column for task in distinct_tasks for column in task.columns)}

    def _arguments(self, rows: Rows) -> dict[str, list[Any]]:
        self.check(rows)
        return {name: _argument(name, rows) for name in self._known(rows) if self.reads(name)}

    def _checked(self, returned: list[Any] | str, num_rows: int) -> list[Any]:
        wanted = f"wanted a list of {num_rows} numbers, one for each completion"
        if isinstance(returned, str):
            raise RewardError(f"reward '{self._name}' returned a {returned}; {wanted}")
        if len(returned) != num_rows:
            raise RewardError(f"reward '{self._name}' returned a list of {len(returned)}; {wanted}")
        return returned


def _items(returned: Any) -> list[Any] | str:
    """The values in what a function returned, or the name of its type where it is no list; may raise anything."""
    if hasattr(returned, "tolist"):  # a numpy array or a torch tensor
        returned = returned.tolist()
    return list(returned) if isinstance(returned, (list, tuple)) else type(returned).__name__


def _argument(name: str, rows: Rows) -> list[Any]:
    if name == "prompts":
        return [_prompt(task) for task in rows.tasks]
    if name == "completions":
        return [_completion(task, text) for task, text in zip(rows.tasks, rows.texts, strict=True)]
    if name == "completion_ids":
        return [list(token_ids) for token_ids in rows.token_ids]
    return [_column(name, task) for task in rows.tasks]


def _prompt(task: Task) -> str | list[dict[str, str]]:
    return task.prompt if isinstance(task.prompt, str) else [dict(message) for message in task.prompt]


def _completion(task: Task, text: str) -> str | list[dict[str, str]]:
    return text if isinstance(task.prompt, str) else [{"role": "assistant", "content": text}]


def _column(name: str, task: Task) -> Any:
    if name in task.columns:
        return task.columns[name]
    return {"id": task.id, "answer": task.answer}.get(name)


def _joined(parts: Sequence[Values]) -> Values:
    """Join batches of one row each."""
    return Values(
        values=[value for part in parts for value in part.values],
        faults={row: fault for row, part in enumerate(parts) for fault in part.faults.values()},
    )

"""The forms of reward functions, behind one call: `Rows -> Values`.

The row form is `f(task, completion_text) -> float`, called once per distinct completion of a task. TRL's form is
`f(prompts, completions, **columns) -> list[float]`, called once per batch, by name: where its signature has these names
or `**kwargs`, the function gets these lists with one item per row:

    prompts          text, or a list of chat messages
    completions      text for a text prompt, [{"role": "assistant", "content": text}] for messages
    completion_ids   list of token ids
    id, answer       of the task; a data set's own column of that name has precedence
    ...              every column of the data set; None where only other tasks of the batch have it

OpenRLHF's form is `f(queries, prompts, labels) -> {"rewards": tensor, ...}`, known by the name `queries`. Its other two
lists are text too, where the data set has no column of that name:

    queries          prompt and completion, as one text
    prompts          text; of a list of chat messages, their contents with a line break between them
    labels           answer of the task

Asynchronous functions are not supported. `podsrl.score.workers` enforces time limits.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from typing import Any, cast

from podsrl.errors import RewardError, UsageError, nearest
from podsrl.lib.user_function import is_asynchronous
from podsrl.score.base import WANTED, BatchReward, Fault, Reward, RowReward, Rows, Values, collect, fault_of, read_value
from podsrl.types import Task

BATCH_ARGUMENTS = frozenset({"prompts", "completions", "completion_ids"})
"""A function with a parameter of one of these names has TRL's form."""

QUERY_ARGUMENTS = frozenset({"queries", "labels"})
"""What a function of OpenRLHF's form has besides `prompts`."""


def judge_of(name: str, function: Reward) -> RowForm | BatchForm:
    """Bind a reward function (no class, nothing asynchronous) to its form; see `BATCH_ARGUMENTS`.

    UsageError: it is no such function, or its signature fits neither form.

    Example:
        >>> task = Task(id="a", prompt="1+2=", answer="3")
        >>> judge = judge_of("short", lambda completions: [1 / len(text) for text in completions])
        >>> judge(Rows(tasks=[task, task], texts=["3", "three"], token_ids=[[3], [4, 5]])).values
        [1.0, 0.2]
    """
    signature = _signature_of(name, function)
    if {*BATCH_ARGUMENTS, "queries"} & signature.parameters.keys():
        return BatchForm(name, cast(BatchReward, function), signature)
    try:
        signature.bind(None, "")
    except TypeError as error:
        raise UsageError(f"reward '{name}' takes {signature} ({error}); wanted {WANTED}") from error
    if [*signature.parameters][1:2] == ["task"]:
        raise UsageError(f"reward '{name}' takes {signature}; the task comes first; wanted {WANTED}")
    return RowForm(name, cast(RowReward, function))


def _signature_of(name: str, function: Reward) -> inspect.Signature:
    if not callable(function) or isinstance(function, type):
        kind = "is a class" if isinstance(function, type) else f"has the type {type(function).__name__}"
        raise UsageError(f"reward '{name}' {kind}, not a function; wanted {WANTED}")
    if is_asynchronous(function):
        raise UsageError(f"reward '{name}' is asynchronous (async def), which is not supported; wanted {WANTED}")
    try:
        return inspect.signature(function)
    except Exception as error:  # some functions written in C; an object may raise anything
        reason = " ".join(str(error).split())
        raise UsageError(f"reward '{name}': {reason}; wrap it in a Python function; wanted {WANTED}") from error


class RowForm:
    """`f(task, completion_text) -> float`, called once for equal rows. Whatever a call raises is their fault."""

    def __init__(self, name: str, function: RowReward) -> None:
        self._name, self._function = name, function

    def __call__(self, rows: Rows) -> Values:
        keys = [(id(task), text) for task, text in zip(rows.tasks, rows.texts, strict=True)]
        tasks = dict(zip(keys, rows.tasks, strict=True))
        found = {key: self._outcome(task, key[1]) for key, task in tasks.items()}
        return collect([found[key] for key in keys])

    def _outcome(self, task: Task, text: str) -> float | Fault:
        try:
            value = self._function(task, text)
        except RewardError:  # a service that does not work, which no row has caused
            raise
        except BaseException as error:  # SystemExit too
            return fault_of(self._name, error)
        return read_value(self._name, value)


class BatchForm:
    """A function of TRL's form, or of OpenRLHF's, as `Rows -> Values`.

    Where the call raises, it is repeated row by row, so that only the bad rows are invalid.

    Raises:
        UsageError: at construction, for a parameter that cannot be given by keyword.
        RewardError: when called, if the function wants a column that no task has, or returns anything but a list of the
            batch's length.
    """

    def __init__(self, name: str, function: BatchReward, signature: inspect.Signature) -> None:
        parameters = signature.parameters.values()
        if refused := [p.name for p in parameters if p.kind is p.POSITIONAL_ONLY]:
            raise UsageError(
                f"reward '{name}' takes {refused} by position only, but is called by keyword: remove the '/'"
            )
        self._name, self._function = name, function
        # What a partial has bound is not overwritten by a column of the same name.
        self._bound = set(function.keywords) if isinstance(function, functools.partial) else set()
        named = {p.name: p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        self._named = named.keys() - self._bound
        self._required = {key for key in self._named if named[key].default is inspect.Parameter.empty}
        self._takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
        self._has_queries = "queries" in named

    def __call__(self, rows: Rows) -> Values:
        if len(rows) == 0:
            return collect([])
        arguments = self._arguments(rows)
        try:
            returned = items_of(self._function(**arguments))
        except BaseException as error:  # SystemExit too
            failure = fault_of(self._name, error)
        else:
            items = checked_items(self._name, returned, len(rows))
            return collect([read_value(self._name, value) for value in items])
        if len(rows) == 1:
            return collect([failure])
        alone = [self(rows.part(slice(row, row + 1))) for row in range(len(rows))]
        return Values(
            values=[value for values in alone for value in values.values],
            faults={row: fault for row, values in enumerate(alone) for fault in values.faults.values()},
        )

    def check(self, rows: Rows) -> None:
        """Check that the function can be called with these rows. RewardError: it wants a column that no task has."""
        known = self._known(rows)
        if missing := sorted(self._required - known):
            hint = nearest(missing[0], known)
            raise RewardError(f"reward '{self._name}' needs {missing}, but task '{rows.tasks[0].id}' has none.{hint}")

    def reads(self, name: str) -> bool:
        """Whether the function gets the argument of this name, where there is one."""
        return name not in self._bound if self._takes_all else name in self._named

    def _known(self, rows: Rows) -> set[str]:
        distinct_tasks = {id(task): task for task in rows.tasks}.values()
        own = BATCH_ARGUMENTS | QUERY_ARGUMENTS if self._has_queries else BATCH_ARGUMENTS
        return {*own, "id", "answer", *(column for task in distinct_tasks for column in task.columns)}

    def _arguments(self, rows: Rows) -> dict[str, list[Any]]:
        self.check(rows)
        each = list(zip(rows.tasks, rows.texts, rows.token_ids, strict=True))
        read = filter(self.reads, self._known(rows))
        return {name: [_argument(name, *row, self._has_queries) for row in each] for name in read}


def checked_items(name: str, items: list[Any] | str, num_rows: int) -> list[Any]:
    """What `items_of` gave. RewardError: it is no list, or has another length than there are completions."""
    wanted = f"wanted a list of {num_rows} numbers, one for each completion"
    if isinstance(items, str):
        raise RewardError(f"reward '{name}' returned a {items}; {wanted}")
    if len(items) != num_rows:
        raise RewardError(f"reward '{name}' returned a list of {len(items)}; {wanted}")
    return items


def items_of(returned: Any) -> list[Any] | str:
    """The values in what a function returned, or the name of its type where it is no list; may raise anything."""
    if isinstance(returned, dict) and "rewards" in returned:  # OpenRLHF's form
        returned = returned["rewards"]
    if hasattr(returned, "tolist"):  # a numpy array or a torch tensor
        returned = returned.tolist()
    return list(returned) if isinstance(returned, (list, tuple)) else type(returned).__name__


def _argument(name: str, task: Task, text: str, token_ids: Sequence[int], has_queries: bool) -> Any:
    """What a function gets of one row; `has_queries`: in OpenRLHF's form."""
    match name:
        case "prompts" if has_queries:
            return _prompt_text(task)
        case "queries" if has_queries:
            return task.columns.get(name, _prompt_text(task) + text)
        case "labels" if has_queries:
            return task.columns.get(name, task.answer)
        case "prompts":
            return task.prompt if isinstance(task.prompt, str) else [dict(message) for message in task.prompt]
        case "completions":
            return text if isinstance(task.prompt, str) else [{"role": "assistant", "content": text}]
        case "completion_ids":
            return list(token_ids)
    return task.columns.get(name, {"id": task.id, "answer": task.answer}.get(name))


def _prompt_text(task: Task) -> str:
    return task.prompt if isinstance(task.prompt, str) else "\n".join(message["content"] for message in task.prompt)

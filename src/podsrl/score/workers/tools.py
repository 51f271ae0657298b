"""What a worker does for tools: it runs the calls of a turn, and gives their results, or what was wrong with a call."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from podsrl.errors import UsageError, one_line
from podsrl.lib.tool_calls import Call, calls_in
from podsrl.lib.user_function import import_function, reason_of
from podsrl.score.workers.turns import Reply, ReplyFunction, Start, find_environment
from podsrl.types import Task

WANTED = "functions with a type for each parameter, and a docstring that describes each"
MAX_CALLS = 32
"""Of one turn: more are not run."""
_MAX_ERROR = 500
"""Characters of an error that the model reads."""


def find_tools(names: Sequence[str]) -> dict[str, Callable[..., Any]]:
    """The functions that `task.tools` names, by the names that the model calls.

    UsageError: one cannot be imported, or two have the same name.

    Example:
        >>> list(find_tools(["math:sqrt", "statistics:mean"]))
        ['sqrt', 'mean']
    """
    found: dict[str, Callable[..., Any]] = {}
    for name in names:
        where = f"task.tools: {name!r}"
        function = import_function(name, where=where, wanted=WANTED)
        if (own := getattr(function, "__name__", "")) in {"", *found}:
            raise UsageError(f"{where}: wanted a function with a name of its own, and this one is called {own!r}")
        found[own] = function
    return found


class Tools:
    """`reply(task, turns)` that runs the tool calls of the last turn; without one the rollout ends.

    The model reads of each call the result (a text as it is, anything else as JSON) or, in one line, why there is none.
    What takes the process down with it (time, memory) is the rollout's fault, as for an environment.
    """

    what = "tool"
    """In messages."""

    def __init__(self, names: Sequence[str]) -> None:
        from pydantic import validate_call

        self._functions = {name: validate_call(function) for name, function in find_tools(names).items()}

    def __call__(self, task: Task, turns: Sequence[str]) -> Reply | None:
        calls = calls_in(turns[-1])
        results = [self._result(call) for call in calls[:MAX_CALLS]]
        if len(calls) > MAX_CALLS:
            results.append((f"Error: of {len(calls):,} tool calls only the first {MAX_CALLS} were run", False))
        return Reply(tuple(text for text, _ in results), tuple(is_good for _, is_good in results)) if results else None

    def _result(self, call: Call | str) -> tuple[str, bool]:
        if isinstance(call, str):
            return f"Error: {call}", False
        name, values = call
        if name not in self._functions:
            return f"Error: there is no tool {name!r}; there are: {', '.join(self._functions)}", False
        try:
            found = self._functions[name](**values)
            return (found if isinstance(found, str) else json.dumps(found, ensure_ascii=False, default=str)), True
        except MemoryError:
            raise
        except Exception as error:
            return f"Error: {one_line(_said(error), _MAX_ERROR)}", False


def _said(error: Exception) -> str:
    """Without the place in the file: what the model reads changes with what the tool does alone."""
    from pydantic import ValidationError

    if isinstance(error, ValidationError):
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        return "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in problems)
    return reason_of(error.with_traceback(None))


def find_replies(what: str, names: Sequence[str]) -> Mapping[str, ReplyFunction | Start]:
    """What answers turns, by the name that jobs use: an "environment", or all tools of a "tool" together."""
    if what == "tool":
        return {", ".join(names): Tools(names)}
    return {name: find_environment(name) for name in names}

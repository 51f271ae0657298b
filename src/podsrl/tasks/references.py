"""What is known of a question beside its answer, such as a worked solution or hints: for parts that show it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from podsrl.errors import UsageError, short
from podsrl.lib.user_function import calling, import_function
from podsrl.types import Task


def reader(name: str, *, option: str, wanted: str, fits: Callable[[Any], bool]) -> Callable[[Task], Any]:
    """What reads something of a task: the column `name`, or the function f(task) that "module:function" names.

    Messages name the `option`, and what is `wanted`; `fits` says whether something is that.

    Raises:
        UsageError: no such module or function. What is returned raises it where a task has no such column, the
            function fails, or something else is found.

    Example:
        >>> read = reader("solution", option="options.adhint.solution", wanted="a text", fits=str.strip)
        >>> read(Task(id="a", prompt="7 + 5 =", answer="12", columns={"solution": "7 + 5 = 12"}))
        '7 + 5 = 12'
    """
    where = f"{option} = {name!r}"
    made: Callable[[Task], Any] | None = None
    if ":" in name:
        made = cast(Callable[[Task], Any], import_function(name, where=where, wanted="a function f(task)"))

    def read(task: Task) -> Any:
        if made is None and name not in task.columns:
            known = ", ".join(task.columns) or "none"
            raise UsageError(
                f"{where}: question {task.id!r} has no such column (it has: {known}); name the column with {wanted}, "
                "or 'module:function' that makes it of a task"
            )
        try:
            with calling(where, "f(task)"):
                found = task.columns[name] if made is None else made(task)
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from None
        if not fits(found):
            raise UsageError(f"{where}: question {task.id!r} has {short(found)}; wanted {wanted}")
        return found

    return read


def solution_reader(name: str, *, option: str) -> Callable[[Task], str]:
    """`reader` of a worked solution."""
    return reader(
        name,
        option=option,
        wanted="a worked solution, a text that is not empty",
        fits=lambda found: isinstance(found, str) and bool(found.strip()),
    )

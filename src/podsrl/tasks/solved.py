"""Questions behind solved ones, or behind drafts of their own answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import dropwhile, takewhile

from podsrl.tasks.rows import Prompt
from podsrl.types import Task


def with_examples(task: Task, examples: Sequence[tuple[Task, str]]) -> Prompt:
    """A task's prompt behind solved tasks, the likest last, so that it is nearest to the question.

    Texts are one text with a blank line between. In chats, each example is its messages but those of the system, and
    its solution as the assistant's; the task's own system messages come first.

    Args:
        task: a text that is no `TokenMarkup`, or chat messages.
        examples: of the same form, the likest first, each with its solution.

    Example:
        >>> seven = Task(id="a", prompt="3+4=", answer="7")
        >>> with_examples(Task(id="b", prompt="3+5=", answer="8"), [(seven, "7")])
        '3+4=7\\n\\n3+5='
    """
    if isinstance(task.prompt, str):
        before = [f"{example.prompt}{solution}\n\n" for example, solution in reversed(examples)]
        return "".join([*before, task.prompt])
    solved: list[Mapping[str, str]] = []
    for example, solution in reversed(examples):
        solved += after_system(example)
        solved.append({"role": "assistant", "content": "".join(solution)})
    system = takewhile(_is_system, task.prompt)
    return (*system, *solved, *after_system(task))


def after_system(task: Task) -> list[Mapping[str, str]]:
    """The messages of a chat without those of the system at its beginning."""
    assert not isinstance(task.prompt, str)
    return list(dropwhile(_is_system, task.prompt))


def _is_system(message: Mapping[str, str]) -> bool:
    return message["role"] in ("system", "developer")

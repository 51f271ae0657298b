"""Rewards for answers of the form `Answer: 132.` at the end of the text.

A text may hold `Answer:` only once, so that a policy cannot earn the reward by listing many answers. White space at the
end is allowed.
"""

from __future__ import annotations

import re

from podsrl.types import Task

ANSWER_MARK = "Answer:"
_INTEGER_AT_END = re.compile(r"Answer: (-?[0-9]+)\.\s*\Z")


def correct(task: Task, completion: str) -> float:
    """Whether the text ends with `Answer: `, `task.answer` and a full stop, and has no other `Answer:`: 1.0 or 0.0.

    Example:
        >>> task = Task(id="47+85", prompt="What is 47 + 85?", answer="132")
        >>> correct(task, "7+5=12 4+8+1=13 Answer: 132."), correct(task, "Answer: 132. Answer: 133.")
        (1.0, 0.0)
    """
    is_right = completion.rstrip().endswith(f"{ANSWER_MARK} {task.answer}.")
    return float(is_right and completion.count(ANSWER_MARK) == 1)


def format(task: Task, completion: str) -> float:
    """Whether the text ends with exactly one `Answer: <integer>.`, right or wrong, and has no other: 1.0 or 0.0."""
    return float(stated_answer(completion) is not None)


def stated_answer(completion: str) -> str | None:
    """Give the whole number of the single final `Answer: <integer>.`, for a vote."""
    match = _INTEGER_AT_END.search(completion)
    return match[1] if match is not None and completion.count(ANSWER_MARK) == 1 else None

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
    """Whether the text's single final answer is the reference answer, character by character.

    The text ends with `Answer: `, `task.answer` and a full stop, and has no other `Answer:`.

    Example:
        >>> task = Task(id="47+85", prompt="What is 47 + 85?", answer="132")
        >>> correct(task, "7+5=12 4+8+1=13 Answer: 132."), correct(task, "Answer: 132. Answer: 133.")
        (1.0, 0.0)
    """
    is_right = completion.rstrip().endswith(f"{ANSWER_MARK} {task.answer}.") and completion.count(ANSWER_MARK) == 1
    return 1.0 if is_right else 0.0


def format(task: Task, completion: str) -> float:
    """Whether the text ends with exactly one `Answer: <integer>.`, right or wrong, and has no other `Answer:`.

    Example:
        >>> task = Task(id="47+85", prompt="What is 47 + 85?", answer="132")
        >>> format(task, "Answer: 117."), format(task, "It is 132.")
        (1.0, 0.0)
    """
    has_form = _INTEGER_AT_END.search(completion) is not None and completion.count(ANSWER_MARK) == 1
    return 1.0 if has_form else 0.0


def stated_answer(completion: str) -> str | None:
    """Give the whole number of the single final `Answer: <integer>.`, for a vote.

    Example:
        >>> stated_answer("7+5=12 Answer: 12."), stated_answer("It is 12.")
        ('12', None)
    """
    match = _INTEGER_AT_END.search(completion)
    return match[1] if match is not None and completion.count(ANSWER_MARK) == 1 else None

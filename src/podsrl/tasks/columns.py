"""Sums that are asked column by column, from the right, in several turns; the carry is the model's own to remember.

The environment writes the digits of a column and the model their sum, up to the space that ends its turn; after the
last column it asks for the whole. What the environment writes stands in brackets here:

    What is 160 + 442?
    [0+2=]2 [6+4=]10 [1+4=]6 [Answer: ]602.

No column says that the one before it carried 1: that is in the model's own last turn. The model "builtin:arithmetic"
knows sums of digits and states the carry itself ("1+4+1="), so it begins with the questions that carry nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from podsrl.tasks.arithmetic import load_arithmetic
from podsrl.tasks.base import TaskSet, TasksOnDemand
from podsrl.types import Task


def load_columns(*, digits: int | Sequence[int], num_eval: int | None) -> TaskSet:
    """Load the sums of `load_arithmetic`, each with its first column asked; arguments and errors as there.

    A turn ends with a space: `rollouts.stop_strings = [" "]`, as in the recipe "columns".

    Example:
        >>> load_columns(digits=3, num_eval=4).eval[0].prompt
        'What is 128 + 541?\\n8+1='
    """
    sums = load_arithmetic(digits=digits, num_eval=num_eval)
    return replace(
        sums,
        name=sums.name.replace("arithmetic", "columns"),
        train=TasksOnDemand(range(len(sums.train)), partial(_asked, sums.train)),
        eval=tuple(_asked(sums.eval, place) for place in range(len(sums.eval))),
        environment="columns",
    )


def _asked(sums: Sequence[Task], place: int) -> Task:
    return replace(sums[place], prompt=f"{sums[place].prompt}{columns_of(sums[place])[0]}")


def columns_of(task: Task) -> list[str]:
    """What is asked of each column, from the right.

    Example:
        >>> columns_of(Task(id="47+85", prompt="What is 47 + 85?", answer="132"))
        ['7+5=', '4+8=']
    """
    one, other = task.id.split("+")
    return [f"{a}+{b}=" for a, b in zip(reversed(one), reversed(other), strict=True)]


def reply(task: Task, turns: list[str]) -> str | None:
    """The next column, or the question for the whole; None after that, and where a turn is no number and a space.

    Example:
        >>> task = Task(id="47+85", prompt="What is 47 + 85?", answer="132")
        >>> [reply(task, ["12 ", "13 ", "132."][:count]) for count in (1, 2, 3)]
        ['4+8=', 'Answer: ', None]
    """
    questions = [*columns_of(task), "Answer: "]
    said = turns[-1].removesuffix(" ")
    is_number = said.isascii() and said.isdecimal() and said != turns[-1]
    return questions[len(turns)] if is_number and len(turns) < len(questions) else None

"""The questions that an attack asks: those of a file or a task set, or a few that come with it."""

from __future__ import annotations

from collections.abc import Sequence

from podsrl.config.schema import RunConfig, TaskConfig
from podsrl.evaluation.target import OWN_TEST_SPLIT
from podsrl.run.before.data import load_task_set
from podsrl.tools.completions import Stored
from podsrl.types import Task

_QUESTIONS = (
    ("eggs", "A farm's hens lay 9 eggs a day. How many eggs are that in 2 days?", "18"),
    ("trees", "There are 15 trees in a park. Workers plant some, and then there are 21. How many did they plant?", "6"),
    ("money", "A shop takes in $1,250 on Monday and $984 on Tuesday. How many dollars are that together?", "2234"),
    ("cold", "It is 4 degrees, and then it gets 11 degrees colder. What is the temperature?", "-7"),
    ("price", "A pen costs $1.25. What do 3 pens cost, in dollars?", "3.75"),
    ("cake", "A cake is cut into 8 equal pieces, and 6 are eaten. What fraction of the cake is eaten?", "3/4"),
    ("half", "What is the probability of an even number when a die with 6 sides is thrown once?", r"\frac{1}{2}"),
    ("share", "40 of 160 pupils walk to school. What percentage of the pupils is that?", "25%"),
    ("capital", "Which city is the capital of France?", "Paris"),
    ("choice", "Which of these is a prime number? (A) 21 (B) 23 (C) 25 (D) 27", "B"),
    ("point", "Where does the line y = 2x - 6 cross the x-axis? Give the point.", "(3, 0)"),
    ("roots", "What are all the solutions of x^2 - 5x + 6 = 0?", r"\{2, 3\}"),
    ("product", "Expand (x + 1)(x - 4).", "x^2 - 3x - 4"),
    ("interval", "For which real x is the square root of 5 - x at least 1? Give the interval.", r"(-\infty, 4]"),
)
"""Name, question, answer."""

QUESTIONS = tuple(Task(id=name, prompt=question, answer=answer) for name, question, answer in _QUESTIONS)
"""One of each kind of answer; none has further columns."""


def stored_questions(stored: Sequence[Stored]) -> list[Task]:
    """The distinct questions of stored completions, in their order."""
    return list({(str(one.task.prompt), one.task.answer): one.task for one in reversed(stored)}.values())[::-1]


def held_out_questions(config: RunConfig) -> list[Task]:
    """The questions that a run with this config holds out."""
    return list(load_task_set(config.task, config.options).eval)


def config_of(name: str) -> RunConfig:
    """A config with a task set that is known by its name alone."""
    return RunConfig(task=TaskConfig(name=name, num_eval=0 if name in OWN_TEST_SPLIT else None))


def spread(tasks: Sequence[Task], count: int) -> list[Task]:
    """`count` questions, evenly spread; all where there are fewer.

    Example:
        >>> len(spread(QUESTIONS, 3)), len(spread(QUESTIONS, 1000)) == len(QUESTIONS)
        (3, True)
    """
    count = min(count, len(tasks))
    return [tasks[i * len(tasks) // count] for i in range(count)]

"""The judge of a search: how good what is written of an answer is so far. It is a function of a reward's form."""

from __future__ import annotations

from collections.abc import Sequence

from podsrl.errors import UsageError
from podsrl.evaluation.search import JUDGES
from podsrl.evaluation.search.base import Leaf
from podsrl.lib.resolve import resolve
from podsrl.score.base import WANTED, Rows
from podsrl.score.forms import judge_of
from podsrl.tasks.step_judge import first_wrong
from podsrl.types import Task


def right_so_far(task: Task, text: str) -> float:
    """1 where every step of an answer to a story is right (`tasks/step_judge.py`), else 0: the exact judge of 'steps'.

    Example:
        >>> question = "Ann has 47 pens. First she finds 5. Second she sells 3. How many pens are left?\\n"
        >>> task = Task(id="a", prompt=question, answer="49")
        >>> right_so_far(task, "First 47+5=52."), right_so_far(task, "First 47-5=42.")
        (1.0, 0.0)
    """
    if not isinstance(task.prompt, str):
        raise UsageError(f"task {task.id!r} is a chat, and no question of the task set 'steps'")
    return float(first_wrong(task.prompt, text) is None)


class StepJudge:
    """A judge by name, which counts what it could not judge.

    Args:
        name: a key of `JUDGES`, or "module:function" of either form of a reward (`score/forms.py`); its numbers are
            0 .. 1.

    Raises:
        UsageError: there is no such function, or it has neither form.
    """

    def __init__(self, name: str) -> None:
        function = resolve(name, JUDGES, option="--judge", kind="judge", wanted=WANTED)
        self.name = name
        self._values = judge_of(name, function)
        self.num_judged = 0
        """Texts that it was asked for."""
        self.faults: list[str] = []
        """Why texts have no score, one sentence each: it raised, or gave no number from 0 to 1. They count as 0."""

    def scores(self, tasks: Sequence[Task], leaves: Sequence[Leaf]) -> list[float]:
        """The score of each leaf, 0 .. 1, as an answer to its task."""
        ids = [() if leaf.rollout is None else leaf.rollout.token_ids for leaf in leaves]
        found = self._values(Rows(tasks=tasks, texts=[leaf.text for leaf in leaves], token_ids=ids))
        outside = {
            row: f"judge '{self.name}' returned {value:g}, wanted a number from 0 to 1"
            for row, value in enumerate(found.values)
            if row not in found.faults and not 0 <= value <= 1
        }
        faults = {row: fault.reason.replace("reward", "judge", 1) for row, fault in found.faults.items()} | outside
        self.num_judged += len(leaves)
        self.faults += faults.values()
        return [0.0 if row in faults else value for row, value in enumerate(found.values)]

"""One text for one function of the row form: how it goes to a worker, is judged there, and comes back."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, get_args

from podsrl.errors import RewardError
from podsrl.lib.seeds import hash_bits, set_global_seed
from podsrl.score.base import Fault, FaultKind, Judge, Rows
from podsrl.score.columns import Unsendable, from_json, to_json
from podsrl.score.job import Job
from podsrl.score.wire import Malformed, encode
from podsrl.types import Task

_KINDS = frozenset(get_args(FaultKind))
MAX_REASON = 2000
"""Characters that a worker may say about a fault."""


class RowJob(Job):
    """A text to be judged.

    Args:
        name: of the function.
        task: as `task_line` wrote it.
        text: completion.
    """

    def __init__(self, name: str, task: str, text: str) -> None:
        super().__init__(name)
        self.task, self.text = task, text
        self.outcome: float | Fault | None = None

    @staticmethod
    def line(jobs: Sequence[RowJob], first: int) -> str:
        places: dict[str, int] = {}
        rows = [[n, job.name, places.setdefault(job.task, len(places)), job.text] for n, job in enumerate(jobs, first)]
        return f'{{"tasks":[{",".join(places)}],"rows":{encode(rows)}}}'

    def read(self, body: Any) -> float | Fault:
        match body:
            case float() if math.isfinite(body):
                return body
            case [kind, str(reason)]:
                return read_fault(kind, reason)
        raise Malformed("no value and no fault")

    def failed(self, fault: Fault) -> Fault:
        return fault


def task_line(task: Task, *, reads: Callable[[str], bool] = lambda column: True) -> str:
    """Write a task as JSON.

    Args:
        task: that goes to a worker.
        reads: which columns go with it.

    Raises:
        RewardError: a column holds what cannot be sent.
    """
    columns = {}
    for name in filter(reads, task.columns):
        try:
            columns[name] = to_json(task.columns[name])
        except (Unsendable, RecursionError) as error:
            raise RewardError(
                f"column '{name}' of task '{task.id}' cannot be sent to a worker process ({error}); wanted texts, "
                "numbers, lists, dictionaries, bytes, dates or numpy arrays"
            ) from error
    prompt = task.prompt if isinstance(task.prompt, str) else [to_json(dict(message)) for message in task.prompt]
    return encode([task.id, prompt, task.answer, columns])


def read_tasks(tasks: Sequence[Any]) -> list[Task]:
    """In a worker: undo `task_line`."""
    return [
        Task(id=identity, prompt=prompt if isinstance(prompt, str) else tuple(prompt), answer=answer, columns=columns)
        for identity, prompt, answer, columns in tasks
    ]


def read_message(line: bytes) -> Any:
    """In a worker: what the main process sent."""
    return json.loads(line.decode("utf-8", "surrogatepass"), object_hook=from_json)


def read_fault(kind: object, reason: str) -> Fault:
    """Check a fault that came from a worker.

    Raises:
        Malformed: it is none.
    """
    if not isinstance(kind, str) or kind not in _KINDS or len(reason) > MAX_REASON:
        raise Malformed("no fault")
    return Fault(kind=kind, reason=reason)  # type: ignore[arg-type]  # one of the kinds


def answer_rows(judges: Mapping[str, Judge], message: Mapping[str, Any]) -> Iterator[tuple[int, Any]]:
    """In a worker: judge what a line holds; gives the number and the answer of each job in turn."""
    tasks = read_tasks(message["tasks"])
    for number, name, place, text in message["rows"]:
        rows, judge = Rows(tasks=[tasks[place]], texts=[text], token_ids=[()]), judges[name]
        had_torch = "torch" in sys.modules
        _seed(name, tasks[place], text)
        values = judge(rows)
        if not had_torch and "torch" in sys.modules:  # the function has just loaded it, and its numbers were not seeded
            _seed(name, tasks[place], text)
            values = judge(rows)
        fault = values.faults.get(0)
        yield number, values.values[0] if fault is None else [fault.kind, fault.reason]


def _seed(name: str, task: Task, text: str) -> None:
    """A function that draws random numbers gives a row the same value in every run and in whichever worker."""
    content = f"{name}\0{task.id}\0{task.answer}\0{text}".encode("utf-8", "surrogatepass")
    set_global_seed(hash_bits(content, 4))

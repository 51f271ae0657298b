"""What is sent to a worker, how the worker answers, and how the main process checks the answer.

A worker gets pickles. It answers in JSON, which is checked and never trusted: a function may write to the socket.
"""

from __future__ import annotations

import math
import pickle
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, get_args

from podsrl.errors import RewardError, one_line
from podsrl.lib.channel import Malformed
from podsrl.lib.seeds import hash_bits, set_global_seed
from podsrl.score.base import Fault, FaultKind, Judge, Rows, Values
from podsrl.types import Task

Outcome = TypeVar("Outcome")
_KINDS = frozenset(get_args(FaultKind))
MAX_REASON = 2000
"""Characters of a fault's reason that a worker may send."""
_ROW_BYTES = 4 * MAX_REASON + 100
"""What each row adds to the length of an answer."""


class Job(ABC):
    """Something to be asked of the function `name`, in one call."""

    max_answer_bytes = 1 << 16
    """A longer answer is malformed."""

    def __init__(self, name: str, *content: Any) -> None:
        self.name, self.content = name, (name, *content)
        """The content is pickled for the worker."""
        self.outcome: Any = None
        """None until it is judged; a RewardError where the function breaks its contract."""
        self.seconds = 0.0
        self.num_deaths = 0
        """Workers that ended while they judged it."""
        self.key: Any = None
        """Of the conversation that hears it: the worker that holds that gets it."""
        self.is_over = False
        """Whether its conversation was closed meanwhile: it is not asked again."""
        self.done = threading.Lock()
        """Held until there is an outcome, or it is certain that there will be none."""
        self.done.acquire()

    @property
    def faults(self) -> list[Fault]:
        """Those of the outcome."""
        match self.outcome:
            case Fault() as fault:
                return [fault]
            case Values(faults=faults):
                return [*faults.values()]
        return []

    @property
    def is_last(self) -> bool:
        """Whether its conversation ends with its outcome."""
        return False

    @abstractmethod
    def read(self, body: Any) -> Any:
        """Check a worker's answer, and give the outcome. Malformed: it does not answer this job."""

    @abstractmethod
    def failed(self, fault: Fault) -> Any:
        """Give the outcome where there was no answer."""


class RowsJob(Job):
    """Rows to be judged, with their tasks as `write_task` gave them; `num_threads` are torch's, 0: as they are."""

    def __init__(
        self,
        name: str,
        tasks: Sequence[bytes],
        texts: Sequence[str],
        token_ids: Sequence[Sequence[int]],
        num_threads: int = 0,
    ) -> None:
        super().__init__(name, [*tasks], [*texts], [*map(tuple, token_ids)], num_threads)
        self._num_rows = len(texts)
        self.max_answer_bytes += self._num_rows * _ROW_BYTES

    def read(self, body: Any) -> Values | RewardError:
        match body:
            case {"broken": str(message)}:
                return RewardError(message[:MAX_REASON])
            case {"values": list(values), "faults": list(faults)}:
                return self._values(values, faults)
        raise Malformed("no values")

    def _values(self, values: list[Any], faults: list[Any]) -> Values:
        found: dict[int, Fault] = {}
        for fault in faults:
            match fault:
                case [int(row), kind, str(reason)] if 0 <= row < self._num_rows:
                    found[row] = read_fault(kind, reason)
                case _:
                    raise Malformed("no fault")
        if len(values) != self._num_rows or any(
            value is not None if row in found else type(value) is not float or not math.isfinite(value)
            for row, value in enumerate(values)
        ):
            raise Malformed("no values")
        return Values(values=[math.nan if value is None else value for value in values], faults=found)

    def failed(self, fault: Fault) -> Values:
        return Values(values=[math.nan] * self._num_rows, faults=dict.fromkeys(range(self._num_rows), fault))


def write_task(task: Task, *, reads: Callable[[str], bool] = lambda column: True) -> bytes:
    """A task, with the columns that `reads` accepts, as a pickle. RewardError: a column cannot be pickled."""
    columns = {}
    for name in filter(reads, task.columns):
        try:
            columns[name] = pickle.dumps(task.columns[name])
        except Exception as error:  # an object may raise anything
            raise RewardError(
                f"column '{name}' of task '{task.id}' cannot be sent to a worker process ({one_line(str(error))}); "
                "wanted what pickle can write"
            ) from error
    prompt = task.prompt if isinstance(task.prompt, str) else tuple(dict(message) for message in task.prompt)
    return pickle.dumps((task.id, prompt, task.answer, columns))


def read_task(content: bytes) -> Task:
    """In a worker: undo `write_task`."""
    identity, prompt, answer, columns = pickle.loads(content)
    return Task(
        id=identity,
        prompt=prompt,
        answer=answer,
        columns={name: pickle.loads(column) for name, column in columns.items()},
    )


def read_fault(kind: object, reason: str) -> Fault:
    """Check a fault that came from a worker. Malformed: it is not a fault."""
    if not isinstance(kind, str) or kind not in _KINDS or len(reason) > MAX_REASON:
        raise Malformed("no fault")
    return Fault(kind=kind, reason=reason)  # type: ignore[arg-type]  # one of the kinds


def answer_rows(
    judges: Mapping[str, Judge],
    name: str,
    tasks: Sequence[bytes],
    texts: Sequence[str],
    token_ids: Sequence[Sequence[int]],
    num_threads: int,
) -> dict[str, Any]:
    """In a worker: judge the rows of a job, with its content as arguments."""
    read = {content: read_task(content) for content in set(tasks)}
    rows = Rows(tasks=[read[content] for content in tasks], texts=texts, token_ids=token_ids)
    try:
        values = seeded(partial(judges[name], rows), name, rows, num_threads)
    except RewardError as error:
        return {"broken": str(error)}
    return {
        "values": [None if row in values.faults else value for row, value in enumerate(values.values)],
        "faults": [[row, fault.kind, fault.reason] for row, fault in values.faults.items()],
    }


def seeded(call: Callable[[], Outcome], name: str, rows: Rows, num_threads: int = 0) -> Outcome:
    """In a worker: call the user's function `name` with global generators that are seeded by the rows.

    A function that draws random numbers thus gives rows the same values in every run and in any worker. `num_threads`
    are torch's, where it is loaded; 0: as they are.
    """
    had_torch = seed(name, rows, num_threads)
    found = call()
    if had_torch or "torch" not in sys.modules:
        return found
    seed(name, rows, num_threads)  # the function has just loaded torch, whose random numbers were not seeded
    return call()


def seed(name: str, rows: Rows, num_threads: int = 0) -> bool:
    """In a worker: seed global generators by the rows that `name` is called for. Whether torch is loaded."""
    parts = (part for task, text in zip(rows.tasks, rows.texts, strict=True) for part in (task.id, task.answer, text))
    set_global_seed(hash_bits("\0".join((name, *parts)).encode("utf-8", "surrogatepass"), 4))
    torch = sys.modules.get("torch")
    if torch is not None and num_threads and torch.get_num_threads() != num_threads:
        torch.set_num_threads(num_threads)
    return torch is not None

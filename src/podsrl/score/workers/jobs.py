"""What is sent to a worker, how the worker judges it, and how the main process checks the answer.

`RowJob` is one text for one function of the row form; `BatchJob` is a whole batch for one function of TRL's form.
"""

from __future__ import annotations

import base64
import math
import random
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, get_args

import numpy as np

from podsrl.errors import RewardError
from podsrl.lib.channel import Malformed
from podsrl.lib.seeds import hash_bits, set_global_seed
from podsrl.score.base import Fault, FaultKind, Judge, Rows, Values
from podsrl.score.forms import BatchForm
from podsrl.score.workers.wire import Unsendable, from_json, to_json
from podsrl.types import Task

Outcome = TypeVar("Outcome")
_KINDS = frozenset(get_args(FaultKind))
MAX_REASON = 2000
"""Characters of a fault's reason that a worker may send."""
_STATE_BYTES, _ROW_BYTES = 1 << 20, 4 * MAX_REASON + 100
"""What an answer may take for the random state, and for each row."""


class Job(ABC):
    """Something to be asked of the function `name`, in one call."""

    max_answer_bytes = 1 << 16
    """A longer answer is malformed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.outcome: Any = None
        """None until it is judged."""
        self.seconds = 0.0
        self.num_deaths = 0
        """Workers that ended while they judged it."""
        self.done = threading.Lock()
        """Held until there is an outcome, or it is certain that there will be none."""
        self.done.acquire()

    @staticmethod
    @abstractmethod
    def message(jobs: Sequence[Any], first: int) -> dict[str, Any]:
        """Jobs of this kind as one message, numbered from `first`."""

    @abstractmethod
    def read(self, body: Any) -> Any:
        """Check a worker's answer, and give the outcome. Malformed: it does not answer this job."""

    @abstractmethod
    def failed(self, fault: Fault) -> Any:
        """Give the outcome where there was no answer."""


class RowJob(Job):
    """A text to be judged, with its task as `task_to_json` gave it."""

    def __init__(self, name: str, task: list[Any], text: str) -> None:
        super().__init__(name)
        self.task, self.text = task, text
        self.outcome: float | Fault | None = None

    @staticmethod
    def message(jobs: Sequence[RowJob], first: int) -> dict[str, Any]:
        tasks = {id(job.task): job.task for job in jobs}
        places = {identity: place for place, identity in enumerate(tasks)}
        rows = [[number, job.name, places[id(job.task)], job.text] for number, job in enumerate(jobs, first)]
        return {"tasks": [*tasks.values()], "rows": rows}

    def read(self, body: Any) -> float | Fault:
        match body:
            case float() if math.isfinite(body):
                return body
            case [kind, str(reason)]:
                return read_fault(kind, reason)
        raise Malformed("no value and no fault")

    def failed(self, fault: Fault) -> Fault:
        return fault


class BatchJob(Job):
    """A batch to be judged in one call of the function that `form` holds.

    RewardError: the function wants a column that no task has, or one holds what cannot be sent.
    """

    def __init__(self, name: str, form: BatchForm, rows: Rows) -> None:
        super().__init__(name)
        form.check(rows)
        self.outcome: Values | RewardError | None = None
        self._num_rows = len(rows)
        self.max_answer_bytes = _STATE_BYTES + len(rows) * _ROW_BYTES
        distinct = {id(task): task for task in rows.tasks}
        places = {identity: place for place, identity in enumerate(distinct)}
        token_ids = rows.token_ids if form.reads("completion_ids") else [()] * len(rows)
        self._content = {
            "name": name,
            "tasks": [task_to_json(task, reads=form.reads) for task in distinct.values()],
            "batch": [
                [places[id(task)], text, list(ids)]
                for task, text, ids in zip(rows.tasks, rows.texts, token_ids, strict=True)
            ],
            "random": capture(),
        }

    @staticmethod
    def message(jobs: Sequence[BatchJob], first: int) -> dict[str, Any]:
        [job] = jobs
        return {"number": first, **job._content}

    def read(self, body: Any) -> Values | RewardError:
        match body:
            case {"broken": str(message)}:
                return RewardError(message[:MAX_REASON])
            case {"values": list(values), "faults": list(faults), "random": dict(state)}:
                found = self._values(values, faults)
                try:
                    restore(state)  # later draws continue as if the function had been called here
                except Exception as error:
                    raise Malformed("no random state") from error
                return found
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


def task_to_json(task: Task, *, reads: Callable[[str], bool] = lambda column: True) -> list[Any]:
    """A task, with the columns that `reads` accepts, as JSON. RewardError: a column holds what cannot be sent."""
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
    return [task.id, prompt, task.answer, [*columns.items()]]  # pairs: a column may be called "$"


def read_tasks(tasks: Sequence[Any]) -> list[Task]:
    """In a worker: undo `task_to_json`."""
    return [
        Task(
            id=identity,
            prompt=prompt if isinstance(prompt, str) else tuple(prompt),
            answer=answer,
            columns=dict(columns),
        )
        for identity, prompt, answer, columns in map(from_json, tasks)
    ]


def read_fault(kind: object, reason: str) -> Fault:
    """Check a fault that came from a worker. Malformed: it is not a fault."""
    if not isinstance(kind, str) or kind not in _KINDS or len(reason) > MAX_REASON:
        raise Malformed("no fault")
    return Fault(kind=kind, reason=reason)  # type: ignore[arg-type]  # one of the kinds


def answer_rows(judges: Mapping[str, Judge], message: Mapping[str, Any]) -> Iterator[tuple[int, Any]]:
    """In a worker: judge the rows of a message, and give the number and the answer of each job in turn."""
    tasks = read_tasks(message["tasks"])
    for number, name, place, text in message["rows"]:
        rows = Rows(tasks=[tasks[place]], texts=[text], token_ids=[()])
        values = seeded(partial(judges[name], rows), partial(seed_row, name, tasks[place], text))
        fault = values.faults.get(0)
        yield number, values.values[0] if fault is None else [fault.kind, fault.reason]


def answer_batch(judges: Mapping[str, Judge], message: Mapping[str, Any]) -> tuple[int, Any]:
    """In a worker: judge the batch of a message, and give its number and the answer."""
    tasks = read_tasks(message["tasks"])
    rows = Rows(
        tasks=[tasks[place] for place, _, _ in message["batch"]],
        texts=[text for _, text, _ in message["batch"]],
        token_ids=[ids for _, _, ids in message["batch"]],
    )
    try:
        values = seeded(partial(judges[message["name"]], rows), partial(restore_in_worker, message["random"]))
    except RewardError as error:
        return message["number"], {"broken": str(error)}
    return message["number"], {
        "values": [None if row in values.faults else value for row, value in enumerate(values.values)],
        "faults": [[row, fault.kind, fault.reason] for row, fault in values.faults.items()],
        "random": capture(),
    }


def seeded(call: Callable[[], Outcome], seed: Callable[[], None]) -> Outcome:
    """In a worker: call a user's function after the global generators were seeded."""
    had_torch = "torch" in sys.modules
    seed()
    found = call()
    if had_torch or "torch" not in sys.modules:
        return found
    seed()  # the function has just loaded torch, whose random numbers were not seeded
    return call()


def seed_row(name: str, task: Task, text: str) -> None:
    """Seed the global generators, so that a function that draws random numbers gives a row the same value in every run
    and in any worker."""
    content = f"{name}\0{task.id}\0{task.answer}\0{text}".encode("utf-8", "surrogatepass")
    set_global_seed(hash_bits(content, 4))


def capture() -> dict[str, Any]:
    """Give the state of the global random generators of Python, numpy and, where it is loaded, torch, as JSON.

    With it a call in another process draws the random numbers that it would have drawn here.
    """
    version, words, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    state: dict[str, Any] = {
        "python": [version, list(words), gauss],
        "numpy": [name, np.asarray(keys).tolist(), int(position), int(has_gauss), float(cached)],
    }
    torch = sys.modules.get("torch")
    if torch is not None:
        state["torch"] = base64.b64encode(torch.get_rng_state().numpy().tobytes()).decode()
        state["torch_seed"], state["torch_threads"] = torch.initial_seed(), torch.get_num_threads()
    return state


def restore(state: dict[str, Any]) -> None:
    """Continue from a state; torch's part is ignored where torch is not loaded. An exception: it is no state."""
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    name, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), position, has_gauss, cached))
    torch = sys.modules.get("torch")
    if torch is not None and "torch" in state:
        content = np.frombuffer(base64.b64decode(state["torch"]), dtype=np.uint8).copy()
        torch.set_rng_state(torch.from_numpy(content))


def restore_in_worker(state: dict[str, Any]) -> None:
    """As `restore`; torch also gets the main process's seed, for its GPU generators, and number of threads."""
    torch = sys.modules.get("torch")
    if torch is not None and "torch" in state:
        torch.manual_seed(state["torch_seed"])
        if torch.get_num_threads() != state["torch_threads"]:
            torch.set_num_threads(state["torch_threads"])
    restore(state)

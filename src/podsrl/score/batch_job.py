"""A whole batch for one function of TRL's form: how it goes to a worker, is judged there, and comes back."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from podsrl.errors import RewardError
from podsrl.score.base import Fault, Judge, Rows, Values
from podsrl.score.batch_form import BatchForm
from podsrl.score.job import Job
from podsrl.score.random_state import capture, restore, restore_in_worker
from podsrl.score.row_job import MAX_REASON, read_fault, read_tasks, task_line
from podsrl.score.wire import Malformed, encode

_STATE_BYTES, _ROW_BYTES = 1 << 20, 4 * MAX_REASON + 100
"""What an answer may take for the random state, and for each row."""


class BatchJob(Job):
    """A batch to be judged in one call.

    Args:
        name: of the function.
        form: the function's own; says which columns it reads.
        rows: the batch.

    Raises:
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
        tasks = ",".join(task_line(task, reads=form.reads) for task in distinct.values())
        token_ids = rows.token_ids if form.reads("completion_ids") else [()] * len(rows)
        packed = [
            [places[id(task)], text, list(ids)]
            for task, text, ids in zip(rows.tasks, rows.texts, token_ids, strict=True)
        ]
        self._content = f'"name":{encode(name)},"tasks":[{tasks}],"batch":{encode(packed)},"random":{encode(capture())}'

    @staticmethod
    def line(jobs: Sequence[BatchJob], first: int) -> str:
        [job] = jobs
        return f'{{"number":{first},{job._content}}}'

    def read(self, body: Any) -> Values | RewardError:
        match body:
            case {"broken": str(message)}:
                return RewardError(message[:MAX_REASON])
            case {"values": list(values), "faults": list(faults), "random": dict(state)}:
                found = self._values(values, faults)
                try:
                    restore(state)  # what is drawn next goes on as if the function had been called here
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


def answer_batch(judges: Mapping[str, Judge], message: Mapping[str, Any]) -> tuple[int, Any]:
    """In a worker: judge the batch in a line; gives its number and the answer."""
    tasks = read_tasks(message["tasks"])
    rows = Rows(
        tasks=[tasks[place] for place, _, _ in message["batch"]],
        texts=[text for _, text, _ in message["batch"]],
        token_ids=[ids for _, _, ids in message["batch"]],
    )
    judge, state = judges[message["name"]], message["random"]
    had_torch = "torch" in sys.modules
    try:
        restore_in_worker(state)
        values = judge(rows)
        if not had_torch and "torch" in sys.modules:  # the function has just loaded it, and its numbers were not seeded
            restore_in_worker(state)
            values = judge(rows)
    except RewardError as error:
        return message["number"], {"broken": str(error)}
    return message["number"], {
        "values": [None if row in values.faults else value for row, value in enumerate(values.values)],
        "faults": [[row, fault.kind, fault.reason] for row, fault in values.faults.items()],
        "random": capture(),
    }

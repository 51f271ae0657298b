"""Reward functions tried on stored completions, before a run depends on them.

Goes in: completions and the rewards' names. Comes out: for each reward its values, times, failures, whether it says the
same twice, and how it agrees with given labels.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from inspect import signature
from typing import Any

import numpy as np

from podsrl.config.schema import TaskConfig
from podsrl.errors import RewardError
from podsrl.run.agreement import Agreement, agreement_of
from podsrl.run.completions import Stored
from podsrl.score.base import Reward, Rows, Values
from podsrl.score.find import find_reward
from podsrl.score.forms import RowForm, judge_of
from podsrl.score.workers import Workers
from podsrl.tasks import TaskSet, load_tasks

_BATCH = 64
"""Rows between two looks at the progress; a function of TRL's form is called with all rows at once."""

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Milliseconds:
    """Time for one completion."""

    p50: float
    p90: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardCheck:
    """What was found out about one reward function."""

    name: str
    form: str
    """"row": called once a completion, in a worker process. "batch": called once a step, in the main process."""
    weight: float
    num_rows: int
    mean: float | None
    """Over the valid rows."""
    num_distinct: int
    num_invalid: Mapping[str, int]
    """How often each kind of failure occurred: raised, none, not_finite, not_a_number, timeout, died."""
    first_reason: str | None
    """The first failure, in words."""
    num_changed: int
    """Rows with another value, or failure, the second time."""
    milliseconds: Milliseconds | None
    """None where the function was not called or broke its contract."""
    agreement: Agreement | None
    reads_token_ids: bool
    """It asks for `completion_ids`; stored completions have none, so it was given empty lists."""
    broken: str | None
    """How it breaks its contract for a whole batch: a run would end with this error."""

    @property
    def problems(self) -> list[str]:
        """Why a run with this reward would fail; empty where it would not."""
        if self.broken is not None:
            return [self.broken]
        if self.num_invalid.get("not_a_number"):
            return [f"{self.first_reason}; wanted a number for each completion"]
        if self.num_rows and sum(self.num_invalid.values()) == self.num_rows:
            return [f"reward '{self.name}': no completion got a value, so nothing could be trained on"]
        return []

    @property
    def warnings(self) -> list[str]:
        """What a person should look at, though a run would go on."""
        found = []
        if self.num_distinct == 1 and self.num_rows > 1:
            found.append(f"reward '{self.name}' gave every completion the same value: it teaches nothing here")
        if num_invalid := sum(self.num_invalid.values()):
            found.append(f"{num_invalid} of {self.num_rows} completions would be invalid; first: {self.first_reason}")
        if self.num_changed:
            found.append(f"reward '{self.name}' said something else the second time for {self.num_changed} completions")
        if self.reads_token_ids:
            found.append(f"reward '{self.name}' reads completion_ids, which stored completions lack: got empty lists")
        return found

    def to_json(self) -> dict[str, Any]:
        """All fields, the problems and the warnings."""
        return {**asdict(self), "problems": self.problems, "warnings": self.warnings}


def rewards_of(task: TaskConfig) -> tuple[Mapping[str, float], str]:
    """Give rewards and judge of a config's task section; what it leaves open is read from its task set."""
    if task.rewards is not None and task.correct is not None:
        return task.rewards, task.correct
    tasks = load_task_set(task)
    return task.rewards or tasks.rewards, task.correct or tasks.correct


def load_task_set(task: TaskConfig) -> TaskSet:
    """Load what a config's task section names."""
    ours = {"name", "rewards", "correct", "format", "reward_workers", "reward_timeout_seconds", "batch_timeout_seconds"}
    return load_tasks(task.name, **task.model_dump(exclude=ours))


def find_functions(rewards: Mapping[str, float], correct: str | None) -> dict[str, Reward]:
    """Find the functions by name.

    Raises:
        UsageError: a name is unknown, or an import fails.
    """
    options = dict.fromkeys(rewards, "--reward")
    if correct is not None:
        options.setdefault(correct, "--correct")
    return {name: find_reward(name, option=option) for name, option in options.items()}


def check_rewards(
    rewards: Mapping[str, float],
    correct: str | None,
    stored: Sequence[Stored],
    *,
    num_workers: int = 0,
    timeout_seconds: float = 10.0,
    show: Progress = lambda done, total, text: None,
) -> list[RewardCheck]:
    """Judge every completion twice by every reward.

    Args:
        rewards: name -> weight, as in `task.rewards`.
        correct: the one that is compared with the labels; None: none is.
        stored: completions.
        num_workers: processes for functions of the row form; 0: one a core.
        timeout_seconds: limit for one function on one completion.
        show: called with (done, total, text).

    Raises:
        UsageError: a name is unknown, or a function has neither form.
        RewardError: a worker process cannot load a function.
    """
    functions = find_functions(rewards, correct)
    judges = {name: judge_of(name, function) for name, function in functions.items()}
    rows = Rows(tasks=[row.task for row in stored], texts=[row.text for row in stored], token_ids=[()] * len(stored))
    checks = []
    for place, (name, judge) in enumerate(judges.items()):

        def tell(done: int, place: int = place, name: str = name) -> None:
            show(2 * len(stored) * place + done, 2 * len(stored) * len(judges), name)

        is_row = isinstance(judge, RowForm)
        trial = _in_workers(name, rows, num_workers, timeout_seconds, tell) if is_row else _here(judge, rows, tell)
        agreement = agreement_of(stored, trial.values) if name == correct and trial.broken is None else None
        checks.append(
            RewardCheck(
                name=name,
                form="row" if is_row else "batch",
                weight=rewards.get(name, 0.0),
                agreement=agreement,
                reads_token_ids="completion_ids" in signature(functions[name]).parameters,
                **_summary(trial),
            )
        )
    return checks


@dataclass(frozen=True, slots=True)
class _Trial:
    values: Values
    seconds: Sequence[float]
    num_changed: int
    broken: str | None = None


def _in_workers(name: str, rows: Rows, num_workers: int, timeout: float, tell: Callable[[int], None]) -> _Trial:
    """Fresh processes and the rows in reverse order the second time, so that a function with a memory is found out."""
    first, seconds = _one_round(name, rows, num_workers, timeout, tell)
    order = range(len(rows))[::-1]
    reverse = Rows(tasks=[rows.tasks[i] for i in order], texts=[rows.texts[i] for i in order], token_ids=rows.token_ids)
    again, _ = _one_round(name, reverse, num_workers, timeout, lambda done: tell(len(rows) + done))
    second = Values(values=again.values[::-1], faults={order[row]: fault for row, fault in again.faults.items()})
    return _Trial(first, seconds, _num_changed(first, second))


def _one_round(
    name: str, rows: Rows, num_workers: int, timeout: float, tell: Callable[[int], None]
) -> tuple[Values, list[float]]:
    with Workers([name], num_workers=num_workers, timeout_seconds=timeout) as workers:
        workers.submit(rows.tasks, rows.texts)
        for start in range(0, len(rows), _BATCH):
            part = slice(start, start + _BATCH)
            workers.judge(name, Rows(tasks=rows.tasks[part], texts=rows.texts[part], token_ids=rows.token_ids[part]))
            tell(min(start + _BATCH, len(rows)))
        return workers.judge(name, rows), workers.seconds(name, rows)


def _here(judge: Callable[[Rows], Values], rows: Rows, tell: Callable[[int], None]) -> _Trial:
    found = []
    start = time.perf_counter()
    for num_done in (1, 2):
        random.seed(0)  # as a run does before each step
        np.random.seed(0)
        try:
            with redirect_stdout(sys.stderr):  # what it prints is no part of the result
                found.append(judge(rows))
        except RewardError as error:
            return _Trial(Values(values=[], faults={}), [], 0, broken=str(error))
        tell(num_done * len(rows))
    seconds = (time.perf_counter() - start) / 2 / max(1, len(rows))
    return _Trial(found[0], [seconds] * len(rows), _num_changed(*found))


def _num_changed(first: Values, second: Values) -> int:
    pairs = enumerate(zip(first.values, second.values, strict=True))
    return sum(
        _kind(first, row) != _kind(second, row) or (row not in first.faults and one != other)
        for row, (one, other) in pairs
    )


def _kind(values: Values, row: int) -> str | None:
    return values.faults[row].kind if row in values.faults else None


def _summary(trial: _Trial) -> dict[str, Any]:
    """What `RewardCheck` says about values, failures and times."""
    values, faults = trial.values.values, trial.values.faults
    valid = [value for row, value in enumerate(values) if row not in faults]
    kinds = [fault.kind for fault in faults.values()]
    return {
        "num_rows": len(values),
        "mean": float(np.mean(valid)) if valid else None,
        "num_distinct": len(set(valid)),
        "num_invalid": {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)},
        "first_reason": faults[min(faults)].reason if faults else None,
        "num_changed": trial.num_changed,
        "milliseconds": _percentiles(trial.seconds) if len(trial.seconds) else None,
        "broken": trial.broken,
    }


def _percentiles(seconds: Sequence[float]) -> Milliseconds:
    p50, p90, p99, top = (float(value) * 1e3 for value in np.percentile(seconds, [50, 90, 99, 100]))
    return Milliseconds(p50=p50, p90=p90, p99=p99, max=top)
